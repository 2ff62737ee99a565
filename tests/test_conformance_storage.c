/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_storage.c - what tensors narrower than a register make of values, on every backend: NaN, infinities,
 * the largest and subnormals through contractions and copies, every pattern of f16, bf16, u16 and u8, ROUND.
 *
 * Times 1, or added to 0, a value comes out as it went in, rounded to what it is stored as. */
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

/* --------------------------------------------------------- through contractions */

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

/* May this device make a zero of x? f32's own subnormals, bf16's among them, the cpu keeps. */
static bool may_flush(const conformance *c, float x) { return strcmp(c->name, "cpu") != 0 && fabsf(x) < 0x1p-126f; }

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
        const bool flushed = may_flush(c, from->value[i]) && g == 0;
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

/* --------------------------------------------------------------- through tapes */

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
            const bool flushed = may_flush(c, value) && (out[i] & 0x7fff) == 0;
            if (out[i] != (isnan(value) ? i | quiet : i) && !flushed)
                fail_msg("%s 0x%04x was copied as 0x%04x", tern_dtype(dtypes[d])->name, i, out[i]);
        }
        free(in), free(out);
    }
}

static bool same_or_nan(float a, float b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, 4) == 0; }

/* Every f16 and bf16 pattern through registers and back, u16 and u8 widened; stores round to nearest even, and
 * keep the low bits of integers. */
static void narrow_storage(const conformance *c)
{
    enum { ALL = 65536 };
    if (!has_storage(c)) return;
    if (!(c->device->info.features & TERN_FEATURE_STORAGE_8)) TEST_SKIP("%s has no 8-bit storage", c->name);
    uint16_t *half = malloc(2 * ALL), *brain = malloc(2 * ALL), *wide = malloc(2 * ALL), *half_out = malloc(2 * ALL),
             *brain_out = malloc(2 * ALL);
    uint16_t *sum_16 = malloc(2 * ALL);
    uint8_t *byte = malloc(ALL), *sum_8 = malloc(ALL);
    uint32_t *sum = malloc(4 * ALL);
    const uint32_t words[] = {ALL};
    assert_true(half && brain && wide && half_out && brain_out && byte && sum && sum_16 && sum_8);
    for (uint32_t i = 0; i < ALL; i++) {
        half[i] = brain[i] = wide[i] = (uint16_t)i;
        byte[i] = (uint8_t)(i * 31);
    }
    tape_maker m;
    tape_maker_start(&m, 1, 0, 1);
    const uint32_t th = tape_maker_tensor(&m, TERN_F16, READ), tb = tape_maker_tensor(&m, TERN_BF16, READ);
    const uint32_t tw = tape_maker_tensor(&m, TERN_U16, READ), t8 = tape_maker_tensor(&m, TERN_U8, READ);
    const uint32_t oh = tape_maker_tensor(&m, TERN_F16, WRITE), ob = tape_maker_tensor(&m, TERN_BF16, WRITE);
    const uint32_t os = tape_maker_tensor(&m, TERN_U32, WRITE), o16 = tape_maker_tensor(&m, TERN_U16, WRITE),
                   o8 = tape_maker_tensor(&m, TERN_U8, WRITE);
    const uint16_t factor =
        tape_maker_constant(&m, 1.0009765f); /* moves values off the grid, so that stores must round */
    const uint16_t vh = tape_maker_op(&m, TERN_TAPE_MUL, tape_maker_load(&m, th, 1), factor);
    const uint16_t vb = tape_maker_op(&m, TERN_TAPE_MUL, tape_maker_load(&m, tb, 1), factor);
    tape_maker_store(&m, oh, 1, vh);
    tape_maker_store(&m, ob, 1, vb);
    const uint16_t v16 = tape_maker_load(&m, tw, 1), v8 = tape_maker_load(&m, t8, 1);
    const uint16_t both = conformance_op(&m, TERN_TAPE_ADD, TERN_U32, 0, v16, v8, NO);
    tape_maker_store(&m, os, 1, both);
    tape_maker_store(&m, o16, 1, both);
    tape_maker_store(&m, o8, 1, both);
    conformance_array arrays[] = {{half, 2 * ALL}, {brain, 2 * ALL},    {wide, 2 * ALL},
                                  {byte, ALL},     {half_out, 2 * ALL}, {brain_out, 2 * ALL},
                                  {sum, 4 * ALL},  {sum_16, 2 * ALL},   {sum_8, ALL}};
    conformance_tape(c, &m, words, arrays);
    for (uint32_t i = 0; i < ALL; i++) {
        const float h = tern_f16_to_f32((uint16_t)i) * 1.0009765f, b = tern_bf16_to_f32((uint16_t)i) * 1.0009765f;
        if (!same_or_nan(tern_f16_to_f32(half_out[i]), tern_f16_to_f32(tern_f32_to_f16(h))))
            fail_msg("f16 0x%04x: stored 0x%04x, wanted 0x%04x", i, half_out[i], tern_f32_to_f16(h));
        const bool flushed =
            (may_flush(c, tern_bf16_to_f32((uint16_t)i)) || may_flush(c, b)) && (brain_out[i] & 0x7fff) == 0;
        if (!same_or_nan(tern_bf16_to_f32(brain_out[i]), tern_bf16_to_f32(tern_f32_to_bf16(b))) && !flushed)
            fail_msg("bf16 0x%04x: stored 0x%04x, wanted 0x%04x", i, brain_out[i], tern_f32_to_bf16(b));
        const uint32_t wanted = i + (uint8_t)(i * 31);
        if (sum[i] != wanted || sum_16[i] != (uint16_t)wanted || sum_8[i] != (uint8_t)wanted)
            fail_msg("%u was stored as u32 %u, u16 %u and u8 %u", wanted, sum[i], sum_16[i], sum_8[i]);
    }
    free(half), free(brain), free(wide), free(half_out), free(brain_out), free(byte), free(sum), free(sum_16),
        free(sum_8);
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
static uint32_t random_bits(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*seed >> 32);
}

static uint16_t rounded_to(tape_maker *m, uint16_t v, uint8_t dtype)
{
    return tape_maker_insn(
        m, (tern_tape_insn){.op = TERN_TAPE_ROUND, .type = TERN_F32, .imm = dtype, .in = {v, NO, NO, NO}});
}

/* ROUND gives what a store to that dtype and a load from it would, bit for bit, for edges, ties and random patterns. */
static void rounding(const conformance *c)
{
    enum { SAMPLES = 20000 };
    static float x[SAMPLES], y[2][SAMPLES];
    static const int32_t kinds[2] = {TERN_F16, TERN_BF16};
    static const uint32_t ties[] = {0x33000000, 0x33000001, 0x33c00000, 0x387fe000, 0x387fefff, 0x387ff000, 0x38801000,
                                    0x38803000, 0x3f801000, 0x3f803000, 0x3f808000, 0x3f818000, 0x477fe000, 0x477fefff,
                                    0x477ff000, 0x47800000, 0x7f7f7fff, 0x7f7f8000, 0x7f800001, 0x7fbfffff};
    const uint32_t words[] = {SAMPLES}, tie_count = sizeof ties / sizeof *ties;
    uint64_t seed = 13;
    for (uint32_t i = 0; i < SAMPLES; i++) x[i] = float_of(random_bits(&seed));
    for (uint32_t i = 0; i < SPECIALS; i++) x[i] = float_of(f32_bits[i]);
    for (uint32_t i = 0; i < 2 * tie_count; i++) x[SPECIALS + i] = float_of(ties[i / 2] | (i % 2) << 31);
    for (uint32_t i = SAMPLES / 2; i < SAMPLES; i++) { /* all of f16's range, a third of them ties or next to one */
        const uint32_t bits = random_bits(&seed), exponent = 100 + bits % 46;
        x[i] = float_of((bits & 0x80000000u) | exponent << 23 | (bits >> 8 & (i % 3 ? 0x7fffffu : 0x7ff001u)));
    }
    tape_maker m;
    tape_maker_start(&m, 1, 0, 1);
    const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ);
    const uint32_t ty[2] = {tape_maker_tensor(&m, TERN_F32, WRITE), tape_maker_tensor(&m, TERN_F32, WRITE)};
    const uint16_t v = tape_maker_load(&m, tx, 1);
    for (uint32_t k = 0; k < 2; k++) tape_maker_store(&m, ty[k], 1, rounded_to(&m, v, (uint8_t)kinds[k]));
    conformance_array arrays[] = {{x, sizeof x}, {y[0], sizeof y[0]}, {y[1], sizeof y[1]}};
    conformance_tape(c, &m, words, arrays);
    for (uint32_t i = 0; i < SAMPLES; i++)
        for (uint32_t k = 0; k < 2; k++) {
            const float wanted = tern_f32_round_to(x[i], kinds[k]);
            const bool both_nan = isnan(wanted) && isnan(y[k][i]);
            if (!both_nan && bits_of(y[k][i]) != bits_of(wanted))
                fail_msg("%s of %.9g (0x%08x) gave 0x%08x, wanted 0x%08x", tern_dtype(kinds[k])->name, (double)x[i],
                         bits_of(x[i]), bits_of(y[k][i]), bits_of(wanted));
        }
}

/* An op between two roundings, all in one kernel, gives the bits of the op alone on rounded values: compilers that see
 * them together may not confuse them (PoCL 6 did, in floor). */
static void ops_between_roundings(const conformance *c)
{
    enum { SAMPLES = 5000 };
    static const tern_tape_op ops[] = {TERN_TAPE_NEG,  TERN_TAPE_ABS,  TERN_TAPE_FLOOR, TERN_TAPE_EXP,
                                       TERN_TAPE_LOG,  TERN_TAPE_SQRT, TERN_TAPE_RSQRT, TERN_TAPE_RECIP,
                                       TERN_TAPE_TANH, TERN_TAPE_ERF,  TERN_TAPE_SIN,   TERN_TAPE_COS};
    static float x[SAMPLES], alone[SAMPLES], kept[SAMPLES];
    static uint16_t stored_y[SAMPLES];
    const uint32_t words[] = {SAMPLES};
    for (size_t turn = 0; turn < 2 * sizeof ops / sizeof *ops && has_storage(c); turn++) {
        const uint8_t dtype = dtypes[1 + turn % 2];
        const tern_tape_op op = ops[turn / 2];
        uint64_t seed = 17;
        for (uint32_t i = 0; i < SAMPLES; i++) x[i] = ((float)(random_bits(&seed) >> 8) / 8388608.0f - 1) * 40;
        tape_maker m;
        tape_maker_start(&m, 1, 0, 1);
        const uint32_t tx = tape_maker_tensor(&m, TERN_F32, READ), ty = tape_maker_tensor(&m, dtype, WRITE);
        tape_maker_store(&m, ty, 1, tape_maker_op(&m, op, rounded_to(&m, tape_maker_load(&m, tx, 1), dtype), NO));
        conformance_array together[] = {{x, sizeof x}, {stored_y, sizeof stored_y}};
        conformance_tape(c, &m, words, together);
        for (uint32_t i = 0; i < SAMPLES; i++) kept[i] = tern_f32_round_to(x[i], dtype);
        tape_maker_start(&m, 1, 0, 1);
        const uint32_t tk = tape_maker_tensor(&m, TERN_F32, READ), ta = tape_maker_tensor(&m, TERN_F32, WRITE);
        tape_maker_store(&m, ta, 1, tape_maker_op(&m, op, tape_maker_load(&m, tk, 1), NO));
        conformance_array apart[] = {{kept, sizeof kept}, {alone, sizeof alone}};
        conformance_tape(c, &m, words, apart);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            const float wanted = tern_f32_round_to(alone[i], dtype),
                        got = dtype == TERN_F16 ? tern_f16_to_f32(stored_y[i]) : tern_bf16_to_f32(stored_y[i]);
            if (!(isnan(wanted) && isnan(got)) && bits_of(got) != bits_of(wanted))
                fail_msg("%s of %.9g between roundings to %s gave %.9g, wanted %.9g", tern_tape_op_name(op),
                         (double)kept[i], tern_dtype(dtype)->name, (double)got, (double)wanted);
        }
    }
}

int main(void)
{
    static const conformance_case cases[] = {
        {"matmul carries", matmul_carries},
        {"attention carries", attention_carries},
        {"attention rows are apart", attention_rows_are_apart},
        {"scatter carries", scatter_carries},
        {"copies keep bits", copies_keep_bits},
        {"narrow storage", narrow_storage},
        {"rounding", rounding},
        {"ops between roundings", ops_between_roundings},
    };
    return conformance_main("storage", cases, sizeof cases / sizeof *cases, NULL, 0);
}
