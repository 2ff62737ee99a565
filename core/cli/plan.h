/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - what `tern plan` finds out (plan.c) and how it shows it (plan_show.c). */
#ifndef TERN_CLI_PLAN_H
#define TERN_CLI_PLAN_H

#include "core/cli/train_options.h"
#include "core/train/setup.h"

typedef struct tern_cli_estimate {
    const tern_device *device;
    const tern_setup *setup;
    tern_gpt2_options shape;
    tern_precision_choice precision;
    tern_setup_memory memory;
    tern_plan_demand demand; /* the micro program's, with everything else as extra bytes */
    uint32_t block_launches; /* of one transformer block, forward and backward */
    uint32_t kernels;        /* distinct ones of all programs: pipelines */
    bool fits;
    bool has_nearest; /* of a plan that does not fit */
    tern_gpt2_options nearest;
    char refusal[768]; /* of a plan that does not fit: why, and what would; one sentence */
} tern_cli_estimate;

/* The table on stdout, or one JSON object. */
void tern_cli_plan_show(const tern_cli_estimate *plan);
TERN_MUST_USE tern_status tern_cli_plan_json(const tern_cli_estimate *plan);

#endif
