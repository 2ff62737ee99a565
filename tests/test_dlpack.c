/* SPDX-License-Identifier: Apache-2.0 */
/* test_dlpack.c - tensors of a trainer to DLPack and back: layout, strides, dtypes, ownership, refusals. On cpu. */
#include "core/base/dlpack.h"
#include "tests/test.h"
#include "tests/train_fixture.h"

#define BATCH 4

typedef struct fixture {
    tern_device *device;
    tern_trainer *trainer;
} fixture;

/* y = x W over x (4, 2, 3) f32; `ids` only reads a table. */
static void start(fixture *f)
{
    tern_graph *graph = NULL;
    f->device = test_open_device("cpu", 1);
    f->trainer = NULL;
    TEST_OK(tern_graph_create(&graph));
    tern_tensor *x = tern_input(graph, "x", TERN_F32, 3, (const int64_t[]){BATCH, 2, 3});
    tern_tensor *ids = tern_input_1d(graph, "ids", TERN_I32, BATCH);
    tern_tensor *table = tern_parameter(graph, "table", 2, (const int64_t[]){6, 2}, TERN_INIT_NORMAL, 1);
    tern_tensor *y = tern_linear(x, "l", 2);
    tern_output(x, "x.seen");
    tern_loss(
        tern_sum(tern_add(tern_sum(y, 1), tern_reshape(tern_gather(table, ids), 3, (const int64_t[]){BATCH, 1, 2})), 2),
        NULL);
    TEST_OK(tern_trainer_create(f->device, graph, NULL, &f->trainer));
    tern_graph_destroy(graph);
}

static void stop(fixture *f)
{
    tern_trainer_destroy(f->trainer);
    tern_device_close(f->device);
}

static void test_layout(void **state)
{
    (void)state;
    /* The offsets that every other implementation uses, on a machine with 8-byte pointers. */
    assert_int_equal(sizeof(DLManagedTensor), 64);
    assert_int_equal(offsetof(DLManagedTensor, manager_ctx), 48);
    assert_int_equal(offsetof(DLTensor, device), 8);
    assert_int_equal(offsetof(DLTensor, ndim), 16);
    assert_int_equal(offsetof(DLTensor, dtype), 20);
    assert_int_equal(offsetof(DLTensor, shape), 24);
    assert_int_equal(offsetof(DLTensor, byte_offset), 40);
}

static void test_export(void **state)
{
    (void)state;
    fixture f;
    float weight[6];
    DLManagedTensor *tensor = NULL;
    start(&f);
    TEST_OK(tern_trainer_read(f.trainer, "l.weight", TERN_F32, weight, sizeof weight));
    TEST_OK(tern_dlpack_export(f.trainer, "l.weight", &tensor));
    const DLTensor *t = &tensor->dl_tensor;
    assert_true(t->ndim == 2 && t->shape[0] == 2 && t->shape[1] == 3 && t->strides[0] == 3 && t->strides[1] == 1);
    assert_true(t->device.device_type == 1 && t->dtype.code == 2 && t->dtype.bits == 32 && t->dtype.lanes == 1);
    assert_int_equal((uintptr_t)t->data % 256, 0);
    assert_memory_equal((char *)t->data + t->byte_offset, weight, sizeof weight);
    stop(&f); /* the tensor outlives its trainer */
    assert_memory_equal(t->data, weight, sizeof weight);
    tensor->deleter(tensor);
    start(&f);
    TEST_ERROR(tern_dlpack_export(f.trainer, "none", &tensor), TERN_ERROR_NOT_FOUND, "\"none\"");
    assert_null(tensor);
    TEST_ERROR(tern_dlpack_export(f.trainer, "x.seen", &tensor), TERN_ERROR_NOT_FOUND, "has run yet");
    assert_null(tensor);
    stop(&f);
}

static void test_stage(void **state)
{
    (void)state;
    fixture f;
    float data[2 + 3 * 2 * BATCH], seen[BATCH * 2 * 3];
    int32_t ids[BATCH] = {5, 0, 5, 2};
    int64_t shape[3] = {BATCH, 2, 3}, transposed[3] = {1, 3 * BATCH, BATCH}, compact[3] = {6, 3, 1};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) data[i] = (float)i;
    start(&f);
    int64_t *const strides[] = {NULL, compact, transposed};
    const tern_feed feeds[] = {{"x", NULL, 0}, {"ids", ids, sizeof ids}};
    for (int64_t rows = BATCH; rows > 0; rows -= 3)
        for (size_t i = 0; i < 3; i++) {
            shape[0] = rows;
            const DLManagedTensor tensor = {
                .dl_tensor = {data, {1, 0}, 3, {2, 32, 1}, shape, strides[i], 2 * sizeof *data}};
            TEST_OK(tern_dlpack_stage(f.trainer, "x", &tensor));
            TEST_OK(tern_trainer_step(f.trainer, feeds, 2, rows, NULL));
            TEST_OK(tern_trainer_read(f.trainer, "x.seen", TERN_F32, seen, sizeof seen));
            for (int64_t b = 0; b < rows; b++)
                for (int64_t r = 0; r < 2; r++)
                    for (int64_t c = 0; c < 3; c++) {
                        const int64_t *s = i == 2 ? transposed : compact;
                        assert_true(seen[b * 6 + r * 3 + c] == data[2 + b * s[0] + r * s[1] + c * s[2]]);
                    }
        }
    stop(&f);
}

static void test_refusals(void **state)
{
    (void)state;
    fixture f;
    static float data[BATCH * 6];
    int64_t shape[3] = {BATCH, 2, 3}, wide[3] = {BATCH, 3, 3}, many[3] = {BATCH + 1, 2, 3}, none[3] = {0, 2, 3};
    start(&f);
    const struct {
        DLTensor tensor;
        const char *part;
        tern_status status;
    } cases[] = {
        {{data, {2, 0}, 3, {2, 32, 1}, shape, NULL, 0}, "on DLPack device type 2", TERN_ERROR_UNSUPPORTED},
        {{data, {1, 0}, 3, {2, 64, 1}, shape, NULL, 0}, "code 2 with 64 bits", TERN_ERROR_INVALID},
        {{data, {1, 0}, 3, {2, 32, 2}, shape, NULL, 0}, "2 lanes", TERN_ERROR_INVALID},
        {{data, {1, 0}, 3, {0, 32, 1}, shape, NULL, 0}, "the input is f32", TERN_ERROR_INVALID},
        {{data, {1, 0}, 2, {2, 32, 1}, shape, NULL, 0},
         "has the shape (4, 2); the input's is (4, 2, 3)",
         TERN_ERROR_INVALID},
        {{data, {1, 0}, 3, {2, 32, 1}, wide, NULL, 0}, "has the shape (4, 3, 3)", TERN_ERROR_INVALID},
        {{data, {1, 0}, 3, {2, 32, 1}, many, NULL, 0}, "has the shape (5, 2, 3)", TERN_ERROR_INVALID},
        {{data, {1, 0}, 3, {2, 32, 1}, none, NULL, 0}, "has the shape (0, 2, 3)", TERN_ERROR_INVALID},
        {{data, {1, 0}, 3, {2, 32, 1}, NULL, NULL, 0}, "has the shape NULL", TERN_ERROR_INVALID},
        {{NULL, {1, 0}, 3, {2, 32, 1}, shape, NULL, 0}, "has no data", TERN_ERROR_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const DLManagedTensor tensor = {.dl_tensor = cases[i].tensor};
        TEST_ERROR(tern_dlpack_stage(f.trainer, "x", &tensor), cases[i].status, cases[i].part);
    }
    TEST_ERROR(tern_dlpack_stage(f.trainer, "x", NULL), TERN_ERROR_INVALID, "is NULL");
    TEST_ERROR(tern_dlpack_stage(f.trainer, "y", NULL), TERN_ERROR_NOT_FOUND, "no input \"y\"");
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_stage),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
