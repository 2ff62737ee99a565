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

static const tern_store_options training = {
    .training = true, .optimizer = {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1}};

static void check_placing(const tern_store_layout *layout)
{
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const tern_store_parameter *p = &layout->parameters[i], *q;
        const tern_store_segment *segment = &layout->segments[p->segment];
        assert_int_equal(segment->group, p->group);
        assert_int_equal(p->first % TERN_STORE_BLOCK, 0);
        assert_true(p->first + p->count <= segment->elements);
        assert_int_equal(p->bytes, p->count * 4);
        assert_int_equal(segment->elements % TERN_STORE_CHUNK, 0);
        for (uint32_t k = 0; k < i; k++) {
            q = &layout->parameters[k];
            if (q->segment == p->segment)
                assert_true(q->first + q->count <= p->first || p->first + p->count <= q->first);
        }
    }
    for (uint32_t i = 1; i < layout->segment_count; i++)
        assert_true(layout->segments[i - 1].group <= layout->segments[i].group);
}

static void test_layout(void **state)
{
    (void)state;
    tern_graph *graph = leaf_graph();
    tern_store_layout *layout = NULL;
    TEST_OK(tern_store_layout_create(graph, &roomy, &training, &layout));
    assert_int_equal(layout->segment_count, 3);
    assert_int_equal(tern_store_layout_elements(layout), 7 + 2000 + 9 + 1 + 8000);
    check_placing(layout);
    assert_true(layout->groups[0].weight_decay == 0.1 && layout->groups[1].weight_decay == 0 &&
                layout->groups[2].frozen);
    assert_int_equal(tern_store_layout_bytes(layout, TERN_SLAB_WEIGHT), (3 + 1 + 1) * 16384);
    assert_int_equal(tern_store_layout_bytes(layout, TERN_SLAB_M), (3 + 1) * 16384); /* the frozen one has none */
    assert_int_equal(tern_store_layout_bytes(layout, TERN_SLAB_LOW), 0);
    assert_int_equal(tern_store_layout_bytes(layout, TERN_SLAB_M_SCALE), 0);
    tern_store_layout_destroy(layout);

    /* small segments: each matrix its own, a tensor above the limit too */
    tern_store_options small = training;
    small.segment_bytes = 16384;
    TEST_OK(tern_store_layout_create(graph, &roomy, &small, &layout));
    assert_int_equal(layout->segment_count, 4);
    assert_int_equal(layout->segments[0].elements, 4096);
    assert_int_equal(layout->segments[1].elements, 2 * 4096);
    check_placing(layout);
    tern_store_layout_destroy(layout);

    tern_device_info tight = roomy;
    tight.max_buffer_bytes = 20000;
    TEST_ERROR(tern_store_layout_create(graph, &tight, &training, &layout), TERN_ERROR_UNSUPPORTED,
               "\"e\" has 32000 bytes, but paper allows 20000");
    assert_null(layout);
    tern_graph_destroy(graph);
}

/* The table of slabs: which exist, as what, and how many bytes. */
static void test_slabs(void **state)
{
    (void)state;
    static const struct {
        tern_store_options options;
        uint64_t bytes[TERN_SLAB_COUNT]; /* per element of the trainable and of the frozen part, see below */
        uint64_t frozen[TERN_SLAB_COUNT];
    } rows[] = {
        /* weight, low, acc, m, v, scales: per block of 256 elements */
        {{.training = false}, {1024}, {1024}},
        {{.training = true, .optimizer = {.epsilon = 1}}, {1024, 0, 1024, 1024, 1024}, {1024}},
        {{.training = true, .low = TERN_BF16, .optimizer = {.epsilon = 1}}, {1024, 512, 1024, 1024, 1024}, {1024, 512}},
        {{.training = true, .low = TERN_BF16, .no_masters = true, .optimizer = {.epsilon = 1, .eight_bit = true}},
         {0, 512, 1024, 256, 256, 4, 4},
         {0, 512}},
        {{.training = true, .optimizer = {.kind = TERN_OPTIMIZER_LION, .eight_bit = true}},
         {1024, 0, 1024, 256, 0, 4, 0},
         {1024}},
        {{.training = true, .optimizer = {.kind = TERN_OPTIMIZER_SGD, .momentum = 0.9}}, {1024, 0, 1024, 1024}, {1024}},
        {{.training = true, .optimizer = {.kind = TERN_OPTIMIZER_SGD}}, {1024, 0, 1024}, {1024}},
    };
    tern_graph *graph = leaf_graph();
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        tern_store_layout *layout = NULL;
        TEST_OK(tern_store_layout_create(graph, &roomy, &rows[r].options, &layout));
        uint64_t trained = 0, frozen = 0;
        for (uint32_t i = 0; i < layout->segment_count; i++)
            *(layout->segments[i].trainable ? &trained : &frozen) += layout->segments[i].elements / 256;
        for (int slab = 0; slab < TERN_SLAB_COUNT; slab++)
            assert_int_equal(tern_store_layout_bytes(layout, (tern_store_slab)slab),
                             trained * rows[r].bytes[slab] + frozen * rows[r].frozen[slab]);
        check_placing(layout);
        tern_store_layout_destroy(layout);
    }
    tern_store_layout *layout = NULL;
    tern_store_options bad = {.no_masters = true};
    TEST_ERROR(tern_store_layout_create(graph, &roomy, &bad, &layout), TERN_ERROR_INVALID, "needs 16-bit weights");
    bad = (tern_store_options){.low = TERN_U8};
    TEST_ERROR(tern_store_layout_create(graph, &roomy, &bad, &layout), TERN_ERROR_INVALID, "f16 or bf16");
    bad = training;
    bad.optimizer.beta2 = 1;
    TEST_ERROR(tern_store_layout_create(graph, &roomy, &bad, &layout), TERN_ERROR_INVALID, "beta2 is 1");
    tern_graph_destroy(graph);
}

/* Leaves of a store on the CPU: what is written under a parameter's name is what every form of it reads back as. */
static void check_leaves(int32_t low, bool no_masters)
{
    tern_device *device = NULL;
    tern_graph *graph = leaf_graph();
    tern_store_layout *layout = NULL;
    tern_store *store = NULL;
    tern_store_options options = training;
    tern_binding at;
    float values[7], expected[7];
    uint16_t bits[7];
    options.low = low;
    options.no_masters = no_masters;
    TEST_OK(tern_device_open("cpu", &device));
    TEST_OK(tern_store_layout_create(graph, &device->info, &options, &layout));
    TEST_OK(tern_store_create(device, layout, 3, &store));
    uint64_t planned = layout->state_bytes;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++)
        planned += tern_store_layout_bytes(layout, (tern_store_slab)slab);
    assert_int_equal(tern_store_bytes(store), planned);

    TEST_OK(tern_store_read(store, "b", values, sizeof values)); /* ones, exact in every dtype */
    for (int i = 0; i < 7; i++) assert_true(values[i] == 1);
    for (int i = 0; i < 7; i++) {
        values[i] = (float)sin(i + 1.0);
        const uint16_t half = low == TERN_F16 ? tern_f32_to_f16(values[i]) : tern_f32_to_bf16(values[i]);
        expected[i] = !no_masters ? values[i] : low == TERN_F16 ? tern_f16_to_f32(half) : tern_bf16_to_f32(half);
    }
    TEST_OK(tern_store_write(store, "b", values, sizeof values));
    TEST_OK(tern_store_read(store, "b", values, sizeof values));
    assert_memory_equal(values, expected, sizeof values);
    TEST_ERROR(tern_store_write(store, "b", values, 8), TERN_ERROR_INVALID, "\"b\" has 28 bytes, but 8 were given");
    if (low) {
        TEST_OK(tern_store_read(store, "low.b", bits, sizeof bits));
        for (int i = 0; i < 7; i++)
            assert_int_equal(bits[i], low == TERN_F16 ? tern_f32_to_f16(values[i]) : tern_f32_to_bf16(values[i]));
    } else {
        TEST_ERROR(tern_store_find(store, "low.b", &at), TERN_ERROR_NOT_FOUND, "no low for parameter \"b\"");
    }
    if (no_masters)
        TEST_ERROR(tern_store_find(store, "b", &at), TERN_ERROR_NOT_FOUND, "no weight for parameter \"b\"");
    else
        TEST_OK(tern_store_find(store, "weight.b", &at));
    TEST_OK(tern_store_find(store, "acc.a", &at));
    assert_int_equal(at.bytes, 8000);
    TEST_OK(tern_store_find(store, "v.a", &at));
    TEST_ERROR(tern_store_find(store, "m.f", &at), TERN_ERROR_NOT_FOUND, "no m for parameter \"f\"");
    TEST_ERROR(tern_store_find(store, "nothing", &at), TERN_ERROR_NOT_FOUND, "holds nothing named \"nothing\"");
    tern_store_destroy(store);
    tern_store_layout_destroy(layout);
    tern_graph_destroy(graph);
    tern_device_close(device);
}

static void test_leaves(void **state)
{
    (void)state;
    check_leaves(0, false);
    check_leaves(TERN_BF16, false);
    check_leaves(TERN_F16, false);
    check_leaves(TERN_BF16, true);
    check_leaves(TERN_F16, true);
}

static void test_layout_of_second_graph(void **state)
{
    (void)state;
    tern_graph *graph = leaf_graph(), *other = NULL;
    tern_store_layout *layout = NULL;
    TEST_OK(tern_store_layout_create(graph, &roomy, &(tern_store_options){0}, &layout));
    TEST_OK(tern_graph_create(&other));
    (void)tern_parameter(other, "a", 2, (const int64_t[]){50, 40}, TERN_INIT_ZEROS, 0);
    TEST_ERROR(tern_store_layout_add(layout, other), TERN_ERROR_INVALID,
               "\"a\" is (40, 50) in the store, but (50, 40)");
    tern_graph_destroy(other);
    TEST_OK(tern_graph_create(&other));
    (void)tern_parameter(other, "z", 1, (const int64_t[]){2}, TERN_INIT_ZEROS, 0);
    TEST_ERROR(tern_store_layout_add(layout, other), TERN_ERROR_INVALID, "no parameter \"z\"");
    tern_graph_destroy(other);
    TEST_OK(tern_graph_create(&other));
    (void)tern_state(other, "low.a", TERN_F32, 1, (const int64_t[]){2000});
    TEST_ERROR(tern_store_layout_add(layout, other), TERN_ERROR_INVALID, "keeps no low for parameter \"a\"");
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
        cmocka_unit_test(test_layout),          cmocka_unit_test(test_slabs),
        cmocka_unit_test(test_leaves),          cmocka_unit_test(test_layout_of_second_graph),
        cmocka_unit_test(test_initial_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
