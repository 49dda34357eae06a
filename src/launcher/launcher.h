/* SPDX-License-Identifier: BSD-3-Clause
 * Runs the ranks of a job on this machine, as processes of one program. */
#ifndef LAUNCHER_LAUNCHER_H
#define LAUNCHER_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ranks.h"
#include "rendezvous/rendezvous.h"

enum {
	LAUNCHER_FAILED = 1,         /* exit statuses: the job could not be started */
	LAUNCHER_EXIT_TIMEOUT = 124, /* as timeout(1) */
	LAUNCHER_EXIT_CANNOT_EXECUTE = 126,
	LAUNCHER_EXIT_NOT_FOUND = 127,
};

struct launcher_options {
	int ranks;              /* 1 to RANKS_HOST_MAX */
	char *const *command;   /* the program and its arguments, ended by NULL */
	uint64_t timeout_ms;    /* 0: none */
	const char *log_dir;    /* what ranks write is kept there, too; NULL: nowhere */
	const char *trace_path; /* where their traces are kept at the end; NULL: nowhere */
	bool prefix;            /* each line gets its rank in front */
	bool phases;            /* what ranks spent their time on is said at the end */
};

/* Runs the job until all its ranks have ended, and returns the exit status that tells how: 0 if all
 * returned 0, else that of the rank that failed first (128 + its signal), or one of the above, with
 * a message. Blocks signals, and handles those that it passes on; ignores SIGPIPE from then on. */
int launcher_run(const struct launcher_options *options);

#endif
