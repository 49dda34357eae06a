/* SPDX-License-Identifier: BSD-3-Clause
 * Operations that touch the same memory at the same time, of one rank: LOCKSTEP_CHECK=1. README.md
 * has the rules, and says where they come from. */
#ifndef RACES_RACES_H
#define RACES_RACES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

enum {
	RACES_STREAMS = 64, /* more streams than this in use are compared with no other one */
	RACES_EVENTS = 1024,
	RACES_PARTS = 2,
	RACES_FREED = 64, /* of blocks: the latest */
	RACES_LABEL_BYTES = 96,
};

struct races;

struct races_part {
	const void *address;
	uint64_t bytes; /* 0: there is none */
	bool writes;
};

/* Who touches memory. */
struct races_who {
	const char *name; /* "all-reduce"; lives as long as the process */
	uint64_t number;  /* in its group; 0: not known */
	uint32_t group;
	const void *site;              /* the call's return address */
	char label[RACES_LABEL_BYTES]; /* of the call; "": none */
	const void *stream;            /* NULL: the host */
	bool is_program;               /* the program itself, by a call of the driver */
};

struct races_use {
	struct races_who who;
	struct races_part parts[RACES_PARTS];
	/* A collective whose group runs it after all its collectives before. */
	bool is_collective;
	/* Of the program: it is over when *done >= number. */
	const _Atomic uint64_t *done;
	uint64_t number;
};

struct races_conflict {
	struct races_who earlier;
	const void *address; /* of what both touch */
	uint64_t bytes;
	bool earlier_writes, later_writes;
};

/* broken: while it is not 0, the device touches nothing any more. NULL, with a message: no
 * memory. */
struct races *races_open(const _Atomic uint64_t *broken);
void races_close(struct races *races);
/* The driver tells of what the program does, from now on. */
void races_watch(struct races *races);

/* Lists the use, until it is over. False: it races with another one, *out says with which, and it
 * is not listed. *ticket: to name it; 0: it is not listed. Of two uses of the program itself none
 * is reported. */
bool races_begin(struct races *races, const struct races_use *use, uint64_t *ticket,
		 struct races_conflict *out) LOCK_AVOIDS(races);
/* Its number in its group is known. Here and below: of a ticket that is over nothing happens. */
void races_number(struct races *races, uint64_t ticket, uint64_t number) LOCK_AVOIDS(races);
/* All of it is behind its stream: it is over when *done >= number. The word stays. */
void races_launched(struct races *races, uint64_t ticket, const _Atomic uint64_t *done,
		    uint64_t number) LOCK_AVOIDS(races);
/* It is over. */
void races_end(struct races *races, uint64_t ticket) LOCK_AVOIDS(races);

/* The stream waits for the operation, for an event as it was recorded last, or for anything. */
void races_follow(struct races *races, uint64_t ticket, const void *stream) LOCK_AVOIDS(races);
void races_record(struct races *races, const void *event, const void *stream) LOCK_AVOIDS(races);
void races_follow_event(struct races *races, const void *event, const void *stream)
	LOCK_AVOIDS(races);
void races_await(struct races *races, const void *stream) LOCK_AVOIDS(races);
/* There is a new stream or event. It has nothing to do with one that had this address before. */
void races_made(struct races *races, const void *handle) LOCK_AVOIDS(races);
/* The stream has done its work, and is destroyed. */
void races_forget(struct races *races, const void *stream) LOCK_AVOIDS(races);

/* Whether memory may be freed that is used again once what these streams have now is done. False:
 * something else uses it. Then, and with count 0, all that is under way on it is a conflict. */
bool races_may_free(struct races *races, const void *address, uint64_t bytes, void *const *streams,
		    int count, struct races_conflict *out) LOCK_AVOIDS(races);
/* The allocator has handed out this memory of the host, so nothing touches it any more: a block
 * that was sent (ls_send_block) can come back before its send has been said to be over. */
void races_allocated(struct races *races, const void *address, uint64_t bytes) LOCK_AVOIDS(races);
/* Notes who has freed it; and finds who has last freed a part of this memory, and where that part
 * begins. False: not known. */
void races_freed(struct races *races, const void *address, uint64_t bytes,
		 const struct races_who *who) LOCK_AVOIDS(races);
bool races_who_freed(struct races *races, const void *address, uint64_t bytes, const void **part,
		     struct races_who *out) LOCK_AVOIDS(races);

/* For tests: how many are listed. */
size_t races_count(struct races *races) LOCK_AVOIDS(races);

#endif
