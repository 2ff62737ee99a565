/* SPDX-License-Identifier: Apache-2.0 */
/* no_entry.c - a library that is no plug-in at all, for tests/test_device.c. */
#include "core/tern.h"

TERN_API int not_a_backend(void);
int not_a_backend(void) { return 1; }
