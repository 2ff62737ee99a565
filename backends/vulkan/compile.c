/* SPDX-License-Identifier: Apache-2.0 */
/* compile.c - GLSL to SPIR-V through glslang's C interface, each text once per machine.
 *
 * The file on disk is keyed by the text itself, dialect included, and by the compiler's version, so nothing has to be
 * told when the language changes. No optimizer runs: drivers have their own, and a 512 x 512 x 512 matmul on lavapipe
 * was the same with SPIRV-Tools' and without, within the noise. glslang keeps process-wide state, so one text is
 * compiled at a time. */
#include "backends/vulkan/internal.h"

#include "core/base/cache.h"
#include "core/base/hash.h"

#include <glslang/Include/glslang_c_interface.h>
#include <glslang/Public/resource_limits_c.h>
#include <glslang/build_info.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool started;

static const glslang_input_t *shader_input(const char *text, glslang_input_t *out)
{
    *out = (glslang_input_t){
        .language = GLSLANG_SOURCE_GLSL,
        .stage = GLSLANG_STAGE_COMPUTE,
        .client = GLSLANG_CLIENT_VULKAN,
        .client_version = GLSLANG_TARGET_VULKAN_1_2,
        .target_language = GLSLANG_TARGET_SPV,
        .target_language_version = GLSLANG_TARGET_SPV_1_5,
        .code = text,
        .default_version = 450,
        .default_profile = GLSLANG_NO_PROFILE,
        .messages = GLSLANG_MSG_SPV_RULES_BIT | GLSLANG_MSG_VULKAN_RULES_BIT,
        .resource = glslang_default_resource(),
    };
    return out;
}

static tern_status refused(const char *log)
{
    return tern_error(TERN_ERROR_KERNEL, "glslang refused the text: %.1500s; report it", log ? log : "no message");
}

static tern_status translate(const char *text, uint32_t **out_words, size_t *out_bytes)
{
    tern_status status = TERN_OK;
    glslang_input_t input;
    glslang_program_t *program = NULL;
    uint32_t *words = NULL;
    glslang_shader_t *shader = glslang_shader_create(shader_input(text, &input));
    if (!shader) return tern_error_memory("a glslang shader", strlen(text));
    if (!glslang_shader_preprocess(shader, &input) || !glslang_shader_parse(shader, &input)) {
        status = refused(glslang_shader_get_info_log(shader));
        goto fail;
    }
    program = glslang_program_create();
    if (!program) {
        status = tern_error_memory("a glslang program", strlen(text));
        goto fail;
    }
    glslang_program_add_shader(program, shader);
    if (!glslang_program_link(program, input.messages)) {
        status = refused(glslang_program_get_info_log(program));
        goto fail;
    }
    glslang_spv_options_t options = {.disable_optimizer = true};
    glslang_program_SPIRV_generate_with_options(program, GLSLANG_STAGE_COMPUTE, &options);
    const size_t bytes = glslang_program_SPIRV_get_size(program) * sizeof *words;
    if (bytes == 0) {
        status = refused(glslang_program_SPIRV_get_messages(program));
        goto fail;
    }
    words = malloc(bytes);
    if (!words) {
        status = tern_error_memory("a SPIR-V module", bytes);
        goto fail;
    }
    glslang_program_SPIRV_get(program, words);
    *out_words = words;
    *out_bytes = bytes;
fail:
    if (program) glslang_program_delete(program);
    glslang_shader_delete(shader);
    return status;
}

tern_status vulkan_compile(const char *text, size_t text_bytes, uint32_t **out_words, size_t *out_bytes)
{
    static const uint32_t version[] = {GLSLANG_VERSION_MAJOR, GLSLANG_VERSION_MINOR, GLSLANG_VERSION_PATCH};
    tern_status status = TERN_OK;
    const uint64_t key = tern_hash(tern_hash(TERN_HASH_START, version, sizeof version), text, text_bytes);
    char *cached = NULL;
    if (tern_cache_read("vulkan", "spirv", key, &cached, out_bytes) == TERN_OK) {
        vulkan_count_compiled(true);
        *out_words = (void *)cached;
        return TERN_OK;
    }
    (void)pthread_mutex_lock(&lock);
    if (!started && !glslang_initialize_process())
        status = tern_error(TERN_ERROR_KERNEL, "glslang did not start; reinstall the plug-in");
    else
        started = true;
    if (status == TERN_OK) status = translate(text, out_words, out_bytes);
    (void)pthread_mutex_unlock(&lock);
    if (status < 0) return status;
    vulkan_count_compiled(false);
    tern_cache_write("vulkan", "spirv", key, *out_words, *out_bytes);
    return TERN_OK;
}

void vulkan_compile_finish(void)
{
    (void)pthread_mutex_lock(&lock);
    if (started) glslang_finalize_process();
    started = false;
    (void)pthread_mutex_unlock(&lock);
}
