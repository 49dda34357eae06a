/* SPDX-License-Identifier: BSD-3-Clause
 * One play of the test of late access: a job that fails at some moment while one of its ranks
 * cannot continue. late.c draws the play, and starts and stops its ranks; late_rank.c is a rank. */
#ifndef TEST_FAULTS_LATE_H
#define TEST_FAULTS_LATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LATE_SIZE_MAX = 4,
	LATE_LINKS_MAX = 9,
	LATE_LONG_MS = 20000, /* a time limit that no play is to reach */
	LATE_PAGE_BYTES = 4096,
};

/* LATE_SEND, LATE_RECEIVE and LATE_BOTH have only messages. The victim is stopped while it receives
 * from others, while it sends to others, or while it does either. */
enum late_kind { LATE_ALLREDUCE, LATE_BROADCAST, LATE_MIXED, LATE_SEND, LATE_RECEIVE, LATE_BOTH };

/* How a thread waits for a message. */
enum late_way { LATE_BLOCKING, LATE_HANDLE, LATE_BATCH, LATE_CALLBACK, LATE_WAYS };

/* A sender in one rank and a receiver in another one or the same. Each is a thread of its own. */
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
	bool read;          /* peers read these where they are, without a copy */
	bool packed; /* all buffers of a rank in one block of ls_alloc, so that they share pages */
	/* the system gives no memory by then: a call may end with LS_SYSTEM, but a promise must
	 * hold */
	bool starved;
	bool in_place;
	/* after the error the buffers are freed, and new ones of the same size are allocated */
	bool reuse;
	bool kill; /* the victim is killed and does not continue */
	/* The victim stops by itself in the middle of its work, when it reaches this byte of its
	 * result, or of the data that it sends, in this round. Otherwise it stops after stop_us. */
	bool trap;
	size_t trap_at;
	unsigned trap_round;
	unsigned stop_us;
	/* How the job fails: at these limits; or by an abort, so long after the victim has stopped
	 * (with abort_first: after the begin). */
	bool abort, abort_first;
	unsigned abort_us;
	unsigned limit_ms[LATE_SIZE_MAX];
	/* The victim continues after this time, or when all others have had their errors. */
	bool resume_early;
	unsigned resume_us;
	int link_count;
	struct late_link links[LATE_LINKS_MAX];
};

/* What the ranks and the test share. */
struct late_shared {
	/* how many calls have failed, and have marked their buffers */
	_Atomic int errors[LATE_SIZE_MAX];
	_Atomic bool begun; /* all ranks are there */
	_Atomic bool over;  /* no rank is stopped any more */
};

/* A message of a rank to the test: one of these and the rank. */
enum { LATE_READY = 'r', LATE_TRAPPED = 't', LATE_ERROR = 'e' };

struct late_pipes {
	int tell;  /* ranks write messages of two bytes */
	int go;    /* when it ends, a trapped victim continues */
	int abort; /* a byte, or its end, makes the aborter abort */
};

/* Whether there are no collectives. */
bool late_messages_only(const struct late_plan *plan);
/* How many calls of a rank will fail. */
int late_workers(const struct late_plan *plan, int rank);

/* Runs a rank, in a process of its own. Returns the exit status. */
int late_rank(const struct late_plan *plan, int rank, struct late_shared *shared,
	      const struct late_pipes *pipes);

#endif
