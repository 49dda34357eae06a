#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# exports_test.sh LIBRARY.so LIBRARY.a: both show programs the names ls_*, and no others.
set -u
passed=0
failed=0
for library in "$@"; do
	case $library in
	*.a) names=$(nm --defined-only --extern-only "$library" | awk 'NF == 3 {print $3}') ;;
	*) names=$(nm -D --defined-only --extern-only "$library" | awk '{print $3}') ;;
	esac
	others=$(printf '%s\n' "$names" | grep -v '^ls_')
	if printf '%s\n' "$names" | grep -qx ls_version && [ -z "$others" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "$library shows, besides ls_*:" $others
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
