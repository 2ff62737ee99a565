/* SPDX-License-Identifier: Apache-2.0 */
/* test_command.c - `tern` as users meet it: runs, refusals, an interruption, plans, checks and the manual.
 *
 * The built command runs as a child process, on cpu and null. What every refusal shares is in command_refuses: the exit
 * code and one sentence; none leaves anything behind. */
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/device/device.h"
#include "tests/command.h"
#include "tests/test.h"

static char folder[] = "/tmp/tern-command-XXXXXX";
static char small[1024]; /* options of a run that takes a second */

static bool exists(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void put_file(const char *name, const void *data, size_t bytes)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    TEST_OK(tern_file_write(path, data, bytes));
}

/* "train <small> --data <LICENSE> <more>", refused with the sentence; nothing is at `out` afterwards. */
static void train_refuses(const char *more, int code, const char *part)
{
    char line[4096];
    snprintf(line, sizeof line, "train %s --out %s/refused %s", small, folder, more);
    command_refuses(line, code, part);
    assert_false(exists("refused"));
}

/* ------------------------------------------------------------------ refusals */

static void test_usage(void **state)
{
    (void)state;
    command_refuses("version now", 2, "version takes no arguments, but was given \"now\"");
    command_refuses("help plan train", 2, "help takes one command, but was also given \"train\"");
    command_refuses("swim", 2, "there is no command \"swim\"; the commands are devices, train, sample, check, plan");
    command_refuses("train", 2, "there are no data; give --data");
    command_refuses("sample", 2, "give one folder");
    command_refuses("sample a b", 2, "give one folder");
    train_refuses("--steps 12abc", 2, "--steps is \"12abc\"; it must be a whole number from 1 to 1000000000");
    train_refuses("--lr 1e-3x", 2, "--lr is \"1e-3x\"; it must be a number from 1e-12 to 1000");
    train_refuses("--lr 0", 2, "--lr is \"0\"");
    train_refuses("--min-lr 0.1", 2, "--min-lr is 0.1; it must not be above --lr, which is 0.01");
    train_refuses("--model gpt5", 2, "there is no model \"gpt5\"; known are gpt2, ");
    train_refuses("--heads 3", 2, "3 heads do not divide a width of 16");
    train_refuses("--width 1024 --heads 2", 2, "makes heads of 512; at most 256 are supported");
    train_refuses("--dropout 1", 2, "--dropout is \"1\"; it must be a number from 0 to 0.99");
    command_refuses("check --op swim", 2, "no case has op swim; see `tern check --list`");
    command_refuses("check --dtype f64", 2, "no case has dtype f64");
}

/* What cannot be written is said once, whether the command flushed before or not. */
static void test_full_disk(void **state)
{
    (void)state;
    static const char *const lines[] = {"--help", "version", "devices", "plan --backend cpu --layers 1"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[8192], *said = NULL;
        snprintf(line, sizeof line, "%s/bin/tern %s >/dev/full 2>%s/said", TERN_BINARY_DIR, lines[i], folder);
        const int code = system(line);
        assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 1);
        snprintf(line, sizeof line, "%s/said", folder);
        TEST_OK(tern_file_read(line, 0, &said, &(size_t){0}));
        const char *first = strstr(said, "the output could not be written");
        assert_non_null(first);
        assert_null(strstr(first + 1, "the output could not"));
        free(said);
    }
}

static void test_devices(void **state)
{
    (void)state;
    train_refuses("--backend swim", 1, "swim");
    train_refuses("--backend cpu --device 9", 1, "cpu has no device \"9\"; it has 0: ");
    train_refuses("--backend auto --device 1", 1, "--device \"1\" needs --backend");
    train_refuses("--backend cuda", 1, "cuda");
    train_refuses("--backend null", 1, "train: the null backend computes nothing, it is for tests");
    command_refuses("sample nowhere --backend null", 1, "sample: the null backend computes nothing");
    command_environment("TERN_ALLOW_NULL", "1");
    assert_int_equal(command_runf("train %s --backend null", small)->code, 0);
    command_environment("TERN_ALLOW_NULL", NULL);
    train_refuses("--limits rtx-9999", 1, "there is no limits profile 'rtx-9999'; use one of lavapipe, ");
    /* The loaders are here, but no driver is: each says so. */
    command_environment("VK_ICD_FILENAMES", "/nowhere/icd.json");
    command_environment("VK_DRIVER_FILES", "/nowhere/icd.json");
    command_environment("OCL_ICD_VENDORS", "/nowhere");
    train_refuses("--backend vulkan", 1, "vulkan");
    train_refuses("--backend opencl", 1, "opencl");
    command_environment("VK_ICD_FILENAMES", NULL);
    command_environment("VK_DRIVER_FILES", NULL);
    command_environment("OCL_ICD_VENDORS", NULL);
}

static void test_data(void **state)
{
    (void)state;
    char line[512];
    put_file("empty.txt", "", 0);
    put_file("short.txt", "a few words", 11);
    put_file("binary.bin", "\0\1\2\3\0\1\2\3\0\1\2\3\0\1\2\3\0\1\2\3", 20);
    const struct {
        const char *name, *part;
    } cases[] = {
        {"nowhere.txt", "No such file"},
        {"empty.txt", "are empty"},
        {"short.txt", "the data have 11 bytes, but a context of 12 needs at least 13"},
        {"binary.bin", "is a binary file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(line, sizeof line, "--data %s/%s", folder, cases[i].name);
        train_refuses(line, 1, cases[i].part);
    }
    train_refuses("--context 20000", 1, "but a context of 20000 needs at least 20001");
    train_refuses("--vocab 64", 1, "but the vocabulary ends at 63; use a vocabulary of 256");
}

static void test_memory(void **state)
{
    (void)state;
    char line[512];
    static const char profile[] = "{\"memory_bytes\": 7000000}";
    put_file("tiny.json", profile, sizeof profile - 1);
    snprintf(line, sizeof line, "--limits %s/tiny.json --batch 500", folder);
    train_refuses(line, 1, "a batch of 500 needs ");
    train_refuses(line, 1, " more than the 7000000 that ");
    train_refuses(line, 1, "; the largest batch that fits is ");
    const command_result *r = command_runf("train %s --limits %s/tiny.json --batch 500", small, folder);
    const unsigned long largest = strtoul(strstr(r->err, "that fits is ") + 13, NULL, 10);
    assert_in_range(largest, 1, 499);
    r = command_runf("train %s --limits %s/tiny.json --batch %lu", small, folder, largest);
    assert_int_equal(r->code, 0);
    train_refuses("--limits nowhere.json", 1, "cannot open limits profile 'nowhere.json'");
}

static void test_folders(void **state)
{
    (void)state;
    char line[2048];
    snprintf(line, sizeof line, "train %s --out /proc/nowhere", small);
    command_refuses(line, 1, "/proc/nowhere");
    snprintf(line, sizeof line, "train %s --out %s", small, TERN_SOURCE_DIR "/LICENSE");
    command_refuses(line, 1, "LICENSE");
    assert_int_equal(command_runf("train %s --out %s/used", small, folder)->code, 0);
    snprintf(line, sizeof line, "train %s --out %s/used", small, folder);
    command_refuses(line, 1, "holds a run already");
    assert_false(exists("used/.lock"));
    assert_int_equal(command_runf("train %s --steps 1 --out %s/it's%%mine", small, folder)->code, 0);
    const command_result *r = command_runf("train %s --steps 1 --out %s/it's%%yours", small, folder);
    snprintf(line, sizeof line, "; try: tern sample '%s/it'\\''s yours' --prompt", folder);
    if (!strstr(r->err, line)) fail_msg("not quoted: %s", r->err);
    command_refuses("sample /nowhere", 1, "/nowhere/config.json");
}

/* ----------------------------------------------------------------------- run */

static void test_run_and_sample(void **state)
{
    (void)state;
    char first[256], line[512];
    const command_result *r =
        command_runf("train %s --out %s/run --save-every 7 --eval-every 10 --log-every 5", small, folder);
    assert_int_equal(r->code, 0);
    assert_int_equal(r->out_bytes, 0); /* JSON only when asked for */
    static const char *const said[] = {"step 1/20  loss ", "(ln V 5.5452)", "step 5/20  loss ", "  val ",
                                       " tokens/s  ETA ",  "  memory ",     "train_loss ",      "  val_loss ",
                                       "device  cpu: ",    "saved in "};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (!strstr(r->err, said[i])) fail_msg("train did not say \"%s\": %s", said[i], r->err);
    assert_null(strchr(r->err, '\r')); /* plain lines in a pipe */
    assert_null(strstr(r->err, "step 4/20"));
    static const char *const files[] = {"run/model.safetensors", "run/config.json", "run/run.json",
                                        "run/metrics.jsonl"};
    for (size_t i = 0; i < 4; i++) assert_true(exists(files[i]));

    r = command_runf("sample %s/run --backend cpu --prompt The%%house --tokens 40 --seed 3", folder);
    assert_int_equal(r->code, 0);
    assert_int_equal(r->out_bytes, 9 + 40);
    assert_memory_equal(r->out, "The house", 9);
    memcpy(first, r->out, 49);
    r = command_runf("sample %s/run --backend cpu --prompt The%%house --tokens 40 --seed 3", folder);
    assert_memory_equal(r->out, first, 49);
    r = command_runf("sample %s/run --backend cpu --prompt The%%house --tokens 40 --seed 4", folder);
    assert_memory_not_equal(r->out, first, 49);
    r = command_runf("sample %s/run --backend cpu --prompt A --tokens 5 --temperature 0 --top-k 1", folder);
    assert_int_equal(r->out_bytes, 6);
    snprintf(line, sizeof line, "sample %s/run --backend cpu --prompt=", folder);
    command_refuses(line, 1, "the prompt is empty");
}

/* The files of a run, spoilt one after another. */
static void test_spoilt_weights(void **state)
{
    (void)state;
    char line[512], path[256];
    struct stat info;
    assert_int_equal(command_runf("train %s --out %s/spoilt", small, folder)->code, 0);
    snprintf(line, sizeof line, "sample %s/spoilt --backend cpu", folder);
    snprintf(path, sizeof path, "%s/spoilt/model.safetensors", folder);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size - 100), 0);
    command_refuses(line, 1, "is truncated");
    put_file("spoilt/model.safetensors", "PK\3\4 this is a zip file", 22);
    command_refuses(line, 1, "it is no safetensors file");
    put_file("spoilt/config.json", "{\"model_type\": \"llama\"}", 23);
    command_refuses(line, 1, "only \"gpt2\" is read");
    put_file("spoilt/config.json", "not JSON", 8);
    command_refuses(line, 1, "is not a JSON object");
}

static void test_interruption(void **state)
{
    (void)state;
    char line[1024];
    command_interrupt_at("step 30/");
    const command_result *r = command_runf("train %s --steps 100000000 --json --out %s/stopped", small, folder);
    if (r->code != 130) fail_msg("exit code %d, wanted 130: %s", r->code, r->err);
    assert_non_null(strstr(r->err, "tern: stopping after this step (once more stops at once)\n"));
    assert_non_null(strstr(r->err, "stopped by a signal after step "));
    assert_non_null(strstr(r->out, "\"interrupted\":true"));
    const double steps = command_number(r->out, -1, "steps");
    assert_true(steps >= 30 && steps < 1e6);
    assert_true(command_number(r->out, -1, "train_loss") > 0);
    assert_true(exists("stopped/run.json"));
    snprintf(line, sizeof line, "sample %s/stopped --backend cpu --tokens 3", folder);
    assert_int_equal(command_run(line)->code, 0);
}

/* Each validation waits for the step in work; a clock that takes that for a pause shows a rate far too high. */
static void test_rates_count_steps_alone(void **state)
{
    (void)state;
    const command_result *r = command_runf("train %s --steps 300 --eval-every 0 --json", small);
    const double plain = command_number(r->out, -1, "tokens_per_s");
    r = command_runf("train %s --steps 300 --eval-every 1 --json", small);
    const double often = command_number(r->out, -1, "tokens_per_s");
    print_message("tokens/s: %.0f, validated after every step %.0f\n", plain, often);
    assert_true(plain > 0 && often > 0 && often < 3 * plain);
}

static void test_divergence(void **state)
{
    (void)state;
    const command_result *r = command_runf(
        "train %s --steps 5000 --lr 1000 --min-lr 1000 --warmup 0 --clip 0 --json --out %s/diverged", small, folder);
    assert_int_equal(r->code, 1);
    static const char *const said[] = {"tern: the run diverged at step ", " steps in a row); the last good loss was ",
                                       "; lower --lr, which is 1000, or set --clip 1", "  skips 1"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (!strstr(r->err, said[i])) fail_msg("train did not say \"%s\": %s", said[i], r->err);
    assert_non_null(strstr(r->out, "\"diverged\":true"));
    assert_true(command_number(r->out, -1, "steps") < 5000);
    assert_true(command_number(r->out, -1, "skips") >= 1);
    assert_true(isnan(command_number(r->out, -1, "val_loss")));
    assert_true(exists("diverged/run.json"));
    /* Still finite, but far above a guess. */
    r = command_runf("train %s --steps 4 --lr 1000 --min-lr 1000 --warmup 0 --clip 0", small);
    assert_int_equal(r->code, 1);
    assert_non_null(strstr(r->err, " steps in a row); the last good loss was 5.5"));
    assert_null(strstr(r->err, "SKIPPED"));
}

static void test_auto_says_what_it_chose(void **state)
{
    (void)state;
    const command_result *r = command_runf("train %s --backend auto --steps 1", small);
    assert_int_equal(r->code, 0);
    assert_non_null(strstr(r->err, "tern: auto chose "));
}

/* ---------------------------------------------------------------------- plan */

static void test_plan(void **state)
{
    (void)state;
    const command_result *r = command_run("plan --model gpt2 --batch 4 --context 1024 --limits rtx-4090");
    assert_int_equal(r->code, 0);
    static const char *const parts[] = {"124.4 M parameters",
                                        "weights ",
                                        "gradients ",
                                        "moments ",
                                        "activations ",
                                        " binds: ",
                                        "micro ",
                                        "update ",
                                        "eval ",
                                        "launches per transformer block",
                                        "kernels in all",
                                        "predicted",
                                        "upload ",
                                        "on paper: rtx-4090"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(r->out, parts[i])) fail_msg("the plan lacks \"%s\": %s", parts[i], r->out);
    r = command_run("plan --model gpt2 --batch 4 --context 1024 --limits rtx-4090 --json");
    assert_int_equal(r->code, 0);
    static const struct {
        const char *key;
        double least, most;
    } numbers[] = {{"\"parameters\":", 124439808, 124439808},
                   {"\"launches_per_block\":", 1, 34},
                   {"\"kernels\":", 10, 60},
                   {"\"weights\":", 497759232, 5e8},
                   {"\"free\":", 25769803776.0, 25769803776.0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *at = strstr(r->out, numbers[i].key);
        assert_non_null(at);
        const double value = strtod(at + strlen(numbers[i].key), NULL);
        if (!(value >= numbers[i].least && value <= numbers[i].most)) fail_msg("%s is %g", numbers[i].key, value);
    }
    assert_non_null(strstr(r->out, "\"fits\":\ttrue"));
    assert_int_equal(command_run("plan --backend cpu --layers 1")->code, 0);
}

/* What runs in what: contractions and stored tensors by dtype, and half of the arena. */
static double plan_number(const char *precision, const char *section, const char *key)
{
    const command_result *r =
        command_runf("plan --model gpt2 --batch 4 --context 1024 --limits rtx-4090 --json --precision %s", precision);
    assert_int_equal(r->code, 0);
    const char *at = strstr(r->out, section);
    assert_non_null(at);
    at = strstr(at, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

static void test_plan_precision(void **state)
{
    (void)state;
    static const char contractions[] = "\"contractions\":", arena[] = "\"arena\":";
    assert_true(plan_number("f32", "\"f32\":", contractions) > 100);
    assert_true(plan_number("f32", "\"bf16\":", contractions) == 0);
    assert_true(plan_number("bf16", "\"f32\":", contractions) <= 2); /* the embedding's gradient is a sum of f32 rows */
    assert_true(plan_number("bf16", "\"bf16\":", contractions) > 100);
    assert_true(plan_number("bf16", "\"bytes\":\t{", arena) < 0.55 * plan_number("f32", "\"bytes\":\t{", arena));
    const command_result *r = command_run("plan --model gpt2 --limits rtx-4090");
    assert_non_null(strstr(r->out, "floats    f16, chosen for rtx-4090, which computes with f16\n"));
    r = command_run("plan --backend cpu");
    assert_non_null(strstr(r->out, "floats    f32, chosen for "));
    command_refuses("plan --precision bf17", 2, "--precision: \"bf17\" is no precision; use auto, f32, bf16 or f16");
}

static int plan_xl(unsigned long batch)
{
    return command_runf("plan --model gpt2-xl --batch %lu --context 512 --precision f32 --limits a100", batch)->code;
}

static void test_plan_refuses(void **state)
{
    (void)state;
    const command_result *r;
    command_refuses("plan --layers 96 --width 10752 --context 1024 --limits rtx-4090", 1,
                    "this does not fit: memory binds, ");
    r = command_run("plan --layers 96 --width 10752 --context 1024 --limits rtx-4090");
    assert_non_null(strstr(r->out, "\ndoes not fit: memory binds, "));
    command_refuses("plan --vocab 1073741824", 2, "the model is too large: wte.weight, 1073741824 by ");
    r = command_run("plan --model gpt2-xl --batch 12 --context 512 --precision f32 --limits a100 --json");
    assert_int_equal(r->code, 1);
    assert_non_null(strstr(r->out, "\"fits\":\tfalse"));
    const char *nearest = strstr(strstr(r->out, "\"nearest\""), "\"batch\":");
    assert_non_null(nearest);
    const unsigned long batch = strtoul(nearest + 8, NULL, 10); /* the largest: one more does not fit */
    assert_in_range(batch, 1, 11);
    assert_int_equal(plan_xl(batch), 0);
    assert_int_equal(plan_xl(batch + 1), 1);
    /* Above a limit for one tensor, and above what kernels can index. */
    command_refuses("plan --model gpt2 --batch 30 --context 1024 --precision f32 --limits rtx-4090", 1,
                    "the nearest that fits is --batch ");
    command_refuses("plan --model gpt2 --batch 64 --context 1024 --limits rtx-4090", 2, "; the largest batch is 41");
    command_refuses("plan --limits rtx-9999", 1, "there is no limits profile 'rtx-9999'");
}

/* --------------------------------------------------------------------- check */

static void test_check(void **state)
{
    (void)state;
    const command_result *r = command_run("check --backend cpu --op gelu --dtype f32");
    assert_int_equal(r->code, 0);
    assert_int_equal(strncmp(r->out, "check: PASS 2 cases (10 tensors) on cpu: ", 41), 0);
    r = command_run("check --list");
    assert_int_equal(r->code, 0);
    assert_non_null(strstr(r->out, "pairs-tn"));
    r = command_run("check --backend null --op matmul --case batched --dtype f32 --seed 5"); /* it computes nothing */
    assert_int_equal(r->code, 1);
    assert_non_null(
        strstr(r->out, "repeat: tern check --backend null --op matmul --case batched --dtype f32 --seed 5\n"));
    assert_non_null(strstr(r->out, "check: FAIL 2 cases ("));
    assert_non_null(strstr(r->out, "2 failed, 0 skipped"));
}

/* All cases on the CPU; the other backends' full runs are test_check_backends. */
static void test_check_cpu(void **state)
{
    (void)state;
    const command_result *r = command_run("check --backend cpu --seed 2");
    if (r->code != 0) fail_msg("%s", r->out);
    print_message("%s", r->out);
}

/* -------------------------------------------------------------------- manual */

/* Every option that --help names stands in docs/tern.1, behind its command's heading. */
static void test_manual(void **state)
{
    (void)state;
    static const char *const commands[] = {"devices", "train", "sample", "check", "plan"};
    char *manual = NULL;
    TEST_OK(tern_file_read(TERN_SOURCE_DIR "/docs/tern.1", 0, &manual, &(size_t){0}));
    assert_non_null(strstr(manual, "\\-\\-help"));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char heading[64];
        uint32_t options = 0;
        snprintf(heading, sizeof heading, ".SS tern %s", commands[i]);
        char *section = strstr(manual, heading);
        if (!section) fail_msg("docs/tern.1 lacks \"%s\"", heading);
        char *next = strstr(section + 1, "\n.S");
        if (next) *next = 0;
        const command_result *r = command_runf("%s --help", commands[i]);
        assert_int_equal(r->code, 0);
        for (const char *at = r->out; (at = strstr(at, "\n  --")) != NULL; at += 5, options++) {
            if (strncmp(at + 5, "help ", 5) == 0) break; /* every command's last */
            char escaped[64] = "\\-\\-";
            size_t used = 4;
            for (const char *c = at + 5; (*c >= 'a' && *c <= 'z') || *c == '-'; c++) {
                if (*c == '-') escaped[used++] = '\\';
                escaped[used++] = *c;
            }
            escaped[used] = 0;
            if (!strstr(section, escaped)) fail_msg("docs/tern.1, %s, lacks %s", heading, escaped);
        }
        assert_true(options >= 1);
        if (next) *next = '\n';
    }
    free(manual);
    if (system("command -v groff >/dev/null 2>&1") != 0)
        TEST_SKIP("groff is not installed, so the page is not formatted");
    assert_int_equal(system("test -z \"$(groff -man -Tutf8 -ww -z " TERN_SOURCE_DIR "/docs/tern.1 2>&1)\""), 0);
}

/* ----------------------------------------------------------------------- main */

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(
        small, sizeof small,
        "--backend cpu --layers 1 --width 16 --heads 2 --context 12 --batch 4 --steps 20 --lr 0.01 --data %s/LICENSE",
        TERN_SOURCE_DIR);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage),          cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_devices),        cmocka_unit_test(test_data),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_folders),
        cmocka_unit_test(test_run_and_sample), cmocka_unit_test(test_spoilt_weights),
        cmocka_unit_test(test_interruption),   cmocka_unit_test(test_rates_count_steps_alone),
        cmocka_unit_test(test_divergence),     cmocka_unit_test(test_auto_says_what_it_chose),
        cmocka_unit_test(test_plan),           cmocka_unit_test(test_plan_precision),
        cmocka_unit_test(test_plan_refuses),   cmocka_unit_test(test_check),
        cmocka_unit_test(test_check_cpu),      cmocka_unit_test(test_manual),
    };
    return cmocka_run_group_tests_name("command", tests, set_up, tear_down);
}
