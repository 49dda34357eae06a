/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of waits: a waiter with everything it needs in shared memory, and bounded polling for
 * what other threads do. Nothing sleeps to give somebody time: what must have happened is looked
 * for. */
#ifndef BASE_WAIT_FIXTURE_H
#define BASE_WAIT_FIXTURE_H

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/seqlock.h"
#include "base/wait.h"

enum { PEERS = 4, GENEROUS_MS = 30000 };

struct shared {
	struct wait_table wait_table;
	struct wait_bell bell;
	_Atomic uint64_t words[PEERS];
	_Atomic uint64_t left[PEERS];
	_Atomic uint64_t cause;
};

struct fixture {
	struct shared *shared;
	struct wait_peer peers[PEERS];
	_Atomic uint32_t dead[PEERS];
	struct wait_word words[PEERS]; /* word i has to reach 1, by peer i */
	struct waiter waiter;
};

static inline void fixture_init(struct fixture *fixture)
{
	memset(fixture, 0, sizeof *fixture);
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	fixture->shared = shared;
	for (int i = 0; i < PEERS; i++) {
		fixture->peers[i] =
			(struct wait_peer){.left = &shared->left[i], .dead = &fixture->dead[i]};
		fixture->words[i].word = &shared->words[i];
		fixture->words[i].edge = (struct wait_edge){.value = 1,
							    .offset = 8 * (uint64_t)i,
							    .owner = i,
							    .peer = i,
							    .segment = WAIT_SEGMENT_MAPPED};
	}
	fixture->waiter = (struct waiter){.wait_table = &shared->wait_table,
					  .bell = &shared->bell,
					  .cause = &shared->cause,
					  .peers = fixture->peers,
					  .peer_count = PEERS,
					  .look_fd = -1};
	assert_int_equal(wait_open(&fixture->waiter), LS_OK);
}

static inline void fixture_fini(struct fixture *fixture)
{
	const struct wait_bell *bell = &fixture->shared->bell;
	assert_int_equal(bell->sleepers, 0);
	assert_int_equal(bell->to_all, 0);
	assert_int_equal(bell->to_one, 0);
	for (int i = 0; i < WAIT_TOPICS; i++)
		assert_int_equal(bell->listeners[i], 0);
	wait_close(&fixture->waiter);
	assert_int_equal(munmap(fixture->shared, sizeof *fixture->shared), 0);
}

static inline int fixture_setup(void **state)
{
	struct fixture *fixture = malloc(sizeof *fixture);
	assert_non_null(fixture);
	fixture_init(fixture);
	*state = fixture;
	return 0;
}

static inline int fixture_teardown(void **state)
{
	fixture_fini(*state);
	free(*state);
	return 0;
}

static inline struct wait_call fixture_call(const struct fixture *fixture, int count, bool any)
{
	return (struct wait_call){.words = fixture->words,
				  .count = count,
				  .any = any,
				  .deadline_ns = clock_deadline_ns(GENEROUS_MS),
				  .group = 7,
				  .record = 42};
}

/* Polls for `condition`; a test that would wait forever ends here. */
#define EVENTUALLY(condition)                                               \
	do {                                                                \
		uint64_t until_ = clock_deadline_ns(GENEROUS_MS);           \
		while (!(condition)) {                                      \
			if (clock_now_ns() >= until_) {                     \
				fprintf(stderr, "never: %s\n", #condition); \
				abort();                                    \
			}                                                   \
			sched_yield();                                      \
		}                                                           \
	} while (0)

/* A slot of the wait table in this state, as another process would read it. */
static inline bool find_slot(const struct shared *shared, enum wait_state wanted,
			     struct wait_slot_body *out)
{
	for (int i = 0; i < WAIT_SLOT_MAX; i++) {
		uint32_t epoch;
		const struct wait_slot *slot = &shared->wait_table.slots[i];
		if (seqlock_read(&slot->epoch, out, &slot->body, sizeof *out, &epoch) &&
		    out->state == wanted)
			return true;
	}
	return false;
}

/* True while the thread `tid` of this process sleeps in the kernel. */
static inline bool is_asleep(uint32_t tid)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/self/task/%u/stat", tid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		close(fd);
	const char *state = size > 0 ? strrchr(text, ')') : NULL;
	return state && state[1] == ' ' && state[2] == 'S';
}

/* A thread that makes one wait. */
struct waiting {
	struct fixture *fixture;
	struct wait_call call;
	pthread_t thread;
	_Atomic bool done;
	ls_status status;
	bool was_late;
	int peer;
};

static inline void *waiting_run(void *arg)
{
	struct waiting *waiting = arg;
	waiting->status = wait_words(&waiting->fixture->waiter, &waiting->call, &waiting->peer);
	waiting->was_late = clock_now_ns() >= waiting->call.deadline_ns;
	waiting->done = true;
	return NULL;
}

/* Starts the thread, and returns when it sleeps; *slot is what the thread published. */
static inline void waiting_start(struct waiting *waiting, struct fixture *fixture,
				 struct wait_call call, struct wait_slot_body *slot)
{
	*waiting = (struct waiting){.fixture = fixture, .call = call};
	assert_int_equal(pthread_create(&waiting->thread, NULL, waiting_run, waiting), 0);
	enum wait_state wanted = call.any ? WAIT_ANY_WORD : WAIT_WORDS;
	EVENTUALLY(find_slot(fixture->shared, call.foreign ? WAIT_FOREIGN : wanted, slot));
	EVENTUALLY(is_asleep(slot->tid));
}

static inline ls_status waiting_end(struct waiting *waiting)
{
	wait_join(waiting->thread);
	/* What has come counts at the time limit, too; but then nobody has woken the thread. */
	assert_true(waiting->status == LS_TIMED_OUT || !waiting->was_late);
	return waiting->status;
}

#endif
