/* SPDX-License-Identifier: Apache-2.0 */
/* onednn.c - see onednn.h. The only file that includes oneDNN; serves the C APIs of 2.6 and 3.x.
 *
 * Threads: Debian builds oneDNN on OpenMP, whose thread count is a setting of the calling thread. It is set to 1 in
 * each of tern's threads (and while a primitive is planned), so oneDNN never starts a team. Scratch is ours: the
 * library's own would be allocated in the thread that created the primitive and missing in the others. Built without
 * TERN_ONEDNN this file is the absence of oneDNN. */
#include "backends/cpu/onednn.h"

#include <stddef.h>

#if TERN_ONEDNN

#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/threads.h"

/* What differs between the versions: descriptors (struct by value / opaque handle) and how a matmul is described. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t layout;
typedef const_dnnl_memory_desc_t layout_ref;
#define LAYOUT(m) (m)
static dnnl_status_t layout_create(layout *m, const dnnl_dims_t sizes, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(m, 2, sizes, dnnl_f32, strides);
}
static void layout_destroy(layout m) { dnnl_memory_desc_destroy(m); }
static dnnl_status_t post_sum(dnnl_post_ops_t p) { return dnnl_post_ops_append_sum(p, 1.0f, 0, dnnl_data_type_undef); }
static size_t layout_bytes(layout_ref m) { return dnnl_memory_desc_get_size(m); }
static dnnl_status_t describe(dnnl_primitive_desc_t *pd, dnnl_engine_t e, layout_ref a, layout_ref b, layout_ref c,
                              const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, e, a, b, NULL, c, attr);
}
#else
typedef dnnl_memory_desc_t layout;
typedef const dnnl_memory_desc_t *layout_ref;
#define LAYOUT(m) (&(m))
static dnnl_status_t layout_create(layout *m, const dnnl_dims_t sizes, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(m, 2, sizes, dnnl_f32, strides);
}
static void layout_destroy(layout m) { (void)m; }
static dnnl_status_t post_sum(dnnl_post_ops_t p) { return dnnl_post_ops_append_sum(p, 1.0f); }
static size_t layout_bytes(layout_ref m) { return dnnl_memory_desc_get_size(m); }
static dnnl_status_t describe(dnnl_primitive_desc_t *pd, dnnl_engine_t e, layout_ref a, layout_ref b, layout_ref c,
                              const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    const dnnl_status_t code = dnnl_matmul_desc_init(&d, a, b, NULL, c);
    return code ? code : dnnl_primitive_desc_create(pd, &d, attr, e, NULL);
}
#endif

typedef struct caller { /* what one thread passes to one primitive */
    dnnl_memory_t a, b, c, scratch;
} caller;

typedef struct tile_size {
    dnnl_primitive_t primitive;
    caller *callers; /* per thread */
} tile_size;

struct tern_cpu_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t *streams; /* per thread */
    uint32_t threads;
    size_t scratch_bytes;
    tile_size sizes[2][2]; /* [last_m][last_n] */
};

static pthread_once_t found_openmp = PTHREAD_ONCE_INIT;
static int (*openmp_get)(void);
static void (*openmp_set)(int);

/* The runtime that oneDNN itself brought in; a build on another runtime has none, and none is needed then. */
static void find_openmp(void)
{
    static const char *const names[] = {"libgomp.so.1", "libomp.so.5", "libiomp5.so"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
        if (!library) continue;
        *(void **)&openmp_get = dlsym(library, "omp_get_max_threads");
        *(void **)&openmp_set = dlsym(library, "omp_set_num_threads");
        dlclose(library); /* still held by oneDNN */
        if (openmp_get && openmp_set) return;
    }
    openmp_set = NULL;
}

const char *tern_cpu_onednn_version(void)
{
    static char text[32];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

static tern_status failed(const char *what, dnnl_status_t code)
{
    return tern_error(code == dnnl_out_of_memory ? TERN_ERROR_MEMORY : TERN_ERROR_DRIVER, "oneDNN: %s gave status %d",
                      what, (int)code);
}
#define DNN_TRY(call)                                                                                                  \
    do {                                                                                                               \
        const dnnl_status_t code_ = (call);                                                                            \
        if (code_ == dnnl_success) break;                                                                              \
        status = failed(#call, code_);                                                                                 \
        goto fail;                                                                                                     \
    } while (0)

static tern_status create_callers(tern_cpu_onednn *o, tile_size *size, layout_ref a, layout_ref b, layout_ref c,
                                  layout_ref scratch)
{
    tern_status status = TERN_OK;
    size->callers = calloc(o->threads, sizeof *size->callers);
    if (!size->callers) return tern_error_memory("oneDNN's arguments", o->threads * sizeof *size->callers);
    for (uint32_t t = 0; t < o->threads; t++) {
        caller *x = &size->callers[t];
        DNN_TRY(dnnl_memory_create(&x->a, a, o->engine, DNNL_MEMORY_NONE));
        DNN_TRY(dnnl_memory_create(&x->b, b, o->engine, DNNL_MEMORY_NONE));
        DNN_TRY(dnnl_memory_create(&x->c, c, o->engine, DNNL_MEMORY_NONE));
        DNN_TRY(dnnl_memory_create(&x->scratch, scratch, o->engine, DNNL_MEMORY_NONE));
    }
fail:
    return status;
}

static tern_status create_size(tern_cpu_onednn *o, const tern_cpu_onednn_shape *s, uint32_t M, uint32_t N,
                               tile_size *size)
{
    tern_status status = TERN_OK;
    layout a = {0}, b = {0}, c = {0};
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    const dnnl_dim_t m = M, n = N, k = s->K;
    const dnnl_dims_t a_strides = {s->a_transposed ? 1 : s->a_ld, s->a_transposed ? s->a_ld : 1};
    const dnnl_dims_t b_strides = {s->b_transposed ? 1 : s->b_ld, s->b_transposed ? s->b_ld : 1};
    DNN_TRY(layout_create(&a, (dnnl_dims_t){m, k}, a_strides));
    DNN_TRY(layout_create(&b, (dnnl_dims_t){k, n}, b_strides));
    DNN_TRY(layout_create(&c, (dnnl_dims_t){m, n}, (dnnl_dims_t){s->c_ld, 1}));
    DNN_TRY(dnnl_primitive_attr_create(&attr));
    DNN_TRY(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    DNN_TRY(dnnl_post_ops_create(&ops));
    if (s->add) DNN_TRY(post_sum(ops));
    DNN_TRY(dnnl_primitive_attr_set_post_ops(attr, ops));
    DNN_TRY(describe(&pd, o->engine, LAYOUT(a), LAYOUT(b), LAYOUT(c), attr));
    DNN_TRY(dnnl_primitive_create(&size->primitive, pd));
    const layout_ref scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (layout_bytes(scratch) > o->scratch_bytes) o->scratch_bytes = layout_bytes(scratch);
    TERN_TRY(create_callers(o, size, LAYOUT(a), LAYOUT(b), LAYOUT(c), scratch));
fail:
    layout_destroy(a), layout_destroy(b), layout_destroy(c);
    dnnl_primitive_desc_destroy(pd);
    dnnl_post_ops_destroy(ops);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

#define TERN_ONEDNN_LEAST (1u << 20)
/* oneDNN costs a few microseconds a call; below this many products per tile the own loops win (bench/cpu_matmul.c). */
static bool pays(const tern_cpu_onednn_shape *s)
{
    const uint64_t m = s->M < s->tile_m ? s->M : s->tile_m, n = s->N < s->tile_n ? s->N : s->tile_n;
    return m * n * s->K >= TERN_ONEDNN_LEAST;
}

/* oneDNN 3.7 with AVX-512 takes a matrix of one row or column for a dense one, whatever its stride: a result of one
 * column is written over its neighbours, and a transposed operand of one row is read from the wrong places. Every
 * version is kept from such tiles; the own loops take over. */
static bool ends_in_one(const tern_cpu_onednn_shape *s)
{
    return s->N % s->tile_n == 1 || (s->M % s->tile_m == 1 && s->a_transposed);
}

tern_status tern_cpu_onednn_create(const tern_cpu_onednn_shape *s, tern_cpu_onednn **out_onednn)
{
    tern_status status = TERN_OK;
    *out_onednn = NULL;
    if (!pays(s) || ends_in_one(s)) return TERN_OK;
    pthread_once(&found_openmp, find_openmp);
    const int before = openmp_set ? openmp_get() : 0;
    if (openmp_set) openmp_set(1);
    tern_cpu_onednn *o = calloc(1, sizeof *o);
    if (o) o->streams = calloc(s->threads, sizeof *o->streams);
    if (!o || !o->streams) {
        status = tern_error_memory("a oneDNN matmul", sizeof *o);
        goto fail;
    }
    o->threads = s->threads;
    DNN_TRY(dnnl_engine_create(&o->engine, dnnl_cpu, 0));
    for (uint32_t t = 0; t < s->threads; t++)
        DNN_TRY(dnnl_stream_create(&o->streams[t], o->engine, dnnl_stream_default_flags));
    const uint32_t rest_m = s->M % s->tile_m, rest_n = s->N % s->tile_n;
    if (s->M >= s->tile_m && s->N >= s->tile_n) TERN_TRY(create_size(o, s, s->tile_m, s->tile_n, &o->sizes[0][0]));
    if (rest_m && s->N >= s->tile_n) TERN_TRY(create_size(o, s, rest_m, s->tile_n, &o->sizes[1][0]));
    if (rest_n && s->M >= s->tile_m) TERN_TRY(create_size(o, s, s->tile_m, rest_n, &o->sizes[0][1]));
    if (rest_m && rest_n) TERN_TRY(create_size(o, s, rest_m, rest_n, &o->sizes[1][1]));
    *out_onednn = o;
    o = NULL;
fail:
    tern_cpu_onednn_destroy(o);
    if (openmp_set) openmp_set(before);
    return status;
}

void tern_cpu_onednn_destroy(tern_cpu_onednn *o)
{
    if (!o) return;
    for (int i = 0; i < 4; i++) {
        tile_size *size = &o->sizes[i / 2][i % 2];
        for (uint32_t t = 0; size->callers && t < o->threads; t++) {
            dnnl_memory_destroy(size->callers[t].a), dnnl_memory_destroy(size->callers[t].b);
            dnnl_memory_destroy(size->callers[t].c), dnnl_memory_destroy(size->callers[t].scratch);
        }
        free(size->callers);
        dnnl_primitive_destroy(size->primitive);
    }
    for (uint32_t t = 0; o->streams && t < o->threads; t++) dnnl_stream_destroy(o->streams[t]);
    dnnl_engine_destroy(o->engine);
    free(o->streams);
    free(o);
}

size_t tern_cpu_onednn_scratch(const tern_cpu_onednn *o) { return o ? o->scratch_bytes : 0; }

void tern_cpu_onednn_run(const tern_cpu_onednn *o, bool last_m, bool last_n, const float *a, const float *b, float *c,
                         void *scratch)
{
    static _Thread_local bool alone;
    if (!alone && openmp_set) openmp_set(1), alone = true;
    const tile_size *size = &o->sizes[last_m][last_n];
    const uint32_t thread = tern_cpu_pool_thread();
    const caller *x = &size->callers[thread];
    /* Neither call has a way to fail here: handles are plain pointers, and every argument was checked when the
     * primitive was made. */
    dnnl_memory_set_data_handle(x->a, (void *)(uintptr_t)a);
    dnnl_memory_set_data_handle(x->b, (void *)(uintptr_t)b);
    dnnl_memory_set_data_handle(x->c, c);
    dnnl_memory_set_data_handle(x->scratch, scratch);
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC, x->a}, {DNNL_ARG_WEIGHTS, x->b}, {DNNL_ARG_DST, x->c}, {DNNL_ARG_SCRATCHPAD, x->scratch}};
    dnnl_primitive_execute(size->primitive, o->streams[thread], 4, arguments);
}

#else

const char *tern_cpu_onednn_version(void) { return ""; }
tern_status tern_cpu_onednn_create(const tern_cpu_onednn_shape *shape, tern_cpu_onednn **out_onednn)
{
    (void)shape;
    *out_onednn = NULL;
    return TERN_OK;
}
void tern_cpu_onednn_destroy(tern_cpu_onednn *onednn) { (void)onednn; }
size_t tern_cpu_onednn_scratch(const tern_cpu_onednn *onednn)
{
    (void)onednn;
    return 0;
}
void tern_cpu_onednn_run(const tern_cpu_onednn *onednn, bool last_m, bool last_n, const float *a, const float *b,
                         float *c, void *scratch)
{
    (void)onednn, (void)last_m, (void)last_n, (void)a, (void)b, (void)c, (void)scratch;
}

#endif
