/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_fixture.h - what the tests of the Vulkan plug-in share: the plug-in with its hooks, kernels by hand, short
 * programs.
 *
 * The kernels are written here, not rendered by core, so that a fault is the plug-in's own. All work on u32, so that
 * results are compared bit for bit. */
#ifndef TERN_TESTS_VULKAN_FIXTURE_H
#define TERN_TESTS_VULKAN_FIXTURE_H

#include "backends/vulkan/vulkan.h"
#include "core/backend.h"

/* The plug-in's table and its hooks, found once. */
typedef struct vulkan_plugin {
    const tern_backend *backend;
    uint64_t (*validation_messages)(void);
    uint64_t (*fail_call)(uint64_t call, int32_t result);
    void (*cache_counts)(tern_vulkan_cache_counts *out_counts);
} vulkan_plugin;

/* NULL with the reason as the error sentence where the plug-in was not built, Vulkan is not there, or has no device. */
const vulkan_plugin *vulkan_plugin_find(void);
/* The same without loading Vulkan. */
const vulkan_plugin *vulkan_plugin_table(void);
/* Keeps drivers and layers that are loaded now in the process: their leaks then have a name, and what their globals
 * still point to is none. lavapipe loses 128 bytes each time that it is unloaded. */
void vulkan_pin_drivers(void);
/* Log lines are printed, except while a test provokes them. */
void vulkan_log_quiet(bool quiet);
/* False once the plug-in has logged that the validation layer is not installed. */
bool vulkan_validation_is_installed(void);

typedef enum vulkan_kernel_name {
    VULKAN_KERNEL_AFFINE = 0, /* x, y; words n, a, b:  y[i] = a x[i] + b for i < n */
    VULKAN_KERNEL_SLOW,       /* y; words n:           y[i] after n steps of a generator, from y[i] + i */
    VULKAN_KERNEL_SUM,        /* 5 x, y; words n:      y[i] = sum of the x */
    VULKAN_KERNEL_BROKEN      /* does not compile */
} vulkan_kernel_name;

#define VULKAN_GROUP 64u

/* A desc whose render prints the kernel in the form that it is asked for. */
tern_kernel_desc vulkan_kernel_desc(vulkan_kernel_name name);

/* One argument: buffer, offset and bytes counted in elements of 4 bytes. */
tern_argument vulkan_argument(tern_backend_buffer *buffer, uint64_t first, uint64_t count, uint32_t mode);
/* y = a x + b over count elements, groups folded over y above 65,535. */
tern_step vulkan_affine(tern_backend_kernel *kernel, tern_argument x, tern_argument y, uint32_t count, uint32_t a,
                        uint32_t b);

/* Makes, submits and waits for a program of these steps, at most 60 s; the first error is returned, nothing is left. */
tern_status vulkan_run(const tern_backend *backend, tern_backend_device *device, const tern_step *steps,
                       uint32_t count);

#endif
