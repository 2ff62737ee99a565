#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lab-tests.sh - builds tern inside the driver lab and runs there what touches a driver, once per driver. Run by
# `lab.sh test`, inside; the build folder is build/lab-ci, with its own caches of compiled kernels.
#
#     pass           Vulkan      OpenCL
#     lavapipe       lavapipe    PoCL                   both labels
#     rusticl        none        rusticl                label opencl
#
# A driver is put below tern by hiding the others from the loaders, so that no test needs to know of the lab.
set -eu
cd "$(dirname "$0")/.."
build=build/lab-ci
jobs=$(nproc)
# Name the drivers in their words, but open none of them, or only the CPU's.
driverless='^test_(base|command|command_step|command_resume|cpu|cpu_storage|device|swiftshader)$'
vendors=/etc/OpenCL/vendors
icds=/usr/share/vulkan/icd.d

# In CI, whose time is limited, what decides about a driver: contractions, tapes and buffers one by one, and short
# trainings. `tern check` takes ten minutes there on PoCL 6 and on rusticl, which compile each kernel anew.
chosen=.
chosen_rusticl=.
if [ "${CI:-}" = true ]; then
  chosen='^test_(train_backends|conformance_(alu|buffer|contraction|fragment|program|storage|tape)|opencl|static|vulkan)$'
  chosen_rusticl='^test_conformance_(alu|contraction)$'
  export TERN_TEST_QUICK=1
fi

say() { printf 'lab: %s\n' "$*"; }

pass() { # name, tests, what to call ctest with...
  say "tests on $1"
  only=$2
  shift 2
  "$@" --test-dir $build -R "$only" -E "$driverless" -j "$jobs" --output-on-failure --no-tests=error || failed=yes
}

failed=no
cmake --preset ci -B $build -DTERN_TEST_CACHE="$PWD/$build/cache" >$build.log
nice cmake --build $build -j "$jobs" >>$build.log || { tail -n 40 $build.log; exit 1; }
pass "lavapipe and PoCL" "$chosen" env VK_DRIVER_FILES="$(echo $icds/lvp_icd*.json)" OCL_ICD_VENDORS=$vendors/pocl.icd \
  ctest -L '^(vulkan|opencl)$'
pass rusticl "$chosen_rusticl" env VK_DRIVER_FILES=/dev/null OCL_ICD_VENDORS=$vendors/rusticl.icd TERN_TEST_BACKENDS=opencl \
  ctest -L '^opencl$'
[ $failed = no ]
