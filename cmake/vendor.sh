#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vendor.sh - fetches the vendors' compilers that bench/static uses and that are not installed, into build/vendor (or the
# given folder). Nothing is installed: an installed Intel driver would be one more OpenCL device in everybody's tests.
#
#     build/vendor/ocloc    Intel's compiler for Arc with its libraries, unpacked from the distribution's packages
#     build/vendor/nvrtc    NVIDIA's NVRTC from the package index that pip uses; only where no CUDA toolkit is installed
#
# Does nothing for what is there. Exit status 0 also when something cannot be had here, which one line then says: whoever
# uses the compilers skips without them. AMD's and NVIDIA's Mesa compilers are in the driver lab (lab.sh).
set -eu

folder=${1:-$(cd "$(dirname "$0")/.." && pwd -P)/build/vendor}
log=$folder/log
mkdir -p "$folder"

say() { printf 'vendor: %s\n' "$*" >&2; }

# As root, apt would hand downloads to a user who may not write here, and warn.
apt() { apt-get -q -o APT::Sandbox::User="$(id -un)" "$@"; }

# The package that holds libocloc.so and what it needs beside what is installed, one name a line.
ocloc_packages() {
  for name in intel-ocloc intel-opencl-icd; do
    apt-cache policy "$name" 2>/dev/null | grep -q 'Candidate: [^(]' || continue
    apt -s --no-install-recommends install "$name" | sed -n 's/^Inst \([^ ]*\) .*/\1/p'
    return
  done
}

fetch_ocloc() {
  rm -rf "$folder/ocloc.new"
  mkdir -p "$folder/ocloc.new"
  packages=$(ocloc_packages)
  [ -n "$packages" ] || return 1
  # shellcheck disable=SC2086  # a list
  (cd "$folder/ocloc.new" && apt download $packages) || return 1
  for package in "$folder"/ocloc.new/*.deb; do
    case $package in *ocloc_*|*opencl-icd_*) dpkg-deb -f "$package" Version >"$folder/ocloc.new/version" ;; esac
    dpkg-deb -x "$package" "$folder/ocloc.new" || return 1
    rm "$package"
  done
  # Every library in one folder, under whatever path the distribution has for this machine.
  mkdir "$folder/ocloc.new/lib"
  find "$folder/ocloc.new/usr" -name 'lib*.so*' -not -name 'libze_*' -not -path '*/intel-opencl/*' \
    -exec mv {} "$folder/ocloc.new/lib" \;
  rm -rf "$folder/ocloc.new/usr" "$folder/ocloc.new/etc" "$folder/ocloc"
  mv "$folder/ocloc.new" "$folder/ocloc"
}

ocloc() {
  [ ! -e "$folder/ocloc/lib" ] || return 0
  if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    say "no apt-get here: put libocloc.so and its libraries into $folder/ocloc/lib"
    return
  fi
  say "fetching ocloc from the distribution's archive"
  fetch_ocloc >"$log" 2>&1 && return
  # The lists may be older than the archive. Only root may renew them.
  [ "$(id -u)" != 0 ] || apt-get -q update >>"$log" 2>&1 || :
  fetch_ocloc >>"$log" 2>&1 || say "no ocloc (the end of $log says why); run: apt-get update, then this again"
}

nvrtc() {
  [ ! -e "$folder/nvrtc" ] || return 0
  for library in /usr/local/cuda*/lib*/libnvrtc.so* /usr/lib/*/libnvrtc.so*; do
    [ ! -e "$library" ] || return 0
  done
  if ! command -v pip3 >/dev/null 2>&1; then
    say "no NVRTC: neither a CUDA toolkit nor pip3 is installed"
    return
  fi
  say "fetching NVRTC with pip3"
  rm -rf "$folder/nvrtc.new"
  pip3 --disable-pip-version-check install --no-deps --target "$folder/nvrtc.new" nvidia-cuda-nvrtc >>"$log" 2>&1 ||
    { say "no NVRTC (the end of $log says why)"; return; }
  mkdir "$folder/nvrtc.new/lib"
  find "$folder/nvrtc.new" -name 'libnvrtc*.so*' -exec mv {} "$folder/nvrtc.new/lib" \;
  mv "$folder/nvrtc.new" "$folder/nvrtc"
}

ocloc
nvrtc
