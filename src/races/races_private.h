/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share. All functions here need the lock, but for those of races.c. */
#ifndef RACES_RACES_PRIVATE_H
#define RACES_RACES_PRIVATE_H

#include "races/races.h"

/* What is before a use or an event: of stream slot r, all up to time at[r]. */
struct races_clock {
	uint64_t at[RACES_STREAMS];
	bool unknown; /* perhaps much more is before it */
};

/* A use that is under way. */
struct races_entry {
	struct races_use use;
	int slot;      /* of its stream; -1: none */
	bool renamed;  /* another stream has the handle of its stream by now */
	uint64_t time; /* of the use in its stream */
	struct races_clock clock;
};

/* The two parts of an entry, which each call compares. They are apart from the entries, which have
 * many bytes each, because there may be thousands. */
struct races_key {
	uintptr_t begin[RACES_PARTS], end[RACES_PARTS];
	uint64_t ticket;
};

/* A stream that the program has. Its times go on when another stream gets the slot. */
struct races_stream {
	const void *handle; /* NULL: the slot is free */
	struct races_clock clock;
};

struct races_event {
	const void *event;
	struct races_clock clock;
};

struct races_block {
	const void *address;
	uint64_t bytes;
	struct races_who who;
};

struct races {
	struct lock_races lock;
	const _Atomic uint64_t *broken;
	_Atomic bool is_watching; /* the driver tells of events */
	uint64_t tickets LOCK_GUARDED(races);
	struct races_entry *entries LOCK_GUARDED(races);
	struct races_key *keys LOCK_GUARDED(races); /* of entries[i]: keys[i] */
	size_t count LOCK_GUARDED(races), room LOCK_GUARDED(races), key_room LOCK_GUARDED(races);
	size_t on_streams LOCK_GUARDED(races); /* of the entries */
	struct races_stream streams[RACES_STREAMS] LOCK_GUARDED(races);
	/* A stream without a slot has waited for something. So nothing is known of the streams
	 * without slots, nor of a stream that gets a slot later. */
	bool rest_is_unknown LOCK_GUARDED(races);
	struct races_event *events LOCK_GUARDED(races);
	size_t event_count LOCK_GUARDED(races), event_room LOCK_GUARDED(races);
	bool events_are_missing LOCK_GUARDED(races); /* some were recorded, and had no place */
	struct races_block freed[RACES_FREED] LOCK_GUARDED(races);
	uint64_t freed_count LOCK_GUARDED(races);
};

/* ---- entries.c ---- */

/* Returns the array with room for one more element; NULL: no memory, and the array is as it was. */
void *races_grow(void *array, size_t count, size_t *room, size_t element_bytes);

void races_remove(struct races *races, size_t index) LOCK_REQUIRES(races);
/* Drops the entries that are over. */
void races_drop(struct races *races) LOCK_REQUIRES(races);

/* ---- races.c ---- */

/* Whether both have bytes in common: these are in *out. Needs no lock. */
bool races_overlap(const struct races_part *a, const struct races_part *b,
		   struct races_conflict *out);
/* Copies the parts of a use; false: it is over. Takes the lock. */
bool races_parts(struct races *races, uint64_t ticket, struct races_part *out) LOCK_AVOIDS(races);

/* ---- clocks.c ---- */

/* The slot of a stream, which gets one if it has none; -1: there is none. Call races_drop before:
 * slots of idle streams are used again. */
int races_slot(struct races *races, const void *stream) LOCK_REQUIRES(races);
/* The next time of a stream. */
uint64_t races_tick(struct races *races, int slot) LOCK_REQUIRES(races);
/* The stream in the slot gets a collective, and waits for its end there. The collectives before it
 * in its group are over by then, on whichever streams they are. */
void races_follow_group(struct races *races, int slot, const struct races_use *collective)
	LOCK_REQUIRES(races);

#endif
