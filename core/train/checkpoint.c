/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c - the tensors of a checkpoint, and the whole of its folder; checkpoint.h has the picture.
 *
 * Which tensors there are follows from the layout's table of slabs and its list of states, so that one that is new
 * there is in the checkpoint without a line here. Weights are stored as f32, whatever they are stored as on the device:
 * that is exact, and any precision goes on from it. */
#include "core/train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/sealed.h"
#include "core/formats/safetensors.h"
#include "core/passes/accumulate.h"
#include "core/train/optimizer_build.h"

#define TENSORS      "state.safetensors"
#define STATE_PREFIX "state."

/* States that follow from the options alone; they are made, not trained. */
static const char *const constants[] = {TERN_STATE_TABLE};

static char *join(const char *a, const char *between, const char *b)
{
    const size_t bytes = strlen(a) + strlen(between) + strlen(b) + 1;
    char *text = malloc(bytes);
    if (text) snprintf(text, bytes, "%s%s%s", a, between, b);
    return text;
}

/* --------------------------------------------------------------- the tensors */

/* One tensor of state.safetensors; leaf is what the store calls it. */
typedef struct item {
    char *name;
    const char *leaf; /* in name, behind "state." where that is there */
    int32_t dtype, rank;
    int64_t shape[TERN_MAX_RANK];
    uint64_t bytes;
    bool present; /* false: known to be zero, not stored */
} item;

typedef struct inventory {
    tern_store *store;
    item *items;
    uint32_t count, capacity;
} inventory;

static void clear(inventory *list)
{
    for (uint32_t i = 0; i < list->count; i++) free(list->items[i].name);
    free(list->items);
}

/* Takes the name. */
static tern_status add_item(inventory *list, char *name, item made)
{
    if (!name) return tern_error_memory("a tensor's name", 64);
    if (list->count == list->capacity) {
        const uint32_t capacity = 2 * list->capacity + 64;
        item *grown = realloc(list->items, capacity * sizeof *grown);
        if (!grown) {
            free(name);
            return tern_error_memory("the list of tensors", capacity * sizeof *grown);
        }
        list->items = grown;
        list->capacity = capacity;
    }
    made.name = name;
    list->items[list->count++] = made;
    return TERN_OK;
}

static tern_status add_slab(inventory *list, tern_store_slab slab, bool inside_window)
{
    tern_status status = TERN_OK;
    const tern_store_layout *layout = tern_store_get_layout(list->store);
    for (uint32_t i = 0; i < layout->parameter_count && status >= 0; i++) {
        const tern_store_parameter *p = &layout->parameters[i];
        tern_binding at;
        if (!tern_store_layout_has(layout, p->segment, slab)) continue;
        item made = {.dtype = tern_store_layout_dtype(layout, slab), .present = slab != TERN_SLAB_ACC || inside_window};
        char *name = join(tern_store_slab_names[slab], ".", p->name);
        if (name && (status = tern_store_find(list->store, name, &at)) < 0) {
            free(name);
            break;
        }
        made.bytes = name ? at.bytes : 0;
        made.leaf = name;
        made.rank = p->rank;
        memcpy(made.shape, p->shape, sizeof made.shape);
        if (made.bytes != tern_dtype_bytes(made.dtype, p->count)) { /* one scale per block of elements */
            made.rank = 1;
            made.shape[0] = (int64_t)(made.bytes / tern_dtype_bytes(made.dtype, 1));
        }
        status = add_item(list, name, made);
    }
    return status;
}

static bool is_constant(const char *name)
{
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (strcmp(name, constants[i]) == 0) return true;
    return false;
}

static tern_status add_states(inventory *list)
{
    tern_status status = TERN_OK;
    const tern_store_layout *layout = tern_store_get_layout(list->store);
    for (uint32_t i = 0; i < layout->state_count && status >= 0; i++) {
        if (is_constant(layout->states[i].name)) continue;
        const uint64_t bytes = layout->states[i].bytes;
        item made = {.bytes = bytes, .present = true, .dtype = TERN_U8, .rank = 1, .shape = {(int64_t)bytes}};
        char *name = join(STATE_PREFIX, "", layout->states[i].name);
        made.leaf = name ? name + sizeof STATE_PREFIX - 1 : NULL;
        status = add_item(list, name, made);
    }
    return status;
}

static tern_status take_inventory(tern_stepper *stepper, bool inside_window, inventory *list)
{
    tern_status status = TERN_OK;
    list->store = tern_stepper_store(stepper);
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++) /* low copies follow from the weights */
        if (slab != TERN_SLAB_WEIGHT && slab != TERN_SLAB_LOW)
            TERN_TRY(add_slab(list, (tern_store_slab)slab, inside_window));
    TERN_TRY(add_states(list));
fail:
    return status;
}

/* -------------------------------------------------------------------- saving */

static tern_status read_item(void *context, uint32_t index, void *out, uint64_t bytes)
{
    const inventory *list = context;
    return tern_store_read(list->store, list->items[index].leaf, out, bytes);
}

static tern_status save_tensors(tern_stepper *stepper, const char *path)
{
    tern_status status;
    inventory list = {0};
    tern_step_position at;
    uint32_t count = 0;
    tern_safetensors_entry *entries = NULL;
    tern_stepper_get_position(stepper, &at);
    TERN_TRY(take_inventory(stepper, at.micros > 0, &list));
    entries = calloc((size_t)list.count + 1, sizeof *entries);
    if (!entries) {
        status = tern_error_memory("the list of tensors", list.count * sizeof *entries);
        goto fail;
    }
    for (uint32_t i = 0; i < list.count; i++) {
        if (!list.items[i].present) {
            free(list.items[i].name);
            continue;
        }
        const item kept = list.items[count] = list.items[i];
        entries[count] = (tern_safetensors_entry){.name = kept.name, .dtype = kept.dtype, .rank = kept.rank};
        memcpy(entries[count++].shape, kept.shape, sizeof kept.shape);
    }
    list.count = count;
    TERN_TRY(tern_safetensors_write(path, entries, count, read_item, &list));
fail:
    free(entries);
    clear(&list);
    return status;
}

static tern_status read_parameter(void *context, uint32_t index, void *out, uint64_t bytes)
{
    const tern_store *store = context;
    return tern_store_read(store, tern_store_get_layout(store)->parameters[index].name, out, bytes);
}

static tern_status save_weights(tern_store *store, const char *path)
{
    const tern_store_layout *layout = tern_store_get_layout(store);
    tern_safetensors_entry *entries = calloc((size_t)layout->parameter_count + 1, sizeof *entries);
    if (!entries) return tern_error_memory("the list of tensors", layout->parameter_count * sizeof *entries);
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const tern_store_parameter *p = &layout->parameters[i];
        entries[i] = (tern_safetensors_entry){.name = p->name, .dtype = TERN_F32, .rank = p->rank};
        memcpy(entries[i].shape, p->shape, sizeof p->shape);
    }
    tern_status status = tern_safetensors_write(path, entries, layout->parameter_count, read_parameter, store);
    free(entries);
    return status;
}

/* One of the folder's files; takes nothing. */
static tern_status save_text(const char *folder, const char *name, const char *text)
{
    char *path = join(folder, "/", name);
    if (!path) return tern_error_memory("a path", strlen(folder));
    tern_status status = tern_file_write(path, text, strlen(text));
    free(path);
    return status;
}

static tern_status save_files(tern_stepper *stepper, const char *folder, const tern_checkpoint_content *content)
{
    tern_status status = TERN_OK;
    char *weights = join(folder, "/", TERN_CHECKPOINT_WEIGHTS), *tensors = join(folder, "/", TENSORS);
    char *state = tern_checkpoint_state_text(stepper, content);
    if (!weights || !tensors || !state) {
        status = tern_error_memory("a checkpoint's state", strlen(folder));
        goto fail;
    }
    TERN_TRY(save_weights(tern_stepper_store(stepper), weights));
    TERN_TRY(save_tensors(stepper, tensors));
    for (uint32_t i = 0; i < content->file_count; i++)
        TERN_TRY(save_text(folder, content->files[i].name, content->files[i].text));
    TERN_TRY(save_text(folder, "state.json", state));
fail:
    free(weights);
    free(tensors);
    free(state);
    return status;
}

tern_status tern_checkpoint_save(tern_stepper *stepper, const char *folder, const tern_checkpoint_content *content)
{
    tern_status status;
    tern_seal *seal = NULL;
    tern_step_report last; /* the next step reports it again */
    TERN_TRY(tern_stepper_finish(stepper, &last));
    TERN_TRY(tern_seal_begin(folder, &seal));
    TERN_TRY(save_files(stepper, tern_seal_folder(seal), content));
    return tern_seal_commit(seal);
fail:
    tern_seal_abandon(seal);
    return status;
}

uint64_t tern_checkpoint_bytes(const tern_store_layout *layout)
{
    const uint64_t headers = 1048576 + 512 * (uint64_t)layout->parameter_count;
    uint64_t bytes = headers + layout->state_bytes;
    for (int slab = 0; slab < TERN_SLAB_COUNT; slab++) bytes += tern_store_layout_bytes(layout, (tern_store_slab)slab);
    return bytes;
}

/* ----------------------------------------------------------------- restoring */

tern_status tern_checkpoint_open(const char *folder, tern_checkpoint **out_checkpoint)
{
    tern_status status;
    tern_checkpoint *c = calloc(1, sizeof *c);
    *out_checkpoint = NULL;
    if (!c) return tern_error_memory("a checkpoint", sizeof *c);
    c->folder = strdup(folder);
    if (!c->folder) {
        status = tern_error_memory("a path", strlen(folder));
        goto fail;
    }
    TERN_TRY(tern_sealed_check(folder));
    TERN_TRY(tern_checkpoint_state_read(c));
    *out_checkpoint = c;
    return TERN_OK;
fail:
    tern_checkpoint_close(c);
    return status;
}

void tern_checkpoint_close(tern_checkpoint *c)
{
    if (!c) return;
    cJSON_Delete(c->state);
    free(c->folder);
    free(c);
}

static tern_status find_tensor(const tern_safetensors *file, const char *name, uint64_t bytes,
                               const tern_safetensor **out_tensor)
{
    *out_tensor = tern_safetensors_find(file, name);
    if (!*out_tensor)
        return tern_error(TERN_ERROR_INVALID,
                          "%s holds no tensor \"%s\"; it is of another model, optimizer or version of tern", file->path,
                          name);
    if ((*out_tensor)->bytes != bytes)
        return tern_error(TERN_ERROR_INVALID,
                          "%s: tensor \"%s\" has %llu bytes, but %llu here; it is of another model or optimizer",
                          file->path, name, (unsigned long long)(*out_tensor)->bytes, (unsigned long long)bytes);
    return TERN_OK;
}

static tern_status restore_weights(tern_store *store, const char *path)
{
    tern_status status;
    tern_safetensors *file = NULL;
    const tern_store_layout *layout = tern_store_get_layout(store);
    TERN_TRY(tern_safetensors_open(path, &file));
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const tern_store_parameter *p = &layout->parameters[i];
        const tern_safetensor *tensor;
        TERN_TRY(find_tensor(file, p->name, p->bytes, &tensor));
        TERN_TRY(tern_store_write(store, p->name, file->data + tensor->offset, tensor->bytes));
    }
fail:
    tern_safetensors_close(file);
    return status;
}

static tern_status restore_zeros(tern_store *store, const item *made)
{
    void *zeros = calloc(1, made->bytes + 1);
    if (!zeros) return tern_error_memory("a tensor of zeros", made->bytes);
    tern_status status = tern_store_write(store, made->leaf, zeros, made->bytes);
    free(zeros);
    return status;
}

/* The states of the scaler and of the outlier test are there or not by the settings, which a run may change: those that
 * the checkpoint lacks stay as a new run has them. A static scale is what the settings say. The loss scale of another
 * precision is of no use between windows; inside one the sums are scaled by it. */
static bool may_stay(const tern_checkpoint *c, const item *made, bool new_scale, const tern_safetensors *file)
{
    if (made->name == made->leaf) return false; /* no state but a parameter's */
    if (strcmp(made->leaf, TERN_STATE_SCALE) == 0) return new_scale && c->position.micros == 0;
    return strncmp(made->leaf, "step.", 5) == 0 && !tern_safetensors_find(file, made->name);
}

static bool same_precision(const tern_checkpoint *c, const tern_setup_options *options)
{
    cJSON *facts = cJSON_CreateObject();
    const bool known = tern_facts_add_precision(facts, options);
    const bool same = !known || cJSON_Compare(cJSON_GetObjectItemCaseSensitive(facts, TERN_FACTS_PRECISION),
                                              cJSON_GetObjectItemCaseSensitive(c->facts, TERN_FACTS_PRECISION), true);
    cJSON_Delete(facts);
    return same;
}

static tern_status restore_tensors(const tern_checkpoint *c, tern_stepper *stepper, const char *path)
{
    tern_status status;
    inventory list = {0};
    tern_safetensors *file = NULL;
    const tern_setup_options *o = &tern_stepper_setup(stepper)->options;
    const bool new_scale = tern_scale_resolve(&o->update.scale, o->precision == TERN_F16).mode == TERN_SCALE_STATIC ||
                           !same_precision(c, o);
    TERN_TRY(take_inventory(stepper, c->position.micros > 0, &list));
    TERN_TRY(tern_safetensors_open(path, &file));
    for (uint32_t i = 0; i < list.count; i++) {
        const tern_safetensor *tensor;
        const item *made = &list.items[i];
        if (may_stay(c, made, new_scale, file)) continue;
        if (!made->present) {
            TERN_TRY(restore_zeros(list.store, made));
            continue;
        }
        TERN_TRY(find_tensor(file, made->name, made->bytes, &tensor));
        TERN_TRY(tern_store_write(list.store, made->leaf, file->data + tensor->offset, tensor->bytes));
    }
fail:
    tern_safetensors_close(file);
    clear(&list);
    return status;
}

tern_status tern_checkpoint_restore(const tern_checkpoint *c, tern_stepper *stepper)
{
    tern_status status;
    char *weights = join(c->folder, "/", TERN_CHECKPOINT_WEIGHTS), *tensors = join(c->folder, "/", TENSORS);
    if (!weights || !tensors) {
        status = tern_error_memory("a path", strlen(c->folder));
        goto fail;
    }
    TERN_TRY(tern_stepper_set_position(stepper, &c->position)); /* waits for what the device still does */
    TERN_TRY(restore_weights(tern_stepper_store(stepper), weights));
    TERN_TRY(restore_tensors(c, stepper, tensors));
fail:
    free(weights);
    free(tensors);
    return status;
}
