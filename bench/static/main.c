/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the command of bench/static: compiles, merges, prints the table.
 *
 *     bench_static list                                 the targets and their compilers
 *     bench_static compile OPTION... TARGET...          figures as JSON on stdout
 *         --precision f32|bf16|f16    this only         --kind NAME    this only, "matmul" or "attention" ...; may
 * repeat bench_static merge FILE...                        one JSON; a later file's targets replace an earlier's
 *     bench_static table FILE                           the table for docs/vendor-compilers.md
 *
 * Exit status: 0; 1: failed; 2: misuse; 77: the compiler is not on this machine (a sentence says what to install). */
#include "bench/static/static.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "tern-static-1"
#define MODEL  "GPT-2 124M, context 1024, batch 1: micro, update and eval programs"

static int fail(tern_status status)
{
    fprintf(stderr, "static: %s\n", tern_error_message());
    return status == TERN_ERROR_NOT_FOUND ? 77 : 1;
}

static int misuse(void)
{
    fprintf(stderr, "usage: bench_static list | compile [--precision P] [--kind K] TARGET... | merge FILE... | table "
                    "FILE\n");
    return 2;
}

static cJSON *create_file(cJSON **out_targets)
{
    cJSON *all = cJSON_CreateObject();
    cJSON_AddStringToObject(all, "schema", SCHEMA);
    cJSON_AddStringToObject(all, "model", MODEL);
    *out_targets = cJSON_AddArrayToObject(all, "targets");
    return all;
}

/* ------------------------------------------------------------------- output */

/* One kernel a line, so that a change shows as the kernels that it changed. */
static void print_targets(const cJSON *all)
{
    const cJSON *target, *precision, *kernel;
    printf("{\"schema\": \"%s\",\n\"model\": \"%s\",\n\"targets\": [", SCHEMA, MODEL);
    cJSON_ArrayForEach(target, cJSON_GetObjectItem(all, "targets"))
    {
        printf("%s\n", target->prev && target->prev->next ? "," : "");
        printf("{\"target\": \"%s\", \"cards\": \"%s\", \"compiler\": \"%s\", \"precisions\": [",
               cJSON_GetStringValue(cJSON_GetObjectItem(target, "target")),
               cJSON_GetStringValue(cJSON_GetObjectItem(target, "cards")),
               cJSON_GetStringValue(cJSON_GetObjectItem(target, "compiler")));
        const char *before = "";
        cJSON_ArrayForEach(precision, cJSON_GetObjectItem(target, "precisions"))
        {
            printf("%s\n {\"precision\": \"%s\", \"kernels\": [", before,
                   cJSON_GetStringValue(cJSON_GetObjectItem(precision, "precision")));
            before = ",";
            const char *comma = "";
            cJSON_ArrayForEach(kernel, cJSON_GetObjectItem(precision, "kernels"))
            {
                char *text = cJSON_PrintUnformatted(kernel);
                printf("%s\n  %s", comma, text ? text : "null");
                comma = ",";
                free(text);
            }
            printf("]}");
        }
        printf("]}");
    }
    printf("\n]}\n");
}

/* ------------------------------------------------------------------ compile */

typedef struct choice {
    uint32_t precisions, kinds; /* bits by TERN_F32 ..., by kind; 0: all */
} choice;

static const struct {
    const char *name;
    int32_t dtype;
} precisions[] = {{"f32", TERN_F32}, {"bf16", TERN_BF16}, {"f16", TERN_F16}};

static bool take_option(choice *c, const char *option, const char *value)
{
    uint32_t before = c->precisions | c->kinds << 16;
    if (strcmp(option, "--precision") == 0)
        for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
            if (strcmp(value, precisions[i].name) == 0) c->precisions |= 1u << precisions[i].dtype;
    if (strcmp(option, "--kind") == 0)
        for (uint32_t i = 0; i < TERN_KERNEL_KIND_COUNT; i++)
            if (strcmp(value, static_kind_names[i]) == 0) c->kinds |= 1u << i;
    return (c->precisions | c->kinds << 16) != before;
}

static tern_status compile_target(const static_target *target, const choice *c, cJSON *targets)
{
    tern_status status = TERN_OK;
    char version[300] = "";
    cJSON *json = cJSON_CreateObject();
    cJSON *list = cJSON_CreateArray();
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        cJSON *record = NULL;
        if (c->precisions && !(c->precisions >> precisions[i].dtype & 1)) continue;
        fprintf(stderr, "static: %s %s\n", target->name, precisions[i].name);
        TERN_TRY(static_record(target, precisions[i].dtype, c->kinds ? c->kinds : UINT32_MAX, &record, version,
                               sizeof version));
        cJSON_AddItemToArray(list, record);
    }
    cJSON_AddStringToObject(json, "target", target->name);
    cJSON_AddStringToObject(json, "cards", target->cards);
    cJSON_AddStringToObject(json, "compiler", version);
    cJSON_AddItemToObject(json, "precisions", list);
    cJSON_AddItemToArray(targets, json);
    return TERN_OK;
fail:
    cJSON_Delete(list);
    cJSON_Delete(json);
    return status;
}

static int compile(int count, char **words)
{
    choice c = {0};
    int code = 0, i = 0;
    for (; i + 1 < count && words[i][0] == '-'; i += 2)
        if (!take_option(&c, words[i], words[i + 1])) return misuse();
    if (i == count) return misuse();
    cJSON *targets, *all = create_file(&targets);
    for (; i < count && code == 0; i++) {
        const static_target *target = static_target_find(words[i]);
        const tern_status status =
            target ? compile_target(target, &c, targets)
                   : tern_error(TERN_ERROR_INVALID, "there is no target \"%s\"; see bench_static list", words[i]);
        if (status < 0) code = fail(status);
    }
    if (code == 0) print_targets(all);
    cJSON_Delete(all);
    return code;
}

/* ------------------------------------------------------------ merge and table */

static cJSON *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t bytes = 0;
    cJSON *json = NULL;
    if (file && getdelim(&text, &bytes, 0, file) > 0) json = cJSON_Parse(text);
    const char *schema = cJSON_GetStringValue(cJSON_GetObjectItem(json, "schema"));
    if (!schema || strcmp(schema, SCHEMA) != 0) {
        (void)tern_error(TERN_ERROR_FORMAT, "\"%s\" is not a file of bench_static compile", path);
        cJSON_Delete(json);
        json = NULL;
    }
    if (file) fclose(file);
    free(text);
    return json;
}

/* In the order of targets.c, whatever the order of the files. */
static int merge(int count, char **paths)
{
    cJSON *targets, *all = create_file(&targets), *found[64] = {NULL};
    int code = 0;
    for (int i = 0; i < count; i++) {
        cJSON *json = read_file(paths[i]);
        cJSON *list = cJSON_GetObjectItem(json, "targets");
        if (!json) code = fail(TERN_ERROR_FORMAT);
        while (list && list->child) {
            cJSON *target = cJSON_DetachItemFromArray(list, 0);
            const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(target, "target"));
            const static_target *known = name ? static_target_find(name) : NULL;
            const size_t at = known ? (size_t)(known - static_targets) : 63;
            cJSON_Delete(found[at]); /* of a target that is no longer known, nothing stays */
            found[at] = known ? target : (cJSON_Delete(target), NULL);
        }
        cJSON_Delete(json);
    }
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (found[i]) cJSON_AddItemToArray(targets, found[i]);
    if (code == 0) print_targets(all);
    cJSON_Delete(all);
    return code;
}

static int table(const char *path)
{
    char *text = NULL;
    cJSON *all = read_file(path);
    if (!all) return fail(TERN_ERROR_FORMAT);
    const tern_status status = static_table(all, &text);
    if (status == TERN_OK) fputs(text, stdout);
    free(text);
    cJSON_Delete(all);
    return status < 0 ? fail(status) : 0;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "list") == 0) {
        for (uint32_t i = 0; i < static_target_count; i++)
            printf("%-8s %-5s %s\n", static_targets[i].name, static_targets[i].lab ? "lab" : "host",
                   static_targets[i].cards);
        return 0;
    }
    if (strcmp(command, "compile") == 0) return compile(argc - 2, argv + 2);
    if (strcmp(command, "merge") == 0 && argc > 2) return merge(argc - 2, argv + 2);
    if (strcmp(command, "table") == 0 && argc == 3) return table(argv[2]);
    if (strcmp(command, "_child") == 0 && argc == 6 && static_target_find(argv[2]))
        return static_child(static_target_find(argv[2]), (int32_t)atoi(argv[3]), (uint32_t)strtoul(argv[4], NULL, 10),
                            (uint32_t)strtoul(argv[5], NULL, 10));
    return misuse();
}
