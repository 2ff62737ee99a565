# SPDX-License-Identifier: Apache-2.0
# Options, warnings and floating-point rules that hold for every file of the project.

foreach(backend VULKAN OPENCL CUDA LEVEL_ZERO)
  set(TERN_${backend} AUTO CACHE STRING "Build this plug-in: AUTO (if its build needs are met), ON or OFF")
  set_property(CACHE TERN_${backend} PROPERTY STRINGS AUTO ON OFF)
  string(TOUPPER "${TERN_${backend}}" TERN_${backend}) # off and Off are as good as OFF
  if(NOT TERN_${backend} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "TERN_${backend} is \"${TERN_${backend}}\"; it must be AUTO, ON or OFF.")
  endif()
endforeach()
option(TERN_STATIC "Link the plug-ins into libtern and the command instead of loading them" OFF)
option(TERN_TESTS "Build the tests (needs cmocka)" ON)
option(TERN_SANITIZE "AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(TERN_WERROR "Warnings are errors" OFF)

# A cut sentence or title is wanted (they have fixed sizes); gcc reports every one that it cannot prove short enough.
add_compile_options(-Wall -Wextra -Wno-format-truncation $<$<COMPILE_LANGUAGE:C>:-Wconversion>)
if(TERN_WERROR)
  add_compile_options(-Werror)
endif()
# The same sums everywhere: a * b + c is two roundings unless fma is written, and nothing is reassociated.
add_compile_options(-ffp-contract=off -fno-fast-math)

# Of static libraries inside ours (glslang, SPIRV-Tools) nothing is exported, so that a program may have its own.
set(TERN_HIDE_ARCHIVES "-Wl,--exclude-libs,ALL")

set(CMAKE_C_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g")

if(TERN_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()

find_program(TERN_CCACHE ccache)
if(TERN_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${TERN_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TERN_CCACHE})
endif()
