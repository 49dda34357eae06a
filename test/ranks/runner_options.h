/* SPDX-License-Identifier: BSD-3-Clause
 * What the runner's command line says. */
#ifndef TEST_RANKS_RUNNER_OPTIONS_H
#define TEST_RANKS_RUNNER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct runner_options {
	bool list, threads, nightly;
	bool all;     /* also what exclude.h names */
	bool checked; /* with LOCKSTEP_CHECK=1, and no race may be reported */
	const char *filter;
	long repeat;
	long cases; /* of all random tests that are run, together */
	uint64_t seed;
	long only;        /* -1: all cases */
	long part, parts; /* of the tests, part by part, only this many */
	long hosts;       /* 0: all ranks on this one */
};

/* Ends the process with a usage message if they are wrong. */
void runner_read_options(int argc, char **argv, struct runner_options *options);

#endif
