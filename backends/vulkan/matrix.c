/* SPDX-License-Identifier: Apache-2.0 */
/* matrix.c - matrix units through VK_KHR_cooperative_matrix: which shapes a card offers, and what they need enabled.
 *
 * Listed are products of f16 with f32 sums that a sub-group holds, the largest first: f16 is what shaders/dialect/
 * glsl_matrix.h has words for, since bf16 matrices are known to glslang only from a version that no distribution has.
 * A kernel with fragments runs in sub-groups of the smallest size, the one that every driver of such matrices takes,
 * and needs all their lanes; so VK_EXT_subgroup_size_control is needed too. Matrices live in Vulkan's memory model.
 * Headers from 1.3.255 know the extension, glslang from 15 (the oldest tried) the words; built with older ones the
 * plug-in lists no shapes, and says so in its notes. */
#include "backends/vulkan/internal.h"

#include <glslang/build_info.h>
#include <stdlib.h>
#include <string.h>

#if defined(VK_KHR_cooperative_matrix) && GLSLANG_VERSION_MAJOR >= 15
#define HAS_WORDS 1
#else
#define HAS_WORDS 0
#endif

/* There is nothing to choose then, and NVK does not let it be chosen. */
static bool has_one_size(const vulkan_card *card) { return card->info.subgroup_min == card->info.subgroup_max; }

#if HAS_WORDS
/* In a group: what shaders/matmul_fragment.k takes at most. */
#define SUBGROUPS 16u

static bool takes_matrices(const vulkan_instance *instance, const vulkan_card *card)
{
    VkPhysicalDeviceSubgroupSizeControlFeatures size_control = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, .pNext = &size_control};
    VkPhysicalDeviceVulkan12Features v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                            .pNext = &matrix};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v12};
    VkPhysicalDeviceSubgroupSizeControlProperties sizes = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES};
    VkPhysicalDeviceCooperativeMatrixPropertiesKHR stages = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_PROPERTIES_KHR, .pNext = &sizes};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                              .pNext = &stages};
    instance->vk.GetPhysicalDeviceFeatures2(card->handle, &features);
    instance->vk.GetPhysicalDeviceProperties2(card->handle, &properties);
    return matrix.cooperativeMatrix && v12.vulkanMemoryModel && v12.shaderFloat16 && size_control.subgroupSizeControl &&
           size_control.computeFullSubgroups &&
           (has_one_size(card) || (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT)) &&
           sizes.maxComputeWorkgroupSubgroups >= SUBGROUPS &&
           (stages.cooperativeMatrixSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT);
}

static bool has_words(const VkCooperativeMatrixPropertiesKHR *p)
{
    return p->scope == VK_SCOPE_SUBGROUP_KHR && !p->saturatingAccumulation &&
           p->AType == VK_COMPONENT_TYPE_FLOAT16_KHR && p->BType == VK_COMPONENT_TYPE_FLOAT16_KHR &&
           p->CType == VK_COMPONENT_TYPE_FLOAT32_KHR && p->ResultType == VK_COMPONENT_TYPE_FLOAT32_KHR;
}

static int larger_first(const void *a, const void *b)
{
    const VkCooperativeMatrixPropertiesKHR *p = a, *q = b;
    const uint64_t left = (uint64_t)p->MSize * p->NSize * p->KSize, right = (uint64_t)q->MSize * q->NSize * q->KSize;
    return (left < right) - (left > right);
}

tern_status vulkan_matrix_read(const vulkan_instance *instance, vulkan_card *card)
{
    tern_status status = TERN_OK;
    VkCooperativeMatrixPropertiesKHR *list = NULL;
    uint32_t count = 0;
    const char *name = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR";
    struct {
        PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR GetPhysicalDeviceCooperativeMatrixPropertiesKHR;
    } vk = {(PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)vulkan_instance_symbol(instance, name)};
    if (!card->cooperative_matrix || !card->size_control || !vk.GetPhysicalDeviceCooperativeMatrixPropertiesKHR ||
        !takes_matrices(instance, card))
        return TERN_OK;
    VULKAN_TRY(NULL, vk, GetPhysicalDeviceCooperativeMatrixPropertiesKHR, card->handle, &count, NULL);
    list = calloc(count ? count : 1, sizeof *list);
    if (!list) return tern_error_memory("the list of matrix shapes", count * sizeof *list);
    for (uint32_t i = 0; i < count; i++) list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    VULKAN_TRY(NULL, vk, GetPhysicalDeviceCooperativeMatrixPropertiesKHR, card->handle, &count, list);
    qsort(list, count, sizeof *list, larger_first);
    tern_device_info *info = &card->info;
    for (uint32_t i = 0; i < count && info->matrix_count < TERN_MATRIX_SHAPES; i++)
        if (has_words(&list[i]))
            info->matrix[info->matrix_count++] =
                (tern_matrix_shape){TERN_F16, list[i].MSize, list[i].NSize, list[i].KSize, info->subgroup_min};
    card->matrix_units = info->matrix_count > 0;
fail:
    free(list);
    return status;
}

void vulkan_matrix_enable(const vulkan_card *card, vulkan_matrix_features *store, VkDeviceCreateInfo *info)
{
    if (!card->matrix_units) return;
    *store = (vulkan_matrix_features){
        .size_control = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
                         .pNext = (void *)info->pNext,
                         .subgroupSizeControl = VK_TRUE,
                         .computeFullSubgroups = VK_TRUE},
        .matrix = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
                   .pNext = &store->size_control,
                   .cooperativeMatrix = VK_TRUE},
        .extensions = {VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME},
    };
    info->pNext = &store->matrix;
    info->enabledExtensionCount = 2;
    info->ppEnabledExtensionNames = store->extensions;
}
#else
tern_status vulkan_matrix_read(const vulkan_instance *instance, vulkan_card *card)
{
    (void)instance;
    card->matrix_units = false;
    return TERN_OK;
}

void vulkan_matrix_enable(const vulkan_card *card, vulkan_matrix_features *store, VkDeviceCreateInfo *info)
{
    (void)card;
    (void)store;
    (void)info;
}
#endif

tern_status vulkan_matrix_check(const vulkan_card *card, const tern_kernel_desc *desc)
{
    const tern_matrix_shape *f = &desc->variant.fragment;
    if (f->subgroup <= 1) return TERN_OK;
    for (uint32_t i = 0; i < card->info.matrix_count; i++)
        if (memcmp(f, &card->info.matrix[i], sizeof *f) == 0 && desc->variant.group[0] % f->subgroup == 0)
            return TERN_OK;
    return tern_error(
        TERN_ERROR_UNSUPPORTED,
        "%s has no matrices of dtype %d, %u x %u x %u, for groups of %u in sub-groups of %u; choose another "
        "variant",
        card->info.name, f->dtype, f->m, f->n, f->k, desc->variant.group[0], f->subgroup);
}

void vulkan_matrix_stage(const vulkan_card *card, const tern_kernel_desc *desc,
                         VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *store,
                         VkPipelineShaderStageCreateInfo *stage)
{
    if (desc->variant.fragment.subgroup <= 1) return;
    *store = (VkPipelineShaderStageRequiredSubgroupSizeCreateInfo){
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = desc->variant.fragment.subgroup,
    };
    if (!has_one_size(card)) stage->pNext = store;
    stage->flags |= VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
}

const char *vulkan_matrix_note(const vulkan_card *card)
{
    if (card->matrix_units) return "by VK_KHR_cooperative_matrix";
    if (!HAS_WORDS)
        return "unused: this plug-in was built with Vulkan headers before 1.3.255 or glslang before 15, which lack "
               "cooperative matrices";
    if (!card->cooperative_matrix) return "none (the driver lacks VK_KHR_cooperative_matrix)";
    return "unused: the driver lacks f16 products with f32 sums, full sub-groups of a chosen size, or Vulkan's memory "
           "model";
}
