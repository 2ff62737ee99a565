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
 * scratch with rows padded by zeros to whole vectors, so no loop below has a tail. Each call owns its outputs and walks
 * its tiles in ascending order: no atomics, no T x T matrix, the same bits for any number of threads. Tiles above the
 * diagonal are skipped. Source: Dao, "FlashAttention-2: faster attention with better parallelism and work
 * partitioning", 2023. */
#ifndef TERN_CPU_ATTENTION_TILES_H
#define TERN_CPU_ATTENTION_TILES_H

#define TILE TERN_ATTENTION_ROWS

TERN_INLINE uint32_t padded(uint32_t n) { return (n + W - 1) / W * W; }

/* rows x D elements to d, rows of padded(D), times scale; the padding is zero. */
static void pack(uint32_t rows, uint32_t D, const float *s, size_t s_ld, float scale, float *d)
{
    const uint32_t ld = padded(D);
    const vf by = v_splat(scale);
    for (uint32_t r = 0; r < rows; r++, s += s_ld, d += ld) {
        uint32_t i = 0;
        for (; i + W <= D; i += W) v_store(d + i, v_load(s + i) * by);
        if (i < D) v_store(d + i, (vf)v_load_part((const uint32_t *)(const void *)(s + i), D - i) * by);
    }
}
/* The same transposed: d (D, TILE), columns from `rows` on zero. */
static void pack_transposed(uint32_t rows, uint32_t D, const float *s, size_t s_ld, float *d)
{
    if (rows < TILE)
        for (uint32_t i = 0; i < D; i++) memset(d + i * TILE + rows, 0, (TILE - rows) * sizeof(float));
    transpose(rows, D, s, s_ld, d, TILE);
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
    const float *q, *k, *v, *dout;
    size_t row0; /* of (b, t = 0, h) in lse, delta, o: element (row0 + t H) */
    uint32_t Dp;
} attention_place;
TERN_INLINE attention_place place(const tern_cpu_attention *at, uint32_t b, uint32_t h)
{
    attention_place p = {.Dp = padded(at->D), .row0 = (size_t)b * at->Tq * at->H + h};
    p.q = at->q + (size_t)b * at->q_b + (size_t)h * at->q_h;
    p.k = at->k + (size_t)b * at->k_b + (size_t)h * at->k_h;
    p.v = at->v + (size_t)b * at->v_b + (size_t)h * at->v_h;
    p.dout = at->dout ? at->dout + p.row0 * at->D : NULL;
    return p;
}
TERN_INLINE uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void attention_forward(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch)
{
    const attention_place p = place(at, b, h);
    const uint32_t D = at->D, Dp = p.Dp, q0 = tile * TILE, rows = least(TILE, at->Tq - q0);
    float *q = scratch, *kt = q + TILE * Dp, *v = kt + TILE * Dp, *o = v + TILE * Dp, *s = o + TILE * Dp,
          *m = s + TILE * TILE, *l = m + TILE;
    pack(rows, D, p.q + (size_t)q0 * at->q_t, at->q_t, at->scale, q);
    memset(o, 0, sizeof(float) * rows * Dp);
    for (uint32_t r = 0; r < rows; r++) m[r] = -INFINITY, l[r] = 0.0f;
    const uint32_t last = at->causal ? least(at->Tk, q0 + rows) : at->Tk;
    for (uint32_t k0 = 0; k0 < last; k0 += TILE) {
        const uint32_t keys = least(TILE, last - k0), columns = padded(keys);
        pack_transposed(keys, D, p.k + (size_t)k0 * at->k_t, at->k_t, kt);
        pack(keys, D, p.v + (size_t)k0 * at->v_t, at->v_t, 1.0f, v);
        gemm(rows, columns, D, q, Dp, 1, kt, TILE, s, TILE, false);
        mask(s, rows, keys, q0, k0, at->causal);
        online_softmax(s, rows, columns, m, l, o, Dp);
        gemm(rows, Dp, keys, s, TILE, 1, v, Dp, o, Dp, true);
    }
    for (uint32_t r = 0; r < rows; r += W) v_store(s + r, v_log(v_load(l + r)));
    for (uint32_t r = 0; r < rows; r++) {
        const size_t row = p.row0 + (size_t)(q0 + r) * at->H;
        at->lse[row] = m[r] + s[r];
        const float by = 1.0f / l[r];
        for (uint32_t i = 0; i < D; i++) at->o[row * D + i] = o[r * Dp + i] * by;
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
static void put_rows(uint32_t rows, uint32_t D, const float *s, uint32_t ld, float scale, float *d, size_t d_ld)
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < D; i++) d[r * d_ld + i] = s[r * ld + i] * scale;
}

static void attention_dq(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch)
{
    const attention_place p = place(at, b, h);
    const uint32_t D = at->D, Dp = p.Dp, q0 = tile * TILE, rows = least(TILE, at->Tq - q0);
    const size_t area = (size_t)TILE * Dp, dout_ld = (size_t)at->H * D;
    float *q = scratch, *dout = q + area, *kt = dout + area, *vt = kt + area, *k = vt + area, *dq = k + area,
          *s = dq + area;
    float *ds = s + TILE * TILE;
    pack(rows, D, p.q + (size_t)q0 * at->q_t, at->q_t, at->scale, q);
    pack(rows, D, p.dout + q0 * dout_ld, dout_ld, 1.0f, dout);
    memset(dq, 0, sizeof(float) * rows * Dp);
    const uint32_t last = at->causal ? least(at->Tk, q0 + rows) : at->Tk;
    for (uint32_t k0 = 0; k0 < last; k0 += TILE) {
        const uint32_t keys = least(TILE, last - k0);
        const float *k_rows = p.k + (size_t)k0 * at->k_t;
        pack_transposed(keys, D, k_rows, at->k_t, kt);
        pack_transposed(keys, D, p.v + (size_t)k0 * at->v_t, at->v_t, vt);
        pack(keys, D, k_rows, at->k_t, 1.0f, k);
        scores_backward(at, &p, q0, rows, k0, keys, q, dout, kt, vt, s, ds);
        gemm(rows, Dp, keys, ds, TILE, 1, k, Dp, dq, Dp, true);
    }
    put_rows(rows, D, dq, Dp, at->scale, at->dq + (p.row0 + (size_t)q0 * at->H) * D, dout_ld);
}

static void attention_dkv(const tern_cpu_attention *at, uint32_t b, uint32_t h, uint32_t tile, float *scratch)
{
    const attention_place p = place(at, b, h);
    const uint32_t D = at->D, Dp = p.Dp, k0 = tile * TILE, keys = least(TILE, at->Tk - k0);
    const size_t area = (size_t)TILE * Dp, ld = (size_t)at->H * D;
    float *q = scratch, *dout = q + area, *kt = dout + area, *vt = kt + area, *dk = vt + area, *dv = dk + area,
          *s = dv + area;
    float *ds = s + TILE * TILE;
    pack_transposed(keys, D, p.k + (size_t)k0 * at->k_t, at->k_t, kt);
    pack_transposed(keys, D, p.v + (size_t)k0 * at->v_t, at->v_t, vt);
    memset(dk, 0, sizeof(float) * keys * Dp);
    memset(dv, 0, sizeof(float) * keys * Dp);
    for (uint32_t q0 = at->causal ? k0 : 0; q0 < at->Tq; q0 += TILE) {
        const uint32_t rows = least(TILE, at->Tq - q0);
        pack(rows, D, p.q + (size_t)q0 * at->q_t, at->q_t, at->scale, q);
        pack(rows, D, p.dout + q0 * ld, ld, 1.0f, dout);
        scores_backward(at, &p, q0, rows, k0, keys, q, dout, kt, vt, s, ds);
        gemm(keys, Dp, rows, s, 1, TILE, dout, Dp, dv, Dp, true);
        gemm(keys, Dp, rows, ds, 1, TILE, q, Dp, dk, Dp, true);
    }
    const size_t first = (((size_t)b * at->Tk + k0) * at->H + h) * D;
    put_rows(keys, D, dk, Dp, 1.0f, at->dk + first, ld);
    put_rows(keys, D, dv, Dp, 1.0f, at->dv + first, ld);
}
#undef TILE

#endif
