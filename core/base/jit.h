/* SPDX-License-Identifier: Apache-2.0 */
/* jit.h - what drivers that play a GPU on the CPU must be told before they are loaded. */
#ifndef TERN_BASE_JIT_H
#define TERN_BASE_JIT_H

#include "core/tern.h"

/* Keeps them from vector instructions that their compiler gets wrong on this CPU. To be called before the driver's
 * library is opened, under the caller's lock; does nothing on other CPUs, and nothing where the user has set the
 * variable. */
TERN_API void tern_jit_prepare(void);

#endif
