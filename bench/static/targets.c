/* SPDX-License-Identifier: Apache-2.0 */
/* targets.c - the cards whose compilers are asked, and what their drivers would report.
 *
 *     CUDA, Level Zero   on paper: compute capability tables of the CUDA C++ Programming Guide; Intel's Xe-HPG
 *     Vulkan             the driver itself says it, over a kernel driver that is not there (Mesa's drm-shim)
 *
 * Invariant: only what changes the choice of a kernel is written down here. */
#include "bench/static/static.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)

/* drm-shim of the driver lab: the preloaded library answers the driver's ioctls as a card of that number would. */
#define MESA       "MESA_SHADER_CACHE_DISABLE=1"
#define FOLDER     "/usr/share/vulkan/icd.d/"
#define ICD(name)  "VK_DRIVER_FILES=" FOLDER name "_icd.json:" FOLDER name "_icd.x86_64.json"
#define SHIM(name) "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/lib" name "_noop_drm_shim.so"
#define AMD(gpu)                                                                                                       \
    {                                                                                                                  \
        MESA, ICD("radeon"), SHIM("amdgpu"), "AMDGPU_GPU_ID=" gpu                                                      \
    }
#define NVIDIA(chipset)                                                                                                \
    {                                                                                                                  \
        MESA, ICD("nouveau"), SHIM("nouveau"), "NVK_I_WANT_A_BROKEN_VULKAN_DRIVER=1", "NOUVEAU_CHIPSET=" chipset       \
    }

const static_target static_targets[] = {
    {"sm_80", "A100", STATIC_NVRTC, false, {NULL}},
    {"sm_86", "RTX 30 (Ampere)", STATIC_NVRTC, false, {NULL}},
    {"sm_89", "RTX 40 (Ada), L4, L40", STATIC_NVRTC, false, {NULL}},
    {"sm_90a", "H100, H200", STATIC_NVRTC, false, {NULL}},
    {"sm_120", "RTX 50 (Blackwell)", STATIC_NVRTC, false, {NULL}},
    {"dg2", "Arc A (Alchemist)", STATIC_OCLOC, false, {NULL}},
    /* Mesa 22's RADV without hardware; later ones refuse it without a card. */
    {"gfx1100", "Radeon RX 7900 (RDNA 3)", STATIC_VULKAN, false, {MESA, ICD("radeon"), "RADV_FORCE_FAMILY=gfx1100"}},
    {"navi21", "Radeon RX 6800, 6900 (RDNA 2)", STATIC_VULKAN, true, AMD("navi21")},
    {"navi31", "Radeon RX 7900 (RDNA 3)", STATIC_VULKAN, true, AMD("navi31")},
    {"gfx1201", "Radeon RX 9070 (RDNA 4)", STATIC_VULKAN, true, AMD("gfx1201")},
    {"turing", "RTX 20, GTX 16 (TU102)", STATIC_VULKAN, true, NVIDIA("162")},
    {"ampere", "RTX 30 (GA102)", STATIC_VULKAN, true, NVIDIA("172")},
};
const uint32_t static_target_count = sizeof static_targets / sizeof *static_targets;

const static_target *static_target_find(const char *name)
{
    for (uint32_t i = 0; i < static_target_count; i++)
        if (strcmp(static_targets[i].name, name) == 0) return &static_targets[i];
    return NULL;
}

/* ------------------------------------------------------------------ devices */

#define TENSOR_CORES                                                                                                   \
    {                                                                                                                  \
        {TERN_BF16, 16, 16, 16, 32}, { TERN_F16, 16, 16, 16, 32 }                                                      \
    }
#define DPAS                                                                                                           \
    {                                                                                                                  \
        {TERN_BF16, 8, 8, 16, 8}, { TERN_F16, 8, 8, 16, 8 }                                                            \
    }

/* Vendors' data sheets. shared_bytes is what a kernel gets without asking for more. */
static const struct paper {
    const char *target, *name;
    uint32_t subgroup_min, subgroup_max, shared_bytes, max_groups_x, threads;
    uint64_t memory_bytes, max_allocation_bytes;
    tern_matrix_shape matrix[2]; /* as the plug-ins list them; without tf32, which is off unless asked for */
} papers[] = {
    {"sm_80", "NVIDIA A100", 32, 32, 49152, 2147483647, 108, 40 * GIB, 40 * GIB, TENSOR_CORES},
    {"sm_86", "NVIDIA GeForce RTX 3090", 32, 32, 49152, 2147483647, 82, 24 * GIB, 24 * GIB, TENSOR_CORES},
    {"sm_89", "NVIDIA GeForce RTX 4090", 32, 32, 49152, 2147483647, 128, 24 * GIB, 24 * GIB, TENSOR_CORES},
    {"sm_90a", "NVIDIA H100", 32, 32, 49152, 2147483647, 132, 80 * GIB, 80 * GIB, TENSOR_CORES},
    {"sm_120", "NVIDIA GeForce RTX 5090", 32, 32, 49152, 2147483647, 170, 32 * GIB, 32 * GIB, TENSOR_CORES},
    {"dg2", "Intel Arc A770", 8, 32, 65536, 4294967295u, 512, 16 * GIB, 4 * GIB - 4096, DPAS},
};

static void fill(const struct paper *paper, tern_device_info *info)
{
    memset(info, 0, sizeof *info);
    snprintf(info->name, sizeof info->name, "%s", paper->name);
    info->kind = TERN_DEVICE_DISCRETE_GPU;
    info->features = TERN_FEATURE_STORAGE_16 | TERN_FEATURE_STORAGE_8 | TERN_FEATURE_ARITHMETIC_F16 |
                     TERN_FEATURE_SUBGROUPS | TERN_FEATURE_TIMESTAMPS | TERN_FEATURE_BUFFER_ADDRESS |
                     TERN_FEATURE_RENDERS;
    info->memory_bytes = info->memory_free_bytes = paper->memory_bytes;
    info->max_allocation_bytes = info->max_buffer_bytes = info->max_binding_bytes = paper->max_allocation_bytes;
    info->max_groups[0] = paper->max_groups_x;
    info->max_groups[1] = info->max_groups[2] = 65535;
    info->max_group_size = 1024;
    info->shared_bytes = paper->shared_bytes;
    info->subgroup_min = paper->subgroup_min;
    info->subgroup_max = paper->subgroup_max;
    info->offset_alignment = 256;
    info->threads = paper->threads;
    info->matrix_count = sizeof paper->matrix / sizeof *paper->matrix;
    memcpy(info->matrix, paper->matrix, sizeof paper->matrix);
}

tern_status static_target_open(const static_target *target, tern_device **out_device)
{
    tern_status status;
    *out_device = NULL;
    const char *shim = getenv("LD_PRELOAD");
    if (target->lab && (!shim || access(shim, R_OK) != 0))
        return tern_error(TERN_ERROR_NOT_FOUND, "Mesa's drm-shim is not on this machine; run this in the driver lab");
    if (target->compiler == STATIC_VULKAN) return tern_device_open_with("vulkan:0", NULL, out_device);
    for (size_t i = 0; i < sizeof papers / sizeof *papers; i++) {
        if (strcmp(papers[i].target, target->name) != 0) continue;
        TERN_TRY(tern_device_open_paper("a100", out_device)); /* any profile: its limits are replaced */
        fill(&papers[i], &(*out_device)->info);
        return TERN_OK;
    }
    status = tern_error(TERN_ERROR_INTERNAL, "target %s has no paper device", target->name);
fail:
    return status;
}

const char *static_vendor_folder(void)
{
    const char *folder = getenv("TERN_VENDOR_DIR");
    return folder && *folder ? folder : TERN_VENDOR_FOLDER;
}
