/* SPDX-License-Identifier: Apache-2.0 */
/* abi.h - the types and numbers of NVIDIA's driver interface and of NVRTC that the plug-in uses, written out, so that
 * it builds on machines without a CUDA toolkit. The binary interface of both is stable; source: cuda.h and nvrtc.h of
 * CUDA 13.0, whose names are kept for what they name. */
#ifndef TERN_CUDA_ABI_H
#define TERN_CUDA_ABI_H

#include <stddef.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuuid {
    unsigned char bytes[16];
} CUuuid;

enum { /* CUresult, as far as they are told apart */
#define RESULT(name, code, status, hint) name = code,
#include "backends/cuda/results.def"
#undef RESULT
       CUDA_SUCCESS = 0
};

enum { /* CUdevice_attribute */
       CU_MAX_THREADS_PER_BLOCK = 1,
       CU_MAX_GRID_DIM_X = 5,
       CU_MAX_GRID_DIM_Y = 6,
       CU_MAX_GRID_DIM_Z = 7,
       CU_MAX_SHARED_MEMORY_PER_BLOCK = 8,
       CU_WARP_SIZE = 10,
       CU_MULTIPROCESSOR_COUNT = 16,
       CU_INTEGRATED = 18,
       CU_COMPUTE_CAPABILITY_MAJOR = 75,
       CU_COMPUTE_CAPABILITY_MINOR = 76
};

enum { /* CUfunction_attribute */ CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
       CU_FUNC_SHARED_BYTES = 1,
       CU_FUNC_LOCAL_BYTES = 3 };
enum { /* flags */ CU_STREAM_NON_BLOCKING = 1,
       CU_EVENT_DEFAULT = 0,
       CU_EVENT_DISABLE_TIMING = 2,
       CU_HOST_PORTABLE = 1 };
enum { /* CUmemorytype */ CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };

typedef struct cuda_launch { /* CUDA_KERNEL_NODE_PARAMS_v1 */
    CUfunction function;
    unsigned grid[3], block[3], dynamic_shared_bytes;
    void **parameters, **extra;
} cuda_launch;

typedef struct cuda_side { /* one half of CUDA_MEMCPY3D_v2 */
    size_t x, y, z, lod;
    int memory;
    void *host;
    CUdeviceptr device;
    void *array, *reserved;
    size_t pitch, height;
} cuda_side;
typedef struct cuda_copy { /* CUDA_MEMCPY3D_v2; height and depth 1 make it linear */
    cuda_side from, to;
    size_t width, height, depth;
} cuda_copy;

typedef struct cuda_fill { /* CUDA_MEMSET_NODE_PARAMS_v1 */
    CUdeviceptr address;
    size_t pitch;
    unsigned value, element_bytes;
    size_t width, height;
} cuda_fill;

typedef int nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;

#endif
