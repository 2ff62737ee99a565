/* SPDX-License-Identifier: Apache-2.0 */
/* conformance.c - the harness of the conformance suite: backends in turn, tapes by hand, dispatches between sentinels.
 *
 *     buffer:  | guard 0xA5.. | pad | tensor | guard 0xA5.. |      offset = guard + one element: nothing stronger is
 * promised
 *
 * It knows the contract (core/backend.h) and core's choice of variants, nothing of any plug-in. */
#include "tests/conformance.h"

#include <stdlib.h>

#include "core/base/dtype.h"

enum { GUARD = 256, GUARD_BYTE = 0xA5 };

/* ------------------------------------------------------------------- cases */

typedef struct bound_case {
    const conformance *c;
    const conformance_case *test;
    const char *reason; /* not NULL: skipped for this */
    char name[96];
} bound_case;

static void run_bound(void **state)
{
    const bound_case *bound = *state;
    if (bound->reason) TEST_SKIP("%s: %s", bound->name, bound->reason);
    bound->test->run(bound->c);
}

static const char *exception_find(const conformance *c, const char *name, const conformance_exception *exceptions,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const conformance_exception *e = &exceptions[i];
        if (strcmp(e->backend, c->name) == 0 && strcmp(e->name, name) == 0 &&
            (!e->device || strstr(c->device->info.name, e->device)))
            return e->reason;
    }
    return NULL;
}

static int run_backend(const conformance *c, const char *topic, const conformance_case *cases, size_t count,
                       const conformance_exception *exceptions, size_t exception_count)
{
    bound_case *bound = calloc(count, sizeof *bound);
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    if (!bound || !tests) {
        free(bound);
        free(tests);
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        bound[i] = (bound_case){c, &cases[i], exception_find(c, cases[i].name, exceptions, exception_count), ""};
        snprintf(bound[i].name, sizeof bound[i].name, "%s: %s", c->name, cases[i].name);
        tests[i] = (struct CMUnitTest){.name = bound[i].name, .test_func = run_bound, .initial_state = &bound[i]};
    }
    char group[96];
    snprintf(group, sizeof group, "%s on %s", topic, c->name);
    const int failures = _cmocka_run_group_tests(group, tests, count, NULL, NULL);
    free(tests);
    free(bound);
    return failures;
}

static bool is_wanted(const char *name)
{
    const char *wanted = getenv("TERN_TEST_BACKENDS");
    return !wanted || !*wanted || strstr(wanted, name) != NULL;
}

int conformance_main(const char *topic, const conformance_case *cases, size_t case_count,
                     const conformance_exception *exceptions, size_t exception_count)
{
    static const char *const names[] = {"cpu", "cuda", "level_zero", "opencl", "vulkan"};
    int failures = 0, ran = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const tern_open_options options = {.threads = 2, .timestamps = true};
        conformance c = {.name = names[i]};
        if (!is_wanted(names[i])) continue;
        if (tern_device_open_with(names[i], &options, &c.device) < 0) {
            print_message("skipped: %s on %s: %s\n", topic, names[i], tern_error_message());
            continue;
        }
        c.backend = c.device->backend;
        c.handle = c.device->handle;
        print_message("%s: %s\n", topic, c.device->title);
        failures += run_backend(&c, topic, cases, case_count, exceptions, exception_count);
        tern_device_close(c.device);
        ran++;
    }
    if (ran == 0) print_message("%s: no backend opened, so nothing was tested\n", topic);
    return ran == 0 ? 1 : failures;
}

/* ------------------------------------------------------------------- tapes */

uint16_t conformance_op(tape_maker *maker, tern_tape_op op, int32_t type, int32_t from, uint16_t a, uint16_t b,
                        uint16_t c)
{
    return tape_maker_insn(
        maker, (tern_tape_insn){.op = (uint16_t)op, .type = (uint8_t)type, .from = (uint8_t)from, .in = {a, b, c, NO}});
}

void conformance_store(tape_maker *maker, uint16_t access, uint16_t value)
{
    tape_maker_insn(maker, (tern_tape_insn){.op = TERN_TAPE_STORE,
                                            .type = maker->insns[value].type,
                                            .access = access,
                                            .in = {value, NO, NO, NO}});
}

/* -------------------------------------------------------------- dispatches */

void conformance_choose(const conformance *c, const uint32_t *words, tern_kernel_desc *desc)
{
    snprintf(desc->label, sizeof desc->label, "conformance");
    TEST_OK(tern_variant_choose(desc, &c->device->info, words));
    tern_kernel_key(desc);
}

void conformance_tape_desc(const conformance *c, const tape_maker *maker, const uint32_t *words,
                           tern_kernel_desc *out_desc)
{
    tape_maker_desc(maker, out_desc);
    TEST_OK(tern_tape_check(&out_desc->tape, false));
    conformance_choose(c, words, out_desc);
}

void conformance_wait(const conformance *c, uint64_t ticket)
{
    TEST_OK(c->backend->wait(c->handle, ticket, 60ull * 1000000000ull));
}

typedef struct guarded {
    tern_backend_buffer *buffer;
    uint64_t offset, total;
    uint8_t *image;
} guarded;

static void guarded_create(const conformance *c, const conformance_array *array, uint32_t element, guarded *g)
{
    g->offset = GUARD + element;
    g->total = (g->offset + array->bytes + GUARD + 3) & ~3ull;
    g->image = malloc(g->total);
    assert_non_null(g->image);
    memset(g->image, GUARD_BYTE, g->total);
    memcpy(g->image + g->offset, array->data, array->bytes);
    TEST_OK(c->backend->buffer_create(c->handle, g->total, TERN_BUFFER_DEVICE, &g->buffer));
    TEST_OK(c->backend->buffer_write(c->handle, g->buffer, 0, g->image, g->total));
}

/* The result goes to `out`; whatever lies around the tensor, and all of one that is only read, must be as it was. */
static void guarded_check(const conformance *c, guarded *g, uint32_t index, uint32_t mode, size_t bytes, uint8_t *out)
{
    uint8_t *now = malloc(g->total);
    assert_non_null(now);
    TEST_OK(c->backend->buffer_read(c->handle, g->buffer, 0, now, g->total));
    for (uint64_t i = 0; i < g->total; i++) {
        const bool inside = i >= g->offset && i < g->offset + bytes;
        if (now[i] != g->image[i] && !(inside && (mode & TERN_ACCESS_WRITE)))
            fail_msg("argument %u: byte %lld of a tensor of %zu was overwritten", index,
                     (long long)i - (long long)g->offset, bytes);
    }
    memcpy(out, now + g->offset, bytes);
    free(now);
}

static void run_once(const conformance *c, tern_backend_kernel *kernel, const tern_kernel_desc *desc,
                     const uint32_t *words, const conformance_array *arrays, uint8_t **results)
{
    guarded guards[TERN_TAPE_TENSORS];
    tern_step step = {.kind = TERN_STEP_DISPATCH,
                      .label = "conformance",
                      .kernel = kernel,
                      .argument_count = desc->tensor_count,
                      .word_count = desc->word_count};
    memcpy(step.words, words, desc->word_count * sizeof *words);
    TEST_OK(tern_variant_groups(desc, &c->device->info, words, step.groups));
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        guarded_create(c, &arrays[i], (uint32_t)tern_dtype_bytes(desc->tensors[i].dtype, 1), &guards[i]);
        step.arguments[i] = (tern_argument){guards[i].buffer, guards[i].offset, arrays[i].bytes, desc->tensors[i].mode};
    }
    const tern_program_desc program_desc = {.label = "conformance", .step_count = 1, .steps = &step};
    tern_backend_program *program;
    uint64_t ticket;
    TEST_OK(c->backend->program_create(c->handle, &program_desc, &program));
    TEST_OK(c->backend->program_submit(c->handle, program, &ticket));
    conformance_wait(c, ticket);
    c->backend->program_destroy(c->handle, program);
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        guarded_check(c, &guards[i], i, desc->tensors[i].mode, arrays[i].bytes, results[i]);
        c->backend->buffer_destroy(c->handle, guards[i].buffer);
        free(guards[i].image);
    }
}

void conformance_dispatch(const conformance *c, const tern_kernel_desc *desc, const uint32_t *words,
                          conformance_array *arrays)
{
    uint8_t *first[TERN_TAPE_TENSORS], *second[TERN_TAPE_TENSORS];
    tern_backend_kernel *kernel;
    TEST_OK(c->backend->kernel_create(c->handle, desc, &kernel));
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        first[i] = malloc(arrays[i].bytes);
        second[i] = malloc(arrays[i].bytes);
        assert_true(first[i] && second[i]);
    }
    run_once(c, kernel, desc, words, arrays, first);
    run_once(c, kernel, desc, words, arrays, second);
    c->backend->kernel_destroy(c->handle, kernel);
    for (uint32_t i = 0; i < desc->tensor_count; i++) {
        if (memcmp(first[i], second[i], arrays[i].bytes) != 0) fail_msg("argument %u: a second run gave other bits", i);
        if (desc->tensors[i].mode & TERN_ACCESS_WRITE) memcpy(arrays[i].data, first[i], arrays[i].bytes);
        free(first[i]);
        free(second[i]);
    }
}

void conformance_tape(const conformance *c, const tape_maker *maker, const uint32_t *words, conformance_array *arrays)
{
    tern_kernel_desc desc;
    conformance_tape_desc(c, maker, words, &desc);
    conformance_dispatch(c, &desc, words, arrays);
}

float conformance_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (float)((int64_t)(*seed >> 40) - (1 << 23)) / (float)(1 << 23);
}

void conformance_fill(float *data, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) data[i] = conformance_random(&seed);
}
