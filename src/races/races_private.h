/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share. All functions here: with the lock. */
#ifndef RACES_RACES_PRIVATE_H
#define RACES_RACES_PRIVATE_H

#include "races.h"

/* What is before something: of stream slot r, all up to time at[r]. */
struct races_clock {
	uint64_t at[RACES_STREAMS];
	bool unknown; /* perhaps much more */
};

/* What is under way. */
struct races_entry {
	struct races_use use;
	uint64_t ticket;
	int slot;      /* of its stream; -1: none */
	uint64_t time; /* in its stream */
	struct races_clock clock;
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
	size_t count LOCK_GUARDED(races), room LOCK_GUARDED(races);
	struct races_stream streams[RACES_STREAMS] LOCK_GUARDED(races);
	struct races_event *events LOCK_GUARDED(races);
	size_t event_count LOCK_GUARDED(races), event_room LOCK_GUARDED(races);
	bool events_are_missing LOCK_GUARDED(races); /* some were recorded, and had no place */
	struct races_block freed[RACES_FREED] LOCK_GUARDED(races);
	uint64_t freed_count LOCK_GUARDED(races);
};

/* The array with room for one more; NULL: no memory, and it is as it was. */
void *races_grow(void *array, size_t count, size_t *room, size_t element);

/* ---- clocks.c ---- */

/* The slot of a stream, which gets one if it has none; -1: there is none. */
int races_slot(struct races *races, const void *stream) LOCK_REQUIRES(races);
/* The next time of a stream. */
uint64_t races_tick(struct races *races, int slot) LOCK_REQUIRES(races);

#endif
