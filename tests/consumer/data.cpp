// SPDX-License-Identifier: Apache-2.0
// data.cpp - data.c for the C++ program, whose my_next has C++ linkage.
#include "data.c"
