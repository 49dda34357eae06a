#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# spin.sh MODEL.pml [N]: checks the model in all its states. Then checks that Spin refuses each of
# its mutants, or the first N of them. A model names its mutants in lines "#ifdef MUTANT_..." or
# "#ifndef MUTANT_...", or lists their numbers in a line "/* mutants: 1 2 */" (-DMUTANT=n). Needs
# spin and a C compiler (CC).
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

# make_search "option of the C compiler…" [option of spin]…
make_search() {
	options=$1
	shift
	# shellcheck disable=SC2086
	cd "$work" && rm -f pan* ./*.trail &&
		spin -a "$@" "$model" &&
		"${CC:-cc}" $options -w -DSAFETY -o pan pan.c
}

is_refused() {
	echo "$1" | grep -q 'errors: 1' && echo "$1" | grep -Eq 'invalid end state|assertion violated'
}

mutants=$(sed -n -e 's/^#ifn\{0,1\}def \(MUTANT_[A-Z_]*\)$/\1/p' "$model" | sort -u)
for number in $(sed -n 's|^/\* mutants: \([0-9 ]*\)\*/$|\1|p' "$model"); do
	mutants="$mutants MUTANT=$number"
done
# shellcheck disable=SC2086
[ $# -lt 2 ] || mutants=$(printf '%s\n' $mutants | head -n "$2")
[ -n "$mutants" ] || fail "$name has no mutant, so nothing shows that it can fail" ""

# -w26: a table for 67 million states, which the largest models fill to two fifths; with Spin's own
# size they take up to a third longer, and with -O2 no less.
output=$(make_search -O1 2>&1 && ./pan -m1000000 -w26 2>&1)
if echo "$output" | grep -q 'errors: 0' &&
	! echo "$output" | grep -Eq 'Search not completed|max search depth|out of memory'; then
	pass "$name holds in $(echo "$output" | sed -n 's/ *\([0-9]*\) states, stored.*/\1/p') states"
else
	fail "$name" "$output"
fi
for mutant in $mutants; do
	# Spin refuses most mutants before an optimised search would be compiled. So the first search
	# is not optimised, tries the last choice first, and may use two seconds of processor time.
	# Where that is not enough, an optimised search tries the first choice first.
	output=$(ulimit -t 2 && make_search "-O0 -DREVERSE -DT_REVERSE" "-D$mutant" 2>&1 && ./pan -m1000000 2>&1)
	if ! is_refused "$output"; then
		output=$(make_search -O2 "-D$mutant" 2>&1 && ./pan -m1000000 2>&1)
	fi
	if is_refused "$output"; then
		pass "$name with $mutant is refused: $(echo "$output" | sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p')"
	else
		fail "$name with $mutant should be refused" "$output"
	fi
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -ge 2 ]
