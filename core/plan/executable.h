/* SPDX-License-Identifier: Apache-2.0 */
/* executable.h - the inside of tern_executable: record.c makes the programs, executable.c runs them. */
#ifndef TERN_PLAN_EXECUTABLE_H
#define TERN_PLAN_EXECUTABLE_H

#include "core/plan/arena.h"

/* Where a value's first byte really is. buffer NULL: no launch and no output touches the value. */
typedef struct tern_place {
    tern_backend_buffer *buffer;
    uint64_t offset;
} tern_place;

/* What differs between the two programs: the host's ends of the copies. */
typedef struct tern_slot {
    tern_backend_buffer *upload, *read_back; /* NULL without inputs, without outputs */
    unsigned char *upload_map, *read_back_map;
    tern_backend_program *program;
} tern_slot;

struct tern_executable {
    tern_device *device;
    const tern_plan *plan;
    tern_arena *arena;
    char label[96];
    tern_place *places;       /* per value */
    uint64_t *upload_offsets; /* per value; inputs only */
    uint64_t *output_offsets; /* per output, in the read-back slot */
    uint64_t read_back_bytes;
    tern_slot slots[TERN_SLOTS];
    uint32_t *order; /* launches as recorded */
    uint32_t copies, cut_count;
    uint32_t step_count, first_launch; /* launches are the steps from first_launch on, unless reversed */
    const tern_slot *last_submitted;   /* NULL before the first */
    bool read_back;
};

/* Records both slots' programs. places, offsets and slots' buffers must be there. */
TERN_MUST_USE tern_status tern_executable_record(tern_executable *executable, bool reverse);

#endif
