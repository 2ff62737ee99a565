# SPDX-License-Identifier: Apache-2.0
# bench/static: what the vendors' compilers make of tern's kernels. bench_static in build/<preset>/bench, the Vulkan layer
# and its manifest beside it. Part of `bench` and of the tests, not of `all`.

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/static/*.c)
list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/bench/static/layer.c)
tern_add_program(bench_static EXCLUDE_FROM_ALL ${sources})
set_source_files_properties(${CMAKE_SOURCE_DIR}/bench/static/targets.c PROPERTIES
  COMPILE_DEFINITIONS TERN_VENDOR_FOLDER="${CMAKE_SOURCE_DIR}/build/vendor")
list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/bench/static/main.c)
set(TERN_STATIC_SOURCES ${sources}) # for test_static
set_target_properties(bench_static PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
add_dependencies(bench_static tern_plugins)
add_dependencies(bench bench_static)

find_path(TERN_VULKAN_LAYER_HEADER vulkan/vk_layer.h)
if(TERN_VULKAN_LAYER_HEADER)
  add_library(tern_static_layer MODULE EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/static/layer.c)
  set_target_properties(tern_static_layer PROPERTIES PREFIX "lib" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
  add_dependencies(bench_static tern_static_layer)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/bench/VkLayer_tern_static.json @ONLY CONTENT [[
{"file_format_version": "1.2.0",
 "layer": {"name": "VK_LAYER_TERN_static", "type": "GLOBAL", "library_path": "./libtern_static_layer.so",
           "api_version": "1.3.0", "implementation_version": "1", "description": "writes what the driver made of a pipeline"}}
]])
endif()
