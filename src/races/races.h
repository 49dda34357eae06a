/* SPDX-License-Identifier: BSD-3-Clause
 * Finds operations of one rank that touch the same memory at the same time: LOCKSTEP_CHECK=1.
 * README.md has the rules, and says where they come from. */
#ifndef RACES_RACES_H
#define RACES_RACES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"

enum {
	RACES_STREAMS = 64, /* in use at a time; further streams are compared with no other */
	RACES_EVENTS = 1024,
	RACES_PARTS = 2,
	RACES_FREED = 64, /* the latest freed blocks */
	RACES_LABEL_BYTES = 96,
};

struct races;

struct races_part {
	const void *address;
	uint64_t bytes; /* 0: no part */
	bool writes;
	/* The operation reads this part on the host: what races_sum has made of it before. */
	bool has_sum;
	uint64_t sum;
};

/* The call that touches memory. The strings stay as long as the use. */
struct races_who {
	const char *name;   /* "all-reduce" */
	const char *kernel; /* that the call `name` has launched; NULL: none */
	uint64_t number;    /* in its group; 0: not known */
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
	/* A use by the program itself is over when *done >= number. */
	const _Atomic uint64_t *done;
	uint64_t number;
};

struct races_conflict {
	struct races_who earlier;
	const void *address; /* of the memory that both touch */
	uint64_t bytes;
	bool earlier_writes, later_writes;
};

/* broken: while it is not 0, the device touches nothing any more. NULL, with a message: no
 * memory. */
struct races *races_open(const _Atomic uint64_t *broken);
void races_close(struct races *races);
/* From now on the driver tells of what the program does. */
void races_watch(struct races *races);

/* Lists the use until it is over. False: the use races with another one, *out says with which, and
 * the use is not listed. *ticket names the use; 0: it is not listed. Two uses by the program itself
 * never count as a race. */
bool races_begin(struct races *races, const struct races_use *use, uint64_t *ticket,
		 struct races_conflict *out) LOCK_AVOIDS(races);
/* Call before races_begin for an operation that reads its buffers on the host, where the program
 * may not store to them until it is over: sums up the parts that it only reads. */
void races_sum_up(struct races_use *use);
/* Whether these parts are as they were then; also true for other uses, and if the use of the ticket
 * is over. */
bool races_is_unchanged(struct races *races, uint64_t ticket) LOCK_AVOIDS(races);
/* A hash of the bytes. False: they cannot be read, because the processor must not, or a container
 * forbids process_vm_readv. */
bool races_sum(const void *address, uint64_t bytes, uint64_t *out);

/* The use's number in its group is known. Here and below: nothing happens if the use of the ticket
 * is over. */
void races_number(struct races *races, uint64_t ticket, uint64_t number) LOCK_AVOIDS(races);
/* All of the use has been enqueued on its stream: it is over when *done >= number. The word
 * stays. */
void races_launched(struct races *races, uint64_t ticket, const _Atomic uint64_t *done,
		    uint64_t number) LOCK_AVOIDS(races);
/* The use is over. */
void races_end(struct races *races, uint64_t ticket) LOCK_AVOIDS(races);

/* The stream waits for the operation, for an event as it was recorded last, or for anything. */
void races_follow(struct races *races, uint64_t ticket, const void *stream) LOCK_AVOIDS(races);
void races_record(struct races *races, const void *event, const void *stream) LOCK_AVOIDS(races);
void races_follow_event(struct races *races, const void *event, const void *stream)
	LOCK_AVOIDS(races);
void races_await(struct races *races, const void *stream) LOCK_AVOIDS(races);
/* There is a new stream or event. It has nothing to do with a former one of this address. */
void races_made(struct races *races, const void *handle) LOCK_AVOIDS(races);
/* The stream has done its work, and is destroyed. */
void races_forget(struct races *races, const void *stream) LOCK_AVOIDS(races);

/* Whether memory may be freed that gets a new user once these streams have done all that they have
 * now. False: a use that these streams do not cover touches the memory, and *out has it. With count
 * 0 that can be any use under way. */
bool races_may_free(struct races *races, const void *address, uint64_t bytes, void *const *streams,
		    int count, struct races_conflict *out) LOCK_AVOIDS(races);
/* The allocator has handed out this memory of the host, so nothing touches it any more: a block
 * that was sent (ls_send_block) can come back before its send has been said to be over. */
void races_allocated(struct races *races, const void *address, uint64_t bytes) LOCK_AVOIDS(races);
/* races_freed notes who has freed this memory; races_who_freed finds who has last freed a part of
 * it, and where that part begins. False: not known. */
void races_freed(struct races *races, const void *address, uint64_t bytes,
		 const struct races_who *who) LOCK_AVOIDS(races);
bool races_who_freed(struct races *races, const void *address, uint64_t bytes, const void **part,
		     struct races_who *out) LOCK_AVOIDS(races);

/* For tests: how many are listed. */
size_t races_count(struct races *races) LOCK_AVOIDS(races);

#endif
