/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_library.c - see plugin_library.h. Pointers are copied, since C has no cast from an object's to a function's.
 */
#include "core/base/plugin_library.h"

#include <dlfcn.h>
#include <string.h>

const char *tern_symbols_find(void *library, const tern_symbol *symbols, size_t count, void *out_table)
{
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address) return symbols[i].name;
        memcpy((char *)out_table + symbols[i].offset, &address, sizeof address);
    }
    return NULL;
}

const char *tern_symbol_path(const void *pointer_to_entry, const char *otherwise)
{
    Dl_info info;
    void *address;
    memcpy(&address, pointer_to_entry, sizeof address);
    return dladdr(address, &info) && info.dli_fname ? info.dli_fname : otherwise;
}
