/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_feed.c - from the caller's arrays into the slots that the device reads: names, sizes, partial batches, sorted
 * ids.
 *
 *     given   [ e0 e1 e2 ]           examples = 3 of a batch of 5
 *     slot    [ e0 e1 e2 e0 e0 ]     the rest repeats an example, so that it is as finite as what was given; it weighs
 * 0
 *
 * Invariant: everything is checked before the first byte is copied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/graph/build.h"
#include "core/train/trainer_internal.h"

/* ------------------------------------------------------------------- inputs */

static bool is_users(const tern_tensor *x)
{
    return x->op == TERN_OP_INPUT && !x->at.input.sort_of && strcmp(x->label, TERN_CONTROL_NAME) != 0;
}

static tern_status add_input(tern_trainer *t, const tern_tensor *x)
{
    const tern_trainer_input *first = &t->inputs[0];
    if (x->rank < 1)
        return tern_error(TERN_ERROR_INVALID, "input %s has no axis; the first axis of an input counts examples",
                          tern_describe(x).text);
    if (t->input_count > 0 && x->shape[0] != first->shape[0])
        return tern_error(TERN_ERROR_INVALID,
                          "input %s has %lld examples, but \"%s\" has %lld; the first axis of every input is the batch",
                          tern_describe(x).text, (long long)x->shape[0], first->name, (long long)first->shape[0]);
    tern_trainer_input *input = &t->inputs[t->input_count];
    input->name = strdup(x->label);
    if (!input->name) return tern_error_memory("an input's name", strlen(x->label) + 1);
    t->input_count++;
    input->dtype = x->dtype;
    input->rank = x->rank;
    memcpy(input->shape, x->shape, sizeof input->shape);
    input->bytes = tern_dtype_bytes(x->dtype, (uint64_t)tern_count(x));
    input->example_bytes = input->bytes / (uint64_t)x->shape[0];
    t->batch = (uint32_t)x->shape[0];
    return TERN_OK;
}

tern_status tern_trainer_inputs_create(tern_trainer *t, const tern_graph *graph)
{
    tern_status status = TERN_OK;
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) count += is_users(graph->nodes[i]);
    if (count == 0)
        return tern_error(TERN_ERROR_INVALID, "the graph has no input; make one with tern_input to feed examples");
    t->inputs = calloc(count, sizeof *t->inputs);
    t->by_input = calloc(count, sizeof *t->by_input);
    if (!t->inputs || !t->by_input) return tern_error_memory("the table of inputs", count * sizeof *t->inputs);
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (is_users(graph->nodes[i])) TERN_TRY(add_input(t, graph->nodes[i]));
fail:
    return status;
}

void tern_trainer_inputs_destroy(tern_trainer *t)
{
    for (uint32_t i = 0; i < t->input_count; i++) free(t->inputs[i].name);
    free(t->inputs);
    free(t->by_input);
}

/* `"x", "y"`, cut when long. */
static void list_inputs(const tern_trainer *t, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < t->input_count && used + 4 < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s\"%.60s\"", i ? ", " : "", t->inputs[i].name);
}

tern_status tern_trainer_find_input(tern_trainer *t, const char *name, tern_trainer_input **out)
{
    char known[512];
    for (uint32_t i = 0; name && i < t->input_count; i++) {
        if (strcmp(t->inputs[i].name, name) != 0) continue;
        *out = &t->inputs[i];
        return TERN_OK;
    }
    list_inputs(t, known, sizeof known);
    return tern_error(TERN_ERROR_NOT_FOUND, "the graph has no input \"%.200s\"; its inputs are %s", name ? name : "",
                      known);
}

/* ------------------------------------------------------------------- checks */

static tern_status check_feed(tern_trainer *t, tern_program_kind kind, const tern_feed *feed, int64_t examples)
{
    tern_trainer_input *input = NULL;
    tern_status status = tern_trainer_find_input(t, feed->name, &input);
    if (status < 0) return status;
    const tern_feed **place = &t->by_input[input - t->inputs];
    const uint64_t given = input->example_bytes * (uint64_t)examples;
    if (*place) return tern_error(TERN_ERROR_INVALID, "input \"%s\" is fed twice in one call", input->name);
    if (!feed->data && (!input->staged || kind != TERN_PROGRAM_MICRO))
        return tern_error(TERN_ERROR_INVALID,
                          "input \"%s\" is fed without data; give them, or call tern_trainer_stage before each "
                          "tern_trainer_step and fill its slot",
                          input->name);
    if (feed->data && feed->bytes != input->bytes && feed->bytes != given)
        return tern_error(TERN_ERROR_INVALID,
                          "input \"%s\" is fed %zu bytes; %llu are the whole batch of %u and %llu the %lld examples "
                          "given",
                          input->name, feed->bytes, (unsigned long long)input->bytes, t->batch,
                          (unsigned long long)given, (long long)examples);
    *place = feed;
    return TERN_OK;
}

static tern_status check_feeds(tern_trainer *t, tern_program_kind kind, const tern_feed *feeds, size_t count,
                               int64_t examples)
{
    memset(t->by_input, 0, t->input_count * sizeof *t->by_input);
    if (examples < 1 || examples > t->batch)
        return tern_error(TERN_ERROR_INVALID, "%lld examples were given; a batch holds 1 to %u", (long long)examples,
                          t->batch);
    if (t->whole_batches && examples != t->batch)
        return tern_error(TERN_ERROR_INVALID,
                          "%lld of %u examples were given, but the graph's loss has no axis of examples in front, so "
                          "that the rest cannot be left out; give tern_loss one loss per example, or whole batches",
                          (long long)examples, t->batch);
    if (count > 0 && !feeds) return tern_error(TERN_ERROR_INVALID, "feeds is NULL, but feed_count is %zu", count);
    for (size_t i = 0; i < count; i++) {
        tern_status status = check_feed(t, kind, &feeds[i], examples);
        if (status < 0) return status;
    }
    for (uint32_t i = 0; i < t->input_count; i++)
        if (!t->by_input[i])
            return tern_error(TERN_ERROR_INVALID, "input \"%s\" of %llu bytes is not fed; every step feeds all inputs",
                              t->inputs[i].name, (unsigned long long)t->inputs[i].bytes);
    return TERN_OK;
}

/* ------------------------------------------------------------------ copying */

static tern_status stage(tern_trainer *t, tern_program_kind kind, const char *name, void **out, uint64_t *out_bytes)
{
    return tern_trainer_keep(t, tern_stepper_stage(t->stepper, kind, name, out, out_bytes));
}

static void copy_examples(const tern_trainer *t, const tern_trainer_input *input, const tern_feed *feed,
                          uint32_t examples)
{
    unsigned char *slot = input->slot;
    const void *source = feed->data ? feed->data : slot;
    if (feed->data) memcpy(slot, feed->data, input->example_bytes * examples);
    for (uint32_t i = examples; i < t->batch; i++)
        memcpy(slot + i * input->example_bytes, source, input->example_bytes);
}

/* The two inputs that a scatter-add reads beside ids; see tern_input_sort. */
static tern_status sort_ids(tern_trainer *t, const tern_trainer_input *input, const tern_feed *feed, uint32_t examples)
{
    tern_status status;
    char name[256];
    void *order, *offsets;
    uint64_t bytes;
    const void *ids = feed->data && examples == t->batch ? feed->data : input->slot; /* slots may be slow to read */
    snprintf(name, sizeof name, "%s.order", input->name);
    TERN_TRY(stage(t, TERN_PROGRAM_MICRO, name, &order, &bytes));
    snprintf(name, sizeof name, "%s.offsets", input->name);
    TERN_TRY(stage(t, TERN_PROGRAM_MICRO, name, &offsets, &bytes));
    if (order && offsets && ids)
        tern_counting_sort(ids, input->dtype,
                           (int64_t)(input->example_bytes * t->batch / tern_dtype(input->dtype)->bytes),
                           input->sort_rows, order, offsets);
fail:
    return status;
}

tern_status tern_trainer_fill(tern_trainer *t, tern_program_kind kind, const tern_feed *feeds, size_t count,
                              int64_t examples)
{
    tern_status status;
    TERN_TRY(check_feeds(t, kind, feeds, count, examples));
    for (uint32_t i = 0; i < t->input_count; i++) {
        tern_trainer_input *input = &t->inputs[i];
        const tern_feed *feed = t->by_input[i];
        uint64_t bytes;
        TERN_TRY(stage(t, kind, input->name, &input->slot, &bytes));
        if (input->slot) copy_examples(t, input, feed, (uint32_t)examples);
        if (kind == TERN_PROGRAM_MICRO && input->sort_rows > 0) TERN_TRY(sort_ids(t, input, feed, (uint32_t)examples));
    }
    for (uint32_t i = 0; kind == TERN_PROGRAM_MICRO && i < t->input_count; i++) t->inputs[i].staged = false;
    tern_stepper_examples(t->stepper, (uint32_t)examples);
fail:
    return status;
}

static tern_status add_slot(tern_trainer *t, const char *name, tern_feed *feeds, uint32_t *count)
{
    void *data;
    uint64_t bytes;
    tern_status status = stage(t, TERN_PROGRAM_MICRO, name, &data, &bytes);
    if (status >= 0 && data) feeds[(*count)++] = (tern_feed){name, data, (size_t)bytes};
    return status;
}

tern_status tern_trainer_filled(tern_trainer *t, tern_feed **out_feeds, uint32_t *out_count)
{
    tern_status status = TERN_OK;
    const tern_graph *micro = t->setup->programs[TERN_PROGRAM_MICRO].graph;
    uint32_t most = 1;
    *out_count = 0;
    for (uint32_t i = 0; i < micro->node_count; i++) most += micro->nodes[i]->op == TERN_OP_INPUT;
    tern_feed *feeds = calloc(most, sizeof *feeds);
    if (!feeds) return tern_error_memory("the list of inputs", most * sizeof *feeds);
    for (uint32_t i = 0; i < micro->node_count; i++) {
        const tern_tensor *x = micro->nodes[i];
        if (x->op != TERN_OP_INPUT || strcmp(x->label, TERN_CONTROL_NAME) == 0) continue;
        TERN_TRY(add_slot(t, x->label, feeds, out_count));
    }
    *out_feeds = feeds;
    return TERN_OK;
fail:
    free(feeds);
    return status;
}

tern_status tern_trainer_stage(tern_trainer *t, const char *name, void **out_data, size_t *out_bytes)
{
    tern_status status;
    tern_trainer_input *input = NULL;
    uint64_t bytes;
    if (!out_data) return tern_error(TERN_ERROR_INVALID, "out_data is NULL; pass the address of a pointer");
    *out_data = NULL;
    TERN_TRY(tern_trainer_ready(t));
    TERN_TRY(tern_trainer_find_input(t, name, &input));
    TERN_TRY(stage(t, TERN_PROGRAM_MICRO, name, &input->slot, &bytes));
    if (!input->slot)
        return tern_error(TERN_ERROR_INVALID, "input \"%s\" has no influence on the loss, so it has no slot; feed it",
                          name);
    input->staged = true;
    *out_data = input->slot;
    if (out_bytes) *out_bytes = (size_t)input->bytes;
fail:
    return status;
}
