#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Shows that clang refuses each kind of wrong locking, for the right reason and for no other, and accepts
# the correct program. CLANG names the compiler.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
passed=0
failed=0

for clang in "${CLANG:-}" clang clang-14; do
	[ -n "$clang" ] && command -v "$clang" >/dev/null 2>&1 && break
	clang=
done

pass() {
	echo "ok - $1"
	passed=$((passed + 1))
}

fail() {
	echo "not ok - $1"
	echo "$2" | sed 's/^/# /'
	failed=$((failed + 1))
}

compile() {
	"$clang" -std=c17 -D_GNU_SOURCE -I"$root/include" -I"$root/src" -Wall -Wextra \
		-Wthread-safety -Wthread-safety-beta -Werror -fsyntax-only \
		-fno-color-diagnostics "$here/$1.c" 2>&1
}

accepts() {
	output=$(compile "$1")
	status=$?
	if [ "$status" -eq 0 ] && [ -z "$output" ]; then
		pass "$1 is accepted"
	else
		fail "$1 should be accepted" "$output"
	fi
}

refuses() {
	output=$(compile "$1")
	status=$?
	if [ "$status" -ne 0 ] &&
		[ "$(echo "$output" | grep -c 'error:')" -eq 1 ] &&
		echo "$output" | grep 'error:' | grep -q "$2"; then
		pass "$1 is refused: $2"
	else
		fail "$1 should be refused with one error: $2" "$output"
	fi
}

if [ -z "$clang" ]; then
	echo "not ok - no clang found; set CLANG"
	echo "0 passed, 16 failed"
	exit 1
fi

accepts correct
refuses inverted_order "'lock_level_rank' must be acquired before 'lock_level_memory'"
refuses leaked_lock "'lock_level_rank' is not held on every path"
refuses unguarded_write "writing variable 'counter' requires holding lock level 'lock_level_rank'"
refuses wait_under_lock "cannot call function 'wait_words' while lock level 'lock_level_rank' is held"

accepts device_correct
refuses pool_inside_gate "'lock_level_pool' must be acquired before 'lock_level_gate'"
refuses alloc_under_lock "cannot call function 'pool_alloc' while lock level 'lock_level_gate' is held"
refuses record_under_lock "cannot call function 'pool_record' while lock level 'lock_level_gate' is held"
refuses launch_under_lock "cannot call function 'pool_gate_begin' while lock level 'lock_level_pool' is held"
refuses give_under_lock "cannot call function 'pool_gate_give' while lock level 'lock_level_pool' is held"
refuses driver_call_under_lock "cannot call function 'wait_foreign_call_begin' while lock level 'lock_level_pool' is held"
refuses mark_under_lock "cannot call function 'pool_put_marks' while lock level 'lock_level_pool' is held"
refuses unguarded_pool "writing variable 'puts' requires holding lock level 'lock_level_pool'"
refuses unguarded_gate "writing variable 'first' requires holding lock level 'lock_level_gate'"
refuses leaked_pool_lock "'lock_level_pool' is not held on every path"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
