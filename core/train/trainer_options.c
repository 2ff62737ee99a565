/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_options.c - from tern_train_options to what schedule, optimizer, update and setup take.
 *
 *     caller's struct (any size) ──> ours ──> schedule, accumulation     ranges are checked by whoever uses the numbers
 *                                        └──> optimizer, groups, update
 *
 * What it is not: it decides no default of an optimizer (optimizer.c has the customary numbers).
 * Invariant: fields behind the end of the caller's structure have their defaults. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/train/precision.h"
#include "core/train/trainer_internal.h"

/* ---------------------------------------------------------------- structure */

static void set_optimizer(tern_train_options *o, const char *name, tern_optimizer_kind kind)
{
    tern_optimizer numbers;
    tern_optimizer_init(&numbers, kind);
    o->optimizer = name;
    o->beta1 = numbers.beta1;
    o->beta2 = numbers.beta2;
    o->epsilon = numbers.epsilon;
    o->weight_decay = numbers.weight_decay;
    o->momentum = numbers.momentum;
    o->nesterov = numbers.nesterov;
}

static tern_train_options defaults(void)
{
    tern_train_options o = {.schedule = "constant", .lr = 1e-3, .clip_norm = 1, .accumulate = 1};
    set_optimizer(&o, "adamw", TERN_OPTIMIZER_ADAMW);
    return o;
}

void tern_train_options_init(tern_train_options *options, size_t struct_bytes)
{
    const tern_train_options o = defaults();
    if (!options || struct_bytes < sizeof o.struct_bytes) return;
    memset(options, 0, struct_bytes);
    memcpy(options, &o, struct_bytes < sizeof o ? struct_bytes : sizeof o);
    options->struct_bytes = (uint32_t)struct_bytes;
}

tern_status tern_trainer_options_read(const tern_train_options *given, tern_train_options *out)
{
    *out = defaults();
    if (!given) return TERN_OK;
    const size_t bytes = given->struct_bytes;
    if (bytes < offsetof(tern_train_options, seed) || bytes > 4096)
        return tern_error(TERN_ERROR_INVALID,
                          "the training options' struct_bytes is %zu; call tern_train_options_init before setting them",
                          bytes);
    memcpy(out, given, bytes < sizeof *out ? bytes : sizeof *out);
    for (size_t i = sizeof *out; i < bytes; i++)
        if (((const unsigned char *)given)[i] != 0)
            return tern_error(TERN_ERROR_UNSUPPORTED,
                              "the training options set byte %zu, but this library (tern %s) knows %zu; use the header "
                              "of the library that is loaded",
                              i, tern_version(), sizeof *out);
    return TERN_OK;
}

tern_status tern_train_options_optimizer(tern_train_options *options, const char *name)
{
    tern_status status;
    tern_optimizer_kind kind;
    tern_train_options o;
    if (!options || !name)
        return tern_error(TERN_ERROR_INVALID, "the options or the optimizer's name are NULL; give both");
    TERN_TRY(tern_trainer_options_read(options, &o));
    TERN_TRY(tern_optimizer_parse(name, &kind));
    set_optimizer(&o, name, kind);
    memcpy(options, &o, o.struct_bytes < sizeof o ? o.struct_bytes : sizeof o);
fail:
    return status;
}

/* ------------------------------------------------------------------ numbers */

static tern_status take_schedule(tern_trainer *t, const tern_train_options *o)
{
    tern_status status;
    const char *name = o->schedule ? o->schedule : "constant";
    if (o->warmup < 0 || o->steps < 0)
        return tern_error(TERN_ERROR_INVALID, "warmup is %lld and steps %lld; neither may be negative",
                          (long long)o->warmup, (long long)o->steps);
    t->schedule = (tern_schedule){.lr = o->lr,
                                  .min_lr = o->min_lr,
                                  .warmup = (uint64_t)o->warmup,
                                  .steps = (uint64_t)o->steps,
                                  .decay = o->schedule_decay};
    TERN_TRY(tern_schedule_parse(name, &t->schedule.kind));
    TERN_TRY(tern_schedule_check(&t->schedule));
    if (t->schedule.kind != TERN_SCHEDULE_CONSTANT && o->steps <= o->warmup)
        return tern_error(
            TERN_ERROR_INVALID,
            "the schedule \"%s\" ends at steps, which is %lld with a warmup of %lld; set it to the number "
            "of updates in all",
            name, (long long)o->steps, (long long)o->warmup);
fail:
    return status;
}

static tern_status take_optimizer(const tern_train_options *o, tern_optimizer *out)
{
    tern_optimizer_kind kind;
    tern_status status = tern_optimizer_parse(o->optimizer ? o->optimizer : "adamw", &kind);
    if (status < 0) return status;
    tern_optimizer_init(out, kind);
    out->beta1 = o->beta1;
    out->beta2 = o->beta2;
    out->epsilon = o->epsilon;
    out->weight_decay = o->weight_decay;
    out->momentum = o->momentum;
    out->nesterov = o->nesterov != 0;
    out->eight_bit = o->eight_bit != 0;
    return TERN_OK;
}

static tern_status take_precision(const tern_trainer *t, const tern_train_options *o, int32_t *out_dtype)
{
    tern_precision_choice choice;
    const tern_status status = tern_precision_choose(o->precision, &t->device->info, &choice);
    if (status < 0) return status;
    tern_log_write(TERN_LOG_INFO, "precision %s", choice.reason);
    *out_dtype = choice.dtype;
    return TERN_OK;
}

tern_status tern_trainer_options_take(tern_trainer *t, const tern_train_options *o, tern_setup_options *out,
                                      tern_parameter_group **out_groups)
{
    tern_status status;
    memset(out, 0, sizeof *out);
    if (o->accumulate < 1 || o->accumulate > UINT32_MAX / t->batch)
        return tern_error(TERN_ERROR_INVALID, "accumulate is %lld; it must lie in [1, %u] for a batch of %u",
                          (long long)o->accumulate, UINT32_MAX / t->batch, t->batch);
    t->accumulate = (uint32_t)o->accumulate;
    out->batch = t->batch;
    out->no_masters = o->no_masters != 0;
    out->update.clip = o->clip_norm;
    out->update.clip_value = o->clip_value;
    if (o->loss_scale != 0)
        out->update.scale = (tern_scale_options){.mode = TERN_SCALE_STATIC, .initial = o->loss_scale};
    TERN_TRY(take_schedule(t, o));
    TERN_TRY(take_precision(t, o, &out->precision));
    TERN_TRY(take_optimizer(o, &out->optimizer));
    TERN_TRY(tern_parameter_groups_parse(o->groups, out_groups, &out->group_count));
    out->groups = *out_groups;
fail:
    return status;
}
