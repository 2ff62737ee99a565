/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_matmul.c - the cpu backend's matmuls against oneDNN called directly, on the shapes of a small GPT, with the same
 * threads.
 *
 * Prints one line per shape: GFLOP/s of tern with A and B in f32, bf16 and f16 and of oneDNN in f32, then what tern's
 * f32 is of oneDNN's. All are measured in turn (A B A B), the median of many rounds, because rates on a shared machine
 * move by half between minutes. oneDNN is found at run time (libdnnl.so.3 or .2); without it only tern's rate is
 * printed. usage: bench_cpu_matmul [threads] [rounds] */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "core/device/device.h"

typedef int (*sgemm_function)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *,
                              int64_t, float, float *, int64_t);

#define REPEATS 6

typedef struct shape {
    const char *name;
    uint32_t M, N, K;
    bool a_transposed, b_transposed, accumulate;
} shape;

/* Rows 8 x 128; width 256; qkv 768; MLP 1024; vocabulary 256. y = x W^T, dx = dy W, dW += dy^T x. */
static const shape shapes[] = {
    {"qkv", 1024, 768, 256, false, true, false},       {"qkv dx", 1024, 256, 768, false, false, false},
    {"qkv dw", 768, 256, 1024, true, false, true},     {"proj", 1024, 256, 256, false, true, false},
    {"proj dx", 1024, 256, 256, false, false, false},  {"proj dw", 256, 256, 1024, true, false, true},
    {"up", 1024, 1024, 256, false, true, false},       {"up dx", 1024, 256, 1024, false, false, false},
    {"up dw", 1024, 256, 1024, true, false, true},     {"down", 1024, 256, 1024, false, true, false},
    {"down dx", 1024, 1024, 256, false, false, false}, {"down dw", 256, 1024, 1024, true, false, true},
};

/* What A and B are stored as. */
static const int32_t dtypes[] = {TERN_F32, TERN_BF16, TERN_F16};
#define DTYPES ((int)(sizeof dtypes / sizeof *dtypes))

typedef struct run {
    const tern_backend *backend;
    tern_backend_device *device;
    tern_backend_buffer *buffer[3];
    tern_backend_kernel *kernel;
    tern_backend_program *program;
} run;

/* Values in [-1, 1). */
static void fill(void *data, uint64_t count, int32_t dtype)
{
    for (uint64_t e = 0; e < count; e++) {
        const float x = (float)(e * 2654435761u % 2048) / 1024.0f - 1.0f;
        if (dtype == TERN_F32)
            ((float *)data)[e] = x;
        else
            ((uint16_t *)data)[e] = dtype == TERN_F16 ? tern_f32_to_f16(x) : tern_f32_to_bf16(x);
    }
}

static tern_status create_run(const shape *s, int32_t dtype, run *r)
{
    tern_status status = TERN_OK;
    const uint64_t counts[3] = {(uint64_t)s->M * s->K, (uint64_t)s->K * s->N, (uint64_t)s->M * s->N};
    /* C = acc, or C = C + acc; C row-major over (batch, m, n). */
    tern_tape_access access = {.stride = {{1, 6}, {1, 4}, {1, 0}}};
    tern_tape_insn store[] = {
        {.op = TERN_TAPE_ACC, .body = 1, .type = TERN_F32},
        {.op = TERN_TAPE_STORE, .body = 1, .type = TERN_F32, .in = {0}},
    };
    tern_tape_insn add[] = {
        {.op = TERN_TAPE_ACC, .body = 1, .type = TERN_F32},
        {.op = TERN_TAPE_LOAD, .body = 1, .type = TERN_F32, .in = {TERN_TAPE_NONE}},
        {.op = TERN_TAPE_ADD, .body = 1, .type = TERN_F32, .in = {1, 0}},
        {.op = TERN_TAPE_STORE, .body = 1, .type = TERN_F32, .in = {2}},
    };
    const tern_tape_tensor read = {(uint8_t)dtype, TERN_ACCESS_READ},
                           update = {TERN_F32, TERN_ACCESS_READ | TERN_ACCESS_WRITE};
    const tern_kernel_desc desc = {.kind = TERN_KERNEL_MATMUL,
                                   .label = "bench",
                                   .tensor_count = 3,
                                   .tensors = {read, read, update},
                                   .word_count = TERN_MATMUL_WORDS,
                                   .a_transposed = s->a_transposed,
                                   .b_transposed = s->b_transposed,
                                   .tape = {.dim_count = 3,
                                            .phase_count = 1,
                                            .tensor_count = 1,
                                            .tensors = {update},
                                            .access_count = 1,
                                            .access = &access,
                                            .insn_count = s->accumulate ? 4 : 2,
                                            .insn = s->accumulate ? add : store}};
    TERN_TRY(r->backend->kernel_create(r->device, &desc, &r->kernel));
    tern_step step = {.kind = TERN_STEP_DISPATCH,
                      .label = s->name,
                      .kernel = r->kernel,
                      .argument_count = 3,
                      .word_count = TERN_MATMUL_WORDS,
                      .groups = {1, 1, 1}};
    const uint32_t words[] = {1, s->M, s->N, s->K, 0, s->a_transposed ? s->M : s->K, 0, s->b_transposed ? s->K : s->N};
    memcpy(step.words, words, sizeof words);
    for (int i = 0; i < 3; i++) {
        const int32_t stored = i < 2 ? dtype : TERN_F32;
        const uint64_t bytes = tern_dtype_bytes(stored, counts[i]);
        TERN_TRY(r->backend->buffer_create(r->device, bytes, TERN_BUFFER_UPLOAD, &r->buffer[i]));
        step.arguments[i] =
            (tern_argument){r->buffer[i], 0, bytes, i < 2 ? TERN_ACCESS_READ : TERN_ACCESS_READ | TERN_ACCESS_WRITE};
        void *data;
        TERN_TRY(r->backend->buffer_map(r->device, r->buffer[i], &data));
        fill(data, counts[i], stored);
    }
    tern_step steps[REPEATS]; /* one after the other, as in training: threads that slept before the first are awake for
                                 the rest */
    for (int i = 0; i < REPEATS; i++) steps[i] = step;
    const tern_program_desc program = {.label = s->name, .step_count = REPEATS, .steps = steps};
    TERN_TRY(r->backend->program_create(r->device, &program, &r->program));
fail:
    return status;
}

static void destroy_run(run *r)
{
    r->backend->program_destroy(r->device, r->program);
    r->backend->kernel_destroy(r->device, r->kernel);
    for (int i = 0; i < 3; i++) r->backend->buffer_destroy(r->device, r->buffer[i]);
}

/* The times of one column on one shape, for their median. */
typedef struct samples {
    double *ns;
    size_t count;
} samples;

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double median(samples *s)
{
    if (s->count == 0) return 0;
    qsort(s->ns, s->count, sizeof *s->ns, compare);
    return s->ns[s->count / 2];
}

static tern_status time_ours(const run *r, samples *out)
{
    tern_status status = TERN_OK;
    uint64_t ticket, ns[REPEATS];
    TERN_TRY(r->backend->program_submit(r->device, r->program, &ticket));
    TERN_TRY(r->backend->wait(r->device, ticket, 60ull * 1000000000ull));
    TERN_TRY(r->backend->program_times(r->device, r->program, ns));
    for (int i = 0; i < REPEATS; i++) out->ns[out->count++] = (double)ns[i];
fail:
    return status;
}

static void time_theirs(sgemm_function sgemm, const shape *s, float *const data[3], samples *out)
{
    for (int i = 0; i < REPEATS; i++) {
        const uint64_t before = tern_time_ns();
        sgemm(s->a_transposed ? 'T' : 'N', s->b_transposed ? 'T' : 'N', s->M, s->N, s->K, 1.0f, data[0],
              s->a_transposed ? s->M : s->K, data[1], s->b_transposed ? s->K : s->N, s->accumulate ? 1.0f : 0.0f,
              data[2], s->N);
        out->ns[out->count++] = (double)(tern_time_ns() - before);
    }
}

/* Medians in ns: [0 .. DTYPES) tern's, [DTYPES] oneDNN's. */
static tern_status time_shape(const shape *s, sgemm_function sgemm, int rounds, run *runs, samples *columns,
                              double *out_ns)
{
    tern_status status = TERN_OK;
    float *data[3];
    for (int d = 0; d < DTYPES; d++) TERN_TRY(create_run(s, dtypes[d], &runs[d]));
    for (int t = 0; t < 3; t++)
        TERN_TRY(runs[0].backend->buffer_map(runs[0].device, runs[0].buffer[t], (void **)&data[t]));
    for (int d = 0; d <= DTYPES; d++) columns[d].count = 0;
    for (int round = 0; round < rounds; round++) {
        for (int d = 0; d < DTYPES; d++) TERN_TRY(time_ours(&runs[d], &columns[d]));
        if (sgemm) time_theirs(sgemm, s, data, &columns[DTYPES]);
    }
    for (int d = 0; d < DTYPES; d++) destroy_run(&runs[d]);
    for (int d = 0; d <= DTYPES; d++) out_ns[d] = median(&columns[d]);
fail:
    return status;
}

int main(int argc, char **argv)
{
    tern_status status = TERN_OK;
    tern_device *device = NULL;
    run runs[DTYPES] = {{0}};
    samples columns[DTYPES + 1] = {{0}};
    const tern_open_options options = {.threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 2};
    const int rounds = argc > 2 ? atoi(argv[2]) : 40;
    char threads[16];
    snprintf(threads, sizeof threads, "%u", options.threads);
    setenv("OMP_NUM_THREADS", threads, 1);
    setenv("OMP_WAIT_POLICY", "passive", 0); /* spinning teams would take the cores from the other side's rounds */
    void *library = dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    sgemm_function sgemm = NULL;
    if (library) *(void **)&sgemm = dlsym(library, "dnnl_sgemm");
    TERN_TRY(tern_device_open_with("cpu", &options, &device));
    for (int d = 0; d < DTYPES; d++) runs[d].backend = device->backend, runs[d].device = device->handle;
    for (int d = 0; d <= DTYPES; d++) {
        columns[d].ns = calloc((size_t)rounds * REPEATS, sizeof *columns[d].ns);
        if (!columns[d].ns) {
            status = tern_error_memory("times", (size_t)rounds * REPEATS * sizeof *columns[d].ns);
            goto fail;
        }
    }
    printf("%s, %s\n%-8s %5s %5s %5s   %8s %8s %8s %8s  f32/oneDNN\n", device->title, device->info.driver, "shape", "M",
           "N", "K", "f32", "bf16", "f16", "oneDNN");
    double all[DTYPES + 1] = {0}, ns[DTYPES + 1];
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];
        TERN_TRY(time_shape(s, sgemm, rounds, runs, columns, ns));
        const double flops = 2.0 * s->M * s->N * s->K;
        printf("%-8s %5u %5u %5u   %8.1f %8.1f %8.1f %8.1f  %.2f\n", s->name, s->M, s->N, s->K, flops / ns[0],
               flops / ns[1], flops / ns[2], sgemm ? flops / ns[3] : 0.0, ns[3] / ns[0]);
        for (int d = 0; d <= DTYPES; d++) all[d] += ns[d];
    }
    printf("all      %.3f ms, bf16 %.3f ms, f16 %.3f ms, oneDNN %.3f ms (GFLOP/s, medians)\n", all[0] * 1e-6,
           all[1] * 1e-6, all[2] * 1e-6, all[3] * 1e-6);
fail:
    if (status < 0) fprintf(stderr, "%s\n", tern_error_message());
    for (int d = 0; d <= DTYPES; d++) free(columns[d].ns);
    tern_device_close(device);
    return status < 0;
}
