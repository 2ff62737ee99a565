/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h - how often the loops of one invocation of a kernel turn, for devices that stop them (max_loop_turns).
 *
 * lavapipe ends every loop of an invocation, without an error, once all its loops together have turned 65,535 times. */
#ifndef TERN_KERNEL_TURNS_H
#define TERN_KERNEL_TURNS_H

#include "core/kernel/lowered.h"

/* An upper estimate for the desc's variant and these words; loops with [[unroll]] and a constant count do not turn. */
uint64_t tern_variant_turns(const tern_kernel_desc *desc, const uint32_t *words);

#endif
