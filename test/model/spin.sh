#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks each model in all its states, and that each of its mutants is refused: those it names in #ifdef
# MUTANT_…, or numbers in a comment line "mutants: 1 2 …" (-DMUTANT=n). Needs spin and a C compiler (CC).
set -u
here=$(cd "$(dirname "$0")" && pwd)
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

for model in "$here"/*.pml; do
	name=$(basename "$model" .pml)
	mutants=$(sed -n -e 's/^#ifdef \(MUTANT_[A-Z_]*\)$/\1/p' "$model" | sort -u)
	for number in $(sed -n 's|^/\* mutants: \([0-9 ]*\)\*/$|\1|p' "$model"); do
		mutants="$mutants MUTANT=$number"
	done
	[ -n "$mutants" ] || fail "$name has no mutant, so nothing shows that it can fail" ""

	output=$(search 2>&1)
	if echo "$output" | grep -q 'errors: 0' &&
		! echo "$output" | grep -Eq 'Search not completed|max search depth|out of memory'; then
		pass "$name holds in $(echo "$output" | sed -n 's/ *\([0-9]*\) states, stored.*/\1/p') states"
	else
		fail "$name" "$output"
	fi
	for mutant in $mutants; do
		output=$(search "-D$mutant" 2>&1)
		if echo "$output" | grep -q 'errors: 1' &&
			echo "$output" | grep -Eq 'invalid end state|assertion violated'; then
			pass "$name with $mutant is refused: $(echo "$output" | sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p')"
		else
			fail "$name with $mutant should be refused" "$output"
		fi
	done
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -ge 4 ]
