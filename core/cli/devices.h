/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - a device as `tern devices --json` describes it, for others that write the same facts. */
#ifndef TERN_CLI_DEVICES_H
#define TERN_CLI_DEVICES_H

#include <cjson/cJSON.h>

#include "core/device/device.h"

/* Name, driver, kind, limits, features and notes; number: its place in the list. */
cJSON *tern_cli_device_json(const tern_backend *backend, const tern_device_listing *listing, uint32_t number);

#endif
