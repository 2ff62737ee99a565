/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c - the prefetching thread: a ring of batches under one mutex. */
#include "core/train/loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RING_BATCHES 3u /* one being read, one ready, one being filled */

struct tern_loader {
    const tern_data *data;
    tern_batch ring[RING_BATCHES];
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t filled, taken; /* batches so far; the ring is full when filled == taken + RING_BATCHES */
    uint64_t first_sample;
    bool started, stop, borrowed;
};

static void *run(void *context)
{
    tern_loader *loader = context;
    pthread_mutex_lock(&loader->mutex);
    while (!loader->stop) {
        if (loader->filled == loader->taken + RING_BATCHES) {
            pthread_cond_wait(&loader->changed, &loader->mutex);
            continue;
        }
        uint64_t number = loader->filled;
        pthread_mutex_unlock(&loader->mutex);
        tern_data_fill(loader->data, loader->first_sample + number * loader->data->options.batch,
                       &loader->ring[number % RING_BATCHES]);
        pthread_mutex_lock(&loader->mutex);
        loader->filled++;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

tern_status tern_loader_create(const tern_data *data, uint64_t first_sample, tern_loader **out_loader)
{
    tern_status status;
    tern_loader *loader = calloc(1, sizeof *loader);
    *out_loader = NULL;
    if (!loader) return tern_error_memory("the data loader", sizeof *loader);
    loader->data = data;
    loader->first_sample = first_sample;
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->changed, NULL);
    for (uint32_t i = 0; i < RING_BATCHES; i++) TERN_TRY(tern_batch_create(&data->options, &loader->ring[i]));
    int code = pthread_create(&loader->thread, NULL, run, loader);
    if (code != 0) {
        status = tern_error(TERN_ERROR_INTERNAL, "cannot start the data loader's thread: %s", strerror(code));
        goto fail;
    }
    loader->started = true;
    *out_loader = loader;
    return TERN_OK;
fail:
    tern_loader_destroy(loader);
    return status;
}

void tern_loader_destroy(tern_loader *loader)
{
    if (!loader) return;
    if (loader->started) {
        pthread_mutex_lock(&loader->mutex);
        loader->stop = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mutex);
        pthread_join(loader->thread, NULL);
    }
    for (uint32_t i = 0; i < RING_BATCHES; i++) tern_batch_finish(&loader->ring[i]);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mutex);
    free(loader);
}

tern_status tern_loader_next(tern_loader *loader, const tern_batch **out_batch)
{
    if (loader->borrowed)
        return tern_error(TERN_ERROR_INVALID, "batch %llu is still taken; release it before asking for the next",
                          (unsigned long long)loader->taken);
    pthread_mutex_lock(&loader->mutex);
    while (loader->filled == loader->taken) pthread_cond_wait(&loader->changed, &loader->mutex);
    pthread_mutex_unlock(&loader->mutex);
    loader->borrowed = true;
    *out_batch = &loader->ring[loader->taken % RING_BATCHES];
    return TERN_OK;
}

void tern_loader_release(tern_loader *loader)
{
    if (!loader->borrowed) return;
    loader->borrowed = false;
    pthread_mutex_lock(&loader->mutex);
    loader->taken++;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
}
