/* SPDX-License-Identifier: Apache-2.0 */
/* static.h - what the vendors' own compilers make of tern's kernels, without a card.
 *
 *     target ── device (on paper, or the driver's own word) ── plan GPT-2 124M ── kernels ── compiler ── figures
 *
 *     targets.c   the cards, and which compiler speaks for each
 *     kernels.c   the distinct kernels of the micro, update and eval programs, planned for a card
 *     nvrtc.c     NVIDIA's NVRTC and ptxas             ocloc.c    Intel's ocloc
 *     vulkan.c    the Vulkan plug-in over Mesa's compilers for absent cards, watched by layer.c
 *     record.c    figures as JSON                      table.c    JSON as docs' table       main.c   the command
 *
 * What it is not: a measurement. Nothing is submitted to a device; registers, spills and opcodes are read from what the
 * compiler wrote. */
#ifndef TERN_BENCH_STATIC_H
#define TERN_BENCH_STATIC_H

#include "core/device/device.h"
#include "core/train/setup.h"

#include <cjson/cJSON.h>

/* ----------------------------------------------------------------- targets */

typedef enum static_compiler { STATIC_NVRTC = 0, STATIC_OCLOC, STATIC_VULKAN, STATIC_COMPILER_COUNT } static_compiler;

typedef struct static_target {
    const char *name;  /* as the compiler calls it: "sm_80", "dg2", "gfx1201" */
    const char *cards; /* for people */
    static_compiler compiler;
    bool lab; /* its compiler is in the driver lab (cmake/lab.sh), else on the host */
    /* STATIC_VULKAN: the environment that makes Mesa believe in the card, "NAME=value" and NULL. */
    const char *environment[6];
} static_target;

extern const static_target static_targets[];
extern const uint32_t static_target_count;
const static_target *static_target_find(const char *name); /* NULL: none of that name */
/* What the target's driver would report. Vulkan: asks the driver, so open its environment first. */
TERN_MUST_USE tern_status static_target_open(const static_target *target, tern_device **out_device);

/* ----------------------------------------------------------------- kernels */

typedef struct static_kernel {
    const tern_kernel_desc *desc;
    uint32_t programs; /* bit p: program p launches it */
    uint32_t launches; /* of micro, update and eval together */
} static_kernel;

typedef struct static_kernels {
    tern_setup *setup;
    static_kernel *list; /* unique by key, in the order of first use */
    uint32_t count;
} static_kernels;

/* GPT-2 124M, context 1024, batch 1. precision: TERN_F32, TERN_BF16 or TERN_F16. */
TERN_MUST_USE tern_status static_kernels_plan(tern_device *device, int32_t precision, static_kernels *out_kernels);
void static_kernels_finish(static_kernels *kernels);
extern const char *const static_kind_names[TERN_KERNEL_KIND_COUNT];

/* ----------------------------------------------------------------- figures */

#define STATIC_OPCODES 10

typedef struct static_opcode {
    char name[32];
    uint32_t count;
} static_opcode;

typedef struct static_figures {
    uint32_t registers;     /* per thread (NVIDIA), vector registers per lane (AMD), of 32 bytes per thread (Intel) */
    uint32_t spills;        /* bytes per thread that went to memory for want of registers */
    uint32_t private_bytes; /* per thread, in arrays that stayed in memory */
    uint32_t shared;        /* bytes per group */
    uint32_t simd;          /* threads that run in step */
    uint32_t instructions;
    uint32_t matrix; /* instructions on matrix units */
    uint32_t opcode_count;
    static_opcode opcodes[STATIC_OPCODES]; /* those worth knowing, by name */
} static_figures;

/* Adds to the opcode's count; names beyond STATIC_OPCODES are dropped. */
void static_figures_count(static_figures *figures, const char *name, uint32_t count);

/* --------------------------------------------------------------- compilers */

/* open: TERN_ERROR_NOT_FOUND with what to install; out_version: "NVRTC 13.0". compile: TERN_ERROR_KERNEL with the
 * compiler's words. The compilers are process-wide and never unloaded. */
typedef struct static_compiler_table {
    tern_status (*open)(const static_target *target, tern_device *device, char *out_version, size_t bytes);
    tern_status (*compile)(const static_target *target, tern_device *device, const tern_kernel_desc *desc,
                           static_figures *out_figures);
} static_compiler_table;
extern const static_compiler_table static_nvrtc, static_ocloc, static_vulkan;

/* A section of a 64-bit ELF file by the start of its name; NULL: none. */
const void *static_elf_section(const void *elf, size_t bytes, const char *prefix, size_t *out_bytes);
/* TERN_VENDOR_DIR or the build's vendor folder, where cmake/vendor.sh puts compilers. */
const char *static_vendor_folder(void);

/* ------------------------------------------------------------------ records */

/* Compiles every kernel of one precision (kinds: bits of tern_kernel_kind) in a process of its own, for compilers die.
 * out_record: {"precision", "kernels": [...]}; out_version as open gives it. A kernel that the compiler died of or
 * refused has an "error". */
TERN_MUST_USE tern_status static_record(const static_target *target, int32_t precision, uint32_t kinds,
                                        cJSON **out_record, char *out_version, size_t bytes);

/* What static_record starts: writes lines to stdout and ends the process. */
int static_child(const static_target *target, int32_t precision, uint32_t kinds, uint32_t from);

/* The table of docs/vendor-compilers.md from static.json's content; free() it. */
TERN_MUST_USE tern_status static_table(const cJSON *all, char **out_text);

#endif
