/* SPDX-License-Identifier: Apache-2.0 */
/* faulty.c - the cpu plug-in with one operation wrong: its tanh is an erf. For tests/test_command_parity.c, where it
 * stands in the place of the opencl plug-in. */
#include <dlfcn.h>
#include <string.h>

#include "core/backend.h"
#include "core/base/status.h"

static const tern_backend *cpu;

static tern_status kernel_create(tern_backend_device *device, const tern_kernel_desc *desc, tern_backend_kernel **out)
{
    tern_kernel_desc wrong = *desc;
    for (uint32_t i = 0; i < wrong.tape.insn_count; i++)
        if (wrong.tape.insn[i].op == TERN_TAPE_TANH) wrong.tape.insn[i].op = TERN_TAPE_ERF;
    return cpu->kernel_create(device, &wrong, out);
}

const tern_backend *tern_backend_get(void)
{
    static tern_backend table;
    tern_backend_get_function get;
    void *library = dlopen(FAULTY_CPU, RTLD_NOW | RTLD_LOCAL),
         *symbol = library ? dlsym(library, "tern_backend_get") : NULL;
    if (!symbol) return NULL;
    memcpy(&get, &symbol, sizeof get);
    cpu = get();
    table = *cpu;
    table.name = "opencl";
    table.kernel_create = kernel_create;
    return &table;
}
