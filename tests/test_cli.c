/* SPDX-License-Identifier: Apache-2.0 */
/* test_cli.c - option tables: values, ranges, defaults, help; the sentences of mistakes; the name of a device. */
#include "tests/test.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/base/status.h"
#include "core/cli/cli.h"

typedef struct settings {
    bool json;
    int64_t steps, seed;
    double rate;
    const char *out;
    tern_cli_device device;
} settings;

static const settings defaults = {false, 100, 0, 0.001, "run", TERN_CLI_DEVICE_DEFAULTS};
static char said[8192]; /* what the last parse wrote to stdout and stderr */

/* Sends stdout and stderr to a file; *out_saved takes them back. */
static FILE *capture(int out_saved[2])
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 2; i++) {
        out_saved[i] = dup(i + 1);
        assert_true(dup2(fileno(file), i + 1) == i + 1);
    }
    return file;
}

static void release(FILE *file, const int saved[2])
{
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], i + 1);
        close(saved[i]);
    }
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
}

/* Parses "test " + line, cut at blanks. operands NULL: none are allowed. */
static int parse(settings *s, const char *operands, const char *line, int *out_first)
{
    static char text[512];
    char *argv[16];
    int argc = 0, saved[2];
    const tern_cli_option options[] = {
        {"json", TERN_CLI_FLAG, &s->json, NULL, 0, 0, "a flag"},
        {"steps", TERN_CLI_INTEGER, &s->steps, "N", 1, 1000000, "an integer"},
        {"seed", TERN_CLI_INTEGER, &s->seed, "N", 0, 9007199254740992.0, "an integer, as large as a double counts"},
        {"rate", TERN_CLI_REAL, &s->rate, "X", 0, 1, "a number"},
        {"out", TERN_CLI_TEXT, &s->out, "FOLDER", 0, 0, "a text"},
        TERN_CLI_DEVICE_OPTIONS(&s->device),
    };
    const tern_cli_usage usage = {"test", operands, "Tests the parser.", options, sizeof options / sizeof *options};
    *s = defaults;
    snprintf(text, sizeof text, "test %s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    argv[argc] = NULL;
    FILE *file = capture(saved);
    const int code = tern_cli_parse(&usage, argc, argv, out_first);
    release(file, saved);
    return code;
}

static void test_values(void **state)
{
    (void)state;
    settings s;
    assert_int_equal(parse(&s, NULL, "", NULL), TERN_CLI_GO);
    assert_true(!s.json && s.steps == 100 && s.rate == 0.001 && s.out == defaults.out && s.device.threads == 0);
    assert_int_equal(parse(&s, NULL, "--json --steps 7 --rate=2.5e-1 --out there --backend cpu --threads 3", NULL),
                     TERN_CLI_GO);
    assert_true(s.json && s.steps == 7 && s.rate == 0.25 && s.device.threads == 3);
    assert_string_equal(s.out, "there");
    assert_string_equal(s.device.backend, "cpu");
    assert_int_equal(parse(&s, NULL, "--steps 1000000 --rate 1", NULL), TERN_CLI_GO); /* bounds are inclusive */
    assert_string_equal(said, "");
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"--steps 0", "tern: test: --steps is \"0\"; it must be a whole number from 1 to 1000000\n"},
        {"--steps 1000001", "tern: test: --steps is \"1000001\"; it must be a whole number from 1 to 1000000\n"},
        {"--steps 99999999999999999999", "tern: test: --steps is \"99999999999999999999\"; it must be a whole"},
        {"--steps 3x", "tern: test: --steps is \"3x\"; it must be a whole number"},
        {"--steps 1.5", "tern: test: --steps is \"1.5\"; it must be a whole number"},
        {"--steps=", "tern: test: --steps is \"\"; it must be a whole number"},
        {"--rate nan", "tern: test: --rate is \"nan\"; it must be a number from 0 to 1\n"},
        {"--rate 1.1", "tern: test: --rate is \"1.1\"; it must be a number from 0 to 1\n"},
        {"--steps", "tern: test: --steps needs a value; see `tern test --help`\n"},
        {"--out", "tern: test: --out needs a value; see `tern test --help`\n"},
        {"--colour", "tern: test: there is no option \"--colour\"; see `tern test --help`\n"},
        {"--colour=red", "tern: test: there is no option \"--colour\"; see"},
        {"-x", "tern: test: there is no option \"-x\"; see"},
        {"-xy", "tern: test: there is no option \"-x\"; see"},
        {"--json=yes", "tern: test: --json takes no value; see `tern test --help`\n"},
        {"--help=yes", "tern: test: --help takes no value; see"},
        {"--s 3", "tern: test: \"--s\" begins several options; see"},
        {"--seed -1", "tern: test: --seed is \"-1\"; it must be a whole number from 0 to 9007199254740992\n"},
        {"--json file", "tern: test: \"file\" is not an option; see `tern test --help`\n"},
    };
    settings s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(&s, NULL, cases[i].line, NULL), TERN_CLI_USAGE);
        if (strncmp(said, cases[i].sentence, strlen(cases[i].sentence)) != 0)
            fail_msg("%s: said \"%s\", wanted \"%s\"", cases[i].line, said, cases[i].sentence);
        assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1); /* one line */
    }
}

static void test_operands(void **state)
{
    (void)state;
    settings s;
    int first = 0;
    assert_int_equal(parse(&s, "FOLDER", "here --steps 2", &first), TERN_CLI_GO);
    assert_int_equal(first, 3); /* operands come last, wherever they stood */
    assert_int_equal(s.steps, 2);
    assert_int_equal(parse(&s, "FOLDER", "--steps 2 -- --odd", &first), TERN_CLI_GO);
    assert_int_equal(first, 4);
}

static void test_help(void **state)
{
    (void)state;
    settings s;
    assert_int_equal(parse(&s, "FOLDER", "-h", NULL), TERN_CLI_OK);
    assert_non_null(strstr(said, "Usage: tern test [options] FOLDER\n"));
    assert_int_equal(parse(&s, "FOLDER", "--help", NULL), TERN_CLI_OK);
    static const char *const parts[] = {"Usage: tern test [options] FOLDER\n\nTests the parser.\n\n",
                                        "--steps N              an integer (default 100)\n",
                                        "--rate X               a number (default 0.001)\n",
                                        "--out FOLDER           a text (default run)\n",
                                        "--json                 a flag\n",
                                        "--help  "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(said, parts[i])) fail_msg("help lacks \"%s\": %s", parts[i], said);
}

static void test_failures_have_exit_codes(void **state)
{
    (void)state;
    int saved[2];
    FILE *file = capture(saved);
    const int failed = tern_cli_fail(tern_error(TERN_ERROR_IO, "the disk is full"));
    const int interrupted = tern_cli_fail(tern_error(TERN_ERROR_INTERRUPTED, "stopped"));
    (void)tern_error(TERN_OK, "%s", "");
    const int silent = tern_cli_fail(TERN_ERROR_DEVICE_LOST);
    release(file, saved);
    assert_int_equal(failed, 1);
    assert_int_equal(interrupted, 130);
    assert_int_equal(silent, 1);
    assert_string_equal(said, "tern: the disk is full\ntern: stopped\ntern: device lost\n");
}

static void test_device(void **state)
{
    (void)state;
    tern_device *device = NULL;
    const tern_cli_device null = {"null", "0", 0, false}, automatic = {"auto", "1", 0, false},
                          absent = {"null", "7", 0, false};
    TEST_OK(tern_cli_open_device(&null, &device));
    assert_string_equal(tern_device_name(device), "null: null");
    tern_device_close(device);
    TEST_ERROR(tern_cli_open_device(&automatic, &device), TERN_ERROR_INVALID, "--device \"1\" needs --backend");
    TEST_ERROR(tern_cli_open_device(&absent, &device), TERN_ERROR_NOT_FOUND,
               "null has no device \"7\"; it has 0: null");
}

static void test_bytes(void **state)
{
    (void)state;
    char text[24];
    assert_string_equal(tern_cli_bytes(17, text), "17 B");
    assert_string_equal(tern_cli_bytes(1536, text), "1.5 KiB");
    assert_string_equal(tern_cli_bytes(128 << 20, text), "128 MiB");
    assert_string_equal(tern_cli_bytes(UINT64_MAX, text), "16 EiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_operands),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_failures_have_exit_codes),
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
