/* SPDX-License-Identifier: Apache-2.0 */
/* hints.h - why a GPU that is in the machine is not seen, or is slow: things that no driver says. Linux only. */
#ifndef TERN_DEVICE_HINTS_H
#define TERN_DEVICE_HINTS_H

#include "core/backend.h"

/* A render node that this user may not open. `root` stands before "/dev" ("" on a real machine). False: there is none.
 * out_text: one sentence with the command to run. */
bool tern_hint_render_node(const char *root, char *out_text, size_t bytes);
/* A discrete GPU whose memory the CPU sees only through a small window, from `root`/sys. False: it is wide, or not
 * known. */
bool tern_hint_small_bar(const char *root, const tern_device_info *info, char *out_text, size_t bytes);

#endif
