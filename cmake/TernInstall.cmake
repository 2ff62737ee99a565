# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, and how other builds find it:
#
#     include/tern.h            <tern.h> outside, "core/tern.h" in here
#     lib/libtern.so.0          SONAME; lib/tern/tern_<backend>.so are installed where they are made (TernBackend.cmake)
#     lib/pkgconfig/tern.pc     pkg-config --cflags --libs tern
#     lib/cmake/tern/           find_package(tern), target tern::tern
#     bin/tern, share/man, share/doc
#
# All paths in the files are relative to their own folder, so that `cmake --install --prefix` and moving the installed
# tree need no other file. While the major version is 0, a minor one may break programs.
include(CMakePackageConfigHelpers)

install(TARGETS tern_command RUNTIME)
install(TARGETS tern EXPORT tern-targets LIBRARY)
install(FILES core/tern.h TYPE INCLUDE)
install(FILES docs/tern.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES LICENSE docs/library.md docs/examples/train.c docs/examples/train.cpp TYPE DOC)

file(RELATIVE_PATH TERN_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" TERN_PC_PREFIX ${TERN_PC_PREFIX})
file(RELATIVE_PATH TERN_PC_LIBDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH TERN_PC_INCLUDEDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/tern.pc.in generated/tern.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/tern.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(TERN_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tern)
configure_package_config_file(cmake/tern-config.cmake.in generated/tern-config.cmake INSTALL_DESTINATION ${TERN_CMAKE_DIR}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(generated/tern-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/tern-config.cmake ${CMAKE_BINARY_DIR}/generated/tern-config-version.cmake
  DESTINATION ${TERN_CMAKE_DIR})
install(EXPORT tern-targets NAMESPACE tern:: DESTINATION ${TERN_CMAKE_DIR})
