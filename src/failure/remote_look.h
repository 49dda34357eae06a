/* SPDX-License-Identifier: BSD-3-Clause
 * Shared by remote_look.c, which asks other hosts, and show.c, which shows commands what they
 * say. */
#ifndef FAILURE_REMOTE_LOOK_H
#define FAILURE_REMOTE_LOOK_H

#include "failure/failure.h"

enum { FAILURE_AREA_WORDS = (TRANSPORT_AREAS + 63) / 64 };

enum failure_question { FAILURE_LOOK = 1, FAILURE_SEEN, FAILURE_CONFIRM, FAILURE_COPY };

/* What has come from one rank. */
struct failure_heard {
	_Atomic uint64_t look, confirm, copy; /* rounds that the rank asks for; 0: none */
	_Atomic uint64_t seen;                /* the round of mine that the rank has answered */
	_Atomic uint64_t told;                /* the round of `block`; 0: there is no block */
	void *block;
	uint64_t bytes;
	bool is_unanswering; /* the rank did not answer when it was last asked */
	/* For the watch: the first look, whose confirmation the rank may ask for. */
	struct diagnose_snapshot *first;
	uint64_t first_round;
};

/* A look that another thread of this rank wants: remote_request.c. */
struct failure_request {
	struct failure_request *next;
	uint32_t group;         /* that the thread is about to close */
	_Atomic int holders;    /* the thread and the watch; the last one frees the request */
	_Atomic uint64_t given; /* 1: the watch has stored the snapshot */
	struct diagnose_snapshot *snapshot;
};

enum { FAILURE_ANSWER_MS = 300, FAILURE_COPY_MS = 2000 };

/* An answer to commands: a memfd. */
struct failure_answer {
	_Atomic bool wanted; /* commands have asked this host, and this rank is its agent */
	int fd;              /* -1: there is none */
	uint64_t inode; /* so that no other file is closed, if the program has closed this one */
	_Atomic uint64_t since_ns; /* 0: there is none */
};

struct failure_remote {
	uint64_t round;                           /* of my looks */
	unsigned failed;                          /* looks in a row that were not answered by all */
	struct failure_request *_Atomic requests; /* that the watch has not taken */
	/* For the watch: what this rank shows to commands. */
	struct failure_answer answers[TRANSPORT_QUESTIONS];
	/* For the thread of heartbeats: when it has last woken the watch for a command. */
	uint64_t woken_ns;
	struct failure_heard heard[RANKS_WORLD_MAX];
	/* By area of this rank, a bit each: remote_ends.c. differs: the collectives of the group
	 * that has the area differ from those of a member on another host (`differences`), and the
	 * watch has not reported it yet. raised: the group has failed for that, and perhaps no call
	 * of this rank has returned it. */
	_Atomic uint64_t differs[FAILURE_AREA_WORDS], raised[FAILURE_AREA_WORDS];
	/* By area: stored by the thread that makes progress on the link, while the bit in `differs`
	 * is 0. */
	struct engine_difference differences[TRANSPORT_AREAS];
	/* For the watch: until when it leaves groups with differences to other hosts; 0: there are
	 * none. */
	uint64_t differs_until_ns;
};

/* In `differs` and `raised`. */
static inline uint64_t failure_area_bit(unsigned area)
{
	return UINT64_C(1) << area % 64;
}

/* ---- remote_look.c: for the watch ---- */

struct ranks failure_ranks_here(const struct world *world);
/* Fills the elements of the ranks on this host; the others stay as they are. */
void failure_read_traffic(const struct world *world, struct diagnose_traffic *out);
/* As failure_remote_collect. whole: NULL if a host has not answered. Otherwise that host is left
 * out, and nothing is proved with its ranks. *answered: the ranks of the hosts that have answered,
 * and of this one. */
struct diagnose_snapshot *failure_remote_collect_some(struct world *world,
						      const struct diagnose_closing *closing,
						      bool whole, struct ranks *answered);
/* Asks for the traces of all other hosts, and calls `take` for each block that comes within
 * FAILURE_COPY_MS. Returns the ranks of the hosts that have answered, and of this one. */
struct ranks failure_remote_copy(struct world *world,
				 void (*take)(void *context, const void *block, size_t bytes),
				 void *context);
/* Whether a host that has not answered has another rank that can be asked. */
bool failure_remote_may_try_again(const struct world *world, const struct ranks *answered);
/* Frees the blocks that have come, of any round. */
void failure_remote_forget_told(struct failure_remote *remote, int size);

/* ---- remote_request.c ---- */

/* Drops the requests that the watch has not taken. */
void failure_requests_close(struct failure_remote *remote);

/* ---- show.c ---- */

void failure_show_close(struct failure_remote *remote);

#endif
