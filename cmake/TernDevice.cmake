# SPDX-License-Identifier: Apache-2.0
# bench/device: what bench/on_gpu measures and the page made of it. bench_device in build/<preset>/bench; part of `bench`
# and of the tests, not of `all`. It holds the command's objects too, for the cases of `tern check`.

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/device/*.c)
tern_add_program(bench_device EXCLUDE_FROM_ALL ${sources} $<TARGET_OBJECTS:tern_cli>)
set_target_properties(bench_device PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
list(FILTER sources INCLUDE REGEX "/(schema|result|page)\\.c$")
set(TERN_DEVICE_SOURCES ${sources}) # for test_results
add_dependencies(bench_device tern_plugins)
add_dependencies(bench bench_device)
