/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_abi.h - the part of the CUDA driver's binary interface that the stand-in keeps: numbers and layouts.
 *
 * Written from NVIDIA's documentation of the driver API, apart from backends/cuda's own declarations, so that a wrong
 * number on either side shows. */
#ifndef TERN_STAND_IN_CUDA_ABI_H
#define TERN_STAND_IN_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_INITIALIZED = 3,
    CU_STUB_LIBRARY = 34,
    CU_DEVICE_UNAVAILABLE = 46,
    CU_NO_DEVICE = 100,
    CU_INVALID_DEVICE = 101,
    CU_INVALID_IMAGE = 200,
    CU_INVALID_CONTEXT = 201,
    CU_NO_BINARY_FOR_GPU = 209,
    CU_ECC_UNCORRECTABLE = 214,
    CU_INVALID_PTX = 218,
    CU_NVLINK_UNCORRECTABLE = 220,
    CU_OPERATING_SYSTEM = 304,
    CU_INVALID_HANDLE = 400,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700,
    CU_LAUNCH_OUT_OF_RESOURCES = 701,
    CU_LAUNCH_TIMEOUT = 702,
    CU_ASSERT = 710,
    CU_HARDWARE_STACK_ERROR = 714,
    CU_MISALIGNED_ADDRESS = 716,
    CU_LAUNCH_FAILED = 719,
    CU_TENSOR_MEMORY_LEAK = 721,
    CU_NOT_SUPPORTED = 801,
    CU_UNKNOWN = 999
};

enum { CU_COMPUTE_PROHIBITED = 2 };

enum { /* device attributes */
       CU_MAX_THREADS_PER_BLOCK = 1,
       CU_MAX_BLOCK_X = 2,
       CU_MAX_BLOCK_Y = 3,
       CU_MAX_BLOCK_Z = 4,
       CU_MAX_GRID_X = 5,
       CU_MAX_GRID_Y = 6,
       CU_MAX_GRID_Z = 7,
       CU_MAX_SHARED_PER_BLOCK = 8,
       CU_TOTAL_CONSTANT_MEMORY = 9,
       CU_WARP_SIZE = 10,
       CU_MAX_REGISTERS_PER_BLOCK = 12,
       CU_CLOCK_RATE = 13,
       CU_MULTIPROCESSOR_COUNT = 16,
       CU_KERNEL_EXEC_TIMEOUT = 17,
       CU_INTEGRATED = 18,
       CU_CAN_MAP_HOST_MEMORY = 19,
       CU_COMPUTE_MODE = 20,
       CU_CONCURRENT_KERNELS = 31,
       CU_ECC_ENABLED = 32,
       CU_PCI_BUS_ID = 33,
       CU_PCI_DEVICE_ID = 34,
       CU_MEMORY_CLOCK_RATE = 36,
       CU_MEMORY_BUS_WIDTH = 37,
       CU_L2_CACHE_SIZE = 38,
       CU_MAX_THREADS_PER_MULTIPROCESSOR = 39,
       CU_ASYNC_ENGINE_COUNT = 40,
       CU_UNIFIED_ADDRESSING = 41,
       CU_PCI_DOMAIN_ID = 50,
       CU_CAPABILITY_MAJOR = 75,
       CU_CAPABILITY_MINOR = 76,
       CU_STREAM_PRIORITIES = 78,
       CU_MAX_SHARED_PER_MULTIPROCESSOR = 81,
       CU_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
       CU_MANAGED_MEMORY = 83,
       CU_MAX_SHARED_PER_BLOCK_OPTIN = 97,
       CU_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
       CU_RESERVED_SHARED_PER_BLOCK = 111,
       CU_MEMORY_POOLS = 115
};

enum { /* function attributes */
       CU_FUNC_MAX_THREADS_PER_BLOCK = 0,
       CU_FUNC_SHARED_BYTES = 1,
       CU_FUNC_CONST_BYTES = 2,
       CU_FUNC_LOCAL_BYTES = 3,
       CU_FUNC_REGISTERS = 4,
       CU_FUNC_PTX_VERSION = 5,
       CU_FUNC_BINARY_VERSION = 6,
       CU_FUNC_MAX_DYNAMIC_SHARED = 8,
       CU_FUNC_CARVEOUT = 9
};

enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2, CU_MEMORY_UNIFIED = 4 };

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUuuid {
    unsigned char bytes[16];
} CUuuid;

typedef struct CUDA_KERNEL_NODE_PARAMS { /* version 2; version 1 ends before kernel */
    void *function;
    unsigned grid[3], block[3], shared_bytes;
    void **parameters, **extra;
    void *kernel, *context;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct CUDA_MEMSET_NODE_PARAMS {
    CUdeviceptr to;
    size_t pitch;
    unsigned value, element_bytes;
    size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct CUDA_MEMCPY3D_SIDE {
    size_t x_bytes, y, z, lod;
    int type;
    void *host;
    CUdeviceptr device;
    void *array, *reserved;
    size_t pitch, height;
} CUDA_MEMCPY3D_SIDE;

typedef struct CUDA_MEMCPY3D {
    CUDA_MEMCPY3D_SIDE from, to;
    size_t width_bytes, height, depth;
} CUDA_MEMCPY3D;

#endif
