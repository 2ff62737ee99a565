# SPDX-License-Identifier: Apache-2.0
# The commands people type. The build itself is CMakeLists.txt with CMakePresets.json.
#
#   make demo     trains a small GPT on this repository's own text on the CPU and lets it write
#   make test     builds the presets ci and dev (sanitizers) and runs all tests under both; in CI or with
#                 TERN_LAB=1 the driver lab's too
#   make deps     installs what is missing, asking first
#   make lab      builds the driver lab: newer drivers in a chroot below build/lab (needs root)
#   make static   every kernel of GPT-2 124M through the vendors' compilers: bench/results/static.json and its page
#   make hardware docs/hardware.md from bench/results/*.json; bench/on_gpu measures a card and writes one
#   make lint     formatting of every file;  make format   fixes it

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
SOURCES = $(shell git ls-files '*.c' '*.h' ':!shaders' 2>/dev/null) # shaders are not C
DEMO = build/demo

.PHONY: all deps demo lab test static hardware lint format
all: deps
	cmake --preset release
	cmake --build --preset release -j $(JOBS)

deps:
	@sh cmake/deps.sh

demo: all
	rm -rf $(DEMO)
	build/release/bin/tern train --backend cpu --data . --out $(DEMO) --layers 3 --width 128 --heads 4 --context 128 \
	  --batch 8 --steps 800 --lr 0.003 --warmup 40 --seed 1
	build/release/bin/tern sample $(DEMO) --backend cpu --prompt "static " --tokens 300 --temperature 0.8 --seed 1

lab:
	@sh cmake/swiftshader.sh
	@sh cmake/lab.sh up

test: deps
	cmake --preset ci
	cmake --build --preset ci -j $(JOBS)
	@sh cmake/lab.sh if-wanted up
	ctest --preset ci
	@sh cmake/lab.sh if-wanted test
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS)
	ctest --preset dev

static: deps
	@sh bench/static/run

hardware: deps
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target bench_device
	build/release/bench/bench_device page bench/results >build/hardware.md
	mv build/hardware.md docs/hardware.md

lint:
	clang-format --dry-run --Werror $(SOURCES)

format:
	clang-format -i $(SOURCES)
