/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c - opens libvulkan, makes instances and turns every VkResult into a status.
 *
 *     dlopen libvulkan.so.1 ── vkGetInstanceProcAddr ── global table ── instance ── instance table
 *
 * The instance made here serves for listing cards; each opened device has its own (device.c). In a child after fork
 * nothing of the parent's is touched: a driver's threads and locks did not come along. */
#include "backends/vulkan/internal.h"

#include "core/base/jit.h"
#include "core/base/log.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    void *library;
    PFN_vkGetInstanceProcAddr symbol;
    vulkan_global_table vk;
    vulkan_instance instance;
    pid_t owner;
} loaded;

static atomic_uint_fast64_t messages;

/* Calls since the count was set, and the one to fail; 0: none. */
static atomic_uint_fast64_t calls, failing_call;
static atomic_int failing_result = VK_ERROR_OUT_OF_HOST_MEMORY;

/* ------------------------------------------------------------------ results */

static const char *result_name(VkResult result)
{
    switch (result) {
#define RESULT(name)                                                                                                   \
    case name: return #name;
        RESULT(VK_ERROR_OUT_OF_HOST_MEMORY)
        RESULT(VK_ERROR_OUT_OF_DEVICE_MEMORY)
        RESULT(VK_ERROR_INITIALIZATION_FAILED)
        RESULT(VK_ERROR_DEVICE_LOST)
        RESULT(VK_ERROR_MEMORY_MAP_FAILED)
        RESULT(VK_ERROR_LAYER_NOT_PRESENT)
        RESULT(VK_ERROR_EXTENSION_NOT_PRESENT)
        RESULT(VK_ERROR_FEATURE_NOT_PRESENT)
        RESULT(VK_ERROR_INCOMPATIBLE_DRIVER)
        RESULT(VK_ERROR_TOO_MANY_OBJECTS)
        RESULT(VK_ERROR_FRAGMENTED_POOL)
        RESULT(VK_ERROR_OUT_OF_POOL_MEMORY)
        RESULT(VK_ERROR_INVALID_SHADER_NV)
#undef RESULT
    default: return "an unknown VkResult";
    }
}

static tern_status result_status(VkResult result)
{
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY: return TERN_ERROR_MEMORY;
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_POOL_MEMORY: return TERN_ERROR_DEVICE_MEMORY;
    case VK_ERROR_DEVICE_LOST: return TERN_ERROR_DEVICE_LOST;
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT: return TERN_ERROR_UNSUPPORTED;
    case VK_ERROR_INCOMPATIBLE_DRIVER: return TERN_ERROR_NOT_FOUND;
    default: return TERN_ERROR_DRIVER;
    }
}

static const char *result_advice(tern_status status)
{
    switch (status) {
    case TERN_ERROR_MEMORY: return "free host memory";
    case TERN_ERROR_DEVICE_MEMORY: return "use a smaller batch, or close what else uses the device";
    case TERN_ERROR_DEVICE_LOST:
        return "the driver was reset or removed: close the device, look into the kernel log and open it again";
    case TERN_ERROR_UNSUPPORTED: return "update the driver, or choose another device";
    case TERN_ERROR_NOT_FOUND:
        return "no installed Vulkan driver fits: install the card's (mesa-vulkan-drivers, or the vendor's)";
    default: return "update the driver, or run with TERN_VULKAN_VALIDATE=1 and report what it prints";
    }
}

tern_status vulkan_check(tern_backend_device *device, const char *call, VkResult result)
{
    if (result >= 0) return TERN_OK;
    tern_status status = result_status(result);
    if (status == TERN_ERROR_DEVICE_LOST && device) atomic_store(&device->lost, true);
    return tern_error(status, "%s failed with %s (%d); %s", call, result_name(result), (int)result,
                      result_advice(status));
}

VkResult vulkan_inject(void)
{
    uint64_t call = atomic_fetch_add(&calls, 1) + 1;
    return call == atomic_load(&failing_call) ? (VkResult)atomic_load(&failing_result) : VK_SUCCESS;
}

uint64_t tern_vulkan_fail_call(uint64_t call, int32_t result)
{
    atomic_store(&failing_result, result);
    atomic_store(&failing_call, call);
    return atomic_exchange(&calls, 0);
}

/* TERN_VULKAN_FAIL_CALL=n[:result] */
static void injection_from_environment(void)
{
    const char *text = getenv("TERN_VULKAN_FAIL_CALL");
    if (!text) return;
    char *end = NULL;
    uint64_t call = strtoull(text, &end, 10);
    long result = *end == ':' ? strtol(end + 1, NULL, 10) : VK_ERROR_OUT_OF_HOST_MEMORY;
    if (result < 0 && result >= INT32_MIN) (void)tern_vulkan_fail_call(call, (int32_t)result);
}

bool vulkan_environment_flag(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] != 0 && strcmp(value, "0") != 0;
}

/* --------------------------------------------------------------- validation */

static VKAPI_ATTR VkBool32 VKAPI_CALL message_arrived(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                      VkDebugUtilsMessageTypeFlagsEXT types,
                                                      const VkDebugUtilsMessengerCallbackDataEXT *data, void *context)
{
    (void)types;
    (void)context;
    bool error = severity & VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    atomic_fetch_add(&messages, 1);
    tern_log_write(error ? TERN_LOG_ERROR : TERN_LOG_WARNING, "vulkan validation: %s", data->pMessage);
    return VK_FALSE;
}

uint64_t tern_vulkan_validation_messages(void) { return atomic_load(&messages); }

static tern_status layer_is_present(const char *name, bool *out_present)
{
    VkLayerProperties *layers = NULL;
    uint32_t count = 0;
    tern_status status = TERN_OK;
    *out_present = false;
    VULKAN_TRY(NULL, loaded.vk, EnumerateInstanceLayerProperties, &count, NULL);
    if (count == 0) return TERN_OK;
    layers = calloc(count, sizeof *layers);
    if (!layers) return tern_error_memory("the list of Vulkan layers", count * sizeof *layers);
    VULKAN_TRY(NULL, loaded.vk, EnumerateInstanceLayerProperties, &count, layers);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(layers[i].layerName, name) == 0) *out_present = true;
fail:
    free(layers);
    return status;
}

/* ---------------------------------------------------------------- instances */

static tern_status instance_symbols(vulkan_instance *instance, bool validated)
{
#define SYMBOL(name)                                                                                                   \
    instance->vk.name = (PFN_vk##name)loaded.symbol(instance->handle, "vk" #name);                                     \
    if (!instance->vk.name)                                                                                            \
        return tern_error(TERN_ERROR_NOT_FOUND, "the Vulkan loader lacks vk" #name "; install Vulkan 1.2 or later");
    VULKAN_INSTANCE_SYMBOLS(SYMBOL)
    if (validated) {
        VULKAN_DEBUG_SYMBOLS(SYMBOL)
    }
#undef SYMBOL
    return TERN_OK;
}

PFN_vkVoidFunction vulkan_instance_symbol(const vulkan_instance *instance, const char *name)
{
    return loaded.symbol(instance->handle, name);
}

tern_status vulkan_instance_create(bool validate, vulkan_instance *out_instance)
{
    static const char *const layer = "VK_LAYER_KHRONOS_validation";
    static const char *const extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    tern_status status = TERN_OK;
    vulkan_instance instance = {0};
    if (validate) {
        bool present;
        TERN_TRY(layer_is_present(layer, &present));
        if (!present)
            tern_log_write(TERN_LOG_WARNING, "%s is not installed (Debian: vulkan-validationlayers); not validating",
                           layer);
        validate = present;
        /* Layers since 1.3.29x look for hazards between shaders' accesses only when told to; older ones do not ask. */
        if (present && setenv("VK_LAYER_SYNCVAL_SHADER_ACCESSES_HEURISTIC", "1", 0) != 0)
            TERN_TRY(tern_error_memory("a variable of the environment", 1));
    }
    VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
        .pfnUserCallback = message_arrived,
    };
    VkValidationFeatureEnableEXT enables[] = {VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    VkValidationFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
        .pNext = &messenger,
        .enabledValidationFeatureCount = 1,
        .pEnabledValidationFeatures = enables,
    };
    VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pApplicationName = "tern",
        .pEngineName = "tern",
        .apiVersion = VK_API_VERSION_1_2,
    };
    VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pNext = validate ? &features : NULL,
        .pApplicationInfo = &application,
        .enabledLayerCount = validate ? 1 : 0,
        .ppEnabledLayerNames = &layer,
        .enabledExtensionCount = validate ? 1 : 0,
        .ppEnabledExtensionNames = &extension,
    };
    VULKAN_TRY(NULL, loaded.vk, CreateInstance, &info, NULL, &instance.handle);
    TERN_TRY(instance_symbols(&instance, validate));
    if (validate)
        VULKAN_TRY(NULL, instance.vk, CreateDebugUtilsMessengerEXT, instance.handle, &messenger, NULL,
                   &instance.messenger);
    *out_instance = instance;
    return TERN_OK;
fail:
    vulkan_instance_destroy(&instance);
    return status;
}

void vulkan_instance_destroy(vulkan_instance *instance)
{
    if (!instance->handle) return;
    if (instance->messenger) instance->vk.DestroyDebugUtilsMessengerEXT(instance->handle, instance->messenger, NULL);
    /* NULL only if the loader gave an instance without its own destructor. */
    if (instance->vk.DestroyInstance) instance->vk.DestroyInstance(instance->handle, NULL);
    *instance = (vulkan_instance){0};
}

/* ------------------------------------------------------------------ library */

static tern_status library_open(void)
{
    const char *name = getenv("TERN_VULKAN_LIBRARY");
    if (!name || !name[0]) name = "libvulkan.so.1";
    tern_jit_prepare();
    loaded.library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!loaded.library)
        return tern_error(TERN_ERROR_NOT_FOUND, "the Vulkan loader is not there (%s); install it (Debian: libvulkan1)",
                          dlerror());
    /* A data pointer becomes a function pointer through memory, as POSIX asks. */
    void *symbol = dlsym(loaded.library, "vkGetInstanceProcAddr");
    if (!symbol)
        return tern_error(TERN_ERROR_NOT_FOUND,
                          "%s has no vkGetInstanceProcAddr; install a Vulkan loader (Debian: libvulkan1)", name);
    memcpy(&loaded.symbol, &symbol, sizeof symbol);
#define SYMBOL(function)                                                                                               \
    loaded.vk.function = (PFN_vk##function)loaded.symbol(NULL, "vk" #function);                                        \
    if (!loaded.vk.function)                                                                                           \
        return tern_error(TERN_ERROR_NOT_FOUND, "%s lacks vk" #function "; install a Vulkan loader of 1.2 or later",   \
                          name);
    VULKAN_GLOBAL_SYMBOLS(SYMBOL)
#undef SYMBOL
    return TERN_OK;
}

tern_status vulkan_load(void)
{
    tern_status status = TERN_OK;
    if (loaded.library && loaded.owner == getpid()) return TERN_OK;
    /* In a child the parent's handles are dropped, not closed: their threads and locks stayed behind. */
    memset(&loaded, 0, sizeof loaded);
    injection_from_environment();
    TERN_TRY(library_open());
    uint32_t version;
    VULKAN_TRY(NULL, loaded.vk, EnumerateInstanceVersion, &version);
    if (version < VK_API_VERSION_1_2) {
        status =
            tern_error(TERN_ERROR_UNSUPPORTED, "the Vulkan loader is of version %u.%u and tern needs 1.2; update it",
                       VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
        goto fail;
    }
    TERN_TRY(vulkan_instance_create(false, &loaded.instance));
    loaded.owner = getpid();
    return TERN_OK;
fail:
    if (loaded.library) dlclose(loaded.library);
    memset(&loaded, 0, sizeof loaded);
    return status;
}

void vulkan_unload(void)
{
    if (loaded.library && loaded.owner == getpid()) {
        vulkan_instance_destroy(&loaded.instance);
        vulkan_compile_finish();
        dlclose(loaded.library);
    }
    memset(&loaded, 0, sizeof loaded);
}

tern_status vulkan_loaded_instance(const vulkan_instance **out_instance)
{
    if (!loaded.library) return tern_error(TERN_ERROR_INVALID, "the Vulkan plug-in is not loaded; call load first");
    if (loaded.owner != getpid())
        return tern_error(TERN_ERROR_INVALID,
                          "Vulkan was loaded by process %ld, before a fork; call load again in process %ld",
                          (long)loaded.owner, (long)getpid());
    *out_instance = &loaded.instance;
    return TERN_OK;
}
