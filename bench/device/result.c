/* SPDX-License-Identifier: Apache-2.0 */
/* result.c - the file that bench/on_gpu writes: read, grown by a section, replaced as a whole.
 *
 * A reader, or a crash, sees the file before a section or after it. Whether its content is right is schema.c's matter.
 */
#include "bench/device/device.h"

#include "core/base/file.h"

#include <stdlib.h>
#include <string.h>

#define FILE_MOST ((size_t)4 << 20)

tern_status device_result_read(const char *path, cJSON **out_result)
{
    char *text = NULL;
    size_t bytes = 0;
    tern_status status = tern_file_read(path, FILE_MOST, &text, &bytes);
    if (status < 0) return status;
    cJSON *result = cJSON_Parse(text);
    const char *schema = cJSON_GetStringValue(cJSON_GetObjectItem(result, "schema"));
    if (schema && strcmp(schema, DEVICE_SCHEMA) == 0) {
        *out_result = result;
    } else {
        status = tern_error(TERN_ERROR_FORMAT, "\"%s\" is not a file of bench/on_gpu: its \"schema\" is %s, not %s",
                            path, schema ? schema : "missing", DEVICE_SCHEMA);
        cJSON_Delete(result);
    }
    free(text);
    return status;
}

tern_status device_result_write(const char *path, const cJSON *result)
{
    char *text = cJSON_Print(result);
    if (!text) return tern_error_memory("the result", 65536);
    size_t bytes = strlen(text);
    text[bytes++] = '\n'; /* in the place of the zero */
    const tern_status status = tern_file_write(path, text, bytes);
    free(text);
    return status;
}

tern_status device_result_put(const char *path, cJSON *section)
{
    cJSON *result = NULL;
    tern_status status = device_result_read(path, &result);
    if (status == TERN_OK && cJSON_AddItemToArray(cJSON_GetObjectItem(result, "sections"), section)) {
        status = device_result_write(path, result);
    } else {
        if (status == TERN_OK) status = tern_error(TERN_ERROR_FORMAT, "\"%s\" has no \"sections\"", path);
        cJSON_Delete(section);
    }
    cJSON_Delete(result);
    return status;
}
