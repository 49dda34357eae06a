/* SPDX-License-Identifier: BSD-3-Clause
 * What loop_fixture.h keeps of its ends, and of what is on its way between them. */
#ifndef LINK_LOOP_TYPES_FIXTURE_H
#define LINK_LOOP_TYPES_FIXTURE_H

#include <stdatomic.h>

#include "base/lock.h"
#include "link/link.h"

enum { LOOP_ENDS = 8, LOOP_ROOM = 6, LOOP_ROOM_MAX = 64, LOOP_DELAY = 8, LOOP_PIECE = 1000 };

/* A note or word on its way. */
struct loop_item {
	uint64_t ready; /* tick of the target's */
	bool is_word;
	uint64_t index, value;
	struct link_message message;
	unsigned char payload[LINK_SHORT_BYTES];
};

struct loop_queue {
	unsigned first, count, kept; /* the last `kept` have not been pushed */
	struct loop_item items[LOOP_ROOM_MAX];
};

/* A long payload. Freed once neither end needs it any more: the source is told, and the target has
 * been told or has never got to know of it. */
struct loop_offer {
	struct loop_offer *next;
	int source, target;
	const unsigned char *from;
	unsigned char *copy; /* of an eager payload; NULL: it is not eager */
	unsigned char *to;
	uint64_t bytes, copied;
	struct link_transfer *sent, *fetched; /* NULL: told, or nobody is to be told */
	ls_status source_status, target_status;
	bool source_ends, target_ends; /* is to be told, in its next advance, */
	uint64_t ready;                /* but the source not before this tick of its own */
	bool is_queued, is_held;       /* its note is on the way; the target has a handle */
	bool is_fetching, is_broken;
};

struct loop_end {
	struct link link;
	struct loop *loop;
	int fd; /* an eventfd */
	uint64_t tick;
	bool connects, is_armed;
	bool has_cut[LOOP_ENDS], is_lost[LOOP_ENDS]; /* is_lost: told */
};

struct loop {
	struct lock_peer lock;
	int size;
	unsigned room; /* notes and words that are on their way to a peer, at most */
	uint64_t seed LOCK_GUARDED(peer);
	struct loop_offer *offers LOCK_GUARDED(peer);
	struct loop_queue queues[LOOP_ENDS][LOOP_ENDS] LOCK_GUARDED(peer); /* [from][to] */
	struct loop_end ends[LOOP_ENDS] LOCK_GUARDED(peer);
};

#endif
