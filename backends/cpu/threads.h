/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h - the plug-in's own threads: one caller and its helpers share the tiles of one job at a time. */
#ifndef TERN_CPU_THREADS_H
#define TERN_CPU_THREADS_H

#include "core/base/status.h"

typedef struct tern_cpu_pool tern_cpu_pool;

/* Called once per tile, by any thread; scratch is the thread's own. */
typedef void (*tern_cpu_work)(void *context, uint32_t tile, void *scratch);

/* threads: the caller included; 1 starts none. */
TERN_MUST_USE tern_status tern_cpu_pool_create(uint32_t threads, tern_cpu_pool **out_pool);
/* in_child: after a fork there are no threads to join. */
void tern_cpu_pool_destroy(tern_cpu_pool *pool, bool in_child);
/* Every thread's scratch holds at least `bytes` afterwards, aligned to 64. Not while a job runs. */
TERN_MUST_USE tern_status tern_cpu_pool_reserve(tern_cpu_pool *pool, size_t bytes);
/* All tiles, then returns. Only one thread may call it at a time. Tiles must not depend on each other. */
void tern_cpu_pool_run(tern_cpu_pool *pool, uint32_t tiles, tern_cpu_work work, void *context);
/* The calling thread's scratch, for work between jobs. */
void *tern_cpu_pool_scratch(tern_cpu_pool *pool);
/* The calling thread's number inside a job: 0 for the caller of pool_run. */
uint32_t tern_cpu_pool_thread(void);
uint32_t tern_cpu_pool_threads(const tern_cpu_pool *pool);

#endif
