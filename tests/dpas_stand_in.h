/* SPDX-License-Identifier: Apache-2.0 */
/* dpas_stand_in.h - the OpenCL text of a matmul by fragments with Intel's matrix instruction written out, so that the
 * words of shaders/dialect/opencl_matrix.h run on any OpenCL device.
 *
 * Who holds which element is the specification's of cl_intel_subgroup_matrix_multiply_accumulate: lane l holds column l
 * of the sums, column l of b as eight pairs along k, and of each of a's eight rows the pair l (8 lanes) or the element
 * l (16 lanes). Lanes are work-items of a group that exchange rows through local memory. Not shown: that Intel's
 * compiler maps the function to the instruction (test_static does), and the order in which the instruction adds. */
#ifndef TERN_TESTS_DPAS_STAND_IN_H
#define TERN_TESTS_DPAS_STAND_IN_H

#include "core/backend.h"

/* A tern_kernel_desc.render; TERN_ERROR_UNSUPPORTED for what has no such fragments. */
tern_status dpas_render(const tern_kernel_desc *desc, tern_dialect dialect, bool addresses, tern_source *out_source);

#endif
