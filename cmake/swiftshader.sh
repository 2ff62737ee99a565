#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# swiftshader.sh - fetches SwiftShader, the Vulkan driver without 16-bit storage, into build/swiftshader (or the given
# folder). Debian ships it inside chromium-common; the package is only unpacked, nothing is installed. Does nothing when
# it is there. tests/test_swiftshader.c uses it.
set -eu

folder=${1:-$(cd "$(dirname "$0")/.." && pwd -P)/build/swiftshader}
icd=$folder/vk_swiftshader_icd.json
[ -e "$icd" ] && exit 0

say() { printf 'swiftshader: %s\n' "$*" >&2; }

if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
  say "no apt-get here; put libvk_swiftshader.so and vk_swiftshader_icd.json into $folder"
  exit 77
fi
rm -rf "$folder.new"
mkdir -p "$folder.new"
# As root, apt would hand the download to a user who may not write here, and warn.
fetch() { (cd "$folder.new" && apt-get -q -o APT::Sandbox::User="$(id -un)" download chromium-common); }
say "fetching chromium-common from Debian's archive"
fetch >"$folder.log" 2>&1 || {
  # The lists may be older than the archive. Only root may renew them.
  [ "$(id -u)" = 0 ] && apt-get -q update >>"$folder.log" 2>&1
  fetch >>"$folder.log" 2>&1 || { tail -n 5 "$folder.log" >&2; say "run: apt-get update, then this again"; exit 1; }
}
dpkg-deb --fsys-tarfile "$folder.new"/chromium-common_*.deb |
  tar -x -C "$folder.new" --strip-components=4 --wildcards './usr/lib/chromium/*swiftshader*'
rm "$folder.new"/chromium-common_*.deb
[ -e "$folder.new/vk_swiftshader_icd.json" ] || { say "chromium-common no longer holds SwiftShader"; exit 1; }
rm -rf "$folder"
mv "$folder.new" "$folder"
say "ready: $folder"
