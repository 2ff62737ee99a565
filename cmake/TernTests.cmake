# SPDX-License-Identifier: Apache-2.0
# tests/test_<topic>.c and tests/<topic>_suite.c each become one executable in build/tests; other tests/*.c are shared
# by all of them. Caches of drivers live in the build folder, so that a test run neither reads nor writes the user's.

if(NOT TERN_TESTS)
  return()
endif()
enable_testing()
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

file(GLOB all CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*.c)
set(shared ${all})
list(FILTER shared EXCLUDE REGEX "/(test_[^/]*|[^/]*_suite)\\.c$")
set(tests ${all})
list(FILTER tests INCLUDE REGEX "/(test_[^/]*|[^/]*_suite)\\.c$")
if(NOT tests)
  message(FATAL_ERROR "No test in tests/; a suite of zero tests would pass.")
endif()

set(TERN_TEST_CACHE ${CMAKE_BINARY_DIR}/cache CACHE PATH "Where drivers keep compiled kernels during tests")
file(MAKE_DIRECTORY ${TERN_TEST_CACHE})
set(environment
  "XDG_CACHE_HOME=${TERN_TEST_CACHE}"
  "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1"
  "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0"
  "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1")

if(TERN_SANITIZE) # several times slower; the optimised build goes the whole way
  list(APPEND environment "TERN_TEST_QUICK=1")
endif()

# Drivers that stand in for cards; tests find them in ${CMAKE_BINARY_DIR}/stand_ins.
add_subdirectory(${CMAKE_SOURCE_DIR}/tests/stand_ins/cuda)
add_subdirectory(${CMAKE_SOURCE_DIR}/tests/stand_ins/level_zero)

# An archive: each test takes what it needs of it.
add_library(tern_test_support STATIC EXCLUDE_FROM_ALL ${shared})
target_include_directories(tern_test_support PRIVATE ${CMAKE_SOURCE_DIR})
target_compile_definitions(tern_test_support PRIVATE _GNU_SOURCE TERN_BINARY_DIR="${CMAKE_BINARY_DIR}")
target_link_libraries(tern_test_support PRIVATE PkgConfig::CMOCKA)

# Plug-ins with faults, and one in the place of level_zero, since TERN_BACKEND_PATH goes first; see tests/test_device.c.
set(test_plugins "")
foreach(name IN ITEMS wrong_abi incomplete no_entry stand_in)
  add_library(test_plugin_${name} MODULE EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/plugins/${name}.c)
  target_link_libraries(test_plugin_${name} PRIVATE tern)
  set_target_properties(test_plugin_${name} PROPERTIES PREFIX "" OUTPUT_NAME tern_${name}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/plugins)
  list(APPEND test_plugins test_plugin_${name})
endforeach()
set_target_properties(test_plugin_stand_in PROPERTIES OUTPUT_NAME tern_level_zero)
# The cpu with a fault, in the place of opencl; a folder of its own, so that only who asks for it gets it.
add_library(test_plugin_faulty MODULE EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/plugins/faulty.c)
target_link_libraries(test_plugin_faulty PRIVATE tern ${CMAKE_DL_LIBS})
target_compile_definitions(test_plugin_faulty PRIVATE _GNU_SOURCE
  FAULTY_CPU="${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/tern/tern_cpu.so")
set_target_properties(test_plugin_faulty PROPERTIES PREFIX "" OUTPUT_NAME tern_opencl
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/plugins_faulty)

foreach(source IN LISTS tests)
  get_filename_component(name ${source} NAME_WE)
  tern_add_program(${name} ${source})
  target_link_libraries(${name} PRIVATE tern_test_support PkgConfig::CMOCKA)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE TERN_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TERN_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_dependencies(${name} tern_plugins)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 ENVIRONMENT "${environment}")
  # Labels vulkan and opencl: what touches that driver, so that another one can be put below it (cmake/lab-tests.sh).
  set(labels "")
  foreach(driver IN ITEMS vulkan opencl)
    file(STRINGS ${source} mentions REGEX "\"${driver}\"|${driver}_(fixture|runner)\\.h|\"tests/(conformance|[a-z]*_trial)\\.h\"" LIMIT_COUNT 1)
    if(mentions)
      list(APPEND labels ${driver})
    endif()
  endforeach()
  set_property(TEST ${name} PROPERTY LABELS ${labels})
endforeach()
target_sources(test_base PRIVATE ${CMAKE_SOURCE_DIR}/tests/header.cpp)
add_dependencies(test_device ${test_plugins} tern_command)
if(TARGET stand_in_cuda)
  foreach(name IN ITEMS test_stand_in_cuda test_stand_in_cuda_misuse test_cuda_faults test_cuda_backend test_train_stand_ins
      test_check_stand_ins test_hang_stand_ins)
    add_dependencies(${name} stand_in_cuda stand_in_nvrtc stand_in_old_nvrtc)
  endforeach()
endif()
# The conformance suite on the stand-ins, as far as their kernels compile in seconds; test_conformance_NAME itself runs on
# the drivers of the machine.
set(on_cuda TERN_TEST_BACKENDS=cuda TERN_CUDA_LIBRARY=${CMAKE_BINARY_DIR}/stand_ins/cuda/libcuda.so.1
  TERN_NVRTC_LIBRARY=${CMAKE_BINARY_DIR}/stand_ins/cuda/libnvrtc.so)
set(on_level_zero TERN_TEST_BACKENDS=level_zero ZE_ENABLE_ALT_DRIVERS=${CMAKE_BINARY_DIR}/stand_ins/level_zero/libtern_ze.so)
function(tern_test_on_stand_in backend target)
  if(TARGET ${target})
    foreach(topic IN LISTS ARGN)
      add_test(NAME test_conformance_${topic}_${backend} COMMAND test_conformance_${topic})
      set_tests_properties(test_conformance_${topic}_${backend} PROPERTIES TIMEOUT 600 ENVIRONMENT "${environment};${on_${backend}}")
      add_dependencies(test_conformance_${topic} ${target})
    endforeach()
  endif()
endfunction()
tern_test_on_stand_in(cuda stand_in_cuda alu buffer contraction fragment half program storage tape)
tern_test_on_stand_in(level_zero tern_ze alu buffer contraction fragment program tape)
add_dependencies(test_command_parity test_plugin_faulty)
foreach(name IN ITEMS test_check_stand_ins test_hang_stand_ins test_train_stand_ins test_cuda_backend test_command test_command_parity test_command_step test_command_optimizer test_command_resume test_train_backends test_check_backends test_swiftshader test_level_zero_faults)
  add_dependencies(${name} tern_command)
endforeach()
# PoCL compiles every kernel on first sight. The Vulkan loader unloads driver and validation layer before the leak check
# looks, so what they leave behind has no name to suppress; tern's own leaks on these drivers are looked for in
# test_vulkan, test_vulkan_faults, test_opencl and test_session.
set(unnamed_leaks ${environment})
list(TRANSFORM unnamed_leaks REPLACE "detect_leaks=1" "detect_leaks=0")
set_tests_properties(test_check_backends test_swiftshader PROPERTIES TIMEOUT 1500 ENVIRONMENT "${unnamed_leaks}")
set_tests_properties(test_check_backends test_train_backends test_swiftshader PROPERTIES COST 1000) # the longest start first
set_tests_properties(test_trainer test_check_stand_ins PROPERTIES TIMEOUT 1500)
# 500 steps in three precisions on every backend; rusticl takes 0.7 s for one.
set_tests_properties(test_train_backends PROPERTIES TIMEOUT 3600)
set_tests_properties(test_train_backends PROPERTIES ENVIRONMENT "${unnamed_leaks}")
if(TARGET tern_ze)
  add_dependencies(test_stand_in_level_zero tern_ze)
  add_dependencies(test_level_zero_faults tern_ze)
  add_dependencies(test_train_stand_ins tern_ze)
  add_dependencies(test_check_stand_ins tern_ze)
  add_dependencies(test_hang_stand_ins tern_ze)
endif()
target_sources(test_static PRIVATE ${TERN_STATIC_SOURCES}) # all but its main
add_dependencies(test_static bench_static)
set_tests_properties(test_static PROPERTIES LABELS vulkan) # Mesa's compilers for cards are in the lab
target_sources(test_results PRIVATE ${TERN_DEVICE_SOURCES})
add_dependencies(test_results bench_device)
target_sources(test_cli PRIVATE $<TARGET_OBJECTS:tern_cli>)
# Builds programs of its own against the installed tree; they need this build's sanitizers.
add_dependencies(test_install tern tern_command)
target_compile_definitions(test_install PRIVATE TEST_CMAKE="${CMAKE_COMMAND}" TEST_CC="${CMAKE_C_COMPILER}"
  TEST_CXX="${CMAKE_CXX_COMPILER}" TEST_STATIC=$<BOOL:${TERN_STATIC}> TEST_FLAGS="$<$<BOOL:${TERN_SANITIZE}>:-fsanitize=address$<COMMA>undefined>")
