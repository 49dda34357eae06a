#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# spin.sh MODEL.pml: checks the model in all its states, and that each of its mutants is refused: those it names
# in #ifdef or #ifndef MUTANT_…, or numbers in a comment line "mutants: 1 2 …" (-DMUTANT=n). Needs spin and a C compiler (CC).
set -u
model=$(realpath "$1") || exit 1
name=$(basename "$model" .pml)
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

# search -On [option of spin]…: prints what the exhaustive search said.
search() {
	level=$1
	shift
	cd "$work" && rm -f pan* ./*.trail &&
		spin -a "$@" "$model" &&
		"${CC:-cc}" "$level" -w -DSAFETY -o pan pan.c &&
		./pan -m1000000
}

mutants=$(sed -n -e 's/^#ifn\{0,1\}def \(MUTANT_[A-Z_]*\)$/\1/p' "$model" | sort -u)
for number in $(sed -n 's|^/\* mutants: \([0-9 ]*\)\*/$|\1|p' "$model"); do
	mutants="$mutants MUTANT=$number"
done
[ -n "$mutants" ] || fail "$name has no mutant, so nothing shows that it can fail" ""

output=$(search -O2 2>&1)
if echo "$output" | grep -q 'errors: 0' &&
	! echo "$output" | grep -Eq 'Search not completed|max search depth|out of memory'; then
	pass "$name holds in $(echo "$output" | sed -n 's/ *\([0-9]*\) states, stored.*/\1/p') states"
else
	fail "$name" "$output"
fi
for mutant in $mutants; do
	# Most are refused soon: to optimise would take longer.
	output=$(search -O0 "-D$mutant" 2>&1)
	if echo "$output" | grep -q 'errors: 1' &&
		echo "$output" | grep -Eq 'invalid end state|assertion violated'; then
		pass "$name with $mutant is refused: $(echo "$output" | sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p')"
	else
		fail "$name with $mutant should be refused" "$output"
	fi
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -ge 2 ]
