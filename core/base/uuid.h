/* SPDX-License-Identifier: Apache-2.0 */
/* uuid.h - a device's UUID as every driver's tool prints it: lower-case hex with dashes. */
#ifndef TERN_BASE_UUID_H
#define TERN_BASE_UUID_H

#include <stdio.h>

#define TERN_UUID_TEXT 37 /* 36 characters and the zero */

static inline void tern_uuid_print(const unsigned char bytes[16], char *out_text)
{
    for (size_t i = 0; i < 16; i++)
        out_text += sprintf(out_text, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
}

#endif
