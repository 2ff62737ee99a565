/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_half.c - contractions of f16, bf16 and mixed tensors on every backend: values, NaN and infinities,
 * subnormals, large scores.
 *
 * 16 bits are storage: registers and sums are f32, results are rounded once, when they are stored. */
#include "core/base/dtype.h"
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
    for (size_t i = 0; i < sizeof attentions / sizeof *attentions && has_storage(c); i++) {
        attention_data x;
        attention_make(&x, attentions[i]);
        attention_solve(&x);
        attention_forward_try(c, &x);
        attention_free(&x);
    }
}

static void attention_backward(const conformance *c)
{
    for (size_t i = 0; i < sizeof attentions / sizeof *attentions && has_storage(c); i++) {
        attention_data x;
        attention_make(&x, attentions[i]);
        attention_solve(&x);
        attention_backward_try(c, &x);
        attention_free(&x);
    }
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

/* -------------------------------------------------------------- exceptions */

/* Values that every kind must carry: times 1, or added to 0, they come out as they went in. */
static const uint32_t f32_bits[] = {0x7fc00000,
                                    0x7f800000,
                                    0xff800000,
                                    0x477fe000 /* 65504 */,
                                    0x477ff000 /* 65520: infinite in f16 */,
                                    0x477fefff,
                                    0xc77ff000,
                                    0x33800000 /* 2^-24 */,
                                    0x33000000 /* half of it: 0 in f16 */,
                                    0x33000001,
                                    0x387fc000 /* f16's largest subnormal */,
                                    0x00000001,
                                    0x807fffff,
                                    0x00000000,
                                    0x80000000,
                                    0x3f800000,
                                    0x7f7fffff};
static const uint16_t f16_bits[] = {0x7e00, 0x7c00, 0xfc00, 0x7bff /* 65504 */,
                                    0xfbff, 0x0001, 0x8001, 0x03ff,
                                    0x0400, 0x0000, 0x8000, 0x3c00,
                                    0xfe00, 0x83ff, 0x0200, 0x3555,
                                    0x1000};
static const uint16_t bf16_bits[] = {0x7fc0, 0x7f80, 0xff80, 0x4780 /* 65536 */,
                                     0x477f, 0x0001, 0x8001, 0x007f,
                                     0x0080, 0x0000, 0x8000, 0x3f80,
                                     0xffc0, 0x807f, 0x7f7f, 0xff7f,
                                     0x3eab};
enum { SPECIALS = 17 };

/* Each special value `repeat` times in turn. */
static stored specials(uint8_t dtype, uint32_t repeat)
{
    stored x = stored_random(dtype, (size_t)SPECIALS * repeat, 1, 0);
    for (uint32_t i = 0; i < SPECIALS * repeat; i++) {
        if (dtype == TERN_F32)
            ((uint32_t *)x.data)[i] = f32_bits[i / repeat];
        else
            ((uint16_t *)x.data)[i] = dtype == TERN_F16 ? f16_bits[i / repeat] : bf16_bits[i / repeat];
    }
    stored_read(&x);
    return x;
}

static stored ones(uint8_t dtype, size_t count)
{
    stored x = stored_random(dtype, count, 1, 0);
    for (size_t i = 0; i < count; i++) x.value[i] = 1;
    stored_write(&x);
    return x;
}

/* got(i) must be from(i) rounded to got's dtype: NaN for NaN, the same infinity, the same number. f32's own subnormals,
 * bf16's among them, may be flushed by a device that does so; f16's are normal numbers of f32. */
static void check_carried(const conformance *c, const char *what, stored *got, const stored *from)
{
    stored wanted = stored_random(got->dtype, got->count, 1, 0);
    memcpy(wanted.value, from->value, got->count * sizeof *wanted.value);
    stored_write(&wanted);
    stored_read(got);
    for (size_t i = 0; i < got->count; i++) {
        const float w = wanted.value[i], g = got->value[i];
        const bool flushed =
            strcmp(c->name, "cpu") != 0 && g == 0 && fabsf(from->value[i]) < 0x1p-126f && fabsf(w) < 0x1p-126f;
        if (isnan(w) ? isnan(g) : g == w || flushed) continue;
        fail_msg("%s: %g of %s became %g of %s, wanted %g", what, (double)from->value[i], tern_dtype(from->dtype)->name,
                 (double)g, tern_dtype(got->dtype)->name, (double)w);
    }
    stored_free(&wanted);
}

/* y(m, n) = A(m, 0) B(0, n), one side being ones: ragged tiles on both sides. */
static void matmul_carries(const conformance *c)
{
    enum { OTHER = 3 };
    for (uint32_t turn = 0; turn < 12 && has_storage(c); turn++) {
        const uint8_t dtype = dtypes[turn % 3], y_dtype = dtypes[turn < 9 ? turn / 3 : (turn + 1) % 3];
        const bool right = turn >= 9; /* the values stand in B */
        const uint32_t m = right ? OTHER : SPECIALS, n = right ? SPECIALS : OTHER;
        const uint32_t words[TERN_MATMUL_WORDS] = {1, m, n, 1, 0, 1, 0, n};
        stored from = specials(dtype, 1), one = ones(dtype, OTHER), y = ones(y_dtype, (size_t)m * n),
               spread = right ? ones(dtype, (size_t)m * n) : specials(dtype, OTHER);
        for (size_t i = 0; i < y.count && right; i++) spread.value[i] = from.value[i % SPECIALS];
        const tern_tape_tensor own[] = {{dtype, READ}, {dtype, READ}};
        tape_maker maker;
        tern_kernel_desc desc;
        trial_epilogue_tape(&maker, STORE_ONLY, y_dtype);
        tape_maker_contraction(&maker, TERN_KERNEL_MATMUL, 2, own, TERN_MATMUL_WORDS, &desc);
        conformance_choose(c, words, &desc);
        conformance_array arrays[] = {stored_array(right ? &one : &from), stored_array(right ? &from : &one),
                                      stored_array(&y)};
        conformance_dispatch(c, &desc, words, arrays);
        check_carried(c, right ? "B of a matmul" : "A of a matmul", &y, &spread);
        stored_free(&from), stored_free(&one), stored_free(&y), stored_free(&spread);
    }
}

/* One key takes all attention, so o is v, and dv is do. */
static void attention_carries(const conformance *c)
{
    for (size_t d = 0; d < 3 && has_storage(c); d++) {
        const attention_trial s = {1, 1, 1, 1, SPECIALS, false, false, dtypes[d]};
        attention_data x;
        attention_make(&x, s);
        stored from = specials(dtypes[d], 1);
        stored_free(&x.v);
        x.v = specials(dtypes[d], 1);
        attention_forward_run(c, &x);
        check_carried(c, "v of attention", &x.o, &from);
        stored_free(&from);
        attention_free(&x);
    }
}

/* A NaN or an infinity in one query's row leaves the others alone; its own o is NaN, as the reference's is. */
static void attention_rows_are_apart(const conformance *c)
{
    static const uint16_t bits[] = {0x7e00, 0x7c00, 0xfc00};
    for (size_t i = 0; i < 3 && has_storage(c); i++) {
        const attention_trial s = {1, 1, 5, 7, 24, false, false, TERN_F16};
        attention_data x, clean;
        attention_make(&x, s);
        attention_make(&clean, s);
        ((uint16_t *)x.q.data)[2 * s.d + 3] = bits[i];
        attention_forward_run(c, &x);
        attention_forward_run(c, &clean);
        for (size_t e = 0; e < x.o.count; e++) {
            if (e / s.d == 2)
                assert_true(isnan(x.o.value[e]));
            else
                assert_true(x.o.value[e] == clean.o.value[e]);
        }
        attention_free(&x);
        attention_free(&clean);
    }
}

static void scatter_carries(const conformance *c)
{
    enum { WIDTH = 3 };
    for (uint32_t turn = 0; turn < 9 && has_storage(c); turn++) {
        const uint8_t dtype = dtypes[turn % 3], y_dtype = dtypes[turn / 3];
        const bool sorted = turn % 2;
        const uint32_t words[] = {1, SPECIALS, WIDTH, SPECIALS};
        uint32_t ids[SPECIALS], offsets[SPECIALS + 1];
        for (uint32_t i = 0; i <= SPECIALS; i++) offsets[i] = i;
        memcpy(ids, offsets, sizeof ids);
        stored from = specials(dtype, WIDTH), y = ones(y_dtype, (size_t)SPECIALS * WIDTH);
        const tern_tape_tensor own[] = {{dtype, READ}, {TERN_U32, READ}, {TERN_U32, READ}};
        tape_maker maker;
        tern_kernel_desc desc;
        trial_epilogue_tape(&maker, STORE_ONLY, y_dtype);
        tape_maker_contraction(&maker, TERN_KERNEL_SCATTER_ADD, sorted ? 3 : 2, own, 4, &desc);
        desc.sorted = sorted;
        conformance_choose(c, words, &desc);
        conformance_array in_order[] = {
            stored_array(&from), {ids, sizeof ids}, {offsets, sizeof offsets}, stored_array(&y)};
        conformance_array by_id[] = {stored_array(&from), {ids, sizeof ids}, stored_array(&y)};
        conformance_dispatch(c, &desc, words, sorted ? in_order : by_id);
        check_carried(c, "dy of a scatter", &y, &from);
        stored_free(&from), stored_free(&y);
    }
}

/* Every pattern of f16 and bf16 through a tape that only copies: a signalling NaN becomes quiet, nothing else moves. */
static void copies_keep_bits(const conformance *c)
{
    enum { ALL = 65536 };
    for (size_t d = 1; d < 3 && has_storage(c); d++) {
        const uint32_t words[] = {ALL};
        uint16_t *in = malloc(2 * ALL), *out = malloc(2 * ALL);
        assert_true(in && out);
        for (uint32_t i = 0; i < ALL; i++) in[i] = (uint16_t)i;
        tape_maker m;
        tape_maker_start(&m, 1, 0, 1);
        const uint32_t from = tape_maker_tensor(&m, dtypes[d], READ), to = tape_maker_tensor(&m, dtypes[d], WRITE);
        tape_maker_store(&m, to, 1, tape_maker_load(&m, from, 1));
        conformance_array arrays[] = {{in, 2 * ALL}, {out, 2 * ALL}};
        conformance_tape(c, &m, words, arrays);
        for (uint32_t i = 0; i < ALL; i++) {
            const float value = dtypes[d] == TERN_F16 ? tern_f16_to_f32((uint16_t)i) : tern_bf16_to_f32((uint16_t)i);
            const uint32_t quiet = dtypes[d] == TERN_F16 ? 0x200 : 0x40;
            const bool flushed = strcmp(c->name, "cpu") != 0 && fabsf(value) < 0x1p-126f && (out[i] & 0x7fff) == 0;
            if (out[i] != (isnan(value) ? i | quiet : i) && !flushed)
                fail_msg("%s 0x%04x was copied as 0x%04x", tern_dtype(dtypes[d])->name, i, out[i]);
        }
        free(in), free(out);
    }
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
        {"matmul carries", matmul_carries},
        {"attention carries", attention_carries},
        {"attention rows are apart", attention_rows_are_apart},
        {"scatter carries", scatter_carries},
        {"copies keep bits", copies_keep_bits},
    };
    return conformance_main("half", cases, sizeof cases / sizeof *cases, NULL, 0);
}
