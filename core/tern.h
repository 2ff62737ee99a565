/* SPDX-License-Identifier: Apache-2.0 */
/* tern.h - the public API of tern: train neural networks on any accelerator.
 *
 *     device  ── where    tern_device_open("auto" | "cpu" | "vulkan:0" | ...)
 *     graph   ── what     tern_input, tern_parameter, ops, tern_loss; shapes are static
 *     trainer ── how      tern_trainer_create(device, graph, options), then tern_trainer_step(feeds) again and again
 *
 * Building is sticky: an op always returns a tensor; after the first error the graph is inert and
 * whatever compiles it reports that first error with op, label and values. So model code reads like algebra.
 *
 * Every function that can fail returns a tern_status (0 or negative); tern_error_message() then holds one
 * sentence with the values and what to do. A device may be shared by threads; a graph or trainer is
 * used by one thread at a time. destroy functions accept NULL. Shapes are written (B, T, C), row-major. */
#ifndef TERN_H
#define TERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TERN_MUST_USE __attribute__((warn_unused_result))
#define TERN_API      __attribute__((visibility("default")))
#else
#define TERN_MUST_USE
#define TERN_API
#endif

#define TERN_VERSION_MAJOR 0
#define TERN_VERSION_MINOR 1
#define TERN_VERSION_PATCH 0

/* ------------------------------------------------------------------ status */

#define TERN_STATUS_LIST(X)                                                                                            \
    X(TERN_OK, 0, "ok")                                                                                                \
    X(TERN_ERROR_INVALID, -1, "invalid argument")                                                                      \
    X(TERN_ERROR_MEMORY, -2, "out of host memory")                                                                     \
    X(TERN_ERROR_DEVICE_MEMORY, -3, "out of device memory")                                                            \
    X(TERN_ERROR_UNSUPPORTED, -4, "not supported by this device")                                                      \
    X(TERN_ERROR_NOT_FOUND, -5, "not found")                                                                           \
    X(TERN_ERROR_IO, -6, "input or output failed")                                                                     \
    X(TERN_ERROR_FORMAT, -7, "malformed file")                                                                         \
    X(TERN_ERROR_KERNEL, -8, "kernel did not build")                                                                   \
    X(TERN_ERROR_DEVICE_LOST, -9, "device lost")                                                                       \
    X(TERN_ERROR_TIMEOUT, -10, "timed out")                                                                            \
    X(TERN_ERROR_DRIVER, -11, "driver call failed")                                                                    \
    X(TERN_ERROR_INTERRUPTED, -12, "interrupted")                                                                      \
    X(TERN_ERROR_INTERNAL, -13, "internal error; please report it")

typedef enum tern_status {
#define TERN_STATUS_ENUM(name, value, text) name = value,
    TERN_STATUS_LIST(TERN_STATUS_ENUM)
#undef TERN_STATUS_ENUM
} tern_status;

/* The calling thread's last error sentence, or "" before the first. Valid until the thread's next tern call. */
TERN_API const char *tern_error_message(void);
/* "out of device memory" and so on; never NULL. */
TERN_API const char *tern_status_name(tern_status status);
/* "0.1.0". */
TERN_API const char *tern_version(void);

/* Receives log lines (level: 0 error, 1 warning, 2 info, 3 debug). NULL silences; the default is silent. */
TERN_API void tern_log_set(void (*callback)(void *context, int32_t level, const char *message), void *context);

/* ------------------------------------------------------------------- types */

enum { /* element types */
       TERN_F32 = 1,
       TERN_F16,
       TERN_BF16,
       TERN_I32,
       TERN_U8,
       TERN_U16,
       TERN_U32
};
#define TERN_MAX_RANK 6

typedef struct tern_device tern_device;
typedef struct tern_graph tern_graph;
typedef struct tern_tensor tern_tensor; /* a node of a graph; owned by the graph */

/* ------------------------------------------------------------------ device */

/* Opens a device. name: "auto", a backend ("vulkan"), or "backend:which" where which is an index, a part of
 * the device's name, its UUID or its PCI address ("cuda:0", "vulkan:A770"). "auto" takes the first real GPU in
 * the order cuda, level_zero, vulkan, opencl, else the CPU; never a software GPU; the choice goes to the log. Of one
 * backend's devices a discrete GPU comes before an integrated one, here and under a bare backend name. *out_device is
 * NULL on failure. */
TERN_API TERN_MUST_USE tern_status tern_device_open(const char *name, tern_device **out_device);
TERN_API void tern_device_close(tern_device *device);
/* "cpu: AMD EPYC (2 threads)"; valid while the device is open. */
TERN_API const char *tern_device_name(const tern_device *device);
/* Whether matrix products of two f32 tensors may run on the device's tf32 units, from the next trainer on: several
 * times faster, but each operand is rounded to 11 bits (relative error 2^-11), sums stay f32. A device without such
 * units goes on in f32. Default: not allowed. TERN_ERROR_INVALID for NULL. docs/numerics.md has the error measured. */
TERN_API TERN_MUST_USE tern_status tern_device_allow_tf32(tern_device *device, bool allow);

/* ------------------------------------------------------------------- graph */

TERN_API TERN_MUST_USE tern_status tern_graph_create(tern_graph **out_graph);
TERN_API void tern_graph_destroy(tern_graph *graph);
/* The first error of the building so far, with its sentence set; TERN_OK if none. */
TERN_API TERN_MUST_USE tern_status tern_graph_status(const tern_graph *graph);

/* Leaves. name: unique in the graph; a parameter's is its name in files (Hugging Face's in shipped models).
 * A second tern_parameter of the same name and shape is the same tensor (weight tying); another shape is an error
 * naming both. Inputs are fed each step; their first axis is the example axis. */
TERN_API tern_tensor *tern_input(tern_graph *graph, const char *name, int32_t dtype, int32_t rank,
                                 const int64_t *shape);
TERN_API tern_tensor *tern_input_1d(tern_graph *graph, const char *name, int32_t dtype, int64_t d0);
TERN_API tern_tensor *tern_input_2d(tern_graph *graph, const char *name, int32_t dtype, int64_t d0, int64_t d1);

enum {
    TERN_INIT_ZEROS = 0,
    TERN_INIT_ONES,
    TERN_INIT_NORMAL /* mean 0, std = scale */,
    TERN_INIT_UNIFORM /* [-scale, scale) */
};
TERN_API tern_tensor *tern_parameter(tern_graph *graph, const char *name, int32_t rank, const int64_t *shape,
                                     int32_t init, double scale);
/* Marks a parameter frozen: no gradient, moment, decay or share in the norm. */
TERN_API void tern_parameter_freeze(tern_tensor *parameter);
/* Device-owned state (f32, f16, bf16, u32, u16 or u8), zero at the start, changed only by tern_assign. */
TERN_API tern_tensor *tern_state(tern_graph *graph, const char *name, int32_t dtype, int32_t rank,
                                 const int64_t *shape);
TERN_API tern_tensor *tern_constant(tern_graph *graph, double value);       /* f32, shape () */
TERN_API tern_tensor *tern_constant_u32(tern_graph *graph, uint32_t value); /* u32, shape () */
/* u32 tensor whose element is its own index along `axis`. */
TERN_API tern_tensor *tern_index(tern_graph *graph, int32_t rank, const int64_t *shape, int32_t axis);

TERN_API int32_t tern_rank(const tern_tensor *x);
TERN_API int64_t tern_size(const tern_tensor *x, int32_t axis); /* negative axes count from the end */
TERN_API int32_t tern_tensor_dtype(const tern_tensor *x);
/* Names a tensor for messages; returns it. Unnamed tensors get "op#id"; leaves and random tensors keep the name they
 * were made with. */
TERN_API tern_tensor *tern_label(tern_tensor *x, const char *label);

/* Pins a tensor's storage to f32 where autocast would store it, or read it in a matmul, as a 16-bit float: what it
 * computes stays unrounded. For an output head or a sum that must not lose digits. Returns x. */
TERN_API tern_tensor *tern_keep_f32(tern_tensor *x);

/* Float operands may be f32, f16 or bf16, here and in all ops below. 16-bit floats are storage: they are widened, the
 * op computes in f32, sums included, and its result is rounded once, to the 16-bit dtype that all float operands share,
 * else it is f32. Constants take part in any dtype; parameters inside composites never widen a result; losses stay f32.
 * Gradients of a 16-bit tensor are summed in f32 and rounded to its dtype once. */

/* Elementwise, floats unless said otherwise. Two-operand ops broadcast as in NumPy. */
TERN_API tern_tensor *tern_neg(tern_tensor *x);
TERN_API tern_tensor *tern_abs(tern_tensor *x);
TERN_API tern_tensor *tern_exp(tern_tensor *x);
TERN_API tern_tensor *tern_log(tern_tensor *x);
TERN_API tern_tensor *tern_sqrt(tern_tensor *x);
TERN_API tern_tensor *tern_rsqrt(tern_tensor *x);
TERN_API tern_tensor *tern_recip(tern_tensor *x);
TERN_API tern_tensor *tern_tanh(tern_tensor *x);
TERN_API tern_tensor *tern_erf(tern_tensor *x);
TERN_API tern_tensor *tern_sin(tern_tensor *x);
TERN_API tern_tensor *tern_cos(tern_tensor *x);
TERN_API tern_tensor *tern_floor(tern_tensor *x);
TERN_API tern_tensor *tern_add(tern_tensor *a, tern_tensor *b); /* f32, i32, u32 (wraps) */
TERN_API tern_tensor *tern_sub(tern_tensor *a, tern_tensor *b);
TERN_API tern_tensor *tern_mul(tern_tensor *a, tern_tensor *b);
TERN_API tern_tensor *tern_div(tern_tensor *a, tern_tensor *b); /* f32 */
TERN_API tern_tensor *tern_max(tern_tensor *a, tern_tensor *b); /* NaN if either is */
TERN_API tern_tensor *tern_min(tern_tensor *a, tern_tensor *b);
TERN_API tern_tensor *tern_less(tern_tensor *a, tern_tensor *b);  /* -> u32, 0 or 1; f32, i32 or u32 operands */
TERN_API tern_tensor *tern_equal(tern_tensor *a, tern_tensor *b); /* -> u32, 0 or 1 */
TERN_API tern_tensor *tern_where(tern_tensor *condition, tern_tensor *a,
                                 tern_tensor *b);               /* condition u32: nonzero takes a */
TERN_API tern_tensor *tern_and(tern_tensor *a, tern_tensor *b); /* u32 */
TERN_API tern_tensor *tern_or(tern_tensor *a, tern_tensor *b);
TERN_API tern_tensor *tern_xor(tern_tensor *a, tern_tensor *b);
TERN_API tern_tensor *tern_shift_left(tern_tensor *a, tern_tensor *b); /* b < 32 */
TERN_API tern_tensor *tern_shift_right(tern_tensor *a, tern_tensor *b);
TERN_API tern_tensor *tern_multiply_high(tern_tensor *a, tern_tensor *b); /* high word of the 64-bit product */
/* Value conversion between any two dtypes: toward zero to integers, of which u8 and u16 keep the low bits; to the
 * nearest, ties to even, to f16 and bf16. NaN stays NaN. What does not fit an integer is unspecified. */
TERN_API tern_tensor *tern_cast(tern_tensor *x, int32_t dtype);
TERN_API tern_tensor *tern_bitcast(tern_tensor *x, int32_t dtype); /* same bits, f32 <-> u32 <-> i32 */
TERN_API tern_tensor *tern_detach(tern_tensor *x);                 /* value of x, no gradient */

/* Movement; none of these copies by itself. A size of -1 in tern_reshape is what is left over. */
TERN_API tern_tensor *tern_reshape(tern_tensor *x, int32_t rank, const int64_t *shape);
TERN_API tern_tensor *tern_permute(tern_tensor *x, const int32_t *axes);
TERN_API tern_tensor *tern_transpose(tern_tensor *x, int32_t axis_a, int32_t axis_b);
TERN_API tern_tensor *tern_expand(tern_tensor *x, int32_t rank, const int64_t *shape); /* NumPy broadcast_to */
TERN_API tern_tensor *tern_slice(tern_tensor *x, int32_t axis, int64_t start, int64_t length);
TERN_API tern_tensor *tern_pad(tern_tensor *x, int32_t axis, int64_t before, int64_t after); /* with zeros */
TERN_API tern_tensor *tern_concat(tern_tensor *const *xs, int32_t count, int32_t axis);

/* Reductions over one axis (negative counts from the end); the axis stays, with size 1. tern_reduce_*: axes as bits. */
TERN_API tern_tensor *tern_sum(tern_tensor *x, int32_t axis);
TERN_API tern_tensor *tern_mean(tern_tensor *x, int32_t axis);
TERN_API tern_tensor *tern_maximum(tern_tensor *x, int32_t axis); /* NaN if any is */
TERN_API tern_tensor *tern_reduce_sum(tern_tensor *x, uint32_t axes_mask);
TERN_API tern_tensor *tern_reduce_max(tern_tensor *x, uint32_t axes_mask);

/* y(..., n, d) = table(ids(..., n), d), table (V, D), ids i32/u32/u16/u8. An id >= V reads row V - 1. */
TERN_API tern_tensor *tern_gather(tern_tensor *table, tern_tensor *ids);
/* c(..., m, n) = sum_k a(..., m, k) b(..., k, n); leading axes equal, or b of rank 2. */
TERN_API tern_tensor *tern_matmul(tern_tensor *a, tern_tensor *b);
/* softmax(scale q k^T [+ causal mask]) v without a (T, T) matrix. q (B, Tq, H, D), k and v (B, Tk, H, D) -> (B, Tq, H,
 * D). causal needs Tq == Tk. D <= 256. Source: Dao, "FlashAttention-2", 2023. */
TERN_API tern_tensor *tern_attention(tern_tensor *q, tern_tensor *k, tern_tensor *v, double scale, bool causal);
/* u32 random bits, one word per element, keyed by (seed, step, label, element in the whole window). label: unique. */
TERN_API tern_tensor *tern_random(tern_graph *graph, const char *label, int32_t rank, const int64_t *shape);
/* Writes value into a state or parameter in place; returns the tensor's new version. Reads of `target` itself mean the
 * old one. */
TERN_API tern_tensor *tern_assign(tern_tensor *target, tern_tensor *value);

/* Composites: functions over the primitives above; gradients follow from theirs. */
/* y = x W^T + b over the last axis; parameters "<name>.weight" (out, in) and "<name>.bias" (out). */
TERN_API tern_tensor *tern_linear(tern_tensor *x, const char *name, int64_t out_features);
TERN_API tern_tensor *tern_relu(tern_tensor *x);
TERN_API tern_tensor *tern_silu(tern_tensor *x);
TERN_API tern_tensor *tern_sigmoid(tern_tensor *x);
TERN_API tern_tensor *tern_gelu(tern_tensor *x);      /* exact: x/2 (1 + erf(x / sqrt 2)) */
TERN_API tern_tensor *tern_gelu_tanh(tern_tensor *x); /* GPT-2's approximation */
TERN_API tern_tensor *tern_softmax(tern_tensor *x, int32_t axis);
TERN_API tern_tensor *tern_log_softmax(tern_tensor *x, int32_t axis);
/* (x - mean) / sqrt(var + epsilon) * weight + bias over the last axis; weight, bias (C), each may be NULL. */
TERN_API tern_tensor *tern_layer_norm(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, double epsilon);
/* y[n, o, i, j] = bias[o] + sum over c, a, b of weight[o, c, a, b] x[n, g C / groups + c, stride i + a - padding,
 * stride j + b - padding], where g is o's group and x is 0 outside the image. x (N, C, H, W), weight (O, C / groups,
 * KH, KW), bias (O) or NULL, all f32 -> (N, O, OH, OW), OH = floor((H + 2 padding - KH) / stride) + 1, OW likewise;
 * stride and padding in pixels. */
TERN_API tern_tensor *tern_conv2d(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int64_t stride,
                                  int64_t padding, int64_t groups);
/* Mean and maximum of size x size windows side by side; x (N, C, H, W) f32 -> (N, C, H / size, W / size), the rest of a
 * row or column left out. The maximum's gradient is shared evenly by equal pixels. */
TERN_API tern_tensor *tern_avg_pool2d(tern_tensor *x, int64_t size);
TERN_API tern_tensor *tern_max_pool2d(tern_tensor *x, int64_t size);
/* Inverted dropout: zero with `probability` in [0, 1), survivors divided by 1 - probability. label keys the mask. Off
 * in eval graphs. */
TERN_API tern_tensor *tern_dropout(tern_tensor *x, double probability, const char *label);
/* Per-position losses (...) from logits (..., V) and labels (...) of an integer type. Positions whose label equals
 * ignore_index lose 0 and count 0 in the loss weights; ignore_index < 0 and no such label: nothing is ignored. */
TERN_API tern_tensor *tern_cross_entropy(tern_tensor *logits, tern_tensor *labels, int64_t ignore_index);
TERN_API tern_tensor *tern_mse(tern_tensor *x, tern_tensor *target); /* elementwise squared difference */

/* The loss to minimise is sum(weight * per_element) / sum(weight). weight: same shape, no gradient flows into it; NULL
 * is 1 (0 where tern_cross_entropy ignores). Once per graph. */
TERN_API void tern_loss(tern_tensor *per_element, tern_tensor *weight);
/* Keeps a tensor readable by name after a run; unnamed tensors may be overwritten. */
TERN_API void tern_output(tern_tensor *x, const char *name);

/* ---------------------------------------------------------------- training
 *
 *     feeds ──> tern_trainer_step x accumulate ──> update ──> report, one window late
 *               tern_trainer_evaluate                         reads the weights, touches no training state
 *
 * A window is `accumulate` calls of tern_trainer_step and ends in one update of the weights. The host waits for no
 * value of the present window. A trainer is used by one thread at a time; several trainers may share a device.
 * docs/library.md is the guide, docs/examples/train.c a whole program. */

typedef struct tern_trainer tern_trainer;
struct DLManagedTensor; /* DLPack's, from <dlpack/dlpack.h>; not needed unless those functions are used */

enum { /* arithmetic of a training run */
       TERN_PRECISION_AUTO = 0,
       TERN_PRECISION_F32,
       TERN_PRECISION_BF16,
       TERN_PRECISION_F16
};

/* How a graph is trained. Each line begins with the default that tern_train_options_init fills in; after that 0 means
 * 0. The strings are read during tern_trainer_create only. A number that the optimizer does not use is ignored. */
typedef struct tern_train_options {
    uint32_t struct_bytes; /* sizeof, set by tern_train_options_init */
    int32_t precision;     /* TERN_PRECISION_AUTO: chosen for the device; the choice goes to the log */
    const char *optimizer; /* "adamw"; others by tern_train_options_optimizer, which sets their numbers too */
    const char *schedule;  /* "constant": the learning rate over the updates; "cosine", "linear", "wsd" need `steps` */
    uint64_t seed;         /* 0: of initial weights and dropout */
    double lr;             /* 1e-3: learning rate at the schedule's top, in (0, 1000] */
    double min_lr;         /* 0: where the schedule ends, in [0, lr] */
    int64_t warmup;        /* 0: updates during which the rate rises linearly to lr */
    double weight_decay;   /* 0.1: decoupled; acts on tensors of rank 2 and more, in [0, 1e6] */
    double beta1, beta2;   /* 0.9, 0.95: of the moments, in [0, 1) */
    double epsilon;        /* 1e-8: added to the root of the second moment, in (0, 1] */
    double clip_norm;      /* 1: largest norm of the whole gradient; 0: no clipping */
    int64_t accumulate;    /* 1: calls of tern_trainer_step in a window, >= 1 */
    int64_t steps;         /* 0: updates in all, the schedule's horizon; the trainer itself does not stop there */
    double clip_value;     /* 0: largest magnitude of one element of the mean gradient, before clip_norm; 0: any */
    double schedule_decay; /* 0: of "wsd", the last part of the way that goes down, in (0, 1]; 0: a fifth */
    double loss_scale;     /* 0: a power of two that stays; 0: 1, and with f16 found and kept by the device */
    double momentum;       /* 0: of "sgd" and "muon", in [0, 1) */
    int32_t nesterov;      /* 0: 1 looks ahead along the momentum */
    int32_t eight_bit;     /* 0: 1 keeps the optimizer's moments as one byte each, with a scale per 256 */
    int32_t no_masters;    /* 0: 1 with a 16-bit precision keeps the weights in 16 bits only, rounded by chance */
    int32_t reserved;      /* 0 */
    const char *groups;    /* NULL: rules for parameters by name, "PATTERN:lr=0.1,decay=0,frozen" and more behind ';'.
                              '*' is any characters, '?' one; the first match decides; lr is a factor */
} tern_train_options;

/* Fills `options` with the defaults. struct_bytes: sizeof *options, so that a program keeps working with a library
 * whose structure has grown; larger than the library knows is allowed while the rest is zero. */
TERN_API void tern_train_options_init(tern_train_options *options, size_t struct_bytes);
/* Chooses an optimizer and sets the numbers that are customary for it (betas, epsilon, weight_decay, momentum,
 * nesterov), which may be changed afterwards. name must live until tern_trainer_create. TERN_ERROR_INVALID listing the
 * names. */
TERN_API TERN_MUST_USE tern_status tern_train_options_optimizer(tern_train_options *options, const char *name);

/* One input of a step. data: the examples, row-major without gaps, the first axis counting examples. bytes: of the
 * whole input, or of just the examples given. data NULL: the bytes are in the input's slot already
 * (tern_trainer_stage). */
typedef struct tern_feed {
    const char *name;
    const void *data;
    size_t bytes;
} tern_feed;

/* What a step tells. updated, step, examples and ended are about this call, the rest about the newest window that the
 * device has finished (the one before the last; after tern_trainer_finish the last). NaN and 0 while there is none. */
typedef struct tern_report {
    uint32_t struct_bytes; /* sizeof, set by the caller before each call; only that much is written */
    int32_t updated;       /* 1: this call ended a window */
    int64_t step;          /* windows ended so far, skipped ones included */
    int64_t examples;      /* examples given so far, evaluation not counted */
    int64_t reported;      /* which window that is, from 1; 0: none yet */
    double loss;           /* sum w loss / sum w over the window */
    double weight;         /* sum w: how many elements counted */
    double grad_norm;      /* of the gradient of that mean, before clipping */
    double lr;             /* learning rate of its update */
    double loss_scale;     /* power of two that the gradients were scaled by on the way; 1 in f32 and bf16 */
    int32_t skipped;       /* 1: its gradient was not finite, weights and moments stayed bit for bit */
    int32_t ended;         /* 1: the feed callback had no more examples; nothing was done */
    int64_t skips;         /* windows so far that were not finite */
    int64_t skips_in_row;  /* of them, those since the last finite one: many mean that training has diverged */
} tern_report;

/* Compiles and plans the graph's training, refuses what cannot work or does not fit, allocates all of it and makes the
 * initial weights. Nothing is allocated or compiled later.
 *   device   must outlive the trainer
 *   graph    with a tern_loss. It is copied and may be destroyed. All inputs have the same first axis, the batch.
 *            Dropout acts in training and not in evaluation; states that the graph assigns are left alone by
 *            evaluation. The loss needs the example axis first (or merged with the axes behind it) for batches that are
 *            not full.
 *   options  NULL: the defaults
 * *out_trainer is NULL on failure. Errors: the graph's first error as it is; TERN_ERROR_INVALID for an option out of
 * its range, with the value and the range; TERN_ERROR_UNSUPPORTED for what the device cannot do;
 * TERN_ERROR_DEVICE_MEMORY with the bytes needed and free. */
TERN_API TERN_MUST_USE tern_status tern_trainer_create(tern_device *device, tern_graph *graph,
                                                       const tern_train_options *options, tern_trainer **out_trainer);
/* Waits for the device and frees everything. Unsaved weights are lost. */
TERN_API void tern_trainer_destroy(tern_trainer *trainer);

/* One micro-batch: forward, backward, gradients added up; the accumulate-th call of a window also updates the weights.
 *   feeds     one per input of the graph, in any order, copied before the call returns
 *   examples  how many are given, in [1, batch]. The rest of the batch weighs nothing, whatever stands in its memory:
 *             the gradients are those of the given examples alone. Random numbers follow the example's number in the
 *             window, so that they do not depend on how a window is cut into micro-batches.
 *   out_report  may be NULL
 * With tern_trainer_feed_with: feeds NULL, feed_count and examples 0 takes the next batch of the callback.
 * Errors: TERN_ERROR_NOT_FOUND for an unknown name, listing the inputs; TERN_ERROR_INVALID for a missing or doubled
 * input, wrong bytes (expected and given) or examples; nothing was done then. TERN_ERROR_DEVICE_LOST, _DRIVER and
 * _TIMEOUT end the trainer: every later call returns the same error. */
TERN_API TERN_MUST_USE tern_status tern_trainer_step(tern_trainer *trainer, const tern_feed *feeds, size_t feed_count,
                                                     int64_t examples, tern_report *out_report);
/* Ends a window that has begun (it is divided by its own weight) and waits for the device. *out_report (may be NULL) is
 * about the last window. */
TERN_API TERN_MUST_USE tern_status tern_trainer_finish(tern_trainer *trainer, tern_report *out_report);
/* Forward pass without dropout of one batch; feeds and examples as in tern_trainer_step. Waits for it. Training state
 * is untouched, a window that has begun goes on.
 *   out_loss    sum w loss / sum w; NaN when nothing counted
 *   out_weight  sum w, to average over batches; may be NULL */
TERN_API TERN_MUST_USE tern_status tern_trainer_evaluate(tern_trainer *trainer, const tern_feed *feeds,
                                                         size_t feed_count, int64_t examples, double *out_loss,
                                                         double *out_weight);

/* Copies a tensor to the host, waiting for the device: a parameter, a state of the graph, or what tern_output named, as
 * the last micro-batch or evaluation left it (rows of examples that were not given mean nothing).
 *   dtype  the tensor's own, or for f32 tensors TERN_F16 or TERN_BF16, rounded to nearest even
 *   bytes  exactly elements times the element's size
 * Errors: TERN_ERROR_NOT_FOUND with the name, TERN_ERROR_INVALID for dtype or bytes, with what is expected. */
TERN_API TERN_MUST_USE tern_status tern_trainer_read(tern_trainer *trainer, const char *name, int32_t dtype,
                                                     void *out_data, size_t bytes);
/* Replaces a parameter or state from the host, waiting for the device. dtype and bytes as in tern_trainer_read.
 * Moments stay. */
TERN_API TERN_MUST_USE tern_status tern_trainer_write(tern_trainer *trainer, const char *name, int32_t dtype,
                                                      const void *data, size_t bytes);

enum {                       /* flags of tern_trainer_load */
       TERN_LOAD_PARTIAL = 1 /* parameters that the file lacks keep their values; without it that is an error */
};
/* Replaces parameters by name from a .safetensors file (f32, f16 or bf16); the file's other tensors are ignored.
 * Everything is checked before anything is written. TERN_ERROR_NOT_FOUND naming a parameter that the file lacks;
 * TERN_ERROR_INVALID naming one of another shape; TERN_ERROR_IO, TERN_ERROR_FORMAT naming the file. */
TERN_API TERN_MUST_USE tern_status tern_trainer_load(tern_trainer *trainer, const char *path, uint32_t flags);
/* Ends a window that has begun, waits, and writes into the folder (made if absent): model.safetensors, the parameters
 * by name in f32, and checkpoints/<number>-step-<n>/, all that training needs to go on; of these the last two stay.
 * Whoever reads, or a crash, sees a whole checkpoint, old or new; when it fails, nothing saved before is lost and the
 * trainer goes on. One process at a time works on a folder. */
TERN_API TERN_MUST_USE tern_status tern_trainer_save(tern_trainer *trainer, const char *folder);
/* Goes on from the newest whole checkpoint of a folder: weights, moments, states, counters, loss scale and seed. On the
 * same device, driver and version of tern with the same options, what follows has the bits of a training that never
 * stopped; on another device it is within tolerance, and the log says why. Learning rate, schedule and the other
 * numbers are those of this trainer. A window that has begun is dropped, reports begin anew. out_report  may be NULL;
 * its `step` and `examples` are where the data go on Errors: TERN_ERROR_NOT_FOUND without a checkpoint,
 * TERN_ERROR_INVALID naming what differs (batch, optimizer, a parameter's shape) with both values, TERN_ERROR_FORMAT
 * naming a damaged file. */
TERN_API TERN_MUST_USE tern_status tern_trainer_resume(tern_trainer *trainer, const char *folder,
                                                       tern_report *out_report);

/* Which tensor of a batch is the first that is not finite, as a phrase like `"fc1" (64, 500), forward`; "" when all
 * are. For a trainer whose reports say `skipped` again and again: runs the batch once more in a program of its own,
 * with the present weights and loss scale; nothing of the training changes. Feeds and examples as in tern_trainer_step.
 *   out_phrase  bytes > 0, zero-terminated, cut when longer
 * TERN_ERROR_DEVICE_MEMORY when that program does not fit beside the training. Slow. */
TERN_API TERN_MUST_USE tern_status tern_trainer_diagnose(tern_trainer *trainer, const tern_feed *feeds,
                                                         size_t feed_count, int64_t examples, char *out_phrase,
                                                         size_t bytes);

/* Where the next micro-batch's bytes of an input go: pinned host memory that the device reads from. Fill it, then call
 * tern_trainer_step with a feed whose data is NULL. Valid until that step; may wait for the micro-batch before the
 * last. *out_bytes (may be NULL): of the whole input. */
TERN_API TERN_MUST_USE tern_status tern_trainer_stage(tern_trainer *trainer, const char *name, void **out_data,
                                                      size_t *out_bytes);

/* One input to be filled by a feed callback. */
typedef struct tern_feed_slot {
    const char *name;
    void *data; /* the whole input, `bytes` long */
    size_t bytes;
} tern_feed_slot;
/* Fills all `slots` (one per input, in the graph's order) with up to `most` examples. Returns how many; 0: there are no
 * more, and it is not called again; a negative tern_status: an error, kept with this thread's tern_error_message() and
 * returned by the next tern_trainer_step. Runs on a thread of its own, one call at a time. */
typedef int64_t (*tern_feed_callback)(void *context, const tern_feed_slot *slots, size_t slot_count, int64_t most);
/* Starts a thread that prepares batches ahead while the device computes; replaces an earlier callback, whose prepared
 * batches are dropped. NULL stops it. context must live until then or until the trainer is destroyed; both wait for a
 * callback in work. */
TERN_API TERN_MUST_USE tern_status tern_trainer_feed_with(tern_trainer *trainer, tern_feed_callback callback,
                                                          void *context);

/* A copy of a tensor (names as in tern_trainer_read, in its own dtype) as a DLPack tensor on the CPU. The caller calls
 * its deleter. Source: DLPack 0.8, struct DLManagedTensor. */
TERN_API TERN_MUST_USE tern_status tern_dlpack_export(tern_trainer *trainer, const char *name,
                                                      struct DLManagedTensor **out_tensor);
/* Copies a DLPack tensor in host memory into an input's slot of the next micro-batch, as tern_trainer_stage does; any
 * strides. Its dtype is the input's, its shape too, but for the first axis, which may be shorter. The tensor stays the
 * caller's. TERN_ERROR_INVALID with both shapes or dtypes; TERN_ERROR_UNSUPPORTED for another device than the CPU. */
TERN_API TERN_MUST_USE tern_status tern_dlpack_stage(tern_trainer *trainer, const char *name,
                                                     const struct DLManagedTensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
