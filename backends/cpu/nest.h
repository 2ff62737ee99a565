/* SPDX-License-Identifier: Apache-2.0 */
/* nest.h - what nest.c, nest_code.c and tape_run.c share and nobody else needs. */
#ifndef TERN_CPU_NEST_H
#define TERN_CPU_NEST_H

#include "backends/cpu/tape.h"

/* nest_code.c: fills the nest's instructions, slots and phases; dims and lane are chosen already. */
TERN_MUST_USE tern_status tern_cpu_nest_compile(tern_cpu_nest *nest, const tern_tape *tape,
                                                const tern_cpu_range *ranges);
/* Lays the thread's state out at the start of its scratch and points every value at its home. */
tern_cpu_lanes *tern_cpu_nest_place(const tern_cpu_nest *nest, const tern_cpu_range *tensors, void *scratch);

#endif
