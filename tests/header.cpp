// SPDX-License-Identifier: Apache-2.0
// header.cpp - the public header is C++ too, and its functions have C names: part of test_base.
#include "core/tern.h"

extern "C" const char *test_version_from_cpp(void);
const char *test_version_from_cpp(void) { return tern_status_name(TERN_OK)[0] == 'o' ? tern_version() : ""; }
