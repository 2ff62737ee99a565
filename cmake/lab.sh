#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# lab.sh - the driver lab: a Debian 13 chroot with the drivers for CPUs that older hosts lack (lavapipe of Mesa 26,
# PoCL 6, rusticl, with GCC 14 and oneDNN 3). Not a container: the project is seen at its own path, read and write.
#
#   lab.sh up               builds or updates the lab; does nothing when it is ready
#   lab.sh run COMMAND...   runs COMMAND inside, in the project's folder
#   lab.sh test             builds tern inside and runs what touches a driver, once per driver (lab-tests.sh)
#   lab.sh down [--purge]   unmounts what is still mounted in it (normally nothing) [and deletes it]
#
#   TERN_LAB_DIR     where it stands; build/lab without it        TERN_LAB_MIRROR   the Debian mirror; without it the
#                                                                 one that the host's apt uses
#
#     host ── unshare --mount ──> /proc, /sys, /dev, /tmp and the project mounted below the lab ── chroot ──> COMMAND
#
# Every mount lives in a private mount namespace and ends with the command that needed it: killing lab.sh leaves nothing
# mounted, and removing the folder can never reach the host's /dev or the project.
#
# Needs root, for the chroot and the mounts; installs nothing on the host but debootstrap, by the rules of deps.sh.
# Exit status 77: no lab can be made on this machine (not root, or mounts are forbidden); 1: it should have worked.
#
# `make test` asks with `lab.sh if-wanted up` and `if-wanted test`: wanted are they in CI (CI=true), where a machine that
# forbids mounts is told loudly and is no failure, and with TERN_LAB=1, where it is one. Else one line says how to get them.
#
# shellcheck disable=SC2086  # lists of packages are meant to be split
set -eu

suite=trixie
newer=mesa # the source package taken from backports
packages="gcc g++ libc6-dev cmake ninja-build pkgconf ccache libcjson-dev libcmocka-dev libdnnl-dev
  libvulkan-dev vulkan-validationlayers mesa-vulkan-drivers glslang-dev glslang-tools spirv-tools
  ocl-icd-opencl-dev opencl-headers pocl-opencl-icd mesa-opencl-icd mesa-drm-shim"

say() { printf 'lab: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
cannot() { say "$*"; exit 77; }

here=$(cd "$(dirname "$0")" && pwd -P)
project=$(dirname "$here")
lab=${TERN_LAB_DIR:-$project/build/lab}
case $lab in /*) ;; *) lab=$(pwd -P)/$lab ;; esac

# ---------------------------------------------------------------------------------------------------- may we, can we

become_root() {
  [ "$(id -u)" = 0 ] && return
  command="sudo env TERN_LAB_DIR='$lab' sh $here/lab.sh $*"
  if [ -t 0 ] && [ -t 1 ] && [ "${CI:-}" != true ] && command -v sudo >/dev/null 2>&1; then
    say "a chroot and its mounts need root. This would run:"
    say "  $command"
    printf 'Run that now? [y/N] '
    read -r answer
    case $answer in y | Y | yes) exec sudo env "TERN_LAB_DIR=$lab" sh "$here/lab.sh" "$@" ;; esac
    cannot "nothing was done"
  fi
  cannot "a chroot and its mounts need root; run: $command"
}

# The same kinds of mounts and nodes that the lab needs, tried on a scratch folder.
can_mount() {
  mkdir -p "$lab.try"
  reason=$(unshare --mount --propagation private -- sh -ec '
    mount -t tmpfs try "$1"; mkdir "$1/proc" "$1/dev"
    mknod "$1/null" c 1 3
    mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"' sh "$lab.try" 2>&1) && can=yes || can=no
  rmdir "$lab.try"
  [ $can = yes ]
}

# ----------------------------------------------------------------------------------------------------------- inside

# `lab.sh _in COMMAND...` is this script again, inside the namespace.
enter() { TERN_LAB_DIR=$lab unshare --mount --propagation private -- sh "$here/lab.sh" _in "$@"; }

mount_all() {
  mount -t proc proc "$lab/proc"
  mount --bind /sys "$lab/sys"               # PoCL's hwloc reads /sys/devices/system/cpu, and aborts without
  mount --rbind /dev "$lab/dev"              # with /dev/shm and /dev/pts
  mount -t tmpfs -o mode=1777 tmp "$lab/tmp" # nothing survives a command here
  mkdir -p "$lab$project"                    # after /tmp, in case the project lies below it
  mount --bind "$project" "$lab$project"
  if [ -e "$lab/etc/resolv.conf" ] && [ -e /etc/resolv.conf ]; then # the host's of today, even behind a dangling link
    mount --bind "$(readlink -f /etc/resolv.conf)" "$lab/etc/resolv.conf"
  fi
}

# A clean environment: no home, locale, compiler flags or driver settings of the host leak in. COMMAND gets its own by
# `lab.sh run env NAME=value COMMAND`. Under sudo it runs as who asked, so that build/ keeps its owner.
inside() {
  owner=0:0
  [ "$1" = as-user ] && owner=${SUDO_UID:-0}:${SUDO_GID:-0}
  shift
  exec chroot --userspec="$owner" "$lab" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 \
    TERM="${TERM:-dumb}" CI="${CI:-}" CCACHE_DIR="$project/build/lab-ccache" RUSTICL_ENABLE=llvmpipe \
    DEBIAN_FRONTEND=noninteractive sh -c 'cd "$1" && shift && exec "$@"' sh "$project" "$@"
}

# --------------------------------------------------------------------------------------------------------------- up

mirror() { # of the host's own release, as apt has it; needs no package lists
  if [ -n "${TERN_LAB_MIRROR:-}" ]; then echo "$TERN_LAB_MIRROR"; return; fi
  release=$(. /etc/os-release && [ "${ID-}" = debian ] && echo "${VERSION_CODENAME-}") || return 0
  apt-get -q update --print-uris | sed -n "s|^'\(.*\)/dists/$release/InRelease'.*|\1|p" | head -n 1
}

configure_apt() { # the host's mirror and network settings, nothing but what is asked for, backports only where wanted
  etc=$lab/etc/apt
  printf 'deb %s %s main\ndeb %s %s-backports main\n' "$1" $suite "$1" $suite >"$etc/sources.list"
  apt-config dump | grep -E '^Acquire::(https?::Proxy|Check-(Date|Valid-Until)|Retries) ' >"$etc/apt.conf.d/90host" || :
  printf 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n' >"$etc/apt.conf.d/91lean"
  printf 'Package: src:%s\nPin: release n=%s-backports\nPin-Priority: 900\n' $newer $suite >"$etc/preferences.d/newer"
  printf 'force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n' >"$lab/etc/dpkg/dpkg.cfg.d/lab"
}

logged() { # what, command...: into the log, whose end is shown if it fails
  what=$1; shift
  say "$what"
  "$@" >>"$lab.log" 2>&1 || { tail -n 20 "$lab.log" >&2; die "that failed; all of it is in $lab.log"; }
}

up() {
  want=$(printf '%s\n' "$suite $newer $packages" | cksum)
  if [ "$(cat "$lab/.ready" 2>/dev/null)" = "$want" ]; then say "ready: $lab"; return; fi
  mkdir -p "$(dirname "$lab")"
  can_mount || cannot "mounts in a private namespace are forbidden on this machine, so there is no lab on it: $reason"
  uri=$(mirror)
  [ -n "$uri" ] || cannot "the host's apt names no Debian mirror; set TERN_LAB_MIRROR to the address of one"
  sh "$here/deps.sh" debootstrap
  if [ ! -e "$lab/.base" ]; then # absent, or a bootstrap that was cut short: start over
    down --purge
    mkdir -p "$lab"
    : >"$lab.log"
    # In a namespace too: debootstrap mounts /proc and /sys in the target and forgets them when killed.
    logged "Debian's $suite into $lab" \
      unshare --mount --propagation private -- debootstrap --variant=minbase $suite "$lab" "$uri"
    rm -f "$lab/etc/resolv.conf"
    : >"$lab/etc/resolv.conf"
    : >"$lab/.base"
  fi
  configure_apt "$uri"
  logged "compiler, libraries and drivers into $lab" enter as-root sh -c \
    'dpkg --configure -a && apt-get -q update && apt-get -q -y -f install "$@" && apt-get clean' sh $packages
  printf '%s\n' "$want" >"$lab/.ready"
  say "ready: $lab"
}

# ------------------------------------------------------------------------------------------------------------- down

down() { # mounts made by hand, or by a script that knew no namespace
  [ -d "$lab" ] || return 0
  real=$(cd "$lab" && pwd -P)
  while :; do # the last mounted first, until none is left
    point=$(awk -v d="$real/" 'index($5, d) == 1 { m = $5 } END { print m }' /proc/self/mountinfo)
    [ -n "$point" ] || break
    umount -l "$(printf '%b' "$point")" || die "cannot unmount $point"
  done
  [ "${1-}" != --purge ] || rm -rf --one-file-system "$lab"
}

if_wanted() {
  if [ "${CI:-}" != true ] && [ "${TERN_LAB:-}" != 1 ]; then
    [ "$1" = up ] || say "skipped the tests on newer drivers and SwiftShader; to run them too: TERN_LAB=1 make test (needs root)"
    return 0
  fi
  code=0
  [ "$1" != up ] || sh "$here/vendor.sh"
  [ "$1" != up ] || sh "$here/swiftshader.sh" || code=$?
  [ $code != 0 ] || sh "$here/lab.sh" "$1" || code=$?
  if [ $code = 77 ] && [ "${TERN_LAB:-}" != 1 ]; then
    say "=== NOT TESTED on newer drivers: this machine allows no lab (the reason stands above) ==="
    return 0
  fi
  return $code
}

case ${1-} in
  up | down) become_root "$@"; "$@" ;;
  run)
    [ $# -ge 2 ] || die "run what? lab.sh run COMMAND..."
    become_root "$@"
    [ -e "$lab/.ready" ] || die "no lab in $lab; build it with: make lab"
    shift
    enter as-user "$@"
    ;;
  test)
    become_root "$@"
    up
    enter as-user sh cmake/lab-tests.sh
    ;;
  if-wanted) if_wanted "${2-}" ;;
  _in) shift; mount_all; inside "$@" ;;
  *) sed -n '/^#   lab.sh/s/^# *//p' "$0" >&2; exit 2 ;;
esac
