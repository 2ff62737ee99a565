/* SPDX-License-Identifier: Apache-2.0 */
/* test_results.c - what strangers send of their cards: the schema, the page made of it, and the script that writes it.
 *
 * The validator that the page uses is the one asked here. The damaged results are one sound one, with one place changed
 * at a time. bench/on_gpu runs as on a machine without a card; where its parts must hang or die, a script stands before
 * bench_device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/device/device.h"
#include "core/base/file.h"

/* A card's result: sound, every kind of section, one of them failed. */
static const char sound[] =
    "{\"schema\": \"tern-on-gpu-1\", \"date\": \"2026-01-31T12:00:00Z\",\n"
    " \"commit\": \"0123456789abcdef0123456789abcdef01234567\", \"changed\": false, \"version\": \"0.1.0\",\n"
    " \"quick\": false, \"machine\": {\"cpu\": \"A CPU\", \"threads\": 8, \"memory_bytes\": 1e10, \"kernel\": \"Linux "
    "6\",\n"
    "  \"system\": \"Debian\", \"environment\": []},\n"
    " \"backends\": [{\"name\": \"cuda\", \"missing\": \"no driver\", \"devices\": []},\n"
    "  {\"name\": \"vulkan\", \"devices\": [{\"id\": \"vulkan:0\", \"index\": 0, \"name\": \"Imagined 9000\",\n"
    "   \"driver\": \"imagined 1.0\", \"kind\": \"discrete GPU\", \"ran_on\": \"card\", \"memory_bytes\": 8e9,\n"
    "   \"memory_free_bytes\": 7e9, \"max_allocation_bytes\": 4e9, \"max_buffer_bytes\": 4e9, \"max_binding_bytes\": "
    "4e9,\n"
    "   \"max_group_size\": 1024, \"shared_bytes\": 49152, \"subgroup_min\": 32, \"subgroup_max\": 32, \"threads\": "
    "64,\n"
    "   \"features\": [\"timestamps\"], \"notes\": \"\"}]}],\n"
    " \"sections\": [\n"
    "  {\"kind\": \"check\", \"device\": \"vulkan:0\", \"dtype\": \"f32\", \"status\": \"ok\", \"reason\": \"\",\n"
    "   \"section_seconds\": 4, \"figures\": [{\"what\": \"cases\", \"cases\": 88, \"passed\": 80, \"failed\": 0,\n"
    "   \"skipped\": 1, \"left_out\": 7, \"tensors\": 400, \"failures\": []}]},\n"
    "  {\"kind\": \"copy\", \"device\": \"vulkan:0\", \"dtype\": \"f32\", \"status\": \"ok\", \"reason\": \"\",\n"
    "   \"section_seconds\": 1, \"timing\": \"timestamps\", \"figures\": [{\"what\": \"copy steps\", \"bytes\": 1e9,\n"
    "   \"launches\": 8, \"repeats\": 1, \"seconds\": 0.002, \"bytes_per_s\": 5e11}]},\n"
    "  {\"kind\": \"matmul\", \"device\": \"vulkan:0\", \"dtype\": \"f16\", \"status\": \"ok\", \"reason\": \"\",\n"
    "   \"section_seconds\": 1, \"timing\": \"timestamps\", \"figures\": [{\"what\": \"square\", \"m\": 1000, \"n\": "
    "1000,\n"
    "   \"k\": 1000, \"variant\": \"v\", \"launches\": 8, \"repeats\": 1, \"seconds\": 0.0002, \"flops_per_s\": 1e13,\n"
    "   \"of_best\": 1}]},\n"
    "  {\"kind\": \"attention\", \"device\": \"vulkan:0\", \"dtype\": \"f32\", \"status\": \"ok\", \"reason\": \"\",\n"
    "   \"section_seconds\": 1, \"timing\": \"wall clock\", \"figures\": [{\"what\": \"forward\", \"batch\": 4, "
    "\"heads\": 12,\n"
    "   \"tokens\": 1024, \"head_dim\": 64, \"variant\": \"a\", \"launches\": 8, \"repeats\": 1, \"seconds\": 0.002,\n"
    "   \"flops_per_s\": 3e12}]},\n"
    "  {\"kind\": \"step\", \"device\": \"vulkan:0\", \"dtype\": \"f32\", \"status\": \"ok\", \"reason\": \"\",\n"
    "   \"section_seconds\": 9, \"timing\": \"wall clock\", \"figures\": [{\"what\": \"GPT-2 124M\", \"parameters\": "
    "124e6,\n"
    "   \"batch\": 8, \"context\": 1024, \"launches\": 500, \"repeats\": 9, \"skipped\": 0, \"seconds\": 0.8192,\n"
    "   \"tokens_per_s\": 10000, \"first_loss\": 10.9, \"last_loss\": 10.1, \"planned_bytes\": 5e9,\n"
    "   \"allocated_bytes\": 5e9}]},\n"
    "  {\"kind\": \"step\", \"device\": \"vulkan:0\", \"dtype\": \"f16\", \"status\": \"failed\", \"reason\": \"it "
    "was\n"
    " stopped after 60 s\", \"section_seconds\": 60, \"figures\": []}]}\n";

/* The text with the first `from` made `to`; free() it. */
static char *replace(const char *text, const char *from, const char *to)
{
    char *out = NULL;
    const char *at = strstr(text, from);
    if (!at) fail_msg("the sound result has no %s", from);
    if (asprintf(&out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) < 0) fail_msg("no memory");
    return out;
}

/* JSON knows no line break inside a text; this source does. */
static char *sound_text(void) { return replace(sound, "it was\n stopped", "it was stopped"); }

/* A new folder for one test. */
static void make_folder(char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/results-XXXXXX", TERN_BINARY_DIR);
    assert_non_null(mkdtemp(path));
}

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (tern_file_write(path, text, strlen(text)) < 0) fail_msg("%s", tern_error_message());
}

static void remove_folder(const char *folder)
{
    char command[4400];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* ------------------------------------------------------------------- schema */

static void test_sound_result_passes(void **state)
{
    (void)state;
    cJSON *result = NULL;
    char *text = sound_text();
    if (device_result_check("x.json", text, &result) < 0) fail_msg("%s", tern_error_message());
    assert_non_null(result);
    cJSON_Delete(result);
    free(text);
}

static void test_damage_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *sentence; /* a part of it; file and field are in all */
    } damages[] = {
        {"\"commit\": \"0123456789abcdef0123456789abcdef01234567\", ", "", "x.json: commit is missing"},
        {"0123456789abcdef0123", "0123456789ABCDEF0123", "x.json: commit is \"0123456789ABCDEF"},
        {"\"commit\": \"0123456789abcdef0123456789abcdef01234567\"", "\"commit\": 7",
         "x.json: commit is 7, but must be a text"},
        {"\"date\": \"2026-01-31T12:00:00Z\",", "", "x.json: date is missing"},
        {"2026-01-31T12", "2026-02-31T12", "x.json: date is \"2026-02-31T12:00:00Z\""},
        {"2026-01-31T12:00:00Z", "31.1.2026", "x.json: date is \"31.1.2026\""},
        {"2026-01-31", "1970-01-31", "x.json: date is"},
        {"tern-on-gpu-1", "tern-on-gpu-9", "x.json: schema is \"tern-on-gpu-9\""},
        {"\"changed\": false", "\"changed\": \"no\"", "x.json: changed is \"no\", but must be true or false"},
        {"\"cpu\": \"A CPU\", ", "", "x.json: machine.cpu is missing"},
        {"\"environment\": []", "\"environment\": [1]", "x.json: machine.environment must hold texts"},
        {"\"missing\": \"no driver\", ", "", "x.json: backends[0].missing must say why"},
        {"\"name\": \"cuda\"", "\"name\": \"metal\"", "x.json: backends[0].name is \"metal\""},
        {"\"driver\": \"imagined 1.0\", ", "", "x.json: backends[1].devices[0].driver is missing"},
        {"\"name\": \"Imagined 9000\"", "\"name\": \"\"", "x.json: backends[1].devices[0].name is empty"},
        {"Imagined 9000", "llvmpipe (LLVM 15)", "x.json: backends[1].devices[0].ran_on is \"card\""},
        {"Imagined 9000", "Level Zero stand-in 0", "x.json: backends[1].devices[0].ran_on is \"card\""},
        {"discrete GPU", "software GPU", "x.json: backends[1].devices[0].ran_on is \"card\""},
        {"\"kind\": \"discrete GPU\"", "\"kind\": \"CPU\"", "x.json: backends[1].devices[0].ran_on is \"card\""},
        {"\"id\": \"vulkan:0\"", "\"id\": \"vulkan:1\"", "x.json: backends[1].devices[0].id is \"vulkan:1\""},
        {"\"shared_bytes\": 49152", "\"shared_bytes\": -1", "x.json: backends[1].devices[0].shared_bytes is -1"},
        {"\"kind\": \"check\"", "\"kind\": \"cheque\"", "x.json: sections[0].kind is \"cheque\""},
        {"\"device\": \"vulkan:0\", \"dtype\": \"f16\"", "\"device\": \"vulkan:7\", \"dtype\": \"f16\"",
         "x.json: sections[2].device is \"vulkan:7\""},
        {"\"status\": \"ok\"", "\"status\": \"fine\"", "x.json: sections[0].status is \"fine\""},
        {"\"status\": \"ok\"", "\"status\": \"ok|skipped\"", "x.json: sections[0].status is"},
        {"\"passed\": 80", "\"passed\": 81", "x.json: sections[0].figures[0].cases is 88"},
        {"\"passed\": 80, \"failed\": 0", "\"passed\": 79, \"failed\": 1",
         "x.json: sections[0].figures[0].failed is not 0"},
        {"\"passed\": 80", "\"passed\": 80.5", "x.json: sections[0].figures[0].passed is 80.5, but must be whole"},
        {"\"timing\": \"timestamps\", ", "", "x.json: sections[1].timing is missing"},
        {"\"seconds\": 0.002", "\"seconds\": NaN", "x.json: is no JSON from byte"},
        {"\"seconds\": 0.002", "\"seconds\": null",
         "x.json: sections[1].figures[0].seconds is null, but must be a number"},
        {"\"seconds\": 0.002", "\"seconds\": 1e999", "x.json: sections[1].figures[0].seconds is not finite"},
        {"\"seconds\": 0.002", "\"seconds\": -0.002", "x.json: sections[1].figures[0].seconds is -0.002"},
        {"\"seconds\": 0.002, ", "", "x.json: sections[1].figures[0].seconds is missing"},
        {"\"seconds\": 0.002", "\"seconds\": \"2 ms\"", "x.json: sections[1].figures[0].seconds is \"2 ms\""},
        {"\"bytes_per_s\": 5e11", "\"bytes_per_s\": 6e11", "x.json: sections[1].figures[0].bytes_per_s is 6e+11"},
        {"\"flops_per_s\": 1e13", "\"flops_per_s\": 2e13", "x.json: sections[2].figures[0].flops_per_s is 2e+13"},
        {"\"of_best\": 1", "\"of_best\": 1.5", "x.json: sections[2].figures[0].of_best is 1.5"},
        {"\"head_dim\": 64", "\"head_dim\": 0", "x.json: sections[3].figures[0].head_dim is 0"},
        {"\"tokens_per_s\": 10000", "\"tokens_per_s\": 20000", "x.json: sections[4].figures[0].tokens_per_s is 20000"},
        {"\"planned_bytes\": 5e9", "\"planned_bytes\": \"5 GB\"", "x.json: sections[4].figures[0].planned_bytes is"},
        {"it was stopped after 60 s", "", "x.json: sections[5].reason is empty"},
        {"\"figures\": []}]}", "\"figures\": 3}]}", "x.json: sections[5].figures is 3, but must be a list"},
        {"\"status\": \"failed\"", "\"status\": \"ok\"", "x.json: sections[5].figures is empty"},
        {"]}]}\n", "]}]} more", "x.json: is no JSON from byte"},
    };
    char *text = sound_text();
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char *damaged = replace(text, damages[i].from, damages[i].to);
        cJSON *result = NULL;
        if (device_result_check("x.json", damaged, &result) != TERN_ERROR_FORMAT)
            fail_msg("%s for %s passed", damages[i].to, damages[i].from);
        if (!strstr(tern_error_message(), damages[i].sentence))
            fail_msg("\"%s\" lacks \"%s\"", tern_error_message(), damages[i].sentence);
        assert_null(result);
        free(damaged);
    }
    for (size_t cut = 0; cut + 2 < strlen(text); cut += 97) { /* a file that was sent by halves; the end is "}\n" */
        char *part = strndup(text, cut);
        assert_int_equal(device_result_check("x.json", part, NULL), TERN_ERROR_FORMAT);
        free(part);
    }
    free(text);
}

/* What make hardware reads from this repository. */
static void test_committed_results_are_sound(void **state)
{
    (void)state;
    struct dirent *entry;
    uint32_t count = 0;
    DIR *folder = opendir(TERN_SOURCE_DIR "/bench/results");
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        char path[4400], *text = NULL;
        size_t bytes = 0;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, TERN_SOURCE_DIR "/bench/results/%s", entry->d_name);
        if (tern_file_read(path, 0, &text, &bytes) < 0) fail_msg("%s", tern_error_message());
        cJSON *json = cJSON_Parse(text);
        const char *schema = cJSON_GetStringValue(cJSON_GetObjectItem(json, "schema"));
        if (!schema) fail_msg("%s: schema is missing", path);
        if (strcmp(schema, "tern-static-1") != 0 && device_result_check(path, text, NULL) < 0)
            fail_msg("%s", tern_error_message());
        cJSON_Delete(json);
        free(text);
        count++;
    }
    closedir(folder);
    assert_true(count > 0);
}

/* --------------------------------------------------------------------- page */

static void test_page_is_what_the_generator_prints(void **state)
{
    (void)state;
    char *page = NULL, *committed = NULL;
    size_t bytes = 0;
    if (device_page(TERN_SOURCE_DIR "/bench/results", &page) < 0) fail_msg("%s", tern_error_message());
    if (tern_file_read(TERN_SOURCE_DIR "/docs/hardware.md", 0, &committed, &bytes) < 0)
        fail_msg("%s", tern_error_message());
    if (strcmp(page, committed) != 0) fail_msg("docs/hardware.md is not what its results say; run make hardware");
    free(page);
    free(committed);
}

static char *page_of(const char *folder)
{
    char *page = NULL;
    if (device_page(folder, &page) < 0) fail_msg("%s", tern_error_message());
    return page;
}

/* A card is a row under Cards, a program is not, whatever the file is called; other schemas are passed over. */
static void test_page_keeps_cards_and_programs_apart(void **state)
{
    (void)state;
    char folder[4096];
    make_folder(folder, sizeof folder);
    put_file(folder, "static.json", "{\"schema\": \"tern-static-1\"}");
    char *page = page_of(folder);
    assert_non_null(strstr(page, "No card has been measured yet"));
    assert_null(strstr(page, "| device |"));
    free(page);

    char *text = sound_text(), *renamed = replace(text, "Imagined 9000", "llvmpipe (LLVM 15)"),
         *program = replace(renamed, "\"ran_on\": \"card\"", "\"ran_on\": \"software\"");
    put_file(folder, "a-card.json", program);
    page = page_of(folder);
    assert_non_null(strstr(page, "No card has been measured yet"));
    const char *others = strstr(page, "## Not cards");
    assert_non_null(others);
    assert_non_null(strstr(others, "| llvmpipe (LLVM 15) (software) |"));
    free(page);

    put_file(folder, "b.json", text);
    page = page_of(folder);
    assert_null(strstr(page, "No card has been measured yet"));
    const char *row =
        strstr(page, "| Imagined 9000 (discrete GPU) | vulkan, imagined 1.0 | 80 of 80 cases, 1 not for "
                     "this device, 7 not reached, some types not checked | 500 | f16 10; the slowest "
                     "product 100 % of its type's best | f32 3 forward | f32 10000 (GPT-2 124M, batch 8 x "
                     "1024), f16 failed | as planned, 4768 MiB at most | 2026-01-31, "
                     "[0123456789](../bench/results/b.json) |\n");
    if (!row) fail_msg("no such row in\n%s", page);
    others = strstr(page, "## Not cards");
    assert_non_null(others);
    assert_true(row < others);
    assert_non_null(strstr(page, "* Imagined 9000 on vulkan, step f16: failed: it was stopped after 60 s\n"));
    free(page);

    char *damaged = replace(text, "\"seconds\": 0.002", "\"seconds\": -1");
    put_file(folder, "c.json", damaged);
    page = NULL;
    assert_int_equal(device_page(folder, &page), TERN_ERROR_FORMAT);
    assert_non_null(strstr(tern_error_message(), "c.json: sections[1].figures[0].seconds"));
    assert_null(page);
    free(damaged);
    free(program);
    free(renamed);
    free(text);
    remove_folder(folder);
}

/* ------------------------------------------------------------------- script */

static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...)
{
    char command[16384];
    va_list values;
    va_start(values, format);
    vsnprintf(command, sizeof command, format, values);
    va_end(values);
    const int how = system(command);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void skip_without_git(void)
{
    if (run("git -c safe.directory='*' -C '%s' rev-parse HEAD >/dev/null 2>&1", TERN_SOURCE_DIR) == 0) return;
    fprintf(stderr, "skipped: %s is no git checkout, so that results lack their commit\n", TERN_SOURCE_DIR);
    skip();
}

static cJSON *read_checked(const char *folder)
{
    char path[4400], *text = NULL;
    size_t bytes = 0;
    cJSON *result = NULL;
    snprintf(path, sizeof path, "%s/result.json", folder);
    if (tern_file_read(path, 0, &text, &bytes) < 0 || device_result_check(path, text, &result) < 0)
        fail_msg("%s", tern_error_message());
    free(text);
    return result;
}

static const char *text_of(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(object, name));
}

/* All software devices, or with TERN_TEST_QUICK the CPU alone. On the CPU everything works; of drivers it is said what
 * does not. */
static void test_quick_run_gives_a_sound_file(void **state)
{
    (void)state;
    char folder[4096];
    uint32_t on_cpu = 0;
    skip_without_git();
    make_folder(folder, sizeof folder);
    assert_int_equal(run("'%s/bench/on_gpu' --quick --build '%s' --out '%s/result.json'%s", TERN_SOURCE_DIR,
                         TERN_BINARY_DIR, folder, getenv("TERN_TEST_QUICK") ? " --backends cpu" : ""),
                     0);
    cJSON *result = read_checked(folder);
    const cJSON *section;
    cJSON_ArrayForEach(section, cJSON_GetObjectItem(result, "sections"))
    {
        if (strcmp(text_of(section, "status"), "ok") != 0)
            fprintf(stderr, "%s %s on %s: %s\n", text_of(section, "kind"), text_of(section, "dtype"),
                    text_of(section, "device"), text_of(section, "reason"));
        if (strcmp(text_of(section, "device"), "cpu:0") != 0) continue;
        assert_string_equal(text_of(section, "status"), "ok");
        on_cpu++;
    }
    assert_int_equal(on_cpu, 10);
    char *page = page_of(folder);
    assert_non_null(strstr(page, "## Not cards"));
    free(page);
    cJSON_Delete(result);
    remove_folder(folder);
}

static const cJSON *section_of(const cJSON *result, const char *kind, const char *dtype)
{
    const cJSON *section;
    cJSON_ArrayForEach(section, cJSON_GetObjectItem(result, "sections"))
    {
        if (strcmp(text_of(section, "kind"), kind) == 0 && strcmp(text_of(section, "dtype"), dtype) == 0)
            return section;
    }
    fail_msg("no section %s %s", kind, dtype);
    return NULL;
}

/* A section that hangs, one that dies and one that ends without a word cost themselves; a backend that crashes when it
 * is asked for its devices is a missing one. */
static void test_hang_and_crash_cost_only_themselves(void **state)
{
    (void)state;
    char folder[4096], script[8192], path[4400];
    skip_without_git();
    make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/bench", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(script, sizeof script,
             "#!/bin/sh\n"
             "case \"$*\" in\n"
             "  'devices vulkan '*) kill -SEGV $$ ;;\n"
             "  'measure copy '*) echo 'the card is gone' >&2; exec sleep 600 ;;\n"
             "  'measure matmul '*f32*) kill -SEGV $$ ;;\n"
             "  'measure attention '*) echo 'no words' >&2; exit 3 ;;\n"
             "esac\n"
             "exec '%s/bench/bench_device' \"$@\"\n",
             TERN_BINARY_DIR);
    put_file(path, "bench_device", script);
    assert_int_equal(run("chmod +x '%s/bench_device'", path), 0);
    assert_int_equal(run("'%s/bench/on_gpu' --quick --backends 'vulkan cpu' --limit 6 --build '%s' --out "
                         "'%s/result.json'",
                         TERN_SOURCE_DIR, folder, folder),
                     0);
    cJSON *result = read_checked(folder);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(result, "sections")), 10);
    const char *hung = text_of(section_of(result, "copy", "f32"), "reason"),
               *dead = text_of(section_of(result, "matmul", "f32"), "reason"),
               *ended = text_of(section_of(result, "attention", "f32"), "reason");
    assert_string_equal(hung, "it was stopped after 6 s; its last words: the card is gone");
    assert_non_null(strstr(dead, "its process died of signal 11"));
    assert_string_equal(ended, "it ended with status 3: no words");
    const cJSON *vulkan = cJSON_GetArrayItem(cJSON_GetObjectItem(result, "backends"), 0);
    assert_string_equal(text_of(vulkan, "name"), "vulkan");
    assert_non_null(strstr(text_of(vulkan, "missing"), "asking for its devices: its process died of signal 11"));
    cJSON_Delete(result);
    remove_folder(folder);
}

static void test_misuse_is_refused(void **state)
{
    (void)state;
    assert_int_equal(run("'%s/bench/on_gpu' --minutes none 2>/dev/null", TERN_SOURCE_DIR), 2);
    assert_int_equal(run("'%s/bench/on_gpu' --out 2>/dev/null", TERN_SOURCE_DIR), 2);
    assert_int_equal(run("'%s/bench/on_gpu' --fast 2>/dev/null", TERN_SOURCE_DIR), 2);
    assert_int_equal(run("'%s/bench/on_gpu' --build /nowhere 2>/dev/null", TERN_SOURCE_DIR), 1);
    assert_int_equal(run("'%s/bench/bench_device' measure step cpu:0 integers 1 small x 2>/dev/null", TERN_BINARY_DIR),
                     2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound_result_passes),
        cmocka_unit_test(test_damage_is_refused),
        cmocka_unit_test(test_committed_results_are_sound),
        cmocka_unit_test(test_page_is_what_the_generator_prints),
        cmocka_unit_test(test_page_keeps_cards_and_programs_apart),
        cmocka_unit_test(test_misuse_is_refused),
        cmocka_unit_test(test_hang_and_crash_cost_only_themselves),
        cmocka_unit_test(test_quick_run_gives_a_sound_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
