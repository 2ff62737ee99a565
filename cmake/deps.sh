#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh - installs what tern needs to build, test and run its demo on a Debian-like system.
#
# shellcheck disable=SC2086  # lists of packages and the optional sudo are meant to be split
#
#   nothing missing                 says nothing, touches no network
#   root, no terminal (or CI=true)  installs
#   root on a terminal              shows the exact command and asks
#   any other user                  the same with sudo; without a terminal: shows the command and fails
#
# deps.sh PACKAGE...  asks for these instead of the whole list.
set -eu

needed="build-essential cmake ninja-build pkg-config libcjson-dev libcmocka-dev libdnnl-dev
  libvulkan-dev vulkan-validationlayers mesa-vulkan-drivers glslang-dev glslang-tools spirv-tools
  ocl-icd-opencl-dev opencl-headers pocl-opencl-icd"
# For the Level Zero backend: loader, headers, and a compiler to SPIR-V, whose two halves are of one version. Named only
# where this release is known to have them; elsewhere tern is built without, and says so.
case "$(. /etc/os-release 2>/dev/null && echo "${ID-}-${VERSION_ID-}")" in
  debian-12) needed="$needed libze1 libze-dev clang-14 llvm-spirv-14" ;;
  debian-13) needed="$needed libze1 libze-dev clang-19 llvm-spirv-19" ;;
  ubuntu-24.*) needed="$needed libze1 libze-dev clang-18 llvm-spirv-18" ;;
esac
[ $# -eq 0 ] || needed=$*

if ! command -v dpkg-query >/dev/null 2>&1; then
  missing=
  for program in cc c++ make cmake ninja pkg-config; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
  done
  [ -z "$missing" ] && exit 0
  echo "tern: this is not a Debian-like system and lacks:$missing." >&2
  echo "Install them, and the equivalents of these packages:" $needed >&2
  exit 1
fi

installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=
for package in $needed; do
  installed "$package" && continue
  # A compiler and make do as well as the package that stands for them.
  if [ "$package" = build-essential ] && command -v cc >/dev/null && command -v c++ >/dev/null && command -v make >/dev/null; then
    continue
  fi
  missing="$missing $package"
done
[ -z "$missing" ] && exit 0

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" -ne 0 ]; then
  sudo="sudo "
else
  sudo=
fi

# A terminal to ask on? CI never has one, whatever its output looks like.
if [ -t 0 ] && [ -t 1 ] && [ "${CI:-}" != true ]; then
  echo "tern needs these packages:$missing"
  echo "  ${sudo}apt-get update && $sudo$install"
  printf 'Run that now? [y/N] '
  read -r answer
  case $answer in
    y | Y | yes) ;;
    *)
      echo "Nothing was installed." >&2
      exit 1
      ;;
  esac
elif [ -n "$sudo" ]; then
  echo "tern needs packages that only root can install. Run:" >&2
  echo "  ${sudo}apt-get update && $sudo$install" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
# The package lists are fetched only if they do not know a package, or if what they know is gone from the archive.
known=yes
for package in $missing; do
  apt-cache policy "$package" 2>/dev/null | grep -q 'Candidate: [^(]' || known=no
done
if [ "$known" = no ]; then
  ${sudo}apt-get update
  ${sudo}env DEBIAN_FRONTEND=noninteractive $install
elif ! ${sudo}env DEBIAN_FRONTEND=noninteractive $install; then
  ${sudo}apt-get update
  ${sudo}env DEBIAN_FRONTEND=noninteractive $install
fi
