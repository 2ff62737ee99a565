/* SPDX-License-Identifier: Apache-2.0 */
/* parity.c - `tern parity A B`: the same steps on two devices, and where they part.
 *
 * stdout gets the ops that are furthest apart and one verdict line; --json FILE everything, to go with a report. What
 * it is not: it builds and compares nothing (parity_run.c). */
#include "core/cli/parity.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/file.h"
#include "core/cli/cli.h"

#define SHOWN 8 /* ops in the table */

typedef struct parity_command {
    int64_t layers, width, heads, context, batch, steps, seed;
    double tolerance;
    const char *precision, *json;
    const char *names[2];
    tern_device *devices[2];
    tern_parity_options options;
    tern_parity *parity;
    tern_parity_step *history;
} parity_command;

static double tolerance_of(const parity_command *c)
{
    return c->tolerance > 0                    ? c->tolerance
           : c->options.precision == TERN_F32  ? 1e-4
           : c->options.precision == TERN_BF16 ? 3e-2
                                               : 5e-3;
}

static int parse(parity_command *c, int argc, char **argv)
{
    static const struct {
        const char *name;
        int32_t dtype;
    } precisions[] = {{"f32", TERN_F32}, {"bf16", TERN_BF16}, {"f16", TERN_F16}};
    int first = 0; /* no dtype is 0 */
    *c = (parity_command){
        .layers = 2, .width = 64, .heads = 4, .context = 64, .batch = 2, .steps = 3, .seed = 1, .precision = "f32"};
    const tern_cli_option options[] = {
        {"layers", TERN_CLI_INTEGER, &c->layers, "N", 1, 1000, "of the GPT"},
        {"width", TERN_CLI_INTEGER, &c->width, "N", 1, 65536, "of its residual stream"},
        {"heads", TERN_CLI_INTEGER, &c->heads, "N", 1, 1024, "of its attention"},
        {"context", TERN_CLI_INTEGER, &c->context, "N", 1, 65536, "tokens of a row"},
        {"batch", TERN_CLI_INTEGER, &c->batch, "N", 1, 65536, "rows"},
        {"steps", TERN_CLI_INTEGER, &c->steps, "N", 1, 100000, "steps on both devices"},
        {"seed", TERN_CLI_INTEGER, &c->seed, "N", 0, 9007199254740992.0, "of weights and tokens"},
        {"precision", TERN_CLI_TEXT, &c->precision, "TYPE", 0, 0, "f32, bf16 or f16"},
        {"tolerance", TERN_CLI_REAL, &c->tolerance, "X", 0, 1e6,
         "relative difference that is none; 0: 1e-4 in f32, 3e-2 in bf16, 5e-3 in f16"},
        {"json", TERN_CLI_TEXT, &c->json, "FILE", 0, 0, "all figures, to go with a report"},
    };
    const tern_cli_usage usage = {"parity", "A B",
                                  "Runs the same training steps of a small GPT on two devices (each a backend, or "
                                  "backend:device) and says which operation is the first to differ.",
                                  options, sizeof options / sizeof *options};
    const int code = tern_cli_parse(&usage, argc, argv, &first);
    if (code != TERN_CLI_GO) return code;
    if (argc - first != 2)
        return tern_cli_misuse("parity: %d devices were named; name two, as in `tern parity cpu vulkan`", argc - first);
    c->names[0] = argv[first], c->names[1] = argv[first + 1];
    for (size_t i = 0; i < 3; i++)
        if (strcmp(c->precision, precisions[i].name) == 0) c->options.precision = precisions[i].dtype;
    if (c->options.precision == 0)
        return tern_cli_misuse("parity: --precision is \"%s\"; it must be f32, bf16 or f16", c->precision);
    c->options.model = (tern_gpt2_options){.layers = (uint32_t)c->layers,
                                           .heads = (uint32_t)c->heads,
                                           .width = (uint32_t)c->width,
                                           .vocab = 256,
                                           .positions = (uint32_t)c->context,
                                           .context = (uint32_t)c->context,
                                           .batch = (uint32_t)c->batch,
                                           .epsilon = 1e-5};
    c->options.seed = (uint64_t)c->seed;
    c->options.rate = 0.1;
    return TERN_CLI_GO;
}

/* -------------------------------------------------------------------- report */

static const char *pass_name(const tern_tensor *x) { return x->pass == TERN_PASS_FORWARD ? "forward" : "backward"; }

static uint32_t looked_count(const parity_command *c)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < tern_parity_graph(c->parity)->node_count; id++)
        count += tern_parity_nodes(c->parity)[id].looked;
    return count;
}

/* The ids of the SHOWN furthest apart, the furthest first. */
static uint32_t furthest(const parity_command *c, uint32_t ids[SHOWN])
{
    const tern_parity_node *nodes = tern_parity_nodes(c->parity);
    uint32_t count = 0;
    for (uint32_t id = 0; id < tern_parity_graph(c->parity)->node_count; id++) {
        if (!nodes[id].looked) continue;
        uint32_t at = count;
        while (at > 0 && nodes[id].difference > nodes[ids[at - 1]].difference) at--;
        if (at >= SHOWN) continue;
        if (count < SHOWN) count++;
        memmove(ids + at + 1, ids + at, (count - at - 1) * sizeof *ids);
        ids[at] = id;
    }
    return count;
}

static int verdict(const parity_command *c)
{
    const tern_parity_node *nodes = tern_parity_nodes(c->parity);
    const tern_graph *graph = tern_parity_graph(c->parity);
    const tern_tensor *first = tern_parity_first(c->parity, tolerance_of(c));
    uint32_t ids[SHOWN];
    const uint32_t count = furthest(c, ids);
    printf("%-36s %-12s %-9s %5s  %s\n", "tensor", "op", "pass", "step", "largest relative difference");
    for (uint32_t i = 0; i < count; i++) {
        const tern_tensor *x = graph->nodes[ids[i]];
        printf("%-36s %-12s %-9s %5u  %.3g\n", x->label, tern_ops[x->op].name, pass_name(x), nodes[ids[i]].step,
               nodes[ids[i]].difference);
    }
    for (int64_t s = 0; s < c->steps; s++)
        printf("step %lld  loss %.7g and %.7g  gradient norm %.7g and %.7g\n", (long long)s + 1, c->history[s].loss[0],
               c->history[s].loss[1], c->history[s].gradient_norm[0], c->history[s].gradient_norm[1]);
    printf("parity: %s %u tensors over %lld step%s on %s and %s: ", first ? "FAIL" : "PASS", looked_count(c),
           (long long)c->steps, c->steps == 1 ? "" : "s", tern_device_name(c->devices[0]),
           tern_device_name(c->devices[1]));
    if (first)
        printf("they part at \"%s\" (%s, %s), by %.3g in step %u; allowed %.3g; kernels %s and %s\n", first->label,
               tern_ops[first->op].name, pass_name(first), nodes[first->id].difference, nodes[first->id].step,
               tolerance_of(c), nodes[first->id].variants[0], nodes[first->id].variants[1]);
    else
        printf("no difference beyond %.3g\n", tolerance_of(c));
    return first ? TERN_CLI_FAILED : TERN_CLI_OK;
}

/* Each once, in the order of the kernels. */
static cJSON *variants_json(const parity_command *c, int side)
{
    const tern_lowered *lowered = tern_parity_lowered(c->parity, side);
    cJSON *list = cJSON_CreateArray();
    for (uint32_t k = 0; k < lowered->kernel_count; k++) {
        const char *name = tern_parity_variant(c->devices[side], lowered->kernels[k]);
        const cJSON *item = NULL;
        bool known = false;
        cJSON_ArrayForEach(item, list) known = known || strcmp(item->valuestring, name) == 0;
        if (!known) cJSON_AddItemToArray(list, cJSON_CreateString(name));
    }
    return list;
}

static cJSON *device_json(const parity_command *c, int side)
{
    const tern_device *device = c->devices[side];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "name", tern_device_name(device));
    cJSON_AddStringToObject(json, "backend", device->backend->name);
    cJSON_AddStringToObject(json, "driver", device->info.driver);
    cJSON_AddItemToObject(json, "variants", variants_json(c, side));
    return json;
}

static cJSON *node_json(const tern_tensor *x, const tern_parity_node *node)
{
    cJSON *json = cJSON_CreateObject(), *shape = cJSON_AddArrayToObject(json, "shape");
    cJSON_AddStringToObject(json, "label", x->label);
    cJSON_AddStringToObject(json, "op", tern_ops[x->op].name);
    cJSON_AddStringToObject(json, "pass", pass_name(x));
    cJSON_AddStringToObject(json, "dtype", tern_dtype(x->dtype)->name);
    for (int32_t i = 0; i < x->rank; i++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)x->shape[i]));
    cJSON_AddNumberToObject(json, "difference", node->difference); /* null: infinite */
    cJSON_AddNumberToObject(json, "step", node->step);
    cJSON_AddItemToObject(json, "variants", cJSON_CreateStringArray(node->variants, 2)); /* of A and B */
    return json;
}

static cJSON *report_json(const parity_command *c)
{
    const tern_graph *graph = tern_parity_graph(c->parity);
    const tern_parity_node *nodes = tern_parity_nodes(c->parity);
    const tern_tensor *first = tern_parity_first(c->parity, tolerance_of(c));
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "tern", tern_version());
    cJSON *devices = cJSON_AddArrayToObject(json, "devices");
    for (int side = 0; side < 2; side++) cJSON_AddItemToArray(devices, device_json(c, side));
    cJSON_AddStringToObject(json, "precision", c->precision);
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"layers", (double)c->layers}, {"width", (double)c->width},     {"heads", (double)c->heads},
                   {"batch", (double)c->batch},   {"context", (double)c->context}, {"seed", (double)c->seed},
                   {"tolerance", tolerance_of(c)}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cJSON_AddNumberToObject(json, numbers[i].name, numbers[i].value);
    cJSON *steps = cJSON_AddArrayToObject(json, "steps");
    for (int64_t s = 0; s < c->steps; s++) {
        cJSON *step = cJSON_CreateObject();
        cJSON_AddItemToObject(step, "loss", cJSON_CreateDoubleArray(c->history[s].loss, 2));
        cJSON_AddItemToObject(step, "gradient_norm", cJSON_CreateDoubleArray(c->history[s].gradient_norm, 2));
        cJSON_AddItemToArray(steps, step);
    }
    if (first)
        cJSON_AddItemToObject(json, "first", node_json(first, &nodes[first->id]));
    else
        cJSON_AddNullToObject(json, "first");
    cJSON *ops = cJSON_AddArrayToObject(json, "ops");
    for (uint32_t id = 0; id < graph->node_count; id++)
        if (nodes[id].looked) cJSON_AddItemToArray(ops, node_json(graph->nodes[id], &nodes[id]));
    return json;
}

static tern_status report_write(const parity_command *c)
{
    cJSON *json = report_json(c);
    char *text = cJSON_Print(json);
    const tern_status status =
        text ? tern_file_write(c->json, text, strlen(text)) : tern_error_memory("the report", 1 << 20);
    free(text);
    cJSON_Delete(json);
    return status;
}

/* ----------------------------------------------------------------------- run */

int tern_cli_parity(int argc, char **argv)
{
    parity_command c;
    tern_status status;
    int code = parse(&c, argc, argv);
    if (code != TERN_CLI_GO) return code;
    TERN_TRY(tern_gpt2_check(&c.options.model));
    for (int side = 0; side < 2; side++) TERN_TRY(tern_device_open(c.names[side], &c.devices[side]));
    c.history = calloc((size_t)c.steps, sizeof *c.history);
    if (!c.history) TERN_TRY(tern_error_memory("the steps", (size_t)c.steps * sizeof *c.history));
    TERN_TRY(tern_parity_create(c.devices, &c.options, &c.parity));
    for (int64_t s = 0; s < c.steps; s++) TERN_TRY(tern_parity_run(c.parity, &c.history[s]));
    if (c.json) TERN_TRY(report_write(&c));
    code = verdict(&c);
fail:
    if (status < 0) code = tern_cli_fail(status);
    tern_parity_destroy(c.parity);
    free(c.history);
    for (int side = 0; side < 2; side++) tern_device_close(c.devices[side]);
    return code;
}
