/* SPDX-License-Identifier: Apache-2.0 */
/* array.c - see array.h. */
#include "core/base/array.h"

#include <stdlib.h>

tern_status tern_array_grow(void **array, uint32_t count, uint32_t *capacity, size_t element_bytes, const char *what)
{
    if (count < *capacity) return TERN_OK;
    const uint32_t larger = *capacity ? *capacity * 2 : 16;
    void *memory = realloc(*array, larger * element_bytes);
    if (!memory) return tern_error_memory(what, larger * element_bytes);
    *array = memory;
    *capacity = larger;
    return TERN_OK;
}
