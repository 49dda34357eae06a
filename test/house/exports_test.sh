#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# exports_test.sh LIBRARY…: each shows programs the names ls_*, and no others; the driver of the simulated device
# sim_* and the two that begin with lockstep_, so that no program gets ls_last_error from there.
set -u
passed=0
failed=0
for library in "$@"; do
	case $library in
	*.a) names=$(nm --defined-only --extern-only "$library" | awk 'NF == 3 {print $3}') ;;
	*) names=$(nm -D --defined-only --extern-only "$library" | awk '{print $3}') ;;
	esac
	case $library in
	*lockstep-sim.so) wanted=sim_copy allowed='sim_.*|lockstep_sim|lockstep_driver_sim' ;;
	*) wanted=ls_version allowed='ls_.*' ;;
	esac
	others=$(printf '%s\n' "$names" | grep -vxE "$allowed")
	if printf '%s\n' "$names" | grep -qx "$wanted" && [ -z "$others" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "$library shows more than it should, or no $wanted:" $others
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
