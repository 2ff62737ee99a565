/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_half.c - contractions of f16, bf16 and mixed tensors on every backend against plain loops in double.
 *
 * 16 bits are storage: registers and sums are f32, results are rounded once, when they are stored. What storage does to
 * NaN, infinities and subnormals is test_conformance_storage's. */
#include "core/base/dtype.h"
#include "core/kernel/variant.h"
#include "tests/contraction_trial.h"

#include <stdlib.h>

enum { READ = TERN_ACCESS_READ, WRITE = TERN_ACCESS_WRITE };

static const uint8_t dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};

static bool has_storage(const conformance *c)
{
    if (c->device->info.features & TERN_FEATURE_STORAGE_16) return true;
    print_message("skipped: %s has no 16-bit storage\n", c->name);
    return false;
}

/* ------------------------------------------------------------------ values */

static void matmul_of_every_pair(const conformance *c)
{
    static const struct {
        uint32_t batch, m, n, k;
    } sizes[] = {{2, 33, 65, 31}, {1, 127, 31, 257}, {1, 1, 1, 1}, {1, 5, 70, 3}};
    if (!has_storage(c)) return;
    uint32_t turn = 0;
    for (size_t a = 0; a < 3; a++)
        for (size_t b = 0; b < 3; b++, turn++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                const matmul_trial t = {.batch = sizes[i].batch,
                                        .m = sizes[i].m,
                                        .n = sizes[i].n,
                                        .k = sizes[i].k,
                                        .a_transposed = turn % 2,
                                        .b_transposed = turn / 2 % 2,
                                        .a_pad = (uint32_t)i % 2,
                                        .b_pad = turn % 3,
                                        .a_dtype = dtypes[a],
                                        .b_dtype = dtypes[b],
                                        .y_dtype = dtypes[turn % 3]};
                matmul_try(c, &t);
            }
}

static void matmul_epilogues(const conformance *c)
{
    if (!has_storage(c)) return;
    for (uint32_t end = BIAS_GELU_RESIDUAL; end < EPILOGUES; end++) {
        const matmul_trial t = {.batch = 3,
                                .m = 33,
                                .n = 65,
                                .k = 31,
                                .a_transposed = end / 2 % 2,
                                .b_transposed = end % 2,
                                .end = (trial_epilogue)end,
                                .a_dtype = TERN_F16,
                                .b_dtype = TERN_BF16,
                                .y_dtype = end % 2 ? TERN_BF16 : TERN_F16};
        matmul_try(c, &t);
    }
}

/* Sums that 16 bits could not carry: an f16 accumulator would stop growing after 2,048 equal terms. Rows as of a weight
 * gradient, accumulated into f32. */
static void matmul_of_long_sums(const conformance *c)
{
    const matmul_trial wide = {.batch = 1,
                               .m = 5,
                               .n = 7,
                               .k = 20011,
                               .b_transposed = true,
                               .a_dtype = TERN_F16,
                               .b_dtype = TERN_F16,
                               .y_dtype = TERN_F32};
    const matmul_trial gradient = {.batch = 1,
                                   .m = 260,
                                   .n = 130,
                                   .k = 2500,
                                   .a_transposed = true,
                                   .end = ACCUMULATE,
                                   .a_dtype = TERN_BF16,
                                   .b_dtype = TERN_F32};
    if (!has_storage(c)) return;
    matmul_try(c, &wide);
    matmul_try(c, &gradient);
}

static const attention_trial attentions[] = {
    {1, 1, 1, 1, 24, false, false, TERN_F16},   {2, 2, 31, 70, 24, false, true, TERN_F16},
    {2, 3, 70, 70, 36, true, false, TERN_BF16}, {1, 2, 130, 130, 64, true, true, TERN_F16},
    {1, 2, 65, 31, 24, false, false, TERN_F16}, {1, 2, 40, 40, 64, true, true, TERN_BF16}};

static void attention_forward(const conformance *c)
{
    if (has_storage(c)) attention_try_all(c, attentions, sizeof attentions / sizeof *attentions, attention_forward_try);
}

static void attention_backward(const conformance *c)
{
    if (has_storage(c))
        attention_try_all(c, attentions, sizeof attentions / sizeof *attentions, attention_backward_try);
}

/* Scores of +-9,650 that differ by eighths: every score is exact in f32, so the softmax must be right to the last bits
 * of 16. In f16 arithmetic they would be infinite on the way. */
static void attention_of_large_scores(const conformance *c)
{
    for (size_t d = 1; d < 3 && has_storage(c); d++) {
        const attention_trial s = {1, 2, 37, 45, 64, false, false, dtypes[d]};
        attention_data x;
        attention_make(&x, s);
        for (uint32_t side = 0; side < 2; side++) {
            stored *tensor = side ? &x.k : &x.q;
            for (size_t i = 0; i < tensor->count; i++) {
                const size_t e = i % s.d, row = i / s.d / s.h;
                const float sign = (e * 7 % 3 == 0) != (row % 2 == 1) ? -1.0f : 1.0f;
                tensor->value[i] = e + 1 < s.d ? 35.0f * sign : side ? (float)(row % 5) : 1.0f;
            }
            stored_write(tensor);
        }
        attention_solve(&x);
        for (size_t r = 0; r < x.rows; r++) assert_true(fabs(x.lse_wanted[r]) > 9600 && fabs(x.lse_wanted[r]) < 9700);
        attention_forward_try(c, &x);
        /* Matrix units take ds in 16 bits. Here it meets keys of +-35 that cancel nearly all of it, so its roundings
         * show: 35 times those of four. */
        if (tern_variant_matrix(&c->device->info, s.dtype) != NULL)
            x.more = 4 * 35 * ldexp(1, s.dtype == TERN_F16 ? -11 : -8);
        attention_backward_try(c, &x);
        attention_free(&x);
    }
}

static void scatter_adds(const conformance *c)
{
    static const scatter_trial cases[] = {
        {1, 1, 1, true, 0, TERN_F16, TERN_F32},
        {50, 33, 200, true, 0, TERN_F16, TERN_F16},
        {257, 64, 1000, true, 0, TERN_BF16, TERN_F32},
        {50, 33, 200, false, TERN_U32, TERN_BF16, TERN_BF16},
        {31, 65, 127, false, TERN_I32, TERN_F16, TERN_F32},
        {3, 5, 3000, true, 0, TERN_F32, TERN_F16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && has_storage(c); i++) scatter_try(c, &cases[i]);
}

/* The forms that GPUs get, on whatever this device is: core chooses by what a device says of itself. */
static void shared_memory_forms(const conformance *c)
{
    static const attention_trial heads[] = {{2, 2, 31, 70, 24, false, true, TERN_F16},
                                            {1, 2, 130, 130, 64, true, true, TERN_BF16}};
    tern_device gpu = *c->device;
    conformance as_gpu = *c;
    if (!has_storage(c)) return;
    if (!(gpu.info.features & TERN_FEATURE_RENDERS)) {
        print_message("skipped: %s has its own contractions, no templates\n", c->name);
        return;
    }
    gpu.info.features &= ~(uint32_t)TERN_FEATURE_REGISTER_TILES;
    gpu.info.subgroup_min = gpu.info.subgroup_max = 32;
    as_gpu.device = &gpu;
    for (uint32_t turn = 0; turn < 4; turn++) {
        const matmul_trial t = {.batch = 2,
                                .m = 70,
                                .n = 33,
                                .k = 45,
                                .a_transposed = turn % 2,
                                .b_transposed = turn / 2,
                                .end = turn % 2 ? ACCUMULATE : STORE_ONLY,
                                .a_dtype = dtypes[turn % 3],
                                .b_dtype = dtypes[(turn + 1) % 3],
                                .y_dtype = dtypes[(turn + 2) % 3]};
        matmul_try(&as_gpu, &t);
    }
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        attention_data x;
        attention_make(&x, heads[i]);
        attention_solve(&x);
        attention_forward_try(&as_gpu, &x);
        attention_backward_try(&as_gpu, &x);
        attention_free(&x);
    }
    const scatter_trial s = {50, 33, 200, true, 0, TERN_F16, TERN_BF16};
    scatter_try(&as_gpu, &s);
}

int main(void)
{
    static const conformance_case cases[] = {
        {"matmul of every pair", matmul_of_every_pair},
        {"matmul epilogues", matmul_epilogues},
        {"matmul of long sums", matmul_of_long_sums},
        {"attention forward", attention_forward},
        {"attention backward", attention_backward},
        {"attention of large scores", attention_of_large_scores},
        {"scatter adds", scatter_adds},
        {"shared-memory forms", shared_memory_forms},
    };
    return conformance_main("half", cases, sizeof cases / sizeof *cases, NULL, 0);
}
