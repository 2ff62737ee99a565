/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c - what the loader asks a driver for: one exported function per table of entry points.
 *
 *     libze_loader ── dlsym zeGet<group>ProcAddrTable ──> table of pointers <── entries.def
 *
 * The loader refuses a driver that lacks one of them, whatever is in it; those that the stand-in has nothing for are
 * listed by CMake from the headers (EMPTY lines in empty_tables.def) and stay empty. */
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_ddi.h>
#include <string.h>

#include "tests/stand_ins/level_zero/stand_in.h"

#define CALL(group, name) table->pfn##name = standin_ze##group##name;
#define TABLE(group, type, calls)                                                                                      \
    STANDIN_EXPORT ze_result_t zeGet##group##ProcAddrTable(ze_api_version_t version, type *table)                      \
    {                                                                                                                  \
        (void)version;                                                                                                 \
        if (!table) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                                                       \
        memset(table, 0, sizeof *table);                                                                               \
        calls return STANDIN_OK;                                                                                       \
    }
#define EMPTY(function, type)                                                                                          \
    STANDIN_EXPORT ze_result_t function(ze_api_version_t version, type *table)                                         \
    {                                                                                                                  \
        (void)version;                                                                                                 \
        if (!table) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                                                       \
        memset(table, 0, sizeof *table);                                                                               \
        return STANDIN_OK;                                                                                             \
    }

#include "empty_tables.def"
#include "tests/stand_ins/level_zero/entries.def"
