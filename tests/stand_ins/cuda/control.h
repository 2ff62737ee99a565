/* SPDX-License-Identifier: Apache-2.0 */
/* control.h - what the stand-in libcuda.so.1 exports for tests beside the driver's own functions (dlsym them).
 *
 * Environment, read by cuInit and in a child process often handier:
 *   TERN_STANDIN_CUDA_FAIL_CALL=n[:CUresult]  the n-th call fails (default 999)
 *   TERN_STANDIN_CUDA_HANG=n                  the n-th operation given to a device and all later ones never complete
 *   TERN_STANDIN_CUDA_INIT=CUresult           what cuInit returns (34: a stub library)
 *   TERN_STANDIN_CUDA_DEVICES=n               devices, default 1
 *   TERN_STANDIN_CUDA_CAPABILITY=80,120       compute capability of each device, the last for the rest; default 80
 *   TERN_STANDIN_CUDA_MEMORY_MIB=n            memory of each device, default 4096
 *   TERN_STANDIN_CUDA_DRIVER_VERSION=n        default 13000
 *   TERN_STANDIN_CUDA_COMPUTE_MODE=2          nobody may compute on the cards: no context
 *   TERN_STANDIN_CUDA_MIG=1                   devices are parts of cards, with UUIDs of their own
 *   CUDA_VISIBLE_DEVICES                      as NVIDIA's driver reads it: indices or UUIDs, ending at the first
 *                                             unknown
 * Of libnvrtc.so: TERN_STANDIN_NVRTC_VERSION=13.0, TERN_STANDIN_CXX=g++. */
#ifndef TERN_STAND_IN_CONTROL_H
#define TERN_STAND_IN_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The call-th driver call from now returns result (0: none does; cuGetErrorName, cuGetErrorString and cuGetProcAddress
 * are not counted). One that destroys does so all the same. Results that end a context (700, 719, ...) end it. Returns
 * the number of calls since it was last called. */
uint64_t tern_standin_cuda_fail_call(uint64_t call, int result);
/* The name of the call that was made to fail last, "" if none was. */
const char *tern_standin_cuda_failed_call(void);
/* From the operation-th operation given to a device from now on, work never completes; 0: it does. What cannot return
 * then (cuStreamSynchronize, cuMemFree, ...) is reported and returns 702. */
void tern_standin_cuda_hang(uint64_t operation);
/* Allocations, streams, events, modules, graphs and contexts that exist, and those that a healthy context still had
 * when it was released. */
int64_t tern_standin_cuda_live(void);
/* Copies, fills, kernels and graphs that were given to a device and have not been done. */
uint64_t tern_standin_cuda_pending(void);
/* Graphs that were launched before they were uploaded, so that a step had to; none of ours should. */
uint64_t tern_standin_cuda_late_uploads(void);
/* Misuse that a real driver would not tell: guard bytes overwritten, what is wrong in kernels, calls that would wait
 * for ever. Copies the last sentence, starts anew and returns how many there were. A process that ends with reports
 * nobody asked for ends with status 86. */
uint64_t tern_standin_cuda_reports(char *out_text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
