/* SPDX-License-Identifier: Apache-2.0 */
/* attention_tiles.h - attention forward and backward on tiles of 64 queries x 64 keys; included by isa_*.c after
 * gemm.h.
 *
 *     forward  for each tile of keys:  S = Q K^T;  m' = max(m, rowmax S);  P = exp(S - m');
 *                                      l = l e^(m - m') + rowsum P;  O = O e^(m - m') + P V        O / l, lse = m + log
 * l dq       for each tile of keys:  P = exp(S - lse);  dS = P (dO V^T - delta);  dQ += dS K     times scale dkv for
 * each tile of queries: the same P and dS;  dV += P^T dO;  dK += dS^T Q
 *
 * Q is multiplied by scale when its tile is packed, so S needs none and dK's is in already. Tiles are packed into
 * scratch as f32 (16-bit inputs are widened there, once per tile) with rows padded by zeros to whole vectors, so no
 * loop below has a tail; outputs are rounded once, when stored. Each call owns its outputs and walks its tiles in
 * ascending order: no atomics, no T x T matrix, the same bits for any number of threads. Tiles above the diagonal are
 * skipped. Source: Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023. */
#ifndef TERN_CPU_ATTENTION_TILES_H
#define TERN_CPU_ATTENTION_TILES_H

#define TILE TERN_ATTENTION_ROWS

TERN_INLINE uint32_t padded(uint32_t n) { return (n + W - 1) / W * W; }

TERN_INLINE void widen_row(uint32_t dtype, uint32_t n, float *d, const void *s)
{
    if (dtype == TERN_F16)
        widen_f16(n, d, s, 1);
    else if (dtype == TERN_BF16)
        widen_bf16(n, d, s, 1);
    else
        memcpy(d, s, n * sizeof *d);
}
TERN_INLINE void narrow_row(uint32_t dtype, uint32_t n, void *d, const float *s)
{
    if (dtype == TERN_F16)
        narrow_f16(n, d, s, 1);
    else if (dtype == TERN_BF16)
        narrow_bf16(n, d, s, 1);
    else
        memcpy(d, s, n * sizeof *s);
}

/* A (rows, D) part of q, k, v or dout in memory: rows `ld` elements apart. */
typedef struct stored_rows {
    uint32_t dtype, bytes;
    const char *data;
    size_t ld;
} stored_rows;
TERN_INLINE const void *stored_row(const stored_rows *s, uint32_t r) { return s->data + (size_t)r * s->ld * s->bytes; }

/* rows x D elements to d, rows of padded(D), times scale; the padding is zero. */
static void pack(uint32_t rows, uint32_t D, const stored_rows *s, float scale, float *d)
{
    const uint32_t ld = padded(D);
    const vf by = v_splat(scale);
    for (uint32_t r = 0; r < rows; r++, d += ld) {
        for (uint32_t i = D; i < ld; i++) d[i] = 0.0f;
        widen_row(s->dtype, D, d, stored_row(s, r));
        for (uint32_t i = 0; scale != 1.0f && i < ld; i += W) v_store(d + i, v_load(d + i) * by);
    }
}
/* The same transposed: d (D, TILE), columns from `rows` on zero. wide: room for (TILE, D) floats. */
static void pack_transposed(uint32_t rows, uint32_t D, const stored_rows *s, float *d, float *wide)
{
    if (rows < TILE)
        for (uint32_t i = 0; i < D; i++) memset(d + i * TILE + rows, 0, (TILE - rows) * sizeof(float));
    if (s->dtype == TERN_F32) {
        transpose(rows, D, (const float *)(const void *)s->data, s->ld, d, TILE);
        return;
    }
    for (uint32_t r = 0; r < rows; r++) widen_row(s->dtype, D, wide + r * D, stored_row(s, r));
    transpose(rows, D, wide, D, d, TILE);
}

/* Scores beyond the diagonal (causal) or beyond the last key become -inf, whose exponential is 0. */
static void mask(float *s, uint32_t rows, uint32_t keys, uint32_t q0, uint32_t k0, bool causal)
{
    for (uint32_t r = 0; r < rows; r++, s += TILE) {
        uint32_t seen = keys;
        if (causal && q0 + r + 1 < k0 + keys) seen = q0 + r + 1 > k0 ? q0 + r + 1 - k0 : 0;
        for (uint32_t j = seen; j < padded(keys); j++) s[j] = -INFINITY;
    }
}

/* One tile of S becomes P; m, l and o (rows of ld) are brought to the new maximum. */
static void online_softmax(float *s, uint32_t rows, uint32_t columns, float *m, float *l, float *o, uint32_t ld)
{
    for (uint32_t r = 0; r < rows; r++, s += TILE, o += ld) {
        vf top = v_splat(m[r]);
        for (uint32_t j = 0; j < columns; j += W) top = v_max(v_load(s + j), top);
        const float high = v_maximum(top);
        const vf shift = v_splat(high == -INFINITY ? 0.0f : high); /* a row of -inf: weights 0, no NaN */
        vf sum = {0};
        for (uint32_t j = 0; j < columns; j += W) {
            vf p = v_exp(v_load(s + j) - shift);
            v_store(s + j, p);
            sum += p;
        }
        const vf keep = v_exp(v_splat(m[r]) - shift);
        l[r] = l[r] * keep[0] + v_sum(sum);
        if (high != m[r])
            for (uint32_t i = 0; i < ld; i += W) v_store(o + i, v_load(o + i) * keep);
        m[r] = high;
    }
}

typedef struct attention_place { /* of one (b, h) */
    stored_rows q, k, v, dout;
    size_t row0; /* of (b, t = 0, h) in lse, delta, o: element (row0 + t H) */
    uint32_t Dp;
} attention_place;
TERN_INLINE stored_rows rows_at(const tern_cpu_attention *at, const void *data, size_t first, size_t ld)
{
    return (stored_rows){at->dtype, at->bytes, data ? (const char *)data + first * at->bytes : NULL, ld};
}
TERN_INLINE attention_place place(const tern_cpu_attention *at, uint32_t b, uint32_t h)
{
    attention_place p = {.Dp = padded(at->D), .row0 = (size_t)b * at->Tq * at->H + h};
    p.q = rows_at(at, at->q, (size_t)b * at->q_b + (size_t)h * at->q_h, at->q_t);
    p.k = rows_at(at, at->k, (size_t)b * at->k_b + (size_t)h * at->k_h, at->k_t);
    p.v = rows_at(at, at->v, (size_t)b * at->v_b + (size_t)h * at->v_h, at->v_t);
    p.dout = rows_at(at, at->dout, p.row0 * at->D, (size_t)at->H * at->D);
    return p;
}
/* The rows from t0 on. */
TERN_INLINE stored_rows from(stored_rows rows, uint32_t t0)
{
    rows.data += (size_t)t0 * rows.ld * rows.bytes;
    return rows;
}
TERN_INLINE uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* A row of f32 sums times scale to element `first` of an output. */
TERN_INLINE void put_row(const tern_cpu_attention *at, uint32_t D, float *s, float scale, void *d, size_t first)
{
    for (uint32_t i = 0; i < D; i++) s[i] *= scale;
    narrow_row(at->dtype, D, (char *)d + first * at->bytes, s);
}

static void attention_forward(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch)
{
    const attention_place p = place(at, b, h);
    const uint32_t D = at->D, Dp = p.Dp, q0 = tile * TILE, rows = least(TILE, at->Tq - q0);
    const stored_rows queries = from(p.q, q0);
    float *q = scratch, *kt = q + TILE * Dp, *v = kt + TILE * Dp, *o = v + TILE * Dp, *s = o + TILE * Dp,
          *m = s + TILE * TILE, *l = m + TILE;
    pack(rows, D, &queries, at->scale, q);
    memset(o, 0, sizeof(float) * rows * Dp);
    for (uint32_t r = 0; r < rows; r++) m[r] = -INFINITY, l[r] = 0.0f;
    const uint32_t last = at->causal ? least(at->Tk, q0 + rows) : at->Tk;
    for (uint32_t k0 = 0; k0 < last; k0 += TILE) {
        const uint32_t keys = least(TILE, last - k0), columns = padded(keys);
        const stored_rows k_rows = from(p.k, k0), v_rows = from(p.v, k0);
        pack_transposed(keys, D, &k_rows, kt, v);
        pack(keys, D, &v_rows, 1.0f, v);
        gemm(rows, columns, D, q, Dp, 1, kt, TILE, s, TILE, false);
        mask(s, rows, keys, q0, k0, at->causal);
        online_softmax(s, rows, columns, m, l, o, Dp);
        gemm(rows, Dp, keys, s, TILE, 1, v, Dp, o, Dp, true);
    }
    for (uint32_t r = 0; r < rows; r += W) v_store(s + r, v_log(v_load(l + r)));
    for (uint32_t r = 0; r < rows; r++) {
        const size_t row = p.row0 + (size_t)(q0 + r) * at->H;
        at->lse[row] = m[r] + s[r];
        put_row(at, D, o + r * Dp, 1.0f / l[r], at->o, row * D);
    }
}

/* P into s and dS into ds, both (rows, TILE), from packed q and dout and transposed kt and vt. */
static void scores_backward(const tern_cpu_attention *at, const attention_place *p, uint32_t q0, uint32_t rows,
                            uint32_t k0, uint32_t keys, const float *q, const float *dout, const float *kt,
                            const float *vt, float *s, float *ds)
{
    const uint32_t columns = padded(keys);
    gemm(rows, columns, at->D, q, p->Dp, 1, kt, TILE, s, TILE, false);
    gemm(rows, columns, at->D, dout, p->Dp, 1, vt, TILE, ds, TILE, false);
    mask(s, rows, keys, q0, k0, at->causal);
    for (uint32_t r = 0; r < rows; r++) {
        const size_t row = p->row0 + (size_t)(q0 + r) * at->H;
        const vf lse = v_splat(at->lse_in[row]), delta = v_splat(at->delta[row]);
        for (uint32_t j = r * TILE; j < r * TILE + columns; j += W) {
            const vf weight = v_exp(v_load(s + j) - lse);
            v_store(s + j, weight);
            v_store(ds + j, weight * (v_load(ds + j) - delta));
        }
    }
}
/* The first of (B, T, H, D)'s rows goes to element `first`. */
static void put_rows(const tern_cpu_attention *at, uint32_t rows, float *s, float scale, void *d, size_t first)
{
    const uint32_t D = at->D, ld = padded(D);
    for (uint32_t r = 0; r < rows; r++) put_row(at, D, s + r * ld, scale, d, first + (size_t)r * at->H * D);
}

static void attention_dq(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch)
{
    const attention_place p = place(at, b, h);
    const uint32_t D = at->D, Dp = p.Dp, q0 = tile * TILE, rows = least(TILE, at->Tq - q0);
    const size_t area = (size_t)TILE * Dp;
    const stored_rows q_rows = from(p.q, q0), dout_rows = from(p.dout, q0);
    float *q = scratch, *dout = q + area, *kt = dout + area, *vt = kt + area, *k = vt + area, *dq = k + area,
          *s = dq + area;
    float *ds = s + TILE * TILE;
    pack(rows, D, &q_rows, at->scale, q);
    pack(rows, D, &dout_rows, 1.0f, dout);
    memset(dq, 0, sizeof(float) * rows * Dp);
    const uint32_t last = at->causal ? least(at->Tk, q0 + rows) : at->Tk;
    for (uint32_t k0 = 0; k0 < last; k0 += TILE) {
        const uint32_t keys = least(TILE, last - k0);
        const stored_rows k_rows = from(p.k, k0), v_rows = from(p.v, k0);
        pack_transposed(keys, D, &k_rows, kt, k);
        pack_transposed(keys, D, &v_rows, vt, k);
        pack(keys, D, &k_rows, 1.0f, k);
        scores_backward(at, &p, q0, rows, k0, keys, q, dout, kt, vt, s, ds);
        gemm(rows, Dp, keys, ds, TILE, 1, k, Dp, dq, Dp, true);
    }
    put_rows(at, rows, dq, at->scale, at->dq, (p.row0 + (size_t)q0 * at->H) * D);
}

static void attention_dkv(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch)
{
    const attention_place p = place(at, b, h);
    const uint32_t D = at->D, Dp = p.Dp, k0 = tile * TILE, keys = least(TILE, at->Tk - k0);
    const size_t area = (size_t)TILE * Dp;
    const stored_rows k_rows = from(p.k, k0), v_rows = from(p.v, k0);
    float *q = scratch, *dout = q + area, *kt = dout + area, *vt = kt + area, *dk = vt + area, *dv = dk + area,
          *s = dv + area;
    float *ds = s + TILE * TILE;
    pack_transposed(keys, D, &k_rows, kt, dk);
    pack_transposed(keys, D, &v_rows, vt, dk);
    memset(dk, 0, sizeof(float) * keys * Dp);
    memset(dv, 0, sizeof(float) * keys * Dp);
    for (uint32_t q0 = at->causal ? k0 : 0; q0 < at->Tq; q0 += TILE) {
        const uint32_t rows = least(TILE, at->Tq - q0);
        const stored_rows q_rows = from(p.q, q0), dout_rows = from(p.dout, q0);
        pack(rows, D, &q_rows, at->scale, q);
        pack(rows, D, &dout_rows, 1.0f, dout);
        scores_backward(at, &p, q0, rows, k0, keys, q, dout, kt, vt, s, ds);
        gemm(keys, Dp, rows, s, 1, TILE, dout, Dp, dv, Dp, true);
        gemm(keys, Dp, rows, ds, 1, TILE, q, Dp, dk, Dp, true);
    }
    const size_t first = (((size_t)b * at->Tk + k0) * at->H + h) * D;
    put_rows(at, keys, dk, 1.0f, at->dk, first);
    put_rows(at, keys, dv, 1.0f, at->dv, first);
}
#undef TILE

#endif
