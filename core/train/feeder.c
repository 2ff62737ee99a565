/* SPDX-License-Identifier: Apache-2.0 */
/* feeder.c - a ring of batches under one mutex; feeder.h has the rules. */
#include "core/train/feeder.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_BATCHES 3u /* one being read, one ready, one being filled */
#define ALIGNMENT    64u

typedef struct batch {
    unsigned char *memory;
    tern_feed_slot *slots;
    tern_feed *feeds; /* of the same bytes */
    int64_t examples;
} batch;

struct tern_feeder {
    tern_feeder_options options;
    batch ring[RING_BATCHES];
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t filled, taken; /* batches so far; the ring is full when filled == taken + RING_BATCHES */
    bool started, stop, borrowed;
    pid_t owner; /* a child after fork has no such thread, and perhaps a locked mutex */
    bool ended;  /* nothing comes after `filled`; then: */
    tern_status error;
    char sentence[1024];
};

/* ------------------------------------------------------------------- thread */

/* One call of the callback; what ends the feed is kept. Runs without the mutex. */
static int64_t call(tern_feeder *f, batch *b, tern_status *out_error, char *sentence, size_t bytes)
{
    tern_error(TERN_OK, "%s", ""); /* so that a sentence is this call's */
    const int64_t got = f->options.callback(f->options.context, b->slots, f->options.slot_count, f->options.most);
    *out_error = TERN_OK;
    if (got > f->options.most) {
        *out_error = TERN_ERROR_INVALID;
        snprintf(sentence, bytes, "it returned %lld examples, but a batch holds %lld", (long long)got,
                 (long long)f->options.most);
    } else if (got < 0) {
        *out_error = got < TERN_ERROR_INTERNAL ? TERN_ERROR_INVALID : (tern_status)got;
        const char *words = tern_error_message();
        snprintf(sentence, bytes, "%s", words[0] ? words : tern_status_name(*out_error));
    }
    return *out_error < 0 ? 0 : got;
}

static void *run(void *context)
{
    tern_feeder *f = context;
    char sentence[sizeof f->sentence];
    pthread_mutex_lock(&f->mutex);
    while (!f->stop && !f->ended) {
        if (f->filled == f->taken + RING_BATCHES) {
            pthread_cond_wait(&f->changed, &f->mutex);
            continue;
        }
        batch *b = &f->ring[f->filled % RING_BATCHES];
        tern_status error;
        pthread_mutex_unlock(&f->mutex);
        b->examples = call(f, b, &error, sentence, sizeof sentence);
        pthread_mutex_lock(&f->mutex);
        if (b->examples > 0) {
            f->filled++;
        } else {
            f->ended = true;
            f->error = error;
            if (error < 0) memcpy(f->sentence, sentence, sizeof sentence);
        }
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

/* --------------------------------------------------------------------- life */

static tern_status make_batch(const tern_feeder_options *o, batch *b)
{
    size_t bytes = ALIGNMENT;
    for (uint32_t i = 0; i < o->slot_count; i++) bytes += (o->slots[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    b->memory = aligned_alloc(ALIGNMENT, bytes);
    b->slots = calloc(o->slot_count, sizeof *b->slots);
    b->feeds = calloc(o->slot_count, sizeof *b->feeds);
    if (!b->memory || !b->slots || !b->feeds) return tern_error_memory("a prepared batch", bytes);
    memset(b->memory, 0, bytes);
    unsigned char *at = b->memory;
    for (uint32_t i = 0; i < o->slot_count; i++) {
        b->slots[i] = (tern_feed_slot){o->slots[i].name, at, o->slots[i].bytes};
        b->feeds[i] = (tern_feed){o->slots[i].name, at, o->slots[i].bytes};
        at += (o->slots[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return TERN_OK;
}

tern_status tern_feeder_create(const tern_feeder_options *options, tern_feeder **out_feeder)
{
    tern_status status;
    tern_feeder *f = calloc(1, sizeof *f);
    *out_feeder = NULL;
    if (!f) return tern_error_memory("the feeding thread", sizeof *f);
    f->options = *options;
    f->owner = getpid();
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    for (uint32_t i = 0; i < RING_BATCHES; i++) TERN_TRY(make_batch(options, &f->ring[i]));
    f->options.slots = NULL; /* the caller's */
    const int code = pthread_create(&f->thread, NULL, run, f);
    if (code != 0) {
        status = tern_error(TERN_ERROR_INTERNAL, "cannot start the feeding thread: %s", strerror(code));
        goto fail;
    }
    f->started = true;
    *out_feeder = f;
    return TERN_OK;
fail:
    tern_feeder_destroy(f);
    return status;
}

void tern_feeder_destroy(tern_feeder *f)
{
    if (!f) return;
    const bool foreign = f->owner != getpid();
    if (f->started && !foreign) {
        pthread_mutex_lock(&f->mutex);
        f->stop = true;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->mutex);
        pthread_join(f->thread, NULL);
    }
    for (uint32_t i = 0; i < RING_BATCHES; i++) {
        free(f->ring[i].memory);
        free(f->ring[i].slots);
        free(f->ring[i].feeds);
    }
    if (!foreign) {
        pthread_cond_destroy(&f->changed);
        pthread_mutex_destroy(&f->mutex);
    }
    free(f);
}

/* ------------------------------------------------------------------ batches */

tern_status tern_feeder_next(tern_feeder *f, const tern_feed **out_feeds, int64_t *out_examples)
{
    *out_feeds = NULL;
    *out_examples = 0;
    if (f->owner != getpid())
        return tern_error(
            TERN_ERROR_INVALID,
            "the feed callback's thread belongs to process %ld, before a fork; make a trainer in process %ld",
            (long)f->owner, (long)getpid());
    pthread_mutex_lock(&f->mutex);
    while (f->filled == f->taken && !f->ended) pthread_cond_wait(&f->changed, &f->mutex);
    const bool there = f->filled > f->taken;
    pthread_mutex_unlock(&f->mutex);
    if (!there) return f->error < 0 ? tern_error(f->error, "the feed callback failed: %s", f->sentence) : TERN_OK;
    const batch *b = &f->ring[f->taken % RING_BATCHES];
    f->borrowed = true;
    *out_feeds = b->feeds;
    *out_examples = b->examples;
    return TERN_OK;
}

void tern_feeder_release(tern_feeder *f)
{
    if (!f->borrowed) return;
    f->borrowed = false;
    pthread_mutex_lock(&f->mutex);
    f->taken++;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}
