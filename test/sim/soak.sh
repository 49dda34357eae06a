#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# soak.sh SECONDS [tsan] [asan]: random programs that use devices, of either sort for so many seconds under each sanitizer
# (alloc, free, record, trim, operations on streams, abort, failures, close), in the builds of tools/verify. Other seeds each time.
set -eu
seconds=$1
shift
cd "$(dirname "$0")/../.."
for kind in ${*:-tsan asan}; do
	case $kind in
	tsan) sanitizers=thread ;;
	asan) sanitizers=address,undefined ;;
	*) echo "soak.sh: no sanitizer '$kind'" >&2 && exit 2 ;;
	esac
	build=build/$kind
	[ -e "$build/build.ninja" ] || CC=gcc meson setup "$build" "-Db_sanitize=$sanitizers" >/dev/null
	ninja -C "$build" test/sim/sim-programs_test test/sim/sim-stream_programs_test >/dev/null
	for name in programs stream_programs; do
		# What is said of planted faults is no news.
		TSAN_OPTIONS=halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
			"$build/test/sim/sim-${name}_test" "${seconds}s" "$(date +%s)" 2>"$build/soak.log" >"$build/soak.out" || {
			tail -n 60 "$build/soak.out" "$build/soak.log"
			echo "soak.sh: $name failed under $kind"
			exit 1
		}
		sed -n "s/^# figure: .*/& under $kind/p" "$build/soak.out"
	done
done
