/* SPDX-License-Identifier: Apache-2.0 */
/* check_cases.c - cases of elementwise ops, views, integers and random numbers.
 *
 * Shapes are odd on purpose: one element, a prime, rows of 33 and 65, three axes. Ranges keep clear of points where the
 * derivative jumps, except where a case is about one. */
#include "core/cli/check.h"

#include <math.h>

#define SHAPE(...)                                                                                                     \
    (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define P(name, ...) tern_check_parameter(graph, c, name, SHAPE(__VA_ARGS__))
#define U(name, ...) tern_input(graph, name, TERN_U32, SHAPE(__VA_ARGS__))
#define I(name, ...) tern_input(graph, name, TERN_I32, SHAPE(__VA_ARGS__))
#define BUILD(name)                                                                                                    \
    static void name(tern_graph *graph, __attribute__((unused)) const tern_check_case *c,                              \
                     __attribute__((unused)) uint64_t seed)
#define OUT(y) tern_check_output(graph, y)

/* -------------------------------------------------------------- f32, elementwise */

BUILD(unary)
{
    OUT(c->unary(P("a", 1)));
    OUT(c->unary(P("b", 3, 5)));
    OUT(c->unary(P("c", 1031)));
    OUT(c->unary(P("d", 2, 3, 65)));
    OUT(c->unary(P("e", 257, 33)));
}

BUILD(binary)
{
    OUT(c->binary(P("a", 7, 33), P("b", 7, 33)));
    OUT(c->binary(P("c", 2, 1, 3), P("d", 4, 1)));
    OUT(c->binary(P("e", 65), P("f", 1)));
    OUT(c->binary(P("g", 1), P("h", 3, 257)));
    tern_tensor *i = P("i", 31, 5);
    OUT(c->binary(i, i));
}

BUILD(where)
{
    tern_tensor *a = P("a", 31, 33), *b = P("b", 33), *condition = U("condition", 31, 33);
    OUT(tern_where(tern_and(condition, tern_constant_u32(graph, 1)), a, b));
}

/* Comparisons of f32: exact. The second operand meets the first in every third element. */
BUILD(compare)
{
    tern_tensor *a = P("a", 31, 33), *b = P("b", 31, 33);
    tern_tensor *third =
        tern_equal(tern_and(U("mask", 31, 33), tern_constant_u32(graph, 3)), tern_constant_u32(graph, 0));
    OUT(c->binary(a, tern_where(third, a, b)));
}

/* One tensor of more elements than any 16-bit group count holds: over 65,535 groups of 256, and over 128 MiB. */
BUILD(large) { OUT(c->unary(P("a", 34000011))); }

static tern_tensor *halve_and_add(tern_tensor *x)
{
    return tern_add(tern_mul(x, tern_constant(x->graph, 0.5)), tern_constant(x->graph, 3));
}

BUILD(chain) /* a long elementwise chain, one kernel when fused */
{
    tern_tensor *x = P("a", 17, 257);
    for (int i = 0; i < 12; i++) x = halve_and_add(tern_sin(x));
    OUT(x);
}

/* NaN and infinities where tern promises what becomes of them. */
static void put_specials(const tern_tensor *leaf, double *values)
{
    static const double specials[] = {NAN, INFINITY, -INFINITY, 0.0, 1.0};
    const uint32_t stride = leaf->label[0] == 'b' ? 5 : 1; /* every pair meets */
    if (leaf->op != TERN_OP_PARAMETER) return;
    for (int64_t i = 0; i < tern_count(leaf); i++) values[i] = specials[(uint64_t)i / stride % 5u];
}
BUILD(specials_unary) { OUT(c->unary(P("a", 25))); }
BUILD(specials_binary) { OUT(c->binary(P("a", 25), P("b", 25))); }

/* --------------------------------------------------------------------- integers */

BUILD(binary_u32)
{
    OUT(c->binary(U("a", 7, 33), U("b", 7, 33)));
    OUT(c->binary(U("c", 257), U("d", 1)));
}

BUILD(binary_i32) { OUT(c->binary(I("a", 7, 33), I("b", 7, 33))); }

BUILD(shift) { OUT(c->binary(U("a", 7, 33), tern_and(U("b", 7, 33), tern_constant_u32(graph, 31)))); }

BUILD(index_axes)
{
    for (int32_t axis = 0; axis < 3; axis++) OUT(tern_index(graph, SHAPE(5, 3, 33), axis));
}

BUILD(cast_from_f32)
{
    tern_tensor *x = P("a", 31, 33);
    OUT(tern_cast(x, TERN_I32));
    OUT(tern_cast(tern_abs(x), TERN_U32));
}

BUILD(cast_to_f32)
{
    static const int32_t types[] = {TERN_U8, TERN_U16, TERN_U32, TERN_I32};
    static const char *const names[] = {"u8", "u16", "u32", "i32"};
    for (int i = 0; i < 4; i++) OUT(tern_cast(tern_input(graph, names[i], types[i], SHAPE(7, 33)), TERN_F32));
}

BUILD(bitcast)
{
    tern_tensor *x = P("a", 7, 33);
    OUT(tern_bitcast(x, TERN_U32));
    OUT(tern_bitcast(tern_xor(tern_bitcast(x, TERN_U32), tern_constant_u32(graph, 0x80000000u)), TERN_F32));
    OUT(tern_bitcast(x, TERN_I32));
}

BUILD(random_bits)
{
    OUT(tern_random(graph, "bits.a", SHAPE(1)));
    OUT(tern_random(graph, "bits.b", SHAPE(5, 33)));
    OUT(tern_random(graph, "bits.c", SHAPE(3, 1031)));
}

/* The mask works forward and backward; its bits are the reference's, or the error would be a whole element. */
BUILD(dropout)
{
    OUT(tern_dropout(P("a", 33, 65), 0.3, "drop.a"));
    tern_tensor *x = tern_dropout(tern_tanh(P("b", 5, 1031)), 0.5, "drop.b");
    OUT(tern_mul(x, x));
}

/* ------------------------------------------------------------------------ views */

BUILD(views)
{
    OUT(tern_permute(P("a", 5, 3, 33), (int32_t[]){2, 0, 1}));
    OUT(tern_transpose(P("b", 65, 31), 0, 1));
    OUT(tern_reshape(tern_transpose(P("c", 4, 33), 0, 1), SHAPE(11, 12)));
    OUT(tern_expand(P("d", 3, 1, 5), SHAPE(2, 3, 7, 5)));
    OUT(tern_slice(tern_slice(P("e", 9, 35), 0, 2, 5), 1, 1, 33));
    OUT(tern_pad(tern_pad(P("f", 3, 31), 1, 2, 1), 0, 1, 0));
    tern_tensor *parts[3] = {P("g", 3, 5), P("h", 3, 1), P("i", 3, 33)};
    OUT(tern_concat(parts, 3, 1));
}

BUILD(view_chain)
{
    tern_tensor *x = tern_permute(P("a", 2, 3, 34), (int32_t[]){2, 0, 1});
    x = tern_pad(tern_slice(x, 0, 1, 31), 2, 1, 2);
    x = tern_expand(tern_reshape(tern_transpose(x, 0, -1), 2, (int64_t[]){-1, 31}), SHAPE(2, 12, 31));
    OUT(tern_mul(x, x));
}

BUILD(detach)
{
    tern_tensor *x = P("a", 5, 33);
    OUT(tern_mul(x, tern_detach(tern_sin(x))));
}

/* Writes in place: the reference and the device both start anew before each run, and readers see the old version. */
BUILD(assign)
{
    tern_tensor *state = tern_state(graph, "state", TERN_F32, SHAPE(33, 5));
    tern_tensor *x = P("a", 33, 5), *old = tern_mul(state, x);
    OUT(old);
    OUT(tern_assign(state, tern_add(state, tern_exp(x))));
    tern_tensor *count = tern_state(graph, "count", TERN_U32, SHAPE(1));
    OUT(tern_assign(count, tern_add(count, tern_constant_u32(graph, 7))));
}

/* ------------------------------------------------------------------------ table */

/* least 1: the single element of the first shape may lie where an op cancels, as gelu does at -5. */
#define UNARY(f, lo, hi)                                                                                               \
    {                                                                                                                  \
        .op = #f, .name = "shapes", .dtype = TERN_F32, .build = unary, .unary = tern_##f, .gradient = true, .low = lo, \
        .high = hi, .least = 1                                                                                         \
    }
#define BINARY(f, lo, hi)                                                                                              \
    {                                                                                                                  \
        .op = #f, .name = "shapes", .dtype = TERN_F32, .build = binary, .binary = tern_##f, .gradient = true,          \
        .low = lo, .high = hi, .least = 1                                                                              \
    }
#define INTEGER(f, kind, type)                                                                                         \
    {                                                                                                                  \
        .op = #f, .name = #kind, .dtype = type, .build = kind, .binary = tern_##f                                      \
    }
#define SPECIAL(f, kind)                                                                                               \
    {                                                                                                                  \
        .op = #f, .name = "specials", .dtype = TERN_F32, .build = specials_##kind, .kind = tern_##f,                   \
        .fill = put_specials                                                                                           \
    }

const tern_check_case tern_check_map_cases[] = {
    UNARY(neg, -3, 3),
    UNARY(abs, -3, 3),
    UNARY(exp, -20, 20),
    UNARY(log, 1e-3, 1e3),
    UNARY(sqrt, 1e-3, 1e3),
    UNARY(rsqrt, 1e-2, 1e3),
    UNARY(recip, 0.05, 20),
    UNARY(tanh, -6, 6),
    UNARY(erf, -4, 4),
    UNARY(sin, -30, 30),
    UNARY(cos, -30, 30),
    {.op = "floor", .name = "shapes", .dtype = TERN_F32, .build = unary, .unary = tern_floor, .low = -30, .high = 30},
    UNARY(relu, -3, 3),
    UNARY(silu, -20, 20),
    UNARY(sigmoid, -20, 20),
    UNARY(gelu, -6, 6),
    UNARY(gelu_tanh, -6, 6),
    BINARY(add, -3, 3),
    BINARY(sub, -3, 3),
    BINARY(mul, -3, 3),
    BINARY(div, 0.5, 20),
    BINARY(max, -3, 3),
    BINARY(min, -3, 3),
    BINARY(mse, -3, 3),
    {.op = "less", .name = "f32", .dtype = TERN_F32, .build = compare, .binary = tern_less, .low = -3, .high = 3},
    {.op = "equal", .name = "f32", .dtype = TERN_F32, .build = compare, .binary = tern_equal, .low = -3, .high = 3},
    {.op = "where", .name = "f32", .dtype = TERN_F32, .build = where, .gradient = true, .low = -3, .high = 3},
    {.op = "map", .name = "chain", .dtype = TERN_F32, .build = chain, .gradient = true, .low = -3, .high = 3},
    {.op = "map",
     .name = "130-mib",
     .dtype = TERN_F32,
     .f32_only = true,
     .build = large,
     .unary = tern_neg,
     .low = -3,
     .high = 3},
    SPECIAL(max, binary),
    SPECIAL(min, binary),
    SPECIAL(relu, unary),
    SPECIAL(exp, unary),
    SPECIAL(tanh, unary),
    INTEGER(add, binary_u32, TERN_U32),
    INTEGER(sub, binary_u32, TERN_U32),
    INTEGER(mul, binary_u32, TERN_U32),
    INTEGER(multiply_high, binary_u32, TERN_U32),
    INTEGER(and, binary_u32, TERN_U32),
    INTEGER(or, binary_u32, TERN_U32),
    INTEGER(xor, binary_u32, TERN_U32),
    INTEGER(less, binary_u32, TERN_U32),
    INTEGER(equal, binary_u32, TERN_U32),
    INTEGER(shift_left, shift, TERN_U32),
    INTEGER(shift_right, shift, TERN_U32),
    INTEGER(add, binary_i32, TERN_I32),
    INTEGER(sub, binary_i32, TERN_I32),
    INTEGER(mul, binary_i32, TERN_I32),
    INTEGER(less, binary_i32, TERN_I32),
    {.op = "index", .name = "axes", .dtype = TERN_U32, .build = index_axes},
    {.op = "cast", .name = "from-f32", .dtype = TERN_F32, .build = cast_from_f32, .low = -6e4, .high = 6e4},
    {.op = "cast", .name = "to-f32", .dtype = TERN_U32, .build = cast_to_f32},
    {.op = "bitcast", .name = "f32", .dtype = TERN_F32, .f32_only = true, .build = bitcast, .low = -3, .high = 3},
    {.op = "random", .name = "bits", .dtype = TERN_U32, .build = random_bits},
    {.op = "dropout", .name = "mask", .dtype = TERN_F32, .build = dropout, .gradient = true, .low = 0.5, .high = 2},
    {.op = "view", .name = "each", .dtype = TERN_F32, .build = views, .gradient = true, .low = -3, .high = 3},
    {.op = "view", .name = "chain", .dtype = TERN_F32, .build = view_chain, .gradient = true, .low = -3, .high = 3},
    {.op = "detach", .name = "f32", .dtype = TERN_F32, .build = detach, .gradient = true, .low = -3, .high = 3},
    {.op = "assign", .name = "state", .dtype = TERN_F32, .build = assign, .low = -3, .high = 3},
    {.op = NULL},
};
