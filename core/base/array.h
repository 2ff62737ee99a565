/* SPDX-License-Identifier: Apache-2.0 */
/* array.h - growing arrays of plain elements: the one place where capacity is decided and its failure reported. */
#ifndef TERN_BASE_ARRAY_H
#define TERN_BASE_ARRAY_H

#include "core/base/status.h"

/* Makes room for one more element behind the `count` there are, doubling from 16. `array` is the address of the pointer
 * that free() takes. TERN_ERROR_MEMORY, saying that it was for `what`, leaves the array as it was. */
TERN_MUST_USE tern_status tern_array_grow(void **array, uint32_t count, uint32_t *capacity, size_t element_bytes,
                                          const char *what);

#endif
