/* SPDX-License-Identifier: BSD-3-Clause
 * Runs tests of several ranks. Each test has processes of its own, one for each rank (with
 * --threads: one process, a thread for each rank), and a time limit; what it prints is shown if it
 * fails. A test is a function that every rank runs, and a line in the table of table.c. */
#ifndef TEST_RANKS_RUNNER_H
#define TEST_RANKS_RUNNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <lockstep/lockstep.h>

/* How much slower everything is with a sanitizer. And how much longer a test may take than on a
 * machine of its own, as this one may be short of processors: what takes longer never ends. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RUNNER_SLOWNESS = 5, RUNNER_PATIENCE = 15 };
#else
enum { RUNNER_SLOWNESS = 1, RUNNER_PATIENCE = 5 };
#endif

enum {
	RUNNER_WORDS = 64,
	RUNNER_RANKS_MAX = 8,
	RUNNER_CASES =
		3000 / RUNNER_SLOWNESS, /* of all random tests together, unless --cases says so */
	/* Of operations that are not meant to fail: before the test's own limit, so that a hang
	 * ends with a report. */
	RUNNER_TIMEOUT_MS = 20000 * RUNNER_PATIENCE,
};

/* Memory that all ranks of a test share, zero at its start: they use it to communicate outside the
 * library. */
struct runner_shared {
	pthread_barrier_t meeting;
	_Atomic uint64_t words[RUNNER_WORDS];
	char notes[RUNNER_RANKS_MAX][1024]; /* of runner_note */
};

/* One rank of a running test. */
struct runner_rank {
	int rank, size;
	unsigned turn; /* 0, 1, … with --repeat */
	bool threads;  /* the ranks are threads of one process */
	/* a seed draws which thread continues at each point, so that few rounds are many
	 * meetings */
	bool drawn;
	/* Of a random test: which cases to run, and the seed of all. */
	uint64_t seed;
	uint32_t first_case, last_case;
	const char *name; /* of the test, with the number of ranks */
	const char *rendezvous;
	struct runner_shared *shared;
};

typedef void runner_function(struct runner_rank *self);

/* How a test ends; all but RUNNER_PASS are for tests of this runner. */
enum runner_outcome { RUNNER_PASS, RUNNER_FAIL, RUNNER_CRASH, RUNNER_HANG };

#define RUNNER_RANKS(n) (1u << (n)) /* may be combined: the test runs once for each number */

struct runner_test {
	const char *name;
	const char *symbol; /* the name of `run` */
	runner_function *run;
	uint32_t ranks;           /* RUNNER_RANKS */
	bool processes_only;      /* forks, dies, or counts what belongs to a process */
	uint32_t killed;          /* bit r: rank r ends by SIGKILL */
	bool nightly;             /* takes too long, or too much memory, for make check */
	bool random;              /* has as many cases as it is given */
	uint32_t limit_ms;        /* 0: 30 seconds, or more with many cases */
	enum runner_outcome ends; /* how it is to end */
	const char *setting;      /* "NAME=VALUE NAME=VALUE…" in its environment, NULL: none */
};

extern const struct runner_test runner_tests[];
extern const size_t runner_test_count;

/* ---- for tests ---- */

/* Opens the group of all ranks of this test. */
ls_group *runner_open(const struct runner_rank *self);
/* The same, and signals do not end its waits. */
ls_group *runner_open_resuming(const struct runner_rank *self);
/* The same, and blocks of ls_alloc outlive it (keep_memory). */
ls_group *runner_open_keeping(const struct runner_rank *self);
/* Waits, outside the library, until all ranks have come. */
void runner_meet(const struct runner_rank *self);
/* Whether ranks are on several hosts; set before there are any. */
extern bool runner_is_on_hosts;
/* On several hosts: waits until this group has failed, because a failure on another host arrives a
 * moment later. On one host it does nothing, as all ranks have it at once. */
void runner_await_failure(ls_group *group);
/* Cancels a message that nobody has taken. On several hosts the receiver of a long one is asked,
 * and answers late without a processor. */
ls_status runner_cancel(ls_request *op);
/* A barrier that no rank is in any more when this returns: what fails the group from here on cannot
 * end it. */
void runner_ready(const struct runner_rank *self, ls_group *group);
/* What this rank is about to do: shown if the test fails, whichever way. */
void runner_note(const struct runner_rank *self, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Ends the rank, and so fails the test. */
_Noreturn void runner_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void runner_expect(const char *file, int line, const char *call, ls_status status,
		   ls_status expected);

#define CHECK(condition) \
	((condition) ? (void)0 : runner_fail(__FILE__, __LINE__, "not true: %s", #condition))
/* CHECK with words of one's own. */
#define CHECK_THAT(condition, ...) \
	((condition) ? (void)0 : runner_fail(__FILE__, __LINE__, __VA_ARGS__))
#define OK(call) runner_expect(__FILE__, __LINE__, #call, (call), LS_OK)
#define GIVES(status, call) runner_expect(__FILE__, __LINE__, #call, (call), status)

#endif
