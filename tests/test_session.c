/* SPDX-License-Identifier: Apache-2.0 */
/* test_session.c - the short way from a graph to results: against the reference on cpu, opencl and vulkan, counted and
 * broken on null.
 *
 * One graph with everything a session handles: inputs, sorted ids, parameters, a state assigned in place, named
 * outputs, forward and backward. */
#include "backends/null/null.h"
#include "core/base/dtype.h"
#include "core/plan/session.h"
#include "core/reference/reference.h"
#include "tests/test.h"

#include <stdlib.h>

#define ROWS       6
#define WIDTH      8
#define VOCABULARY 11

static const uint32_t ids[ROWS] = {3, 0, 10, 3, 7, 3}, labels[ROWS] = {0, 10, 3, 7, 3, 1};

/* ids -> embedding -> linear -> gelu -> linear -> cross-entropy, the gradients of all parameters, and a running total.
 */
static tern_graph *classifier(void)
{
    tern_graph *graph;
    tern_gradients gradients;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input_1d(graph, "ids", TERN_U32, ROWS), *y = tern_input_1d(graph, "labels", TERN_U32, ROWS);
    tern_tensor *table =
        tern_parameter(graph, "wte.weight", 2, (const int64_t[]){VOCABULARY, WIDTH}, TERN_INIT_NORMAL, 0.02);
    tern_tensor *h = tern_gelu(tern_linear(tern_gather(table, x), "fc", 2 * WIDTH));
    tern_tensor *loss = tern_cross_entropy(tern_linear(h, "head", VOCABULARY), y, -1);
    tern_output(loss, "loss");
    tern_tensor *total = tern_state(graph, "total", TERN_F32, 1, (const int64_t[]){1});
    tern_tensor *sum = tern_sum(loss, 0);
    tern_output(tern_assign(total, tern_add(total, sum)), "running");
    tern_tensor *seed =
        tern_expand(tern_reshape(tern_constant(graph, 1.0), 1, (const int64_t[]){1}), 1, (const int64_t[]){ROWS});
    TEST_OK(tern_backward(graph, loss, seed, &gradients));
    assert_int_equal(gradients.count, 5);
    for (uint32_t g = 0; g < gradients.count; g++) {
        char name[80];
        snprintf(name, sizeof name, "d.%s", gradients.items[g].parameter->label);
        tern_output(tern_gradient_sum(&gradients.items[g]), name);
    }
    tern_gradients_finish(&gradients);
    TEST_OK(tern_graph_status(graph));
    return graph;
}

/* Small values that differ everywhere, the same for session and reference. */
static float element(const char *name, uint64_t index)
{
    uint32_t mixed = (uint32_t)index * 2654435761u + (uint32_t)strlen(name) * 40503u + (uint32_t)name[0];
    mixed ^= mixed >> 15;
    return (float)((double)(mixed * 2246822519u >> 8) / 16777216.0 - 0.5);
}

static void feed(tern_session *session, tern_reference *reference, const tern_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const tern_tensor *node = graph->nodes[n];
        if (node->op != TERN_OP_PARAMETER) continue;
        const uint64_t count = (uint64_t)tern_count(node);
        float *values = calloc(count, sizeof *values);
        for (uint64_t i = 0; i < count; i++) values[i] = element(node->label, i);
        for (uint64_t i = 0; reference && i < count; i++) tern_reference_data(reference, node)[i] = (double)values[i];
        TEST_OK(tern_session_write(session, node->label, values, count * sizeof *values));
        free(values);
    }
    TEST_OK(tern_session_write(session, "ids", ids, sizeof ids));
    TEST_OK(tern_session_write(session, "labels", labels, sizeof labels));
    if (!reference) return;
    uint32_t order[ROWS], offsets[VOCABULARY + 1];
    tern_counting_sort(ids, TERN_U32, ROWS, VOCABULARY, order, offsets);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const tern_tensor *node = graph->nodes[n];
        if (node->op != TERN_OP_INPUT) continue;
        const uint32_t *from = strcmp(node->label, "ids") == 0      ? ids
                               : strcmp(node->label, "labels") == 0 ? labels
                               : node->at.input.part                ? offsets
                                                                    : order;
        for (int64_t i = 0; i < tern_count(node); i++) tern_reference_data(reference, node)[i] = from[i];
    }
}

static void expect_outputs(tern_session *session, tern_reference *reference, const tern_graph *graph)
{
    for (uint32_t o = 0; o < graph->output_count; o++) {
        const tern_tensor *x = graph->outputs[o].tensor;
        const uint64_t count = (uint64_t)tern_count(x);
        float *found = calloc(count, sizeof *found);
        TEST_OK(tern_session_read(session, graph->outputs[o].name, found, count * sizeof *found));
        TEST_CLOSE(found, tern_reference_data(reference, x), count, 1e-5);
        free(found);
    }
}

/* Runs twice: the state's total must carry over. */
static void compare(const char *backend, const tern_session_options *options)
{
    tern_device *device;
    tern_session *session;
    tern_reference *reference;
    if (tern_device_open(backend, &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_graph *graph = classifier();
    TEST_OK(tern_session_create(device, graph, options, &session));
    TEST_OK(tern_reference_create(graph, &reference));
    feed(session, reference, graph);
    for (int run = 0; run < 2; run++) {
        float total;
        TEST_OK(tern_session_run(session));
        TEST_OK(tern_reference_run(reference));
        expect_outputs(session, reference, graph);
        TEST_OK(tern_session_read(session, "total", &total, sizeof total));
        const double expected = tern_reference_data(reference, tern_graph_find(graph, TERN_OP_STATE, "total"))[0];
        TEST_NEAR(total, expected, 1e-5 * fabs(expected));
        assert_true(total > 2.0f * (float)(run + 1) * ROWS); /* six losses near ln 11 */
    }
    tern_reference_destroy(reference);
    tern_session_destroy(session);
    tern_graph_destroy(graph);
    tern_device_close(device);
}

static void test_matches_the_reference(void **state) { compare(*state, NULL); }

static void test_guarded_reverse_matches(void **state)
{
    const tern_session_options options = {.guard = true, .reverse = true};
    compare(*state, &options);
}

static void test_unfused_matches(void **state)
{
    const tern_session_options options = {.no_fuse = true};
    compare(*state, &options);
}

/* ------------------------------------------------------------------- stores */

/* A parameter that the caller keeps: written and read through the caller's own buffer. */
static void test_callers_binding_is_used(void **state)
{
    (void)state;
    tern_device *device;
    tern_session *session;
    if (tern_device_open("cpu", &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_graph *graph = classifier();
    tern_binding binding = {.name = "total", .offset = 256, .bytes = 4};
    TEST_OK(device->backend->buffer_create(device->handle, 1024, TERN_BUFFER_DEVICE, &binding.buffer));
    const tern_session_options options = {.bindings = &binding, .binding_count = 1};
    TEST_OK(tern_session_create(device, graph, &options, &session));
    feed(session, NULL, graph);
    const float start = 100.0f;
    TEST_OK(tern_session_write(session, "total", &start, sizeof start));
    TEST_OK(tern_session_run(session));
    float inside, outside;
    TEST_OK(tern_session_read(session, "total", &inside, sizeof inside));
    TEST_OK(device->backend->buffer_read(device->handle, binding.buffer, binding.offset, &outside, sizeof outside));
    assert_memory_equal(&inside, &outside, sizeof inside);
    assert_true(inside > 100.0f + 2.0f * ROWS);
    tern_session_destroy(session);
    device->backend->buffer_destroy(device->handle, binding.buffer);
    tern_graph_destroy(graph);
    tern_device_close(device);
}

/* --------------------------------------------------------------------- null */

static void test_bad_calls_are_refused(void **state)
{
    (void)state;
    tern_device *device;
    tern_session *session = NULL;
    if (tern_device_open("null", &device) < 0) TEST_SKIP("%s", tern_error_message());
    tern_graph *graph = classifier();
    float data[ROWS];
    TEST_OK(tern_session_create(device, graph, NULL, &session));
    TEST_OK(tern_plan_verify(tern_session_plan(session)));
    TEST_ERROR(tern_session_write(session, "no such", data, 4), TERN_ERROR_NOT_FOUND,
               "no input, parameter or state 'no such'");
    TEST_ERROR(tern_session_write(session, "ids", ids, 20), TERN_ERROR_INVALID, "'ids' has 24 bytes, not 20");
    TEST_ERROR(tern_session_write(session, "fc.bias", data, 8), TERN_ERROR_INVALID, "'fc.bias' has 64 bytes, not 8");
    TEST_ERROR(tern_session_read(session, "no such", data, 4), TERN_ERROR_NOT_FOUND,
               "no output, parameter or state 'no such'");
    TEST_ERROR(tern_session_read(session, "total", data, 8), TERN_ERROR_INVALID, "'total' has 4 bytes, not 8");
    TEST_ERROR(tern_session_read(session, "loss", data, 8), TERN_ERROR_INVALID, "has 24 bytes, not 8");
    tern_session_destroy(session);
    tern_graph_destroy(graph);
    session = NULL;
    TEST_OK(tern_graph_create(&graph));
    tern_output(tern_add(tern_input_1d(graph, "a", TERN_F32, 3), tern_input_1d(graph, "b", TERN_F32, 5)), "sum");
    assert_true(tern_session_create(device, graph, NULL, &session) < 0);
    assert_null(session);
    tern_graph_destroy(graph);
    tern_device_close(device);
}

/* The device's memory is what the plan says, to the byte, and gone afterwards. */
static void test_memory_is_the_plan(void **state)
{
    (void)state;
    tern_device *device;
    tern_session *session;
    tern_null_counts counts;
    if (tern_device_open("null", &device) < 0) TEST_SKIP("%s", tern_error_message());
    const tern_null_hooks *null = tern_null_hooks_of(device->backend);
    tern_graph *graph = classifier();
    TEST_OK(tern_session_create(device, graph, NULL, &session));
    const tern_plan *plan = tern_session_plan(session);
    uint64_t stored = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const tern_tensor *node = graph->nodes[n];
        if (node->op != TERN_OP_PARAMETER && node->op != TERN_OP_STATE) continue;
        const uint64_t bytes = tern_dtype_bytes(node->dtype, (uint64_t)tern_count(node));
        stored +=
            (bytes + device->info.offset_alignment - 1) / device->info.offset_alignment * device->info.offset_alignment;
    }
    null->counts(&counts);
    assert_int_equal(counts.bytes, plan->arena_bytes + stored + 2 * plan->upload_bytes);
    for (int run = 0; run < 5; run++) TEST_OK(tern_session_run(session));
    const uint64_t before = counts.bytes, created = counts.buffers_created;
    null->counts(&counts);
    assert_int_equal(counts.bytes, before);
    assert_int_equal(counts.buffers_created, created);
    assert_int_equal(counts.dispatches, 5 * (uint64_t)plan->lowered->launch_count);
    tern_session_destroy(session);
    null->counts(&counts);
    assert_int_equal(counts.bytes, 0);
    assert_int_equal(counts.buffers + counts.kernels + counts.programs, 0);
    tern_graph_destroy(graph);
    tern_device_close(device);
}

static tern_status whole_life(tern_device *device, const tern_graph *graph, tern_session **out_session)
{
    tern_status status;
    float loss[ROWS];
    float bias[2 * WIDTH] = {0};
    TERN_TRY(tern_session_create(device, graph, NULL, out_session));
    TERN_TRY(tern_session_write(*out_session, "fc.bias", bias, sizeof bias));
    TERN_TRY(tern_session_write(*out_session, "ids", ids, sizeof ids));
    TERN_TRY(tern_session_run(*out_session));
    TERN_TRY(tern_session_read(*out_session, "loss", loss, sizeof loss));
fail:
    return status;
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    static const tern_status kinds[] = {TERN_ERROR_DEVICE_MEMORY, TERN_ERROR_DRIVER, TERN_ERROR_DEVICE_LOST};
    tern_device *device;
    tern_null_counts counts;
    if (tern_device_open("null", &device) < 0) TEST_SKIP("%s", tern_error_message());
    const tern_null_hooks *null = tern_null_hooks_of(device->backend);
    tern_graph *graph = classifier();
    null->counts(&counts);
    const uint64_t start = counts.calls;
    tern_session *session = NULL;
    TEST_OK(whole_life(device, graph, &session));
    tern_session_destroy(session);
    null->counts(&counts);
    const uint64_t calls = counts.calls - start;
    tern_device_close(device);
    for (uint64_t n = 1; n <= calls; n++) {
        const tern_status kind = kinds[n % 3u];
        TEST_OK(tern_device_open("null", &device)); /* anew: a lost device stays lost */
        session = NULL;
        null->fail_call(n, kind);
        const tern_status status = whole_life(device, graph, &session);
        if (status != kind)
            fail_msg("call %llu failed with %s, the session said %s", (unsigned long long)n, tern_status_name(kind),
                     tern_status_name(status));
        tern_session_destroy(session);
        tern_device_close(device);
        null->counts(&counts);
        assert_int_equal(counts.leaks, 0);
        assert_int_equal(counts.misuses, 0);
        assert_int_equal(counts.buffers + counts.kernels + counts.programs, 0);
    }
    print_message("%llu calls failed in turn\n", (unsigned long long)calls);
    assert_true(calls > 10);
    null->reset();
    tern_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_ON(test_matches_the_reference, "cpu"),
        TEST_ON(test_guarded_reverse_matches, "cpu"),
        TEST_ON(test_unfused_matches, "cpu"),
        TEST_ON(test_matches_the_reference, "opencl"),
        TEST_ON(test_guarded_reverse_matches, "opencl"),
        TEST_ON(test_unfused_matches, "opencl"),
        TEST_ON(test_matches_the_reference, "vulkan"),
        TEST_ON(test_guarded_reverse_matches, "vulkan"),
        TEST_ON(test_unfused_matches, "vulkan"),
        cmocka_unit_test(test_callers_binding_is_used),
        cmocka_unit_test(test_bad_calls_are_refused),
        cmocka_unit_test(test_memory_is_the_plan),
        cmocka_unit_test(test_every_call_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
