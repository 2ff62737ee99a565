/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_contraction.c - matmul, attention and scatter in f32 on every backend against plain loops in double.
 *
 * Sizes are ragged on purpose: nothing here divides a tile. test_conformance_half has 16-bit operands. */
#include "tests/contraction_trial.h"

/* All pairs of ragged sizes for (m, n), k going round, each transposition in turn, and 64 seeded triples. */
static void matmul_of_every_size(const conformance *c)
{
    static const uint32_t sizes[] = {1, 31, 33, 65, 127, 257};
    uint32_t turn = 0;
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 6; j++, turn++) {
            const matmul_trial t = {.batch = 1,
                                    .m = sizes[i],
                                    .n = sizes[j],
                                    .k = sizes[turn % 5 + (turn % 7 == 0)],
                                    .a_transposed = (turn + i) % 2,
                                    .b_transposed = (turn + i) / 2 % 2};
            matmul_try(c, &t);
        }
    uint64_t seed = 42;
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t size[3];
        for (size_t d = 0; d < 3; d++) size[d] = 1 + (uint32_t)((conformance_random(&seed) + 1) * 70);
        const matmul_trial t = {.batch = 1 + i % 3,
                                .m = size[0],
                                .n = size[1],
                                .k = size[2],
                                .a_transposed = i / 2 % 2,
                                .b_transposed = i % 2,
                                .a_pad = i % 5,
                                .b_pad = i % 4};
        matmul_try(c, &t);
    }
}

static void matmul_epilogues(const conformance *c)
{
    for (uint32_t end = BIAS_GELU_RESIDUAL; end < EPILOGUES; end++) {
        const matmul_trial t = {.batch = 3,
                                .m = 33,
                                .n = 65,
                                .k = 31,
                                .a_transposed = end / 2 % 2,
                                .b_transposed = end % 2,
                                .end = (trial_epilogue)end};
        matmul_try(c, &t);
    }
}

static void matmul_shares_an_operand(const conformance *c)
{
    const matmul_trial t = {
        .batch = 4, .m = 17, .n = 129, .k = 70, .share_b = true, .a_pad = 3, .b_pad = 1, .end = ACCUMULATE};
    matmul_try(c, &t);
}

static void matmul_of_long_sums(const conformance *c)
{
    const matmul_trial wide = {.batch = 1, .m = 5, .n = 7, .k = 20011, .b_transposed = true};
    const matmul_trial tall = {.batch = 1, .m = 1500, .n = 3, .k = 9, .a_transposed = true};
    matmul_try(c, &wide);
    matmul_try(c, &tall);
}

/* Few (D, causal) pairs, since each is a kernel to compile; many lengths, which are not. */
static const attention_trial attentions[] = {{1, 1, 1, 1, 24, false, false, 0},    {2, 3, 70, 70, 36, true, false, 0},
                                             {1, 2, 65, 31, 24, false, false, 0},  {2, 2, 31, 70, 24, false, true, 0},
                                             {2, 3, 33, 33, 64, true, false, 0},   {1, 4, 130, 130, 64, true, true, 0},
                                             {1, 1, 257, 257, 64, true, false, 0}, {1, 2, 40, 40, 256, true, true, 0}};

static void attention_forward(const conformance *c)
{
    attention_try_all(c, attentions, sizeof attentions / sizeof *attentions, attention_forward_try);
}

static void attention_backward(const conformance *c)
{
    attention_try_all(c, attentions, sizeof attentions / sizeof *attentions, attention_backward_try);
}

static void scatter_adds(const conformance *c)
{
    static const scatter_trial cases[] = {
        {1, 1, 1, true, 0, 0, 0},          {50, 33, 200, true, 0, 0, 0},         {257, 64, 1000, true, 0, 0, 0},
        {1000, 7, 33, true, 0, 0, 0},      {50, 33, 200, false, TERN_U32, 0, 0}, {31, 65, 127, false, TERN_I32, 0, 0},
        {1, 5, 300, false, TERN_U32, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) scatter_try(c, &cases[i]);
}

int main(void)
{
    static const conformance_case cases[] = {
        {"matmul of every size", matmul_of_every_size},
        {"matmul epilogues", matmul_epilogues},
        {"matmul shares an operand", matmul_shares_an_operand},
        {"matmul of long sums", matmul_of_long_sums},
        {"attention forward", attention_forward},
        {"attention backward", attention_backward},
        {"scatter adds", scatter_adds},
    };
    return conformance_main("contraction", cases, sizeof cases / sizeof *cases, NULL, 0);
}
