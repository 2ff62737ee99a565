/* SPDX-License-Identifier: Apache-2.0 */
/* lowered_runner.c - see lowered_runner.h. */
#include "tests/lowered_runner.h"

#include "core/base/dtype.h"
#include "core/base/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct cell { /* a register: which member counts is the instruction's type */
    double f;
    uint32_t u;
} cell;

typedef struct machine {
    const tern_tape *tape;
    void *tensors[TERN_TAPE_TENSORS];
    const uint32_t *dims;
    uint32_t index[TERN_TAPE_DIMS];
    cell *value;
    double acc;
} machine;

void lowered_runner_create(const tern_lowered *lowered, lowered_runner *out_runner)
{
    out_runner->lowered = lowered;
    out_runner->data = calloc(lowered->value_count + 1u, sizeof *out_runner->data);
    for (uint32_t v = 0; v < lowered->value_count; v++) {
        out_runner->data[v] = malloc(lowered->values[v].bytes + 4);
        memset(out_runner->data[v], lowered->values[v].storage == TERN_STORAGE_TRANSIENT ? 0xff : 0,
               lowered->values[v].bytes);
    }
}

void lowered_runner_destroy(lowered_runner *runner)
{
    for (uint32_t v = 0; v < runner->lowered->value_count; v++) free(runner->data[v]);
    free(runner->data);
}

void *lowered_runner_leaf(lowered_runner *runner, const char *name)
{
    for (uint32_t v = 0; v < runner->lowered->value_count; v++)
        if (runner->lowered->values[v].storage != TERN_STORAGE_TRANSIENT &&
            strcmp(runner->lowered->values[v].name, name) == 0)
            return runner->data[v];
    return NULL;
}

const void *lowered_runner_output(const lowered_runner *runner, const char *name)
{
    for (uint32_t o = 0; o < runner->lowered->output_count; o++)
        if (strcmp(runner->lowered->outputs[o].name, name) == 0) return runner->data[runner->lowered->outputs[o].value];
    return NULL;
}

static uint32_t element_of(const machine *m, const tern_tape_access *access)
{
    uint32_t element = (uint32_t)access->offset;
    for (uint32_t d = 0; d < m->tape->dim_count; d++)
        element += m->index[d] * tern_tape_stride_value(access->stride[d], m->dims);
    return element;
}

static int unmasked(const machine *m, const tern_tape_access *access)
{
    for (uint32_t k = 0; k < access->mask_count; k++) {
        int64_t value = access->mask[k].offset;
        for (uint32_t d = 0; d < m->tape->dim_count; d++) value += (int64_t)access->mask[k].coef[d] * m->index[d];
        if (value < access->mask[k].lo || value >= access->mask[k].hi) return 0;
    }
    return 1;
}

static cell load(const machine *m, const tern_tape_insn *insn)
{
    const tern_tape_access *access = &m->tape->access[insn->access];
    cell c = {0, 0};
    if (!unmasked(m, access)) return c;
    uint32_t e = element_of(m, access);
    if (insn->in[0] != TERN_TAPE_NONE) e += m->value[insn->in[0]].u * tern_tape_stride_value(access->indirect, m->dims);
    const void *data = m->tensors[access->tensor];
    switch (m->tape->tensors[access->tensor].dtype) {
    case TERN_F32: c.f = ((const float *)data)[e]; break;
    case TERN_F16: c.f = (double)tern_f16_to_f32(((const uint16_t *)data)[e]); break;
    case TERN_BF16: c.f = (double)tern_bf16_to_f32(((const uint16_t *)data)[e]); break;
    case TERN_U8: c.u = ((const uint8_t *)data)[e]; break;
    case TERN_U16: c.u = ((const uint16_t *)data)[e]; break;
    default: c.u = ((const uint32_t *)data)[e];
    }
    return c;
}

static void store(const machine *m, const tern_tape_insn *insn, uint32_t element)
{
    const tern_tape_access *access = &m->tape->access[insn->access];
    void *data = m->tensors[access->tensor];
    const cell value = m->value[insn->in[0]];
    switch (m->tape->tensors[access->tensor].dtype) {
    case TERN_F32: ((float *)data)[element] = (float)value.f; break;
    case TERN_F16: ((uint16_t *)data)[element] = tern_f32_to_f16((float)value.f); break;
    case TERN_BF16: ((uint16_t *)data)[element] = tern_f32_to_bf16((float)value.f); break;
    case TERN_U8: ((uint8_t *)data)[element] = (uint8_t)value.u; break;
    case TERN_U16: ((uint16_t *)data)[element] = (uint16_t)value.u; break;
    default: ((uint32_t *)data)[element] = value.u;
    }
}

static void column(const machine *m, const tern_tape_insn *insn)
{
    const tern_tape *tape = m->tape;
    uint32_t outer = 0, inner = 0, inner_count = 1;
    for (uint32_t d = 0; d < tape->outer_count; d++) outer = outer * m->dims[d] + m->index[d];
    for (uint32_t d = tape->outer_count; d < tape->dim_count; d++) {
        inner = inner * m->dims[d] + m->index[d];
        inner_count *= m->dims[d];
    }
    float *to = (float *)m->tensors[tape->access[insn->access].tensor] + outer / tape->chunk_rows * inner_count + inner;
    const float value = (float)m->value[insn->in[0]].f;
    *to = outer % tape->chunk_rows == 0 ? value : *to + value;
}

static double as_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint32_t as_bits(double value)
{
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static cell convert(const tern_tape_insn *insn, cell a)
{
    cell c = a;
    if (insn->op == TERN_TAPE_BITCAST) {
        if (insn->type == TERN_F32)
            c.f = as_float(a.u);
        else if (insn->from == TERN_F32)
            c.u = as_bits(a.f);
    } else if (insn->type == TERN_F32) {
        c.f = insn->from == TERN_I32 ? (double)(int32_t)a.u : (double)a.u;
    } else if (insn->from == TERN_F32) {
        c.u = insn->type == TERN_I32 ? (uint32_t)(int32_t)a.f : (uint32_t)a.f;
    }
    return c;
}

static double float_op(uint16_t op, double a, double b)
{
    switch (op) {
    case TERN_TAPE_NEG: return -a;
    case TERN_TAPE_ABS: return fabs(a);
    case TERN_TAPE_EXP: return exp(a);
    case TERN_TAPE_LOG: return log(a);
    case TERN_TAPE_SQRT: return sqrt(a);
    case TERN_TAPE_RSQRT: return 1 / sqrt(a);
    case TERN_TAPE_RECIP: return 1 / a;
    case TERN_TAPE_TANH: return tanh(a);
    case TERN_TAPE_ERF: return erf(a);
    case TERN_TAPE_SIN: return sin(a);
    case TERN_TAPE_COS: return cos(a);
    case TERN_TAPE_FLOOR: return floor(a);
    case TERN_TAPE_ADD: return a + b;
    case TERN_TAPE_SUB: return a - b;
    case TERN_TAPE_MUL: return a * b;
    case TERN_TAPE_DIV: return a / b;
    case TERN_TAPE_MAX: return a > b || isnan(a) ? a : b;
    case TERN_TAPE_MIN: return a < b || isnan(a) ? a : b;
    default: return NAN;
    }
}

static uint32_t integer_op(const tern_tape_insn *insn, uint32_t a, uint32_t b)
{
    const int is_signed = insn->type == TERN_I32;
    switch (insn->op) {
    case TERN_TAPE_NEG: return 0u - a;
    case TERN_TAPE_ABS: return is_signed && (int32_t)a < 0 ? 0u - a : a;
    case TERN_TAPE_ADD: return a + b;
    case TERN_TAPE_SUB: return a - b;
    case TERN_TAPE_MUL: return a * b;
    case TERN_TAPE_MAX: return (is_signed ? (int32_t)a > (int32_t)b : a > b) ? a : b;
    case TERN_TAPE_MIN: return (is_signed ? (int32_t)a < (int32_t)b : a < b) ? a : b;
    case TERN_TAPE_AND: return a & b;
    case TERN_TAPE_OR: return a | b;
    case TERN_TAPE_XOR: return a ^ b;
    case TERN_TAPE_SHIFT_LEFT: return a << b;
    case TERN_TAPE_SHIFT_RIGHT: return a >> b;
    case TERN_TAPE_MULTIPLY_HIGH: return (uint32_t)((uint64_t)a * b >> 32);
    default: return 0xdeadu;
    }
}

static uint32_t compare(const tern_tape_insn *insn, cell a, cell b)
{
    const int less = insn->op == TERN_TAPE_LESS;
    if (insn->from == TERN_F32) return less ? a.f < b.f : a.f == b.f;
    if (insn->from == TERN_I32) return less ? (int32_t)a.u < (int32_t)b.u : a.u == b.u;
    return less ? a.u < b.u : a.u == b.u;
}

static cell evaluate(const machine *m, const tern_tape_insn *insn)
{
    const cell none = {0, 0};
    const cell a = insn->in[0] != TERN_TAPE_NONE ? m->value[insn->in[0]] : none;
    const cell b = insn->in[1] != TERN_TAPE_NONE ? m->value[insn->in[1]] : none;
    const cell c = insn->in[2] != TERN_TAPE_NONE ? m->value[insn->in[2]] : none;
    cell r = none;
    switch (insn->op) {
    case TERN_TAPE_CONST:
        r.u = insn->imm;
        r.f = as_float(insn->imm);
        return r;
    case TERN_TAPE_INDEX: r.u = element_of(m, &m->tape->access[insn->access]); return r;
    case TERN_TAPE_LOAD: return load(m, insn);
    case TERN_TAPE_ACC: r.f = m->acc; return r;
    case TERN_TAPE_LESS:
    case TERN_TAPE_EQUAL: r.u = compare(insn, a, b); return r;
    case TERN_TAPE_WHERE: return a.u ? b : c;
    case TERN_TAPE_CAST:
    case TERN_TAPE_BITCAST: return convert(insn, a);
    case TERN_TAPE_ROUND: r.f = (double)tern_f32_round_to((float)a.f, (int32_t)insn->imm); return r;
    case TERN_TAPE_PHILOX: {
        uint32_t out[4];
        const uint32_t counter[4] = {a.u, b.u, m->dims[insn->imm], 0}, key[2] = {c.u, m->value[insn->in[3]].u};
        tern_philox(counter, key, out);
        r.u = out[0];
        return r;
    }
    default:
        if (insn->type == TERN_F32)
            r.f = float_op(insn->op, a.f, b.f);
        else
            r.u = integer_op(insn, a.u, b.u);
        return r;
    }
}

static void step(machine *m, uint32_t i, int first)
{
    const tern_tape_insn *insn = &m->tape->insn[i];
    const double operand = insn->in[0] != TERN_TAPE_NONE ? m->value[insn->in[0]].f : 0;
    switch (insn->op) {
    case TERN_TAPE_STORE: store(m, insn, element_of(m, &m->tape->access[insn->access])); break;
    case TERN_TAPE_COLUMN: column(m, insn); break;
    case TERN_TAPE_REDUCE_SUM: m->value[i].f = first ? operand : (double)(float)(m->value[i].f + operand); break;
    case TERN_TAPE_REDUCE_MAX: m->value[i].f = first ? operand : float_op(TERN_TAPE_MAX, m->value[i].f, operand); break;
    default:
        m->value[i] = evaluate(m, insn);
        if (insn->type == TERN_F32) m->value[i].f = (double)(float)m->value[i].f;
    }
}

static void set_index(machine *m, uint32_t first, uint32_t end, uint64_t linear)
{
    for (uint32_t d = end; d-- > first;) {
        m->index[d] = (uint32_t)(linear % m->dims[d]);
        linear /= m->dims[d];
    }
}

static uint64_t product(const uint32_t *dims, uint32_t first, uint32_t end)
{
    uint64_t count = 1;
    for (uint32_t d = first; d < end; d++) count *= dims[d];
    return count;
}

static void run_row(machine *m)
{
    const tern_tape *tape = m->tape;
    const uint64_t inner = product(m->dims, tape->outer_count, tape->dim_count);
    for (uint32_t phase = 0; phase < tape->phase_count; phase++) {
        for (uint32_t i = 0; i < tape->insn_count; i++)
            if (tape->insn[i].phase == phase && !tape->insn[i].body) step(m, i, 0);
        for (uint64_t k = 0; k < inner; k++) {
            set_index(m, tape->outer_count, tape->dim_count, k);
            for (uint32_t i = 0; i < tape->insn_count; i++)
                if (tape->insn[i].phase == phase && tape->insn[i].body) step(m, i, k == 0);
        }
    }
}

static void run_tape(machine *m)
{
    const uint64_t outer = product(m->dims, 0, m->tape->outer_count);
    for (uint64_t o = 0; o < outer; o++) {
        set_index(m, 0, m->tape->outer_count, o);
        run_row(m);
    }
}

/* Runs the epilogue at (b, m, n) with this accumulator. */
static void epilogue(machine *m, uint32_t b, uint32_t row, uint32_t col, double acc)
{
    m->index[0] = b;
    m->index[1] = row;
    m->index[2] = col;
    m->acc = acc;
    for (uint32_t i = 0; i < m->tape->insn_count; i++) step(m, i, 1);
}

static void run_matmul(const tern_kernel_desc *desc, const uint32_t *w, void **tensors, machine *m)
{
    const float *a = tensors[0], *b = tensors[1];
    for (uint32_t g = 0; g < w[TERN_WORD_BATCH]; g++)
        for (uint32_t i = 0; i < w[TERN_WORD_M]; i++)
            for (uint32_t j = 0; j < w[TERN_WORD_N]; j++) {
                double acc = 0;
                for (uint32_t k = 0; k < w[TERN_WORD_K]; k++) {
                    const uint32_t at = desc->a_transposed ? k * w[TERN_WORD_A_LD] + i : i * w[TERN_WORD_A_LD] + k;
                    const uint32_t bt = desc->b_transposed ? j * w[TERN_WORD_B_LD] + k : k * w[TERN_WORD_B_LD] + j;
                    acc = (double)(float)(acc +
                                          (double)a[g * w[TERN_WORD_A_BATCH] + at] * b[g * w[TERN_WORD_B_BATCH] + bt]);
                }
                epilogue(m, g, i, j, acc);
            }
}

static void run_scatter(const tern_kernel_desc *desc, const uint32_t *w, void **tensors, machine *m)
{
    const float *dy = tensors[0];
    const uint32_t *ids = tensors[1], *offsets = desc->sorted ? tensors[2] : NULL;
    for (uint32_t v = 0; v < w[1]; v++)
        for (uint32_t d = 0; d < w[2]; d++) {
            double acc = 0;
            if (desc->sorted)
                for (uint32_t k = offsets[v]; k < offsets[v + 1]; k++) acc += dy[ids[k] * w[2] + d];
            for (uint32_t n = 0; !desc->sorted && n < w[3]; n++)
                if ((ids[n] < w[1] ? ids[n] : w[1] - 1) == v) acc += dy[n * w[2] + d];
            epilogue(m, 0, v, d, acc);
        }
}

/* Score of query (b, t, h) with key s, scaled. */
static double score(const uint32_t *w, uint32_t dim, const float *q, const float *k, uint32_t b, uint32_t h, uint32_t t,
                    uint32_t s)
{
    float scale;
    memcpy(&scale, &w[TERN_WORD_SCALE], 4);
    double sum = 0;
    for (uint32_t d = 0; d < dim; d++)
        sum += (double)q[b * w[TERN_WORD_Q_B] + t * w[TERN_WORD_Q_T] + h * w[TERN_WORD_Q_H] + d] *
               k[b * w[TERN_WORD_K_B] + s * w[TERN_WORD_K_T] + h * w[TERN_WORD_K_H] + d];
    return sum * scale;
}

static void attention_row(const tern_kernel_desc *desc, const uint32_t *w, void **x, uint32_t b, uint32_t h, uint32_t t)
{
    const uint32_t heads = w[TERN_WORD_H], tq = w[TERN_WORD_TQ], tk = w[TERN_WORD_TK], dim = desc->head_dim;
    const uint32_t last = desc->causal ? t + 1 : tk, row = (b * tq + t) * heads + h;
    double max = -INFINITY, sum = 0;
    for (uint32_t s = 0; s < last; s++) max = fmax(max, score(w, dim, x[0], x[1], b, h, t, s));
    for (uint32_t s = 0; s < last; s++) sum += exp(score(w, dim, x[0], x[1], b, h, t, s) - max);
    const float *v = x[2];
    for (uint32_t d = 0; d < dim; d++) {
        double o = 0;
        for (uint32_t s = 0; s < last; s++)
            o += exp(score(w, dim, x[0], x[1], b, h, t, s) - max) *
                 v[b * w[TERN_WORD_V_B] + s * w[TERN_WORD_V_T] + h * w[TERN_WORD_V_H] + d];
        ((float *)x[3])[row * dim + d] = (float)(o / sum);
    }
    ((float *)x[4])[row] = (float)(max + log(sum));
}

/* p (do . v - delta) scale, the derivative by the raw score; *out_p = p. */
static double score_gradient(const tern_kernel_desc *desc, const uint32_t *w, void **x, uint32_t b, uint32_t h,
                             uint32_t t, uint32_t s, double *out_p)
{
    const uint32_t heads = w[TERN_WORD_H], tq = w[TERN_WORD_TQ], dim = desc->head_dim, row = (b * tq + t) * heads + h;
    const float *v = x[2], *dout = x[3], *lse = x[4], *delta = x[5];
    float scale;
    memcpy(&scale, &w[TERN_WORD_SCALE], 4);
    double dp = 0;
    for (uint32_t d = 0; d < dim; d++)
        dp += (double)dout[row * dim + d] * v[b * w[TERN_WORD_V_B] + s * w[TERN_WORD_V_T] + h * w[TERN_WORD_V_H] + d];
    *out_p = exp(score(w, dim, x[0], x[1], b, h, t, s) - lse[row]);
    return *out_p * (dp - delta[row]) * scale;
}

static void attention_gradient(const tern_kernel_desc *desc, const uint32_t *w, void **x, uint32_t b, uint32_t h)
{
    const uint32_t heads = w[TERN_WORD_H], tq = w[TERN_WORD_TQ], tk = w[TERN_WORD_TK], dim = desc->head_dim;
    const int wants_q = desc->kind == TERN_KERNEL_ATTENTION_DQ;
    const float *q = x[0], *k = x[1], *dout = x[3];
    double *first = calloc((size_t)(wants_q ? tq : tk) * dim, sizeof *first),
           *second = calloc((size_t)tk * dim, sizeof *second);
    for (uint32_t t = 0; t < tq; t++)
        for (uint32_t s = 0; s < (desc->causal ? t + 1 : tk); s++) {
            double p, ds = score_gradient(desc, w, x, b, h, t, s, &p);
            for (uint32_t d = 0; d < dim; d++) {
                if (wants_q) {
                    first[t * dim + d] +=
                        ds * k[b * w[TERN_WORD_K_B] + s * w[TERN_WORD_K_T] + h * w[TERN_WORD_K_H] + d];
                } else {
                    first[s * dim + d] +=
                        ds * q[b * w[TERN_WORD_Q_B] + t * w[TERN_WORD_Q_T] + h * w[TERN_WORD_Q_H] + d];
                    second[s * dim + d] += p * dout[((b * tq + t) * heads + h) * dim + d];
                }
            }
        }
    for (uint32_t t = 0; t < (wants_q ? tq : tk); t++)
        for (uint32_t d = 0; d < dim; d++) {
            const uint32_t at = ((b * (wants_q ? tq : tk) + t) * heads + h) * dim + d;
            ((float *)x[6])[at] = (float)first[t * dim + d];
            if (!wants_q) ((float *)x[7])[at] = (float)second[t * dim + d];
        }
    free(first);
    free(second);
}

static void run_attention(const tern_kernel_desc *desc, const uint32_t *w, void **x)
{
    for (uint32_t b = 0; b < w[TERN_WORD_B]; b++)
        for (uint32_t h = 0; h < w[TERN_WORD_H]; h++) {
            if (desc->kind != TERN_KERNEL_ATTENTION) attention_gradient(desc, w, x, b, h);
            for (uint32_t t = 0; desc->kind == TERN_KERNEL_ATTENTION && t < w[TERN_WORD_TQ]; t++)
                attention_row(desc, w, x, b, h, t);
        }
}

/* Templates work on f32: 16-bit operands of a contraction are widened before it and what it wrote is narrowed after. */
static void *widened(const tern_kernel_desc *desc, uint32_t i, const void *data, uint64_t bytes)
{
    const int32_t dtype = desc->tensors[i].dtype;
    const uint16_t *from = data;
    float *wide = calloc(bytes / 2 + 1, sizeof *wide);
    for (uint64_t k = 0; k < bytes / 2; k++)
        wide[k] = dtype == TERN_F16 ? tern_f16_to_f32(from[k]) : tern_bf16_to_f32(from[k]);
    return wide;
}

static void narrow_back(const tern_kernel_desc *desc, uint32_t i, float *wide, void *data, uint64_t bytes)
{
    const int32_t dtype = desc->tensors[i].dtype;
    uint16_t *to = data;
    for (uint64_t k = 0; (desc->tensors[i].mode & TERN_ACCESS_WRITE) && k < bytes / 2; k++)
        to[k] = dtype == TERN_F16 ? tern_f32_to_f16(wide[k]) : tern_f32_to_bf16(wide[k]);
    free(wide);
}

static void run_launch(lowered_runner *runner, const tern_launch *launch)
{
    const tern_kernel_desc *desc = runner->lowered->kernels[launch->kernel];
    void *tensors[TERN_TAPE_TENSORS];
    for (uint32_t i = 0; i < launch->operand_count; i++)
        tensors[i] = (char *)runner->data[launch->operands[i].value] + launch->operands[i].offset;
    machine m = {.tape = &desc->tape, .dims = launch->words, .value = calloc(desc->tape.insn_count + 1u, sizeof(cell))};
    const uint32_t own = desc->tensor_count - desc->tape.tensor_count;
    memcpy(m.tensors, tensors + own, (launch->operand_count - own) * sizeof *tensors);
    void *stored[TERN_TAPE_TENSORS] = {NULL}; /* of a contraction's 16-bit operands */
    for (uint32_t i = 0; desc->kind != TERN_KERNEL_TAPE && i < own; i++) {
        if (!tern_dtype_is_16bit_float(desc->tensors[i].dtype)) continue;
        stored[i] = tensors[i];
        tensors[i] = widened(desc, i, stored[i], launch->operands[i].bytes);
    }
    switch (desc->kind) {
    case TERN_KERNEL_TAPE: run_tape(&m); break;
    case TERN_KERNEL_MATMUL: run_matmul(desc, launch->words, tensors, &m); break;
    case TERN_KERNEL_SCATTER_ADD: run_scatter(desc, launch->words, tensors, &m); break;
    default: run_attention(desc, launch->words, tensors);
    }
    for (uint32_t i = 0; i < own; i++)
        if (stored[i]) narrow_back(desc, i, tensors[i], stored[i], launch->operands[i].bytes);
    free(m.value);
}

void lowered_runner_run(lowered_runner *runner)
{
    for (uint32_t i = 0; i < runner->lowered->launch_count; i++) run_launch(runner, &runner->lowered->launches[i]);
}
