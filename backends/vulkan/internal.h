/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of the Vulkan plug-in share.
 *
 *     loader.c    libvulkan, instances, results, validation, injected failures
 *     cards.c     physical devices: limits, features, one entry per card
 *     matrix.c    cooperative matrices
 *     device.c    open and close, the two timelines, finite waits
 *     memory.c    buffers and blocking transfers
 *     compile.c   GLSL -> SPIR-V, kept on disk              cache.c   the pipeline cache
 *     kernel.c    pipelines                                 program.c checks, records    submit.c submits, waits, times
 *
 * Invariants: every VkResult passes through vulkan_check; a lost device is latched there; no wait is longer than
 * VULKAN_PATIENCE_NS; nothing here knows an op, a shape or a kernel's text. */
#ifndef TERN_BACKENDS_VULKAN_INTERNAL_H
#define TERN_BACKENDS_VULKAN_INTERNAL_H

#include "backends/vulkan/symbols.h"
#include "backends/vulkan/vulkan.h"
#include "core/backend.h"
#include "core/base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

/* Longest wait for work of our own that nobody gave a timeout for: a software GPU may compile for seconds. */
#define VULKAN_PATIENCE_NS 600000000000ull
/* Ticket t is finished when the timeline reaches t << 12: below that, each part of a cut program has a value. */
#define VULKAN_PARTS_LOG2 12
/* Push constants that every Vulkan device has. */
#define VULKAN_PUSH_BYTES 128u

/* ----------------------------------------------------------------- loader.c */

typedef struct vulkan_instance {
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    vulkan_instance_table vk;
} vulkan_instance;

tern_status vulkan_load(void);
void vulkan_unload(void);
/* The instance made by vulkan_load; fails when nothing is loaded or in a child of the process that loaded. */
tern_status vulkan_loaded_instance(const vulkan_instance **out_instance);
/* validate: under the Khronos layer where it is installed, else a warning is logged. */
tern_status vulkan_instance_create(bool validate, vulkan_instance *out_instance);
void vulkan_instance_destroy(vulkan_instance *instance);
/* An instance's function that is in none of the tables, for it belongs to an extension of devices; NULL: not there. */
PFN_vkVoidFunction vulkan_instance_symbol(const vulkan_instance *instance, const char *name);

/* A result as a status with its sentence; a device's loss is latched. device may be NULL. */
tern_status vulkan_check(tern_backend_device *device, const char *call, VkResult result);
/* Counts a call; a negative result when this is the call that shall fail. */
VkResult vulkan_inject(void);
bool vulkan_environment_flag(const char *name);

#define VULKAN_CALL(result, table, function, ...)                                                                      \
    do {                                                                                                               \
        (result) = vulkan_inject();                                                                                    \
        if ((result) == VK_SUCCESS) (result) = (table).function(__VA_ARGS__);                                          \
    } while (0)

#define VULKAN_TRY(device, table, function, ...)                                                                       \
    do {                                                                                                               \
        VkResult result_;                                                                                              \
        VULKAN_CALL(result_, table, function, __VA_ARGS__);                                                            \
        TERN_TRY(vulkan_check(device, "vk" #function, result_));                                                       \
    } while (0)

/* ------------------------------------------------------------------ cards.c */

typedef struct vulkan_card {
    VkPhysicalDevice handle;
    tern_device_info info;
    VkPhysicalDeviceMemoryProperties memory;
    VkPhysicalDeviceLimits limits;
    uint32_t queue_family, timestamp_bits;
    bool arithmetic_8, arithmetic_16;                                 /* enabled where present */
    bool budget, pci, maintenance4, size_control, cooperative_matrix; /* extensions */
    bool matrix_units;                                                /* info.matrix has shapes to be enabled */
    uint64_t key; /* hash of device and driver: names the pipeline cache */
} vulkan_card;

/* Cards of Vulkan 1.2 or later, each once; free() *out_cards. out_old: devices left out as too old. */
tern_status vulkan_cards_list(const vulkan_instance *instance, vulkan_card **out_cards, uint32_t *out_count,
                              uint32_t *out_old);
/* Bytes of device memory that are free now, by the driver's word; 0 where it does not say. */
uint64_t vulkan_card_budget(const vulkan_instance *instance, const vulkan_card *card);
tern_status vulkan_device_count(uint32_t *out_count);
tern_status vulkan_device_info(uint32_t index, tern_device_info *out_info);
tern_status vulkan_device_notes(uint32_t index, char *out_text, size_t bytes);

/* ----------------------------------------------------------------- matrix.c */

/* What a device needs enabled for the shapes that its card lists. */
typedef struct vulkan_matrix_features {
    VkPhysicalDeviceSubgroupSizeControlFeatures size_control;
#ifdef VK_KHR_cooperative_matrix
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix;
#endif
    const char *extensions[2];
} vulkan_matrix_features;

/* Fills card->info's matrix shapes. After everything else of the card was read. */
tern_status vulkan_matrix_read(const vulkan_instance *instance, vulkan_card *card);
/* Adds what the shapes need to `info`; *store must live until the device is made. */
void vulkan_matrix_enable(const vulkan_card *card, vulkan_matrix_features *store, VkDeviceCreateInfo *info);
/* Fails with its reason where a kernel has fragments that the device cannot hold. */
tern_status vulkan_matrix_check(const vulkan_card *card, const tern_kernel_desc *desc);
/* For a kernel with fragments: sub-groups of their size, all lanes of them there. */
void vulkan_matrix_stage(const vulkan_card *card, const tern_kernel_desc *desc,
                         VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *store,
                         VkPipelineShaderStageCreateInfo *stage);
/* Why a card offers what it does, for people. */
const char *vulkan_matrix_note(const vulkan_card *card);

/* ----------------------------------------------------------------- device.c */

struct tern_backend_device {
    pid_t owner;
    vulkan_instance instance; /* its own, so that validation is a device's choice */
    vulkan_card card;
    VkDevice logical;
    vulkan_device_table vk;
    VkQueue queue;
    atomic_bool lost;
    bool addresses;                  /* always pass device addresses */
    bool timestamps;                 /* programs record when each step ended */
    pthread_mutex_t lock;            /* queue, timelines, staging, accounts */
    VkSemaphore programs, transfers; /* timelines */
    uint64_t ticket;                 /* last given out */
    uint64_t submitted, transfer;    /* last values that the timelines will reach */
    uint64_t allocated;
    VkCommandPool transfer_pool;
    VkCommandBuffer transfer_commands;
    tern_backend_buffer *staging;
    pthread_mutex_t kernel_lock; /* second forms are built on demand */
    VkPipelineCache pipelines;
    bool pipelines_built; /* since the cache was read: worth writing */
};

tern_status vulkan_open(uint32_t index, const tern_open_options *options, tern_backend_device **out_device);
void vulkan_close(tern_backend_device *device);
/* First line of every entry: the device is ours (no fork) and not lost. */
tern_status vulkan_enter(const tern_backend_device *device);
/* True in a child after fork: the driver must not be touched, only memory is freed. */
bool vulkan_is_foreign(const tern_backend_device *device);
/* Polls until the timeline reaches value; TERN_ERROR_TIMEOUT without a change of state. */
tern_status vulkan_timeline_wait(tern_backend_device *device, VkSemaphore timeline, uint64_t value,
                                 uint64_t timeout_ns);
/* Waits, however the device fares, until the work before value no longer uses anything. False: it still runs after all
 * patience, and destroying what it uses could bring the process down. May replace the error sentence only by another.
 */
bool vulkan_drain(tern_backend_device *device, VkSemaphore timeline, uint64_t value);
/* Submits one command buffer that sets the timeline to value. Under device->lock. */
tern_status vulkan_queue_submit(tern_backend_device *device, VkCommandBuffer commands, VkSemaphore timeline,
                                uint64_t value);

/* ----------------------------------------------------------------- memory.c */

struct tern_backend_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    VkDeviceAddress address; /* 0 without TERN_FEATURE_BUFFER_ADDRESS */
    uint64_t bytes;          /* as asked for */
    void *map;               /* UPLOAD, READBACK */
    tern_buffer_kind kind;
};

tern_status vulkan_buffer_create(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                                 tern_backend_buffer **out_buffer);
void vulkan_buffer_destroy(tern_backend_device *device, tern_backend_buffer *buffer);
tern_status vulkan_buffer_write(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                const void *data, uint64_t bytes);
tern_status vulkan_buffer_read(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                               void *out_data, uint64_t bytes);
tern_status vulkan_buffer_map(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address);
uint64_t vulkan_allocated_bytes(tern_backend_device *device);

/* ------------------------------------------------------- compile.c, cache.c */

/* free() *out_words. */
tern_status vulkan_compile(const char *text, size_t text_bytes, uint32_t **out_words, size_t *out_bytes);
/* Ends the compiler's process-wide state. */
void vulkan_compile_finish(void);

tern_status vulkan_pipelines_open(tern_backend_device *device);
void vulkan_pipelines_close(tern_backend_device *device);
void vulkan_count_compiled(bool found);

/* ----------------------------------------------------------------- kernel.c */

typedef struct vulkan_pipeline {
    VkPipelineLayout layout;
    VkPipeline handle;
} vulkan_pipeline;

struct tern_backend_kernel {
    tern_kernel_desc desc; /* own copy, tape included: the second form may be rendered later */
    VkDescriptorSetLayout set_layout;
    vulkan_pipeline bindings, addresses;
    bool addresses_only;
};

tern_status vulkan_kernel_create(tern_backend_device *device, const tern_kernel_desc *desc,
                                 tern_backend_kernel **out_kernel);
void vulkan_kernel_destroy(tern_backend_device *device, tern_backend_kernel *kernel);
/* The pipeline of a form, built now if it was not yet. */
tern_status vulkan_kernel_form(tern_backend_device *device, tern_backend_kernel *kernel, bool addresses,
                               const vulkan_pipeline **out_pipeline);

/* ------------------------------------------------------ program.c, submit.c */

struct tern_backend_program {
    VkCommandPool command_pool;
    VkDescriptorPool descriptor_pool; /* none where no step uses bindings */
    VkQueryPool queries;              /* none on a device opened without timestamps */
    VkCommandBuffer *parts;
    uint32_t part_count, step_count, query_count;
    uint32_t *step_queries; /* step i took from query [i] - 1 to query [i] */
    uint64_t ticket;        /* of the last submission, 0: none */
};

tern_status vulkan_program_create(tern_backend_device *device, const tern_program_desc *desc,
                                  tern_backend_program **out_program);
void vulkan_program_destroy(tern_backend_device *device, tern_backend_program *program);
/* Frees the driver's objects; the program must not be running. */
void vulkan_program_free(tern_backend_device *device, tern_backend_program *program);
tern_status vulkan_program_submit(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket);
tern_status vulkan_wait(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns);
tern_status vulkan_program_times(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns);
uint32_t vulkan_submission_count(tern_backend_device *device, tern_backend_program *program);

#endif
