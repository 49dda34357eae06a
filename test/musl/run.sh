#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# test/musl/run.sh LOCKSTEP: compiles and links the rooms of the library with musl-gcc (Debian: musl-tools), and lets the
# program LOCKSTEP run two ranks of examples/hello.c. Skipped where there is no musl-gcc.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
lockstep=$1
if ! command -v musl-gcc >/dev/null 2>&1; then
	echo "ok - nothing was tried with musl # SKIP no musl-gcc here; Debian has it in musl-tools"
	echo "0 passed, 0 failed"
	exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Headers of the kernel and of libraries that are loaded at run time; none of glibc's own.
mkdir "$work/headers"
arch=/usr/include/$(gcc -print-multiarch 2>/dev/null)
for header in linux asm asm-generic elfutils libelf.h gelf.h ucp ucs uct ucm sodium sodium.h; do
	for place in "$arch" /usr/include; do
		[ -e "$place/$header" ] && ln -sfn "$place/$header" "$work/headers/$header"
	done
done

fail() {
	echo "not ok - $1"
	sed 's/^/# /' "$work/said"
	echo "0 passed, 1 failed"
	exit 1
}

# The lower floors are the library: src/meson.build says how many.
top=$(sed -n 's/^library_floors = \([0-9]*\).*/\1/p' "$root/src/meson.build")
rooms=$(awk -v top="$top" '$1 ~ /^[0-9]+$/ && $1 + 0 <= top + 0 { for (i = 2; i <= NF; i++) print $i }' "$root/src/floors")
# Without optimisation, as that takes half the time.
compile='mkdir "$2/$1" && cd "$2/$1" && musl-gcc -std=c17 -D_GNU_SOURCE -O0 -fPIC -ftls-model=initial-exec -Wall -Wextra \
	-Wconversion -Wno-sign-conversion -Werror -I"$3/include" -I"$3/src" -idirafter "$2/headers" -c \
	$(find "$3/src/$1" -name "*.c" ! -name "*_test.c" ! -name "*_bench.c")'
echo "$rooms" | xargs -P "$(nproc)" -I{} sh -c "$compile" sh {} "$work" "$root" >"$work/said" 2>&1 ||
	fail "the library does not compile with musl"

# Debian's musl-gcc links the libgcc that is made for glibc.
musl-gcc -O2 -c "$here/find_object.c" -o "$work/find_object.o" >"$work/said" 2>&1 ||
	fail "find_object.c does not compile with musl"
musl-gcc -pthread -Wl,--eh-frame-hdr -I"$root/include" "$root/examples/hello.c" "$work"/*.o "$work"/*/*.o -lm \
	-o "$work/hello" >"$work/said" 2>&1 ||
	fail "the library does not link with musl"

timeout 60 "$lockstep" run -n 2 "$work/hello" >"$work/said" 2>&1 || fail "two ranks with musl fail"
if [ "$(grep -c 'of 2: the sum of all ranks is 1$' "$work/said")" -ne 2 ]; then
	fail "two ranks with musl have no result"
fi
echo "ok - the library compiles and links with musl, and two ranks add their numbers"
echo "1 passed, 0 failed"
