/* SPDX-License-Identifier: Apache-2.0 */
/* sample.c - `tern sample FOLDER`: the prompt and what the model writes after it, as bytes on stdout.
 *
 * What it is not: it chooses no token (train/sample.h does). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cli/train_options.h"
#include "core/models/gpt2_text.h"
#include "core/train/sample.h"

typedef struct sample_command {
    tern_cli_device device;
    const char *folder, *prompt;
    int64_t tokens, top_k, seed;
    double temperature;
} sample_command;

static int parse(sample_command *c, int argc, char **argv)
{
    int first = 0;
    *c = (sample_command){
        .device = TERN_CLI_DEVICE_DEFAULTS, .prompt = "The ", .tokens = 200, .temperature = 0.8, .seed = 1};
    const tern_cli_option options[] = {
        {"prompt", TERN_CLI_TEXT, &c->prompt, "TEXT", 0, 0, "what to go on from"},
        {"tokens", TERN_CLI_INTEGER, &c->tokens, "N", 0, 1e9, "how many to write"},
        {"temperature", TERN_CLI_REAL, &c->temperature, "X", 0, 1000, "0: always the likeliest token; 1: as learnt"},
        {"top-k", TERN_CLI_INTEGER, &c->top_k, "N", 0, 1073741824, "draw from the N likeliest tokens only, 0: all"},
        {"seed", TERN_CLI_INTEGER, &c->seed, "N", 0, 9007199254740992.0, "of the draws: same seed, same text"},
        TERN_CLI_DEVICE_OPTIONS(&c->device),
    };
    const tern_cli_usage usage = {"sample", "FOLDER",
                                  "Writes text with the model in FOLDER, which `tern train --out FOLDER` made: the "
                                  "prompt and what follows it, as bytes on stdout.",
                                  options, sizeof options / sizeof *options};
    int code = tern_cli_parse(&usage, argc, argv, &first);
    if (code != TERN_CLI_GO) return code;
    if (argc - first != 1)
        return tern_cli_misuse("sample: give one folder, the --out of a training run, not %d; see `tern sample --help`",
                               argc - first);
    c->folder = argv[first];
    return tern_cli_refuse_null(&usage, &c->device);
}

static tern_status put(const void *bytes, size_t count)
{
    if (fwrite(bytes, 1, count, stdout) == count && fflush(stdout) == 0) return TERN_OK;
    return tern_error(TERN_ERROR_IO, "the text could not be written to stdout; is the disk full?");
}

static tern_status write_text(const sample_command *c, tern_sampler *sampler)
{
    tern_status status;
    const tern_sample_options options = {
        .temperature = c->temperature, .top_k = (uint32_t)c->top_k, .seed = (uint64_t)c->seed};
    TERN_TRY(tern_sampler_prompt(sampler, c->prompt, strlen(c->prompt), &options));
    TERN_TRY(put(c->prompt, strlen(c->prompt)));
    for (int64_t i = 0; i < c->tokens; i++) {
        uint32_t token = 0;
        TERN_TRY(tern_sampler_next(sampler, &token));
        const unsigned char byte = (unsigned char)token;
        TERN_TRY(put(&byte, 1));
    }
    if (isatty(STDOUT_FILENO)) TERN_TRY(put("\n", 1)); /* for the shell's prompt; a pipe gets the bytes alone */
fail:
    return status;
}

int tern_cli_sample(int argc, char **argv)
{
    tern_status status;
    sample_command command;
    tern_gpt2_options shape;
    tern_text_model model;
    tern_device *device = NULL;
    tern_sampler *sampler = NULL;
    int code = parse(&command, argc, argv);
    if (code != TERN_CLI_GO) return code;
    TERN_TRY(tern_cli_open_device(&command.device, &device));
    TERN_TRY(tern_gpt2_text_read(command.folder, &shape, &model));
    TERN_TRY(tern_sampler_create(device, &model, command.folder, &sampler));
    TERN_TRY(write_text(&command, sampler));
    code = TERN_CLI_OK;
fail:
    if (status < 0) code = tern_cli_fail(status);
    tern_sampler_destroy(sampler);
    tern_device_close(device);
    return code;
}
