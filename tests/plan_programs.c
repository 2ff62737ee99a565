/* SPDX-License-Identifier: Apache-2.0 */
/* plan_programs.c - the lowered programs of plan_fixture.h: drawn from a seed, and shaped like a GPT-2 training step.
 */
#include "tests/plan_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNELS 5u

static uint32_t draw(uint32_t *noise, uint32_t below)
{
    *noise = *noise * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(*noise >> 8) * below) >> 24);
}

/* ----------------------------------------------------------------- building */

tern_lowered *fixture_empty(uint32_t values, uint32_t launches)
{
    tern_lowered *lowered = calloc(1, sizeof *lowered);
    lowered->values = calloc(values + 1u, sizeof *lowered->values);
    lowered->launches = calloc(launches + 1u, sizeof *lowered->launches);
    lowered->outputs = calloc(values + 1u, sizeof *lowered->outputs);
    lowered->kernels = calloc(KERNELS, sizeof(tern_kernel_desc *));
    lowered->kernel_count = KERNELS;
    for (uint32_t k = 0; k < KERNELS; k++) {
        lowered->kernels[k] = calloc(1, sizeof(tern_kernel_desc));
        lowered->kernels[k]->key = 0x1234567890abcdefu * (k + 1u);
    }
    return lowered;
}

uint32_t fixture_value(tern_lowered *lowered, tern_storage storage, tern_value_kind kind, const char *name,
                       uint64_t bytes)
{
    lowered->values[lowered->value_count] =
        (tern_value){.storage = storage, .kind = kind, .dtype = TERN_F32, .bytes = bytes, .name = strdup(name)};
    return lowered->value_count++;
}

tern_launch *fixture_launch(tern_lowered *lowered, const char *label)
{
    tern_launch *launch = &lowered->launches[lowered->launch_count];
    *launch = (tern_launch){
        .kernel = lowered->launch_count % KERNELS, .label = strdup(label), .word_count = 1, .groups = {1, 1, 1}};
    launch->words[0] = lowered->launch_count++;
    return launch;
}

void fixture_use(tern_lowered *lowered, tern_launch *launch, uint32_t value, uint32_t mode)
{
    const uint64_t bytes = lowered->values[value].bytes;
    launch->operands[launch->operand_count++] = (tern_operand){.value = value, .bytes = bytes, .mode = mode};
    launch->bytes += (double)bytes;
}

void fixture_output(tern_lowered *lowered, uint32_t value)
{
    lowered->values[value].keep = true;
    lowered->outputs[lowered->output_count++] = (tern_named_value){.name = lowered->values[value].name, .value = value};
}

void fixture_free(tern_lowered *lowered)
{
    for (uint32_t v = 0; v < lowered->value_count; v++) free((char *)(uintptr_t)lowered->values[v].name);
    for (uint32_t i = 0; i < lowered->launch_count; i++) free((char *)(uintptr_t)lowered->launches[i].label);
    for (uint32_t k = 0; k < lowered->kernel_count; k++) free(lowered->kernels[k]);
    free(lowered->values);
    free(lowered->launches);
    free(lowered->outputs);
    free(lowered->kernels);
    free(lowered);
}

/* ------------------------------------------------------------------- random */

/* A part of a value, whole words, never empty. */
static void use_part(tern_lowered *lowered, tern_launch *launch, uint32_t value, uint32_t mode, uint32_t *noise)
{
    fixture_use(lowered, launch, value, mode);
    tern_operand *o = &launch->operands[launch->operand_count - 1u];
    const uint64_t words = o->bytes / 4u;
    if (words < 2 || draw(noise, 2) == 0) return;
    const uint64_t from = draw(noise, (uint32_t)words - 1u);
    o->offset = 4u * from;
    o->bytes = 4u * (1u + draw(noise, (uint32_t)(words - from)));
}

static void draw_launch(tern_lowered *lowered, uint32_t index, uint64_t largest, uint32_t *noise)
{
    char text[32];
    snprintf(text, sizeof text, "launch%u", index);
    tern_launch *launch = fixture_launch(lowered, text);
    launch->flops = (double)draw(noise, 1000) * 1e6;
    const uint32_t before = lowered->value_count, reads = draw(noise, 6);
    for (uint32_t r = 0; r < reads && before > 0; r++) {
        /* mostly recent values, so that lifetimes differ as in a network */
        const uint32_t back = draw(noise, 4) ? draw(noise, before < 8u ? before : 8u) : draw(noise, before);
        use_part(lowered, launch, before - 1u - back, TERN_ACCESS_READ, noise);
    }
    if (before > 0 && draw(noise, 3) == 0) {
        const uint32_t target = draw(noise, before);
        use_part(lowered, launch, target, draw(noise, 2) ? TERN_ACCESS_WRITE : TERN_ACCESS_READ | TERN_ACCESS_WRITE,
                 noise);
    }
    for (uint32_t made = 0; made < 1u + draw(noise, 2); made++) {
        snprintf(text, sizeof text, "value%u.%u", index, made);
        const uint32_t v = fixture_value(lowered, TERN_STORAGE_TRANSIENT, TERN_VALUE_ACTIVATION, text,
                                         4u * (1u + draw(noise, (uint32_t)(largest / 4u))));
        fixture_use(lowered, launch, v, TERN_ACCESS_WRITE);
        if (draw(noise, 10) == 0 || index == 0) fixture_output(lowered, v);
    }
}

tern_lowered *fixture_random(uint32_t seed, const fixture_shape *shape)
{
    uint32_t noise = seed * 2654435761u + 12345u;
    char text[32];
    tern_lowered *lowered = fixture_empty(shape->bound + shape->inputs + 2u * shape->launches, shape->launches);
    for (uint32_t b = 0; b < shape->bound; b++) {
        snprintf(text, sizeof text, "bound%u", b);
        fixture_value(lowered, TERN_STORAGE_BOUND, b % 2u ? TERN_VALUE_STATE : TERN_VALUE_WEIGHT, text,
                      4u * (1u + draw(&noise, 300)));
        if (b == 1) fixture_output(lowered, b);
    }
    for (uint32_t i = 0; i < shape->inputs; i++) {
        snprintf(text, sizeof text, "input%u", i);
        const uint32_t v = fixture_value(lowered, TERN_STORAGE_INPUT, TERN_VALUE_INPUT, text, 1u + draw(&noise, 900));
        if (draw(&noise, 5) == 0) fixture_output(lowered, v);
    }
    for (uint32_t i = 0; i < shape->launches; i++) draw_launch(lowered, i, shape->largest_bytes, &noise);
    return lowered;
}

/* -------------------------------------------------------------- transformer */

typedef struct profile {
    tern_lowered *lowered;
    uint64_t rows, width, heads, vocabulary; /* rows = batch * context */
} profile;

static uint32_t make(profile *p, tern_value_kind kind, const char *name, uint64_t elements)
{
    return fixture_value(p->lowered, TERN_STORAGE_TRANSIENT, kind, name, 4u * elements);
}

static void launch(profile *p, const char *label, const int64_t *reads, const int64_t *writes)
{
    tern_launch *l = fixture_launch(p->lowered, label);
    for (; *reads >= 0; reads++) fixture_use(p->lowered, l, (uint32_t)*reads, TERN_ACCESS_READ);
    for (; *writes >= 0; writes++) fixture_use(p->lowered, l, (uint32_t)*writes, TERN_ACCESS_WRITE);
}
#define LIST(...)                                                                                                      \
    (const int64_t[]) { __VA_ARGS__, -1 }

typedef struct block {
    uint32_t x, statistics1, qkv, o, lse, middle, statistics2, fc, out; /* what backward needs */
} block;

static block forward(profile *p, uint32_t x)
{
    const uint64_t rc = p->rows * p->width;
    block b = {.x = x};
    b.statistics1 = make(p, TERN_VALUE_ACTIVATION, "ln_1.statistics", 2 * p->rows);
    const uint32_t n1 = make(p, TERN_VALUE_ACTIVATION, "ln_1", rc);
    launch(p, "ln_1", LIST(x), LIST(b.statistics1, n1));
    b.qkv = make(p, TERN_VALUE_ACTIVATION, "qkv", 3 * rc);
    launch(p, "attn.c_attn", LIST(n1), LIST(b.qkv));
    b.o = make(p, TERN_VALUE_ACTIVATION, "o", rc);
    b.lse = make(p, TERN_VALUE_ACTIVATION, "lse", p->rows * p->heads);
    launch(p, "attention", LIST(b.qkv), LIST(b.o, b.lse));
    b.middle = make(p, TERN_VALUE_ACTIVATION, "residual", rc);
    launch(p, "attn.c_proj", LIST(b.o, x), LIST(b.middle));
    b.statistics2 = make(p, TERN_VALUE_ACTIVATION, "ln_2.statistics", 2 * p->rows);
    const uint32_t n2 = make(p, TERN_VALUE_ACTIVATION, "ln_2", rc);
    launch(p, "ln_2", LIST(b.middle), LIST(b.statistics2, n2));
    b.fc = make(p, TERN_VALUE_ACTIVATION, "fc", 4 * rc);
    launch(p, "mlp.c_fc", LIST(n2), LIST(b.fc));
    const uint32_t act = make(p, TERN_VALUE_ACTIVATION, "gelu", 4 * rc);
    launch(p, "gelu", LIST(b.fc), LIST(act));
    b.out = make(p, TERN_VALUE_ACTIVATION, "out", rc);
    launch(p, "mlp.c_proj", LIST(act, b.middle), LIST(b.out));
    return b;
}

static uint32_t backward(profile *p, const block *b, uint32_t dout)
{
    const uint64_t rc = p->rows * p->width;
    const uint32_t act = make(p, TERN_VALUE_SCRATCH, "gelu again", 4 * rc),
                   dw1 = make(p, TERN_VALUE_GRADIENT, "dW", 4 * p->width * p->width);
    launch(p, "gelu", LIST(b->fc), LIST(act));
    launch(p, "mlp.c_proj.dW", LIST(act, dout), LIST(dw1));
    const uint32_t dfc = make(p, TERN_VALUE_GRADIENT, "dfc", 4 * rc);
    launch(p, "mlp.c_proj.dx", LIST(dout, b->fc), LIST(dfc));
    const uint32_t n2 = make(p, TERN_VALUE_SCRATCH, "ln_2 again", rc),
                   dw2 = make(p, TERN_VALUE_GRADIENT, "dW", 4 * p->width * p->width);
    launch(p, "ln_2", LIST(b->middle, b->statistics2), LIST(n2));
    launch(p, "mlp.c_fc.dW", LIST(n2, dfc), LIST(dw2));
    const uint32_t dn2 = make(p, TERN_VALUE_GRADIENT, "dn2", rc), dmiddle = make(p, TERN_VALUE_GRADIENT, "dmiddle", rc);
    launch(p, "mlp.c_fc.dx", LIST(dfc), LIST(dn2));
    launch(p, "ln_2.dx", LIST(dn2, b->middle, b->statistics2, dout), LIST(dmiddle));
    const uint32_t d_o = make(p, TERN_VALUE_GRADIENT, "do", rc),
                   delta = make(p, TERN_VALUE_SCRATCH, "delta", p->rows * p->heads);
    launch(p, "attn.c_proj.dx", LIST(dmiddle), LIST(d_o));
    launch(p, "delta", LIST(d_o, b->o), LIST(delta));
    const uint32_t dq = make(p, TERN_VALUE_GRADIENT, "dq", rc), dk = make(p, TERN_VALUE_GRADIENT, "dk", rc),
                   dv = make(p, TERN_VALUE_GRADIENT, "dv", rc);
    launch(p, "attention.dq", LIST(b->qkv, d_o, b->lse, delta), LIST(dq));
    launch(p, "attention.dkv", LIST(b->qkv, d_o, b->lse, delta), LIST(dk, dv));
    const uint32_t dqkv = make(p, TERN_VALUE_GRADIENT, "dqkv", 3 * rc), dn1 = make(p, TERN_VALUE_GRADIENT, "dn1", rc),
                   dx = make(p, TERN_VALUE_GRADIENT, "dx", rc);
    launch(p, "concat", LIST(dq, dk, dv), LIST(dqkv));
    launch(p, "attn.c_attn.dx", LIST(dqkv), LIST(dn1));
    launch(p, "ln_1.dx", LIST(dn1, b->x, b->statistics1, dmiddle), LIST(dx));
    return dx;
}

tern_lowered *fixture_transformer(uint32_t layers, uint64_t batch, uint64_t context, uint64_t width, uint64_t heads,
                                  uint64_t vocabulary)
{
    profile p = {.lowered = fixture_empty(40u * layers + 20u, 30u * layers + 20u),
                 .rows = batch * context,
                 .width = width,
                 .heads = heads,
                 .vocabulary = vocabulary};
    block *blocks = calloc(layers, sizeof *blocks);
    const uint32_t ids = fixture_value(p.lowered, TERN_STORAGE_INPUT, TERN_VALUE_INPUT, "ids", 4 * p.rows);
    const uint32_t labels = fixture_value(p.lowered, TERN_STORAGE_INPUT, TERN_VALUE_INPUT, "labels", 4 * p.rows);
    uint32_t x = make(&p, TERN_VALUE_ACTIVATION, "embedding", p.rows * width);
    launch(&p, "embedding", LIST(ids), LIST(x));
    for (uint32_t l = 0; l < layers; l++) x = (blocks[l] = forward(&p, x)).out;
    const uint32_t n = make(&p, TERN_VALUE_ACTIVATION, "ln_f", p.rows * width),
                   logits = make(&p, TERN_VALUE_ACTIVATION, "logits", p.rows * vocabulary);
    launch(&p, "ln_f", LIST(x), LIST(n));
    launch(&p, "lm_head", LIST(n), LIST(logits));
    const uint32_t loss = make(&p, TERN_VALUE_ACTIVATION, "loss", p.rows),
                   dlogits = make(&p, TERN_VALUE_GRADIENT, "dlogits", p.rows * vocabulary);
    fixture_output(p.lowered, loss);
    launch(&p, "cross_entropy", LIST(logits, labels), LIST(loss));
    launch(&p, "cross_entropy.dx", LIST(logits, labels), LIST(dlogits));
    const uint32_t dwte = make(&p, TERN_VALUE_GRADIENT, "dwte", vocabulary * width);
    launch(&p, "lm_head.dW", LIST(dlogits, n), LIST(dwte));
    uint32_t dx = make(&p, TERN_VALUE_GRADIENT, "dx", p.rows * width);
    launch(&p, "lm_head.dx", LIST(dlogits), LIST(dx));
    for (uint32_t l = layers; l-- > 0;) dx = backward(&p, &blocks[l], dx);
    const uint32_t total = make(&p, TERN_VALUE_GRADIENT, "wte total", vocabulary * width);
    launch(&p, "embedding.dW", LIST(dx, ids, dwte), LIST(total));
    free(blocks);
    return p.lowered;
}
