/* SPDX-License-Identifier: BSD-3-Clause
 * The words of the table of tests, table.c. */
#ifndef TEST_RANKS_TABLE_H
#define TEST_RANKS_TABLE_H

#include "runner.h"

#define R RUNNER_RANKS
#define ALL (R(1) | R(2) | R(3) | R(4) | R(5) | R(6) | R(7) | R(8))
#define SOME (R(1) | R(2) | R(3) | R(4) | R(5) | R(8))
#define FEW (R(2) | R(3) | R(5))
#define PROCESSES .processes_only = true /* and not as threads of one process */
#define WITH(assignment) .setting = "LOCKSTEP_" assignment
#define LONG_LIMIT .limit_ms = 120000
#define TEST(function, ...)                                                                   \
	{                                                                                     \
		.name = #function, .symbol = #function, .run = function, .ranks = __VA_ARGS__ \
	}
#define SETTING(function, suffix, assignment, ...)                                  \
	{                                                                           \
		.name = #function "_" suffix, .symbol = #function, .run = function, \
		.setting = "LOCKSTEP_" assignment, .ranks = __VA_ARGS__             \
	}
#define ALGORITHM(function, name, ...) SETTING(function, name, "ALGORITHM=" name, __VA_ARGS__)
#define SERIAL_AND_EARLY "P2P=serial LOCKSTEP_LOOK_MS=10"
/* Whatever sleeps is woken, or sleeps until the test has run out of time: no watch looks before. */
#define NO_LOOK "LOOK_MS=600000"
#define UNLOOKED(function, ...) \
	SETTING(function, "unlooked", NO_LOOK " LOCKSTEP_WAIT=sleep", __VA_ARGS__)

#endif
