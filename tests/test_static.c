/* SPDX-License-Identifier: Apache-2.0 */
/* test_static.c - the vendors' compilers on GPT-2 124M's contractions: no spills, matrix units where they are claimed.
 *
 * bench_static compiles what the test looks at; the whole table takes minutes (make static), so only matmul and
 * attention on some targets are taken here. A compiler that is not on this machine is skipped with its reason. That a
 * spill and a matrix instruction would be seen at all is shown with kernels that have them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "bench/static/static.h"

/* ----------------------------------------------------------------- GPT-2 */

/* What `bench_static compile ARGUMENTS` prints; NULL: no compiler here, the reason is on stderr. */
static cJSON *compile(const char *arguments)
{
    char command[1024], *text = NULL;
    size_t bytes = 0;
    snprintf(command, sizeof command, "%s/bench/bench_static compile %s", TERN_BINARY_DIR, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const bool any = getdelim(&text, &bytes, 0, pipe) > 0;
    const int how = pclose(pipe);
    cJSON *all = any ? cJSON_Parse(text) : NULL;
    free(text);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77) {
        cJSON_Delete(all);
        return NULL;
    }
    assert_int_equal(how, 0);
    assert_non_null(all);
    return all;
}

static double figure(const cJSON *kernel, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(kernel, name);
    if (!cJSON_IsNumber(item)) {
        char *text = cJSON_PrintUnformatted(kernel);
        fail_msg("no %s in %s", name, text);
    }
    return item->valuedouble;
}

/* True if its variant claims matrix units. */
static bool check_kernel(const cJSON *kernel)
{
    char *text = cJSON_PrintUnformatted(kernel);
    if (cJSON_HasObjectItem(kernel, "error")) fail_msg("not compiled: %s", text);
    if (!(figure(kernel, "registers") > 0) || !(figure(kernel, "instructions") > 0)) fail_msg("no figures: %s", text);
    if (figure(kernel, "spills") != 0 || figure(kernel, "private") != 0) fail_msg("in memory: %s", text);
    const char *variant = cJSON_GetStringValue(cJSON_GetObjectItem(kernel, "variant"));
    assert_non_null(variant);
    const bool claims = strstr(variant, "matrix") != NULL;
    if (claims != (figure(kernel, "matrix") > 0)) fail_msg("claims other matrix units than it has: %s", text);
    free(text);
    return claims;
}

/* Returns the number of kernels seen. units: every card has matrix units for 16 bits that tern has words for. */
static uint32_t check(const char *arguments, bool units)
{
    uint32_t count = 0, contractions = 0, claims = 0;
    const cJSON *target, *precision, *kernel;
    cJSON *all = compile(arguments);
    if (!all) skip(); /* the reason is on stderr */
    cJSON_ArrayForEach(target, cJSON_GetObjectItem(all, "targets"))
    {
        cJSON_ArrayForEach(precision, cJSON_GetObjectItem(target, "precisions"))
        {
            contractions = claims = 0;
            const bool narrow = strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(precision, "precision")), "f32") != 0;
            cJSON_ArrayForEach(kernel, cJSON_GetObjectItem(precision, "kernels"))
            {
                claims += check_kernel(kernel);
                contractions++;
            }
            if (units && narrow) assert_true(claims >= 4); /* each pair of transpositions at least */
            assert_true(contractions >= 6); /* matmul in every transposition, attention forward and backward */
            count += contractions;
        }
    }
    cJSON_Delete(all);
    return count;
}

#define CONTRACTIONS "--kind matmul --kind attention --kind 'attention dq' --kind 'attention dkv' "

static void test_nvrtc_without_spills(void **state)
{
    (void)state;
    assert_true(check(CONTRACTIONS "sm_80 sm_120", true) >= 36); /* two targets, three precisions */
}

static void test_ocloc_without_spills(void **state)
{
    (void)state;
    assert_true(check(CONTRACTIONS "dg2", true) >= 18);
}

static void test_radv_null_hardware_without_spills(void **state)
{
    (void)state;
    assert_true(check(CONTRACTIONS "gfx1100", false) >= 18);
}

/* In the driver lab only. */
static void test_mesa_without_spills(void **state)
{
    (void)state;
    assert_true(check(CONTRACTIONS "--precision f16 navi31 gfx1201 turing ampere", true) >= 24);
}

/* ---------------------------------------------------- what must be seen */

static const char cuda_probe[] =
    "extern \"C\" __global__ void __launch_bounds__(1024) probe(float *out, const unsigned *in) {\n"
    "    float v[200], c[4] = {0, 0, 0, 0};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < 200; i++) v[i] = __uint_as_float(in[i * 1024 + threadIdx.x]);\n"
    "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
    "%9}, "
    "{%0, %1, %2, %3};\" : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"r\"(in[0]), \"r\"(in[1]), "
    "\"r\"(in[2]), \"r\"(in[3]), \"r\"(in[4]), \"r\"(in[5]));\n"
    "    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < 200; i++) out[i * 1024 + threadIdx.x] = v[i] * v[199 - i] + c[i & 3];\n"
    "}\n";

/* The form of eight lanes is Arc's; a bare compiler lacks its declaration. Scalars by name, since arrays may stay in
 * memory of their own. */
#define LIVE 300
static tern_status print_opencl_probe(tern_source *out_source)
{
    FILE *out = open_memstream(&out_source->text, &out_source->bytes);
    if (!out) return tern_error_memory("a probe", 1);
    fprintf(out,
            "float8 __attribute__((overloadable)) intel_sub_group_f16_f16_matrix_mad_k16(int8 a, int8 b, float8 acc);\n"
            "__attribute__((intel_reqd_sub_group_size(8))) __kernel void probe(__global float *out, __global const int "
            "*in) {\n    uint l = get_global_id(0);\n");
    for (int i = 0; i < LIVE; i++) fprintf(out, "    float v%d = as_float(in[%d + l]);\n", i, 1024 * i);
    fprintf(out, "    float8 c = intel_sub_group_f16_f16_matrix_mad_k16(vload8(l, in), vload8(l + 9, in), "
                 "(float8)(0.0f));\n    barrier(CLK_GLOBAL_MEM_FENCE);\n    vstore8(c, l, out);\n");
    for (int i = 0; i < LIVE; i++) fprintf(out, "    out[%d + l] = v%d * v%d;\n", 1024 * i, i, LIVE - 1 - i);
    fprintf(out, "}\n");
    return fclose(out) == 0 ? TERN_OK : tern_error_memory("a probe", 1);
}

static tern_status render_probe(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses,
                                tern_source *out_source)
{
    (void)desc;
    (void)addresses;
    if (dialect != TERN_DIALECT_CUDA) return print_opencl_probe(out_source);
    out_source->text = strdup(cuda_probe);
    if (!out_source->text) return tern_error_memory("a probe", sizeof cuda_probe);
    out_source->bytes = strlen(out_source->text);
    return TERN_OK;
}

static void see_probe(const static_compiler_table *compiler, const char *name)
{
    char version[300];
    const tern_kernel_desc desc = {.label = "probe", .render = render_probe};
    const static_target *target = static_target_find(name);
    static_figures figures;
    assert_non_null(target);
    if (compiler->open(target, NULL, version, sizeof version) == TERN_ERROR_NOT_FOUND) {
        fprintf(stderr, "skipped: %s\n", tern_error_message());
        skip();
    }
    const tern_status status = compiler->compile(target, NULL, &desc, &figures);
    if (status < 0) fail_msg("%s: %s", name, tern_error_message());
    if (figures.spills == 0 || figures.matrix == 0 || figures.registers == 0)
        fail_msg("%s: %u bytes of spills, %u matrix instructions, %u registers seen", name, figures.spills,
                 figures.matrix, figures.registers);
}

static void test_nvrtc_sees_spills_and_matrix_units(void **state)
{
    (void)state;
    see_probe(&static_nvrtc, "sm_80");
    see_probe(&static_nvrtc, "sm_86");
    see_probe(&static_nvrtc, "sm_89");
    see_probe(&static_nvrtc, "sm_90a");
    see_probe(&static_nvrtc, "sm_120");
}

static void test_ocloc_sees_spills_and_matrix_units(void **state)
{
    (void)state;
    see_probe(&static_ocloc, "dg2");
}

/* A damaged file is none, wherever it is cut. */
static void test_elf_is_checked(void **state)
{
    (void)state;
    char program[4096];
    size_t found = 0;
    snprintf(program, sizeof program, "%s/bench/bench_static", TERN_BINARY_DIR);
    FILE *file = fopen(program, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const size_t bytes = (size_t)ftell(file);
    char *elf = malloc(bytes);
    assert_non_null(elf);
    rewind(file);
    assert_int_equal(fread(elf, 1, bytes, file), bytes);
    fclose(file);
    assert_non_null(static_elf_section(elf, bytes, ".text", &found));
    assert_true(found > 0 && found < bytes);
    assert_null(static_elf_section(elf, bytes, ".no_such", &found));
    for (size_t cut = 0; cut < bytes; cut = 2 * cut + 1) { /* copies, so that a sanitizer sees the end */
        char *part = malloc(cut + 1);
        assert_non_null(part);
        memcpy(part, elf, cut);
        assert_null(static_elf_section(part, cut, ".text", &found)); /* section headers stand at the end */
        free(part);
    }
    free(elf);
}

/* ------------------------------------------------------------- the table */

static void test_table_names_what_spills(void **state)
{
    (void)state;
    char *text = NULL;
    cJSON *all = cJSON_Parse(
        "{\"targets\": [{\"target\": \"card\", \"cards\": \"Card\", \"compiler\": \"C 1\", \"precisions\": [{"
        "\"precision\": \"f32\", \"kernels\": [{\"kind\": \"matmul\", \"registers\": 100, \"spills\": 0, \"shared\": "
        "2048, \"matrix\": 5}, {\"kind\": \"matmul\", \"registers\": 90, \"spills\": 12, \"shared\": 1024, \"matrix\": "
        "0}, {\"kind\": \"attention dq\", \"error\": \"died\"}, {\"kind\": \"tape\", \"registers\": 7}]}]}]}");
    assert_non_null(all);
    assert_int_equal(static_table(all, &text), TERN_OK);
    assert_non_null(strstr(text, "| card | Card | C 1 |"));
    assert_non_null(strstr(text,
                           "| card | f32 | 2, 100 registers, 2 KiB, 5 matrix in 1, **1 spill (12 B at most)** | 1, 0 "
                           "registers, 0 KiB, **1 not compiled** | 1, 7 registers, 0 KiB |"));
    free(text);
    cJSON_Delete(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nvrtc_sees_spills_and_matrix_units),
        cmocka_unit_test(test_ocloc_sees_spills_and_matrix_units),
        cmocka_unit_test(test_nvrtc_without_spills),
        cmocka_unit_test(test_ocloc_without_spills),
        cmocka_unit_test(test_radv_null_hardware_without_spills),
        cmocka_unit_test(test_mesa_without_spills),
        cmocka_unit_test(test_elf_is_checked),
        cmocka_unit_test(test_table_names_what_spills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
