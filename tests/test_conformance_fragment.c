/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_fragment.c - matmul and attention by fragments on every backend that renders: with fragments in
 * registers, which any device has, with each matrix shape that the device offers, and by DPAS written out.
 *
 * Sizes are ragged and strides odd as well as round: round ones are copied 16 bytes at a time, the others by elements,
 * and a tile has both. What the device would choose by itself is set aside: its list of shapes is the case's. */
#include <stdlib.h>

#include "core/base/dtype.h"
#include "tests/contraction_trial.h"
#include "tests/dpas_stand_in.h"
#include "tests/level_zero_fixture.h"

/* The device with one shape; restored by leave. */
typedef struct only {
    tern_device_info *info, before;
    char wanted[32];
    double more;
    tern_status (*render)(const tern_kernel_desc *, tern_dialect, bool, tern_source *);
} only;

static only enter(const conformance *c, tern_matrix_shape shape)
{
    only o = {.info = &c->device->info, .before = c->device->info};
    o.info->matrix_count = 1;
    o.info->matrix[0] = shape;
    if (shape.subgroup > 1)
        o.info->features &= ~(uint32_t)TERN_FEATURE_REGISTER_TILES; /* matrices are imitated there */
    const bool tf32 = shape.dtype == TERN_F32 && shape.subgroup > 1;
    snprintf(o.wanted, sizeof o.wanted, "_%s_%s", shape.subgroup > 1 ? "matrix" : "fragment",
             tf32 ? "tf32" : tern_dtype(shape.dtype)->name);
    o.more = tf32 ? 1e-3 : 0; /* operands lose 13 bits: 2^-11 each at most */
    return o;
}

static void leave(const only *o) { *o->info = o->before; }

/* Every step-th size from the first-th on. */
static void shapes_and_strides(const conformance *c, const only *o, uint8_t dtype, uint32_t first, uint32_t step)
{
    static const struct {
        uint32_t batch, m, n, k, a_pad, b_pad;
    } sizes[] = {{1, 64, 64, 64, 0, 0},   {2, 33, 65, 31, 1, 0}, {1, 127, 31, 257, 0, 3},
                 {1, 1, 1, 1, 0, 0},      {3, 5, 70, 8, 3, 8},   {1, 200, 136, 72, 8, 24},
                 {1, 130, 264, 40, 0, 0}, {2, 64, 16, 96, 2, 6}, {1, 300, 300, 16, 4, 4}};
    for (uint32_t i = first; i < sizeof sizes / sizeof *sizes; i += step)
        for (uint32_t transposed = i % 2; transposed<4; transposed += i> 3 ? 2 : 1) {
            const matmul_trial t = {.batch = sizes[i].batch,
                                    .m = sizes[i].m,
                                    .n = sizes[i].n,
                                    .k = sizes[i].k,
                                    .a_transposed = transposed & 1,
                                    .b_transposed = transposed >> 1,
                                    .share_b = i == 7,
                                    .a_pad = sizes[i].a_pad,
                                    .b_pad = sizes[i].b_pad,
                                    .a_dtype = dtype,
                                    .b_dtype = dtype,
                                    .y_dtype = i % 3 == 2 ? dtype : TERN_F32,
                                    .variant = o->wanted,
                                    .more = o->more,
                                    .render = o->render};
            matmul_try(c, &t);
        }
}

static void epilogues_and_long_sums(const conformance *c, const only *o, uint8_t dtype, uint32_t first, uint32_t step)
{
    for (uint32_t end = BIAS_GELU_RESIDUAL + first; end < EPILOGUES; end += step) {
        const matmul_trial t = {.batch = 3,
                                .m = 33,
                                .n = 72,
                                .k = 40,
                                .a_transposed = end / 2 % 2,
                                .b_transposed = end % 2,
                                .end = (trial_epilogue)end,
                                .a_dtype = dtype,
                                .b_dtype = dtype,
                                .y_dtype = dtype,
                                .variant = o->wanted,
                                .more = o->more,
                                .render = o->render};
        matmul_try(c, &t);
    }
    const matmul_trial gradient = {.batch = 1,
                                   .m = 24,
                                   .n = 40,
                                   .k = 5003,
                                   .a_transposed = true,
                                   .end = ACCUMULATE,
                                   .a_dtype = dtype,
                                   .b_dtype = dtype,
                                   .variant = o->wanted,
                                   .more = o->more,
                                   .render = o->render};
    matmul_try(c, &gradient);
}

/* Texts that no CPU is given in earnest: over attention in registers its compiler ends the process (exit status 255),
 * and one matmul in 16 bits by DPAS written out comes out wrong (docs/testing.md); PoCL 3.1 has neither. */
static bool is_pocl_6(const conformance *c)
{
    const bool is =
        strcmp(c->name, "opencl") == 0 && strstr(c->device->info.driver, "Portable Computing Language 6.") != NULL;
    if (is) print_message("skipped on PoCL 6, whose compiler does not take it\n");
    return is;
}

/* Heads that are no multiple of a fragment, ragged rows, causal and not, rows of (q, k, v) side by side. */
static void attentions(const conformance *c, const only *o, uint8_t dtype, uint32_t first, uint32_t step)
{
    static const attention_trial sizes[] = {{1, 2, 33, 45, 16, true, false, 0},  {2, 1, 16, 64, 32, false, false, 0},
                                            {1, 3, 70, 70, 24, true, true, 0},   {1, 1, 5, 3, 8, false, false, 0},
                                            {1, 2, 100, 100, 64, true, true, 0}, {2, 2, 1, 37, 20, false, false, 0}};
    if (is_pocl_6(c)) return;
    o->info->subgroup_min = 16; /* sub-groups of 8 are taken for few registers */
    for (uint32_t i = first; i < sizeof sizes / sizeof *sizes; i += step) {
        attention_trial s = sizes[i];
        attention_data x;
        s.dtype = dtype;
        attention_make(&x, s);
        x.variant = o->wanted;
        x.more = o->more + (dtype == TERN_F32 ? 0 : dtype == TERN_F16 ? 1e-3 : 8e-3); /* weights are rounded, too */
        x.render = o->render;
        attention_solve(&x);
        attention_forward_try(c, &x);
        attention_backward_try(c, &x);
        attention_free(&x);
    }
}

static void with_shape(const conformance *c, tern_matrix_shape shape, uint32_t first, uint32_t step)
{
    const only o = enter(c, shape);
    shapes_and_strides(c, &o, (uint8_t)shape.dtype, first, step);
    epilogues_and_long_sums(c, &o, (uint8_t)shape.dtype, first, step);
    attentions(c, &o, (uint8_t)shape.dtype, first, step);
    leave(&o);
}

static bool renders(const conformance *c)
{
    if ((c->device->info.features & TERN_FEATURE_RENDERS) && (c->device->info.features & TERN_FEATURE_STORAGE_16))
        return true;
    print_message("skipped: %s compiles no text with 16-bit tensors\n", c->name);
    return false;
}

static void fragments_in_registers(const conformance *c)
{
    static const int32_t dtypes[] = {TERN_F16, TERN_BF16, TERN_F32};
    /* The template is the same for each dtype, and CPUs' compilers take long over it: each size with one dtype. */
    for (uint32_t i = 0; i < 3 && renders(c); i++) with_shape(c, (tern_matrix_shape){dtypes[i], 4, 4, 2, 1}, i, 3);
}

/* A driver whose compiler takes such text and makes no matrix instructions of it: the written-out ones are none. */
static void binary_without_dpas(const conformance *c)
{
    if (strcmp(c->name, "level_zero") != 0) return;
    const only o = enter(c, (tern_matrix_shape){TERN_F16, 8, 8, 16, 8});
    const matmul_trial t = {.batch = 1,
                            .m = 64,
                            .n = 64,
                            .k = 64,
                            .a_dtype = TERN_F16,
                            .b_dtype = TERN_F16,
                            .variant = o.wanted,
                            .render = dpas_render};
    uint32_t words[TERN_MATMUL_WORDS];
    tape_maker maker;
    tern_kernel_desc desc;
    tern_backend_kernel *kernel = NULL;
    matmul_describe(c, &t, words, &maker, &desc);
    TEST_ERROR(c->backend->kernel_create(c->handle, &desc, &kernel), TERN_ERROR_KERNEL, "no has_dpas in its binary");
    assert_null(kernel);
    /* Nor where a call fails on the way to the binary, or the binary cannot be had. */
    const char *why = "";
    const level_zero_stand_in *stand_in =
        getenv("ZE_ENABLE_ALT_DRIVERS") ? level_zero_stand_in_find(LEVEL_ZERO_STAND_IN, &why) : NULL;
    bool failed = stand_in != NULL, binary = false;
    for (uint64_t call = 1; failed; call++) {
        stand_in->fail_call(call, 0x7ffffffe, false);
        const tern_status status = c->backend->kernel_create(c->handle, &desc, &kernel);
        failed = *stand_in->failed_name() != 0;
        binary = binary || strcmp(stand_in->failed_name(), "zeModuleGetNativeBinary") == 0;
        if (status >= 0) fail_msg("%s failed, and the kernel was made", stand_in->failed_name());
    }
    if (stand_in) stand_in->fail_call(0, 0, false);
    assert_true(binary || !stand_in);
    leave(&o);
}

/* The words for Intel's matrix units, on any OpenCL device: the instruction is written out. */
static void fragments_by_dpas_written_out(const conformance *c)
{
    if (strcmp(c->name, "opencl") != 0 || !renders(c) || is_pocl_6(c)) return;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t lanes = i % 2 ? 16 : 8;
        only o = enter(c, (tern_matrix_shape){i / 2 ? TERN_BF16 : TERN_F16, 8, lanes, 16, lanes});
        o.info->subgroup_min = o.info->subgroup_max = lanes;
        o.render = dpas_render;
        shapes_and_strides(c, &o, (uint8_t)o.info->matrix[0].dtype, i, 4);
        epilogues_and_long_sums(c, &o, (uint8_t)o.info->matrix[0].dtype, i, 4);
        attentions(c, &o, (uint8_t)o.info->matrix[0].dtype, i, 4);
        leave(&o);
    }
}

static void fragments_on_matrix_units(const conformance *c)
{
    if (!renders(c)) return;
    TEST_OK(tern_device_allow_tf32(c->device, true));
    const uint32_t count = c->device->info.matrix_count;
    if (count == 0) print_message("skipped: %s offers no matrix shape\n", c->device->info.name);
    for (uint32_t i = 0; i < count; i++) {
        const tern_matrix_shape shape = c->device->info.matrix[i];
        print_message("%s: %s %u x %u x %u, sub-groups of %u\n", c->name, tern_dtype(shape.dtype)->name, shape.m,
                      shape.n, shape.k, shape.subgroup);
        with_shape(c, shape, 0, 1);
    }
}

int main(void)
{
    static const conformance_case cases[] = {{"fragments in registers", fragments_in_registers},
                                             {"fragments by DPAS, written out", fragments_by_dpas_written_out},
                                             {"a binary without DPAS", binary_without_dpas},
                                             {"fragments on matrix units", fragments_on_matrix_units}};
    return conformance_main("fragment", cases, sizeof cases / sizeof *cases, NULL, 0);
}
