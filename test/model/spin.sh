#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks the doorbell's model in all its states, and that each mutant of it loses a wake-up. Needs spin and
# a C compiler (CC).
set -u
here=$(cd "$(dirname "$0")" && pwd)
model=$here/doorbell.pml
mutants=$(sed -n 's/^#ifdef \(MUTANT_[A-Z_]*\)$/\1/p' "$model" | sort -u)
passed=0
failed=0

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

pass() {
	echo "ok - $1"
	passed=$((passed + 1))
}

fail() {
	echo "not ok - $1"
	printf '%s\n' "$2" | sed 's/^/# /'
	failed=$((failed + 1))
}

# Prints what the exhaustive search said; options go to spin.
search() {
	cd "$work" && rm -f pan* ./*.trail &&
		spin -a "$@" "$model" &&
		"${CC:-cc}" -O2 -DSAFETY -o pan pan.c &&
		./pan -m1000000
}

output=$(search 2>&1)
if echo "$output" | grep -q 'errors: 0' &&
	! echo "$output" | grep -Eq 'Search not completed|max search depth|out of memory'; then
	pass "doorbell loses no wake-up in $(echo "$output" | sed -n 's/ *\([0-9]*\) states, stored.*/\1/p') states"
else
	fail "doorbell" "$output"
fi

for mutant in $mutants; do
	output=$(search "-D$mutant" 2>&1)
	if echo "$output" | grep -q 'errors: 1' && echo "$output" | grep -q 'invalid end state'; then
		pass "$mutant is refused: a waiter sleeps for ever"
	else
		fail "$mutant should be refused" "$output"
	fi
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -ge 2 ]
