/* SPDX-License-Identifier: BSD-3-Clause
 * One play of the test of late access: a job that fails at some moment while one of its ranks
 * cannot go on. late.c draws the play, starts and stops its ranks; late_rank.c is what a rank
 * does. */
#ifndef TEST_FAULTS_LATE_H
#define TEST_FAULTS_LATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LATE_SIZE_MAX = 4,
	LATE_LINKS_MAX = 9,
	LATE_LONG_MS = 20000, /* a limit that is not meant to be reached */
	LATE_PAGE_BYTES = 4096,
};

/* LATE_SEND, LATE_RECEIVE and LATE_BOTH: messages alone; the victim is stopped while it takes what
 * others send, while it gives what others receive, or in either. */
enum late_kind { LATE_ALLREDUCE, LATE_BROADCAST, LATE_MIXED, LATE_SEND, LATE_RECEIVE, LATE_BOTH };

/* How a message is waited for. */
enum late_way { LATE_BLOCKING, LATE_HANDLE, LATE_BATCH, LATE_CALLBACK, LATE_WAYS };

/* A sender in one rank and a receiver in another, or the same, each a thread of its own. */
struct late_link {
	int source, target;
	enum late_way send, receive;
};

struct late_plan {
	uint64_t seed;
	int size, victim, root, aborter;
	enum late_kind kind;
	const char *algorithm;
	size_t bytes;
	size_t guard_bytes; /* before and after each buffer, in the same block */
	bool plain;         /* buffers of malloc */
	bool read;          /* which peers read where they are, without a copy */
	bool packed; /* all buffers of a rank in one block of ls_alloc, so that they share pages */
	/* the system refuses memory by then: a call may end with LS_SYSTEM, but not lie */
	bool starved;
	bool in_place;
	bool reuse; /* after the error buffers are freed, and new ones of the same size are taken */
	bool kill;  /* the victim is killed in place of continued */
	/* The victim stops by itself in the middle of its work, when it reaches this byte of its
	 * result, or of what it sends, in this round. Otherwise after stop_us. */
	bool trap;
	size_t trap_at;
	unsigned trap_round;
	unsigned stop_us;
	/* How the job fails: at these limits, or by an abort so long after the victim has stopped
	 * (or, with abort_first, after the begin). */
	bool abort, abort_first;
	unsigned abort_us;
	unsigned limit_ms[LATE_SIZE_MAX];
	/* The victim goes on after this time, or when everybody else has had his error. */
	bool resume_early;
	unsigned resume_us;
	int link_count;
	struct late_link links[LATE_LINKS_MAX];
};

/* What the ranks and the test share. */
struct late_shared {
	/* calls that have failed, and whose buffers are marked */
	_Atomic int errors[LATE_SIZE_MAX];
	_Atomic bool begun; /* all have met */
	_Atomic bool over;  /* nobody is stopped any more */
};

/* One message of a rank to the test: a LATE_… and the rank. */
enum { LATE_READY = 'r', LATE_TRAPPED = 't', LATE_ERROR = 'e' };

struct late_pipes {
	int tell;  /* ranks write messages of two bytes */
	int go;    /* its end lets a trapped victim go on */
	int abort; /* its end, or a byte, makes the aborter abort */
};

/* Collectives there are none. */
bool late_messages_only(const struct late_plan *plan);
/* How many calls of a rank are going to fail. */
int late_workers(const struct late_plan *plan, int rank);

/* A rank's whole life, in a process of its own; the exit status. */
int late_rank(const struct late_plan *plan, int rank, struct late_shared *shared,
	      const struct late_pipes *pipes);

#endif
