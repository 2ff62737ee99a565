/* SPDX-License-Identifier: Apache-2.0 */
/* stand_in.c - a driver with an integrated and a discrete GPU that can be opened and do nothing else, for
 * tests/test_device.c: what `auto` chooses cannot depend on the machine that runs the tests. It stands in the
 * place of level_zero, since folders of TERN_BACKEND_PATH are searched first. */
#include <stdio.h>
#include <string.h>

#include "core/backend.h"
#include "core/base/status.h"

static tern_status refuse(void) { return tern_error(TERN_ERROR_UNSUPPORTED, "The stand-in only opens."); }

static tern_status load(void) { return TERN_OK; }
static void unload(void) {}

static tern_status device_count(uint32_t *out_count)
{
    *out_count = 2;
    return TERN_OK;
}

static tern_status device_info(uint32_t index, tern_device_info *out_info)
{
    *out_info = (tern_device_info){.kind = index ? TERN_DEVICE_DISCRETE_GPU : TERN_DEVICE_INTEGRATED_GPU};
    snprintf(out_info->name, sizeof out_info->name, "stand-in %s", index ? "discrete" : "integrated");
    return TERN_OK;
}

static tern_status open_device(uint32_t index, const tern_open_options *options, tern_backend_device **out_device)
{
    static char devices[2];
    (void)options;
    *out_device = (tern_backend_device *)&devices[index]; /* never looked into */
    return TERN_OK;
}

static void close_device(tern_backend_device *device) { (void)device; }

static tern_status buffer_create(tern_backend_device *d, uint64_t n, tern_buffer_kind k, tern_backend_buffer **out)
{
    (void)d, (void)n, (void)k, (void)out;
    return refuse();
}
static void buffer_destroy(tern_backend_device *d, tern_backend_buffer *b) { (void)d, (void)b; }
static tern_status buffer_write(tern_backend_device *d, tern_backend_buffer *b, uint64_t o, const void *p, uint64_t n)
{
    (void)d, (void)b, (void)o, (void)p, (void)n;
    return refuse();
}
static tern_status buffer_read(tern_backend_device *d, tern_backend_buffer *b, uint64_t o, void *p, uint64_t n)
{
    (void)d, (void)b, (void)o, (void)p, (void)n;
    return refuse();
}
static tern_status buffer_map(tern_backend_device *d, tern_backend_buffer *b, void **out)
{
    (void)d, (void)b, (void)out;
    return refuse();
}
static tern_status kernel_create(tern_backend_device *d, const tern_kernel_desc *k, tern_backend_kernel **out)
{
    (void)d, (void)k, (void)out;
    return refuse();
}
static void kernel_destroy(tern_backend_device *d, tern_backend_kernel *k) { (void)d, (void)k; }
static tern_status program_create(tern_backend_device *d, const tern_program_desc *p, tern_backend_program **out)
{
    (void)d, (void)p, (void)out;
    return refuse();
}
static void program_destroy(tern_backend_device *d, tern_backend_program *p) { (void)d, (void)p; }
static tern_status program_submit(tern_backend_device *d, tern_backend_program *p, uint64_t *out)
{
    (void)d, (void)p, (void)out;
    return refuse();
}
static tern_status wait_for(tern_backend_device *d, uint64_t ticket, uint64_t ns)
{
    (void)d, (void)ticket, (void)ns;
    return refuse();
}

const tern_backend *tern_backend_get(void)
{
    static const tern_backend table = {
        .abi = TERN_BACKEND_ABI,
        .name = "level_zero",
        .load = load,
        .unload = unload,
        .device_count = device_count,
        .device_info = device_info,
        .open = open_device,
        .close = close_device,
        .buffer_create = buffer_create,
        .buffer_destroy = buffer_destroy,
        .buffer_write = buffer_write,
        .buffer_read = buffer_read,
        .buffer_map = buffer_map,
        .kernel_create = kernel_create,
        .kernel_destroy = kernel_destroy,
        .program_create = program_create,
        .program_destroy = program_destroy,
        .program_submit = program_submit,
        .wait = wait_for,
    };
    return &table;
}
