/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - a pool whose jobs are numbered tiles.
 *
 *     thread w first takes the tiles [w T / n, (w + 1) T / n), then what is left of the others' shares
 *
 * so that the same thread meets the same rows step after step (its cache still holds them), and a thread that the
 * system took away does not hold the job up. Who computes a tile never changes its result: tiles are fixed by whoever
 * makes the job.
 *
 * A job is open from its start until the caller has found no tile left. Helpers that come late find it closed and touch
 * nothing, so the caller waits for those inside only, never for one still asleep. */
#include "backends/cpu/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define OPEN        0x80000000u /* in `gate`, above the count of helpers inside */
#define SPIN_ROUNDS 2000        /* some 30 us of pauses: longer than the gap between two steps of a program */
#define LINE        64

typedef struct share {
    _Alignas(LINE) atomic_uint next;
    uint32_t end;
} share;

typedef struct worker {
    tern_cpu_pool *pool;
    uint32_t index;
    pthread_t thread;
    void *scratch;
} worker;

struct tern_cpu_pool {
    uint32_t threads, started;
    worker *workers; /* [0] is the caller */
    share *shares;
    size_t scratch_bytes;
    tern_cpu_work work;
    void *context;
    _Alignas(LINE) atomic_uint gate;
    _Alignas(LINE) atomic_uint job; /* counts jobs; a change calls the helpers */
    atomic_uint sleepers;
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

static _Thread_local uint32_t thread_index;

static void rest(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
}

static void take_tiles(tern_cpu_pool *pool, uint32_t first, void *scratch)
{
    for (uint32_t i = 0; i < pool->threads; i++) {
        share *s = &pool->shares[(first + i) % pool->threads];
        for (;;) {
            if (atomic_load_explicit(&s->next, memory_order_relaxed) >= s->end) break;
            const uint32_t tile = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (tile >= s->end) break;
            pool->work(pool->context, tile, scratch);
        }
    }
}

static uint32_t next_job(tern_cpu_pool *pool, uint32_t seen)
{
    for (int round = 0; round < SPIN_ROUNDS; round++) {
        const uint32_t job = atomic_load_explicit(&pool->job, memory_order_acquire);
        if (job != seen) return job;
        rest();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->job) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
    return atomic_load(&pool->job);
}

static void *help(void *argument)
{
    worker *self = argument;
    tern_cpu_pool *pool = self->pool;
    uint32_t seen = 0;
    thread_index = self->index;
    while (seen = next_job(pool, seen), !atomic_load(&pool->stop)) {
        if (atomic_fetch_add(&pool->gate, 1) & OPEN) take_tiles(pool, self->index, self->scratch);
        atomic_fetch_sub(&pool->gate, 1);
    }
    return NULL;
}

static void call_helpers(tern_cpu_pool *pool)
{
    atomic_fetch_add(&pool->job, 1);
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->mutex); /* who counted itself asleep is waiting by now */
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

void tern_cpu_pool_run(tern_cpu_pool *pool, uint32_t tiles, tern_cpu_work work, void *context)
{
    void *scratch = pool->workers[0].scratch;
    if (pool->threads == 1 || tiles == 1) {
        for (uint32_t tile = 0; tile < tiles; tile++) work(context, tile, scratch);
        return;
    }
    pool->work = work, pool->context = context;
    for (uint32_t w = 0; w < pool->threads; w++) {
        atomic_store_explicit(&pool->shares[w].next, (uint32_t)((uint64_t)tiles * w / pool->threads),
                              memory_order_relaxed);
        pool->shares[w].end = (uint32_t)((uint64_t)tiles * (w + 1) / pool->threads);
    }
    atomic_fetch_or(&pool->gate, OPEN);
    call_helpers(pool);
    take_tiles(pool, 0, scratch);
    atomic_fetch_and(&pool->gate, ~OPEN);
    for (uint32_t round = 0; atomic_load(&pool->gate) != 0; round++) {
        if (round < SPIN_ROUNDS)
            rest();
        else
            sched_yield();
    }
}

tern_status tern_cpu_pool_reserve(tern_cpu_pool *pool, size_t bytes)
{
    if (bytes <= pool->scratch_bytes) return TERN_OK;
    bytes = (bytes + 4095) / 4096 * 4096;
    void **fresh = calloc(pool->threads, sizeof *fresh);
    tern_status status = TERN_OK;
    uint32_t made = 0;
    while (fresh && made < pool->threads && posix_memalign(&fresh[made], 4096, bytes) == 0) made++;
    if (made < pool->threads) {
        status = tern_error_memory("the threads' scratch", bytes * pool->threads);
        while (made > 0) free(fresh[--made]);
        goto fail;
    }
    for (uint32_t w = 0; w < pool->threads; w++) {
        free(pool->workers[w].scratch);
        pool->workers[w].scratch = fresh[w];
    }
    pool->scratch_bytes = bytes;
fail:
    free(fresh);
    return status;
}

tern_status tern_cpu_pool_create(uint32_t threads, tern_cpu_pool **out_pool)
{
    tern_status status = TERN_OK;
    tern_cpu_pool *pool = NULL;
    *out_pool = NULL;
    if (posix_memalign((void **)&pool, LINE, sizeof *pool) != 0)
        return tern_error_memory("the thread pool", sizeof *pool);
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->workers = calloc(threads, sizeof *pool->workers);
    if (posix_memalign((void **)&pool->shares, LINE, threads * sizeof *pool->shares) != 0) pool->shares = NULL;
    if (!pool->workers || !pool->shares) {
        status = tern_error_memory("the thread pool", threads * (sizeof *pool->workers + sizeof *pool->shares));
        goto fail;
    }
    memset(pool->shares, 0, threads * sizeof *pool->shares);
    for (uint32_t w = 0; w < threads; w++) pool->workers[w] = (worker){.pool = pool, .index = w};
    TERN_TRY(tern_cpu_pool_reserve(pool, 4096));
    for (pool->started = 1; pool->started < threads; pool->started++) {
        worker *w = &pool->workers[pool->started];
        const int code = pthread_create(&w->thread, NULL, help, w);
        if (code == 0) continue;
        status =
            tern_error(TERN_ERROR_MEMORY, "thread %u of %u could not be started (%s); ask for fewer with --threads",
                       pool->started + 1, threads, strerror(code));
        goto fail;
    }
    *out_pool = pool;
    return TERN_OK;
fail:
    tern_cpu_pool_destroy(pool, false);
    return status;
}

void tern_cpu_pool_destroy(tern_cpu_pool *pool, bool in_child)
{
    if (!pool) return;
    atomic_store(&pool->stop, true);
    if (!in_child) {
        call_helpers(pool);
        for (uint32_t w = 1; w < pool->started; w++) pthread_join(pool->workers[w].thread, NULL);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->mutex);
    }
    for (uint32_t w = 0; pool->workers && w < pool->threads; w++) free(pool->workers[w].scratch);
    free(pool->workers);
    free(pool->shares);
    free(pool);
}

void *tern_cpu_pool_scratch(tern_cpu_pool *pool) { return pool->workers[0].scratch; }
uint32_t tern_cpu_pool_thread(void) { return thread_index; }
uint32_t tern_cpu_pool_threads(const tern_cpu_pool *pool) { return pool->threads; }
