/* SPDX-License-Identifier: Apache-2.0 */
/* registry.h - the rows of backends.def, and their plug-ins once found and loaded. */
#ifndef TERN_DEVICE_REGISTRY_H
#define TERN_DEVICE_REGISTRY_H

#include "core/device/device.h"

typedef struct tern_registry_row {
    const char *name;
    bool automatic;         /* `auto` may choose it */
    const char *how_to_get; /* the plug-in */
} tern_registry_row;

const tern_registry_row *tern_registry_rows(uint32_t *out_count);
/* The table of backend `name`, its plug-in found and its driver loaded. A failure is not remembered: the next call
 * tries again. TERN_ERROR_NOT_FOUND for an unknown backend (lists the known), an absent plug-in or driver (says what to
 * install). */
TERN_MUST_USE tern_status tern_registry_get(const char *name, const tern_backend **out_backend);

#endif
