/* SPDX-License-Identifier: Apache-2.0 */
/* backend.h - the plug-in contract: everything core asks of a driver, and nothing about networks.
 *
 *     load ─ device_count ─ device_info ─ open ─┬─ buffer_create ... write read map
 *                                               ├─ kernel_create    a tape, or one of the closed set of contractions
 *                                               ├─ program_create   recorded once: dispatches, copies, fills
 *                                               ├─ program_submit   replayed, returns a ticket
 *                                               └─ wait             finite, polls
 *
 * A plug-in exports one function, tern_backend_get, that returns its table. It includes this header and core/base only.
 * Every function returning tern_status sets the error sentence (base/status.h) before it returns a negative one, leaves
 * its outputs NULL or untouched then, and leaks nothing. No function aborts, prints or waits forever.
 * A device may be used from several threads; core serialises calls on one program.
 * The first entry whose driver call reports a reset or loss returns TERN_ERROR_DEVICE_LOST, and so does every later one
 * on that device (destroy and close still work). In a child after fork every entry on a parent's device returns
 * TERN_ERROR_INVALID. */
#ifndef TERN_BACKEND_H
#define TERN_BACKEND_H

#include "core/kernel/tape.h"
#include "core/tern.h"

#define TERN_BACKEND_ABI 2u

typedef struct tern_backend_device tern_backend_device; /* each plug-in defines these four */
typedef struct tern_backend_buffer tern_backend_buffer;
typedef struct tern_backend_kernel tern_backend_kernel;
typedef struct tern_backend_program tern_backend_program;

/* ------------------------------------------------------------------ device */

typedef enum tern_device_kind {
    TERN_DEVICE_CPU = 0,
    TERN_DEVICE_SOFTWARE_GPU,
    TERN_DEVICE_INTEGRATED_GPU,
    TERN_DEVICE_DISCRETE_GPU
} tern_device_kind;

enum {                                    /* device features, bits */
       TERN_FEATURE_STORAGE_16 = 1u << 0, /* 16-bit loads and stores */
       TERN_FEATURE_ARITHMETIC_F16 = 1u << 1,
       TERN_FEATURE_SUBGROUPS = 1u << 2,
       TERN_FEATURE_UNIFIED_MEMORY = 1u << 3,
       TERN_FEATURE_TIMESTAMPS = 1u << 4,
       TERN_FEATURE_BUFFER_ADDRESS = 1u << 5, /* kernels reach tensors larger than max_binding_bytes */
       TERN_FEATURE_RESIZABLE_BAR = 1u << 6,
       TERN_FEATURE_REGISTER_TILES = 1u << 7, /* CPU-like: register tiles beat shared memory */
       TERN_FEATURE_RENDERS = 1u << 8,        /* kernel_create uses the source that core renders */
       TERN_FEATURE_STORAGE_8 = 1u << 9,      /* 8-bit loads and stores */
};

/* One product of the device's matrix units: m x k times k x n of dtype, added to m x n of f32. F16 and BF16 products
 * are exact; with F32 operands are rounded to tf32 (8 bits of exponent, 10 of mantissa). */
typedef struct tern_matrix_shape {
    int32_t dtype;
    uint32_t m, n, k;
    uint32_t
        subgroup; /* lanes that hold such a matrix together; 1: the registers of one thread, which any device has */
} tern_matrix_shape;
#define TERN_MATRIX_SHAPES 8

typedef struct tern_device_info {
    char name[256], driver[256];
    char uuid[40]; /* lower-case hex with dashes, or "" */
    char pci[16];  /* "0000:03:00.0", or "" */
    uint32_t vendor_id, device_id;
    tern_device_kind kind;
    uint32_t features;
    uint64_t memory_bytes, memory_free_bytes; /* free now; equal to memory_bytes where the driver does not say */
    uint64_t max_allocation_bytes, max_buffer_bytes, max_binding_bytes; /* three different limits */
    uint32_t max_groups[3], max_group_size, shared_bytes;
    uint32_t subgroup_min, subgroup_max;
    uint32_t offset_alignment; /* that the arena gives to tensors, bytes, a power of two; slices need only their element
                                  size */
    uint32_t threads;          /* compute units or CPU threads */
    /* Loop iterations, all loops of one invocation together (unrolled ones do not count), after which the driver leaves
     * every loop WITHOUT a word; 0: none. Lavapipe: 65,535. Kernels must stay below: split the loop, unroll, or spread
     * it. */
    uint32_t max_loop_turns;
    /* What kernels of this device may use of its matrix units, the preferred first; 0: none, or none that core has
     * words for (shaders/dialect). A tf32 shape is listed where there is one and used only where the user allows it. */
    uint32_t matrix_count;
    tern_matrix_shape matrix[TERN_MATRIX_SHAPES];
} tern_device_info;

typedef struct tern_open_options {
    uint32_t threads; /* CPU only: worker threads, 0: one per core */
    bool validate;    /* run under the driver's validation where there is one */
    bool timestamps;  /* program_times will be asked for; without it a driver may decline, since timing can slow every
                         step */
} tern_open_options;

/* ------------------------------------------------------------------ kernels */

typedef enum tern_dialect { TERN_DIALECT_GLSL = 0, TERN_DIALECT_OPENCL, TERN_DIALECT_CUDA } tern_dialect;

typedef enum tern_kernel_kind {
    TERN_KERNEL_TAPE = 0,
    TERN_KERNEL_MATMUL,
    TERN_KERNEL_ATTENTION,
    TERN_KERNEL_ATTENTION_DQ,
    TERN_KERNEL_ATTENTION_DKV,
    TERN_KERNEL_SCATTER_ADD,
    TERN_KERNEL_KIND_COUNT
} tern_kernel_kind;

/* clang-format off: a table
 *
 * Arguments and words of each kind. Tensors are (buffer, byte offset) in this order; words are u32 (f32 as bits). Words
 * that a PHILOX instruction names follow those listed here. Registers and sums are f32, 16-bit tensors are storage.
 *
 * TAPE           tensors: the tape's
 *                words: dims[dim_count]
 * MATMUL         A, B (each f32, f16 or bf16), then the epilogue tape's tensors
 *                words: batch, M, N, K, a_batch, a_ld, b_batch, b_ld; batch strides of 0 broadcast
 *                A(b, m, k) at b a_batch + m a_ld + k, or with a_transposed at b a_batch + k a_ld + m;
 *                B(b, k, n) at b b_batch + k b_ld + n, or with b_transposed at b b_batch + n b_ld + k.
 *                The epilogue stores; ACC is the f32 sum.
 * ATTENTION      q, k, v, o, lse; q, k, v, o and their gradients below are of one dtype: f32, f16 or bf16;
 *                lse and delta are f32
 *                words: B, H, Tq, Tk, q_b, q_t, q_h, k_b, k_t, k_h, v_b, v_t, v_h, scale
 *                q(b, t, h, d) at b q_b + t q_t + h q_h + d; o contiguous (B, Tq, H, D);
 *                lse (B, Tq, H) = log sum exp of the scaled scores
 * ATTENTION_DQ   q, k, v, do, lse, delta, dq; words as ATTENTION; do, dq contiguous (B, Tq, H, D);
 *                delta (B, Tq, H) = sum_d do * o
 * ATTENTION_DKV  q, k, v, do, lse, delta, dk, dv; words as ATTENTION; dk, dv contiguous (B, Tk, H, D)
 * SCATTER_ADD    dy (N, D) (f32, f16 or bf16), sorted: order (N), offsets (V + 1); unsorted: ids (N) (u32 or i32), then
 *                the epilogue's tensors
 *                words: 1, V, D, N
 *                ACC at (0, v, d) = f32 sum of dy(n, d) over ids(n) == v, in a fixed order
 *
 * clang-format on */
#define TERN_KERNEL_WORDS          18
#define TERN_KERNEL_ARGUMENT_BYTES 128 /* 8 * tensors + 4 * words: what every Vulkan device takes as push constants */

enum { /* words of MATMUL and of the epilogue's dims (first three) */
       TERN_WORD_BATCH = 0,
       TERN_WORD_M,
       TERN_WORD_N,
       TERN_WORD_K,
       TERN_WORD_A_BATCH,
       TERN_WORD_A_LD,
       TERN_WORD_B_BATCH,
       TERN_WORD_B_LD,
       TERN_MATMUL_WORDS
};
enum {
    TERN_WORD_B = 0,
    TERN_WORD_H,
    TERN_WORD_TQ,
    TERN_WORD_TK,
    TERN_WORD_Q_B,
    TERN_WORD_Q_T,
    TERN_WORD_Q_H,
    TERN_WORD_K_B,
    TERN_WORD_K_T,
    TERN_WORD_K_H,
    TERN_WORD_V_B,
    TERN_WORD_V_T,
    TERN_WORD_V_H,
    TERN_WORD_SCALE,
    TERN_ATTENTION_WORDS
};

/* Tile shape and form; chosen by core from queried limits (kernel/variant.c), checked when the pipeline is built. */
typedef struct tern_variant {
    uint32_t group[3];               /* work-group size */
    uint32_t tile_m, tile_n, tile_k; /* per group */
    uint32_t thread_m, thread_n;     /* per thread; with fragments per sub-group */
    tern_matrix_shape fragment;      /* subgroup 0: no fragments; else the group is whole sub-groups of so many lanes */
    uint32_t shared_bytes;
    bool shared_form;    /* stages operands through shared memory; else registers only */
    bool row_per_thread; /* tapes: one thread walks a whole row; else one group per row */
    char name[48];       /* "matmul_64x64x16_8x8_shared": goes into checkpoints */
} tern_variant;

typedef struct tern_source {
    char *text; /* zero-terminated; free() it */
    size_t bytes;
    char entry[64]; /* kernel function's name (GLSL: "main") */
} tern_source;

typedef struct tern_kernel_desc tern_kernel_desc;
struct tern_kernel_desc {
    tern_kernel_kind kind;
    uint64_t key;          /* hash of everything below: equal keys are equal kernels */
    char label[96];        /* for debuggers and messages: the first op that uses it */
    tern_tape tape;        /* TAPE's body, or the epilogue of MATMUL and SCATTER_ADD */
    uint32_t tensor_count; /* all arguments, epilogue's included; 8 * tensors + 4 * words <= 128 */
    tern_tape_tensor tensors[TERN_TAPE_TENSORS];
    uint32_t word_count;
    bool a_transposed, b_transposed;
    uint32_t head_dim; /* attention: D */
    bool causal, sorted;
    tern_variant variant;
    /* Core's renderer: the kernel's text in a dialect. addresses: GLSL only, tensors as device addresses in push
     * constants instead of storage bindings. Used by plug-ins with TERN_FEATURE_RENDERS. */
    tern_status (*render)(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses, tern_source *out_source);
};
/* How the rendered text takes its arguments (docs/kernel-language.md has the whole of it):
 *   OpenCL, CUDA   tensor 0, u32 element offset 0, tensor 1, u32 element offset 1, ..., then one by-value struct of
 * word_count u32 (CUDA: the pointer already includes the offset, no offset arguments) GLSL bindings  storage buffer i
 * of set 0 is tensor i; push constants: word_count u32, then tensor_count u32 element offsets relative to the start of
 * the bound range GLSL addresses push constants: tensor_count u64 addresses (offset included), then word_count u32 A
 * group's number is group.x + group.y * groups.x (core splits counts above max_groups[0] over y); z is free for the
 * template. */

/* ----------------------------------------------------------------- programs */

typedef struct tern_argument {
    tern_backend_buffer *buffer;
    uint64_t offset; /* bytes, a multiple of the element size (COPY, FILL: of 4) */
    uint64_t bytes;  /* the range that the step touches */
    uint32_t mode;   /* TERN_ACCESS_READ | TERN_ACCESS_WRITE */
} tern_argument;

typedef enum tern_step_kind { TERN_STEP_DISPATCH = 0, TERN_STEP_COPY, TERN_STEP_FILL } tern_step_kind;

typedef struct tern_step {
    tern_step_kind kind;
    const char *label;
    uint32_t lane;               /* a hint: steps of different lanes are worth running side by side */
    uint32_t wait_count;         /* indices of earlier steps of this program that must have finished, */
    const uint32_t *waits;       /* their writes visible; same-lane order alone promises nothing */
    tern_backend_kernel *kernel; /* DISPATCH */
    uint32_t argument_count;     /* DISPATCH: kernel's; COPY: [0] source, [1] destination, equal bytes; FILL: [0] */
    tern_argument arguments[TERN_TAPE_TENSORS];
    uint32_t word_count;
    uint32_t words[TERN_KERNEL_WORDS];
    uint32_t groups[3]; /* DISPATCH; within max_groups */
    uint32_t fill;      /* FILL: u32 pattern; bytes a multiple of 4 */
} tern_step;

typedef struct tern_program_desc {
    const char *label;
    uint32_t step_count;
    const tern_step *steps;
    uint32_t cut_count; /* a new submission starts before each of these steps (keeps submissions short) */
    const uint32_t *cuts;
} tern_program_desc;

typedef enum tern_buffer_kind {
    TERN_BUFFER_DEVICE = 0, /* fastest for kernels */
    TERN_BUFFER_UPLOAD,     /* host writes through map, steps copy from it */
    TERN_BUFFER_READBACK    /* steps copy into it, host reads through map */
} tern_buffer_kind;

typedef struct tern_backend {
    uint32_t abi; /* TERN_BACKEND_ABI, first */
    const char *name;

    /* ---- required ---- */

    /* Finds and opens the driver library. TERN_ERROR_NOT_FOUND with a sentence saying what is missing and what to
     * install. Called once per process before anything else; a failed load may be tried again. */
    tern_status (*load)(void);
    void (*unload)(void);
    /* 0 devices with TERN_OK when the driver is there but has none; a sentence is set then too, saying why. */
    tern_status (*device_count)(uint32_t *out_count);
    tern_status (*device_info)(uint32_t index, tern_device_info *out_info);
    tern_status (*open)(uint32_t index, const tern_open_options *options, tern_backend_device **out_device);
    /* All of the device's objects must have been destroyed; waits for what is in flight (finite). NULL allowed. */
    void (*close)(tern_backend_device *device);

    /* Zero-filled. TERN_ERROR_DEVICE_MEMORY with bytes asked for and free; TERN_ERROR_UNSUPPORTED when a limit of the
     * device is exceeded (value and limit named). */
    tern_status (*buffer_create)(tern_backend_device *device, uint64_t bytes, tern_buffer_kind kind,
                                 tern_backend_buffer **out_buffer);
    void (*buffer_destroy)(tern_backend_device *device, tern_backend_buffer *buffer);
    /* Blocking transfers for set-up, tests and checkpoints, never inside a step. On failure the destination's content
     * is unspecified. */
    tern_status (*buffer_write)(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                                const void *data, uint64_t bytes);
    tern_status (*buffer_read)(tern_backend_device *device, tern_backend_buffer *buffer, uint64_t offset,
                               void *out_data, uint64_t bytes);
    /* Host address of an UPLOAD or READBACK buffer, stable until destroy. Coherent: what a finished program copied is
     * seen, what was written before program_submit is seen by it. */
    tern_status (*buffer_map)(tern_backend_device *device, tern_backend_buffer *buffer, void **out_address);

    /* The desc and its tape are copied if kept. TERN_ERROR_KERNEL with the compiler's log; TERN_ERROR_UNSUPPORTED when
     * a limit is exceeded (value and limit named). */
    tern_status (*kernel_create)(tern_backend_device *device, const tern_kernel_desc *desc,
                                 tern_backend_kernel **out_kernel);
    void (*kernel_destroy)(tern_backend_device *device, tern_backend_kernel *kernel);

    /* Records. Kernels and buffers must outlive the program; the desc need not. */
    tern_status (*program_create)(tern_backend_device *device, const tern_program_desc *desc,
                                  tern_backend_program **out_program);
    /* Waits for its last submission (finite) first. */
    void (*program_destroy)(tern_backend_device *device, tern_backend_program *program);
    /* Starts after all that was submitted to the device before; does not wait for it. Tickets rise by one per call. */
    tern_status (*program_submit)(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ticket);
    /* Until the ticket's program is finished; ticket 0 is none and returns at once. TERN_ERROR_TIMEOUT after
     * timeout_ns, the program still running. */
    tern_status (*wait)(tern_backend_device *device, uint64_t ticket, uint64_t timeout_ns);

    /* ---- optional (NULL: core does without) ---- */

    /* Nanoseconds that each step of the program's last finished submission took (step_count values). */
    tern_status (*program_times)(tern_backend_device *device, tern_backend_program *program, uint64_t *out_ns);
    /* False: core emits the epilogue as a tape of its own. NULL: all accepted. */
    bool (*accepts_epilogue)(tern_backend_device *device, const tern_kernel_desc *desc);
    /* A few words for `tern devices`: extensions and hints, newline separated. */
    tern_status (*device_notes)(uint32_t index, char *out_text, size_t bytes);
    /* Bytes now allocated through buffer_create, for tests that compare with the plan. */
    uint64_t (*allocated_bytes)(tern_backend_device *device);
    /* Driver submissions made for the program's last program_submit (1 + cuts unless the driver needs more). */
    uint32_t (*submission_count)(tern_backend_device *device, tern_backend_program *program);
} tern_backend;

/* The plug-in's one export. Static builds name it tern_backend_get_<name>. */
typedef const tern_backend *(*tern_backend_get_function)(void);
TERN_API const tern_backend *tern_backend_get(void);

#endif
