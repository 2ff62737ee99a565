/* SPDX-License-Identifier: Apache-2.0 */
/* lowered.h - what the fuser makes of a graph: kernels, launches and the values (virtual buffers) between them.
 *
 * Nothing here has an address yet; the plan gives every value one. Launches are in a valid execution order. */
#ifndef TERN_KERNEL_LOWERED_H
#define TERN_KERNEL_LOWERED_H

#include "core/backend.h"
#include "core/graph/graph.h"

typedef enum tern_storage {
    TERN_STORAGE_TRANSIENT = 0, /* in the arena, from first to last use */
    TERN_STORAGE_INPUT,         /* in the arena; a copy step at the program's start fills it from the upload slot */
    TERN_STORAGE_BOUND          /* a parameter or state: bound by name to a range of a store's buffer */
} tern_storage;

typedef enum tern_value_kind {
    TERN_VALUE_INPUT = 0,
    TERN_VALUE_WEIGHT,
    TERN_VALUE_STATE,
    TERN_VALUE_ACTIVATION,
    TERN_VALUE_GRADIENT,
    TERN_VALUE_SCRATCH,
    TERN_VALUE_KIND_COUNT
} tern_value_kind;

typedef struct tern_value {
    tern_storage storage;
    tern_value_kind kind; /* for `tern plan`'s table */
    int32_t dtype;
    uint64_t bytes;
    const char *name; /* leaf's or label; owned by the lowered form's graph */
    bool keep;        /* a named output: lives to the end of the program */
} tern_value;

typedef struct tern_operand {
    uint32_t value;
    uint64_t offset, bytes; /* the byte range of the value that the launch can touch */
    uint32_t mode;
} tern_operand;

typedef struct tern_launch {
    uint32_t kernel; /* index into kernels */
    tern_pass pass;
    const char *label;
    uint32_t operand_count;
    tern_operand operands[TERN_TAPE_TENSORS];
    uint32_t word_count;
    uint32_t words[TERN_KERNEL_WORDS];
    uint32_t groups[3];
    double flops, bytes; /* for predicted times */
} tern_launch;

typedef struct tern_named_value {
    const char *name;
    uint32_t value;
} tern_named_value;

typedef struct tern_lowered {
    tern_value *values;
    uint32_t value_count;
    tern_launch *launches;
    uint32_t launch_count;
    tern_kernel_desc **kernels; /* unique by key */
    uint32_t kernel_count;
    tern_named_value *outputs;
    uint32_t output_count;
    tern_graph *graph; /* the rewritten graph that names and labels live in; owned */
} tern_lowered;

typedef struct tern_lower_options {
    bool fuse; /* false: one kernel per op, for finding a fuser's fault */
    /* Only kind and tape of the desc are set. Storing ACC alone is never asked for. NULL: all accepted. */
    bool (*accepts_epilogue)(void *context, const tern_kernel_desc *desc);
    void *context;
} tern_lower_options;

/* Fuses and lowers; kernels get their variants for `info`. options NULL: defaults. The graph may be destroyed
 * afterwards. */
TERN_MUST_USE tern_status tern_lower(const tern_graph *graph, const tern_device_info *info,
                                     const tern_lower_options *options, tern_lowered **out_lowered);
void tern_lowered_destroy(tern_lowered *lowered);

/* variant.c: picks the variant by queried limits, fills desc->variant and desc->render; groups for these words. */
TERN_MUST_USE tern_status tern_variant_choose(tern_kernel_desc *desc, const tern_device_info *info,
                                              const uint32_t *words);
TERN_MUST_USE tern_status tern_variant_groups(const tern_kernel_desc *desc, const tern_device_info *info,
                                              const uint32_t *words, uint32_t out_groups[3]);
/* tape.c: verifies the invariants of tape.h; TERN_ERROR_INTERNAL naming the instruction. */
TERN_MUST_USE tern_status tern_tape_check(const tern_tape *tape, bool epilogue);
/* Fills desc->key from everything that makes two kernels different (variant included, label not). */
void tern_kernel_key(tern_kernel_desc *desc);
/* render.c: tern_kernel_desc.render. */
TERN_MUST_USE tern_status tern_render(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses,
                                      tern_source *out_source);
/* A tape as readable text, for tests and bug reports; free() it. NULL when out of memory. */
char *tern_tape_print(const tern_tape *tape);

#endif
