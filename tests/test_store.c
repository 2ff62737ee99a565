/* SPDX-License-Identifier: Apache-2.0 */
/* test_store.c - where parameters lie, and what they start from. */
#include "core/train/store.h"
#include "tests/test.h"

#include <stdlib.h>

static const tern_device_info roomy = {
    .name = "paper", .max_allocation_bytes = 1u << 30, .max_buffer_bytes = 1u << 30, .max_binding_bytes = 1u << 30};

/* decay: a (40, 50), e (4000, 2); plain: b (7), d (1); frozen: f (9). */
static tern_graph *leaf_graph(void)
{
    tern_graph *graph = NULL;
    TEST_OK(tern_graph_create(&graph));
    (void)tern_parameter(graph, "b", 1, (const int64_t[]){7}, TERN_INIT_ONES, 0);
    (void)tern_parameter(graph, "a", 2, (const int64_t[]){40, 50}, TERN_INIT_NORMAL, 0.5);
    tern_parameter_freeze(tern_parameter(graph, "f", 1, (const int64_t[]){9}, TERN_INIT_UNIFORM, 2));
    (void)tern_parameter(graph, "d", 1, (const int64_t[]){1}, TERN_INIT_ZEROS, 0);
    (void)tern_parameter(graph, "e", 2, (const int64_t[]){4000, 2}, TERN_INIT_NORMAL, 1);
    TEST_OK(tern_graph_status(graph));
    return graph;
}

static void test_layout(void **state)
{
    (void)state;
    tern_graph *graph = leaf_graph();
    tern_store_layout *layout = NULL;
    TEST_OK(tern_store_layout_create(graph, &roomy, 0, true, &layout));
    assert_int_equal(layout->segment_count, 3);
    assert_int_equal(tern_store_layout_elements(layout), 7 + 2000 + 9 + 1 + 8000);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const tern_store_parameter *p = &layout->parameters[i], *q;
        const tern_store_segment *segment = &layout->segments[p->segment];
        assert_int_equal(segment->group, p->group);
        assert_int_equal(p->offset % 64, 0);
        assert_true(p->offset + p->bytes <= segment->bytes);
        assert_int_equal(segment->bytes % (TERN_STORE_CHUNK * 4), 0);
        for (uint32_t k = 0; k < i; k++) {
            q = &layout->parameters[k];
            if (q->segment == p->segment)
                assert_true(q->offset + q->bytes <= p->offset || p->offset + p->bytes <= q->offset);
        }
    }
    assert_int_equal(tern_store_layout_bytes(layout, TERN_SLAB_WEIGHT), (3 + 1 + 1) * 16384);
    assert_int_equal(tern_store_layout_bytes(layout, TERN_SLAB_M), (3 + 1) * 16384); /* the frozen one has none */
    tern_store_layout_destroy(layout);

    /* small segments: each matrix its own, a tensor above the limit too */
    TEST_OK(tern_store_layout_create(graph, &roomy, 16384, true, &layout));
    assert_int_equal(layout->segment_count, 4);
    assert_int_equal(layout->segments[0].bytes, 16384);
    assert_int_equal(layout->segments[1].bytes, 2 * 16384);
    tern_store_layout_destroy(layout);

    tern_device_info tight = roomy;
    tight.max_buffer_bytes = 20000;
    TEST_ERROR(tern_store_layout_create(graph, &tight, 0, true, &layout), TERN_ERROR_UNSUPPORTED,
               "\"e\" has 32000 bytes, but paper allows 20000");
    assert_null(layout);
    tern_graph_destroy(graph);
}

static void test_layout_of_second_graph(void **state)
{
    (void)state;
    tern_graph *graph = leaf_graph(), *other = NULL;
    tern_store_layout *layout = NULL;
    TEST_OK(tern_store_layout_create(graph, &roomy, 0, false, &layout));
    TEST_OK(tern_graph_create(&other));
    (void)tern_parameter(other, "a", 2, (const int64_t[]){50, 40}, TERN_INIT_ZEROS, 0);
    TEST_ERROR(tern_store_layout_add(layout, other), TERN_ERROR_INVALID,
               "\"a\" is (40, 50) in the store, but (50, 40)");
    tern_graph_destroy(other);
    TEST_OK(tern_graph_create(&other));
    (void)tern_parameter(other, "z", 1, (const int64_t[]){2}, TERN_INIT_ZEROS, 0);
    TEST_ERROR(tern_store_layout_add(layout, other), TERN_ERROR_INVALID, "no parameter \"z\"");
    tern_graph_destroy(other);
    tern_store_layout_destroy(layout);
    tern_graph_destroy(graph);
}

static void test_initial_weights(void **state)
{
    (void)state;
    enum { COUNT = 40001 };
    float *a = malloc(COUNT * sizeof *a), *b = malloc(COUNT * sizeof *b);
    assert_true(a && b);
    tern_store_parameter p = {.name = (char[]){"h.0.weight"}, .init = TERN_INIT_NORMAL, .scale = 0.02};
    tern_store_initial(&p, 5, a, COUNT);
    tern_store_initial(&p, 5, b, 1003);
    assert_memory_equal(a, b, 1003 * sizeof *a); /* the length does not matter */
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < COUNT; i++) {
        double x = (double)a[i] / 0.02;
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    TEST_NEAR(sum / COUNT, 0, 4 / sqrt(COUNT)); /* four standard errors each */
    TEST_NEAR(squares / COUNT, 1, 4 * sqrt(2.0 / COUNT));
    TEST_NEAR(fourth / COUNT, 3, 4 * sqrt(96.0 / COUNT));
    p.name = (char[]){"h.1.weight"};
    tern_store_initial(&p, 5, b, COUNT);
    assert_true(memcmp(a, b, 1000 * sizeof *a) != 0);
    p.init = TERN_INIT_UNIFORM;
    p.scale = 3;
    tern_store_initial(&p, 5, b, COUNT);
    for (int i = 0; i < COUNT; i++) assert_true(b[i] >= -3 && b[i] < 3);
    p.init = TERN_INIT_ONES;
    tern_store_initial(&p, 5, b, 5);
    assert_true(b[0] == 1 && b[4] == 1);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_layout_of_second_graph),
        cmocka_unit_test(test_initial_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
