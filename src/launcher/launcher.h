/* SPDX-License-Identifier: BSD-3-Clause
 * Runs the ranks of a job, as processes of one program, on this machine or on several. */
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

enum { LAUNCHER_HOST_BYTES = 128 };

/* The hosts of a job, in the order of their ranks. */
struct launcher_list {
	int count, ranks; /* ranks: the sum over all hosts */
	struct launcher_list_host {
		char name[LAUNCHER_HOST_BYTES]; /* as ssh takes it, perhaps with USER@ */
		int ranks;
	} hosts[RANKS_HOSTS_MAX];
};

/* From "HOST:RANKS,HOST:RANKS..."; a host without a number has one rank, an address of IPv6 stands
 * in brackets. False: it is no such list, and why[] has the reason. */
bool launcher_list_parse(const char *text, struct launcher_list *out, char why[256]);

struct launcher_options {
	int ranks;              /* 1 to RANKS_HOST_MAX */
	char *const *command;   /* the program and its arguments, ended by NULL */
	uint64_t timeout_ms;    /* 0: none */
	const char *log_dir;    /* the folder for logs of what ranks write; NULL: none */
	const char *trace_path; /* the file for the ranks' traces at the end; NULL: none */
	bool prefix;            /* each line gets its rank in front */
	bool phases;            /* print at the end on what ranks spent their time */
	/* NULL: this one */
	const struct launcher_list *hosts;
	const char *ssh;      /* how to call it, words between spaces; NULL: "ssh" */
	const char *lockstep; /* its path on other hosts; NULL: as here */
	/* Names of further variables that ranks on other hosts get; ended by NULL. */
	const char *const *variables;
};

/* Runs the job until all its ranks have ended. Returns the exit status: 0 if all returned 0, else
 * that of the rank that failed first (128 + its signal), or one of the above, with a message.
 * Blocks signals, and handles those that it passes on; ignores SIGPIPE and SIGXFSZ from then on;
 * raises a low soft limit of the stack. */
int launcher_run(const struct launcher_options *options);

/* What a launcher runs on each host of its job, with a channel to it as standard input and output.
 * Returns when the job or the launcher has ended. */
int launcher_daemon_run(void);
/* What the daemon runs to see whether ranks would find UCX and libsodium: 0, or says what is
 * missing. */
int launcher_daemon_check(void);

#endif
