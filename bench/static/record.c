/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - the figures of one target and precision, each kernel compiled where the compiler may die.
 *
 *     static_record ── fork, exec ──> static_child   plans, compiles kernel after kernel
 *           ^                              │  {"version": ...}
 *           │                              │  {"kernel": ...}     before each kernel
 *           └───────────── pipe ───────────┘  {"figures": ...}    after it
 *
 * A child that dies between the two lines died of that kernel, which is recorded, and another goes on behind it. It is
 * started anew, not only forked, since Mesa's shims are preloaded. */
#include "bench/static/static.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNEL_SECONDS 300 /* of one compilation, on a busy machine */

static const static_compiler_table *const compilers[STATIC_COMPILER_COUNT] = {
    [STATIC_NVRTC] = &static_nvrtc, [STATIC_OCLOC] = &static_ocloc, [STATIC_VULKAN] = &static_vulkan};

/* ------------------------------------------------------------------ figures */

void static_figures_count(static_figures *figures, const char *name, uint32_t count)
{
    uint32_t i = 0;
    while (i < figures->opcode_count && strcmp(figures->opcodes[i].name, name) != 0) i++;
    if (i == STATIC_OPCODES) return;
    if (i == figures->opcode_count) {
        snprintf(figures->opcodes[i].name, sizeof figures->opcodes[i].name, "%s", name);
        figures->opcode_count++;
    }
    figures->opcodes[i].count += count;
}

static cJSON *figures_json(const static_figures *figures)
{
    cJSON *json = cJSON_CreateObject(), *opcodes = cJSON_CreateObject();
    const struct {
        const char *name;
        uint32_t value;
    } fields[] = {{"registers", figures->registers},
                  {"spills", figures->spills},
                  {"private", figures->private_bytes},
                  {"shared", figures->shared},
                  {"simd", figures->simd},
                  {"matrix", figures->matrix},
                  {"instructions", figures->instructions}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        cJSON_AddNumberToObject(json, fields[i].name, fields[i].value);
    for (uint32_t i = 0; i < figures->opcode_count; i++)
        cJSON_AddNumberToObject(opcodes, figures->opcodes[i].name, figures->opcodes[i].count);
    cJSON_AddItemToObject(json, "opcodes", opcodes);
    return json;
}

/* -------------------------------------------------------------------- child */

static void write_line(FILE *out, cJSON *json)
{
    char *text = cJSON_PrintUnformatted(json);
    if (text) fprintf(out, "%s\n", text);
    fflush(out);
    free(text);
    cJSON_Delete(json);
}

static void write_message(FILE *out, const char *key, const char *text)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, key, text);
    write_line(out, json);
}

static void write_kernel(FILE *out, const static_kernel *kernel)
{
    char programs[64] = "";
    cJSON *json = cJSON_CreateObject();
    for (uint32_t p = 0; p <= TERN_PROGRAM_EVAL; p++)
        if (kernel->programs >> p & 1)
            snprintf(programs + strlen(programs), sizeof programs - strlen(programs), "%s%s", *programs ? " " : "",
                     tern_program_names[p]);
    cJSON_AddStringToObject(json, "kernel", kernel->desc->label);
    cJSON_AddStringToObject(json, "kind", static_kind_names[kernel->desc->kind]);
    cJSON_AddStringToObject(json, "variant", kernel->desc->variant.name);
    cJSON_AddStringToObject(json, "programs", programs);
    cJSON_AddNumberToObject(json, "launches", kernel->launches);
    write_line(out, json);
}

int static_child(const static_target *target, int32_t precision, uint32_t kinds, uint32_t from)
{
    tern_status status;
    tern_device *device = NULL;
    static_kernels kernels = {0};
    char version[300];
    const static_compiler_table *compiler = compilers[target->compiler];
    /* What a compiler prints itself goes to stderr. */
    FILE *out = fdopen(dup(STDOUT_FILENO), "w");
    if (!out || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
    TERN_TRY(static_target_open(target, &device));
    TERN_TRY(compiler->open(target, device, version, sizeof version));
    write_message(out, "version", version);
    TERN_TRY(static_kernels_plan(device, precision, &kernels));
    for (uint32_t i = 0, chosen = 0; i < kernels.count; i++) {
        static_figures figures;
        if (!(kinds >> kernels.list[i].desc->kind & 1) || chosen++ < from) continue;
        write_kernel(out, &kernels.list[i]);
        (void)alarm(KERNEL_SECONDS);
        if (compiler->compile(target, device, kernels.list[i].desc, &figures) == TERN_OK)
            write_line(out, figures_json(&figures));
        else
            write_message(out, "error", tern_error_message());
        (void)alarm(0);
    }
fail:
    if (status < 0) {
        write_message(out, status == TERN_ERROR_NOT_FOUND ? "absent" : "failed", tern_error_message());
        static_kernels_finish(&kernels);
    }
    /* No destructors: drivers over a shim may not survive theirs. */
    fflush(out);
    _exit(0);
}

/* ------------------------------------------------------------------- parent */

typedef struct reading {
    cJSON *kernels;
    cJSON *open; /* the kernel being compiled, owned by `kernels` */
    char *version;
    size_t version_bytes;
    tern_status status;
} reading;

static void take_line(reading *r, cJSON *line)
{
    const cJSON *text;
    if (cJSON_HasObjectItem(line, "kernel")) {
        r->open = line;
        cJSON_AddItemToArray(r->kernels, line);
        return;
    }
    if ((text = cJSON_GetObjectItem(line, "version")) && cJSON_IsString(text)) {
        snprintf(r->version, r->version_bytes, "%s", text->valuestring);
    } else if ((text = cJSON_GetObjectItem(line, "absent")) && cJSON_IsString(text)) {
        r->status = tern_error(TERN_ERROR_NOT_FOUND, "%s", text->valuestring);
    } else if ((text = cJSON_GetObjectItem(line, "failed")) && cJSON_IsString(text)) {
        r->status = tern_error(TERN_ERROR_INTERNAL, "%s", text->valuestring);
    } else if (r->open) { /* figures, or the error that this kernel has instead */
        while (line->child) {
            cJSON *field = cJSON_DetachItemViaPointer(line, line->child);
            char name[32];
            snprintf(name, sizeof name, "%s", field->string);
            cJSON_AddItemToObject(r->open, name, field);
        }
        r->open = NULL;
    }
    cJSON_Delete(line);
}

static void prepare_environment(const static_target *target, const char *program)
{
    char path[4096], folder[4096];
    snprintf(path, sizeof path, "%s", program);
    snprintf(folder, sizeof folder, "%s", dirname(path));
    if (target->compiler == STATIC_VULKAN) {
        snprintf(path, sizeof path, "/tmp/tern_pipeline_%d", (int)getpid());
        setenv("TERN_STATIC_PIPELINE", path, 1);
        setenv("VK_LAYER_PATH", folder, 1);
        setenv("VK_INSTANCE_LAYERS", "VK_LAYER_TERN_static", 1);
    }
    for (size_t i = 0; i < sizeof target->environment / sizeof *target->environment && target->environment[i]; i++)
        (void)putenv((char *)(uintptr_t)target->environment[i]);
}

/* Runs one child; out_status is waitpid's. */
static tern_status run_child(const static_target *target, int32_t precision, uint32_t kinds, uint32_t from, reading *r,
                             int *out_status)
{
    int ends[2];
    char program[4096], numbers[3][16];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0 || pipe(ends) != 0) return tern_error(TERN_ERROR_IO, "no pipe to a child, or no /proc");
    program[length] = 0;
    const uint32_t values[3] = {(uint32_t)precision, kinds, from};
    for (int i = 0; i < 3; i++) snprintf(numbers[i], sizeof numbers[i], "%u", values[i]);
    const pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        prepare_environment(target, program);
        execl(program, program, "_child", target->name, numbers[0], numbers[1], numbers[2], (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    if (child < 0) {
        (void)close(ends[0]);
        return tern_error(TERN_ERROR_IO, "no child process");
    }
    FILE *in = fdopen(ends[0], "r");
    char *line = NULL;
    size_t capacity = 0;
    while (in && getline(&line, &capacity, in) > 0) {
        cJSON *json = cJSON_Parse(line);
        if (json) take_line(r, json);
    }
    free(line);
    if (in) fclose(in);
    (void)waitpid(child, out_status, 0);
    snprintf(program, sizeof program, "/tmp/tern_pipeline_%d", (int)child);
    (void)unlink(program);
    return r->status;
}

static const char *precision_name(int32_t precision)
{
    return precision == TERN_F16 ? "f16" : precision == TERN_BF16 ? "bf16" : "f32";
}

tern_status static_record(const static_target *target, int32_t precision, uint32_t kinds, cJSON **out_record,
                          char *out_version, size_t bytes)
{
    tern_status status = TERN_OK;
    reading r = {.kernels = cJSON_CreateArray(), .version = out_version, .version_bytes = bytes};
    int how = 0;
    do {
        r.open = NULL;
        TERN_TRY(run_child(target, precision, kinds, (uint32_t)cJSON_GetArraySize(r.kernels), &r, &how));
        if (how == 0) break;
        char text[120];
        snprintf(text, sizeof text, "the compiler died of %s %d", WIFSIGNALED(how) ? "signal" : "exit status",
                 WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
        if (!r.open) {
            status = tern_error(TERN_ERROR_INTERNAL, "%s: %s, but not while compiling", target->name, text);
            goto fail;
        }
        cJSON_AddStringToObject(r.open, "error", text);
    } while (true);
    cJSON *record = cJSON_CreateObject();
    cJSON_AddStringToObject(record, "precision", precision_name(precision));
    cJSON_AddItemToObject(record, "kernels", r.kernels);
    *out_record = record;
    return TERN_OK;
fail:
    cJSON_Delete(r.kernels);
    return status < 0 ? tern_error_prefix(status, "%s %s", target->name, precision_name(precision)) : status;
}
