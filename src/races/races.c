/* SPDX-License-Identifier: BSD-3-Clause
 * Compares a use that is to begin with those that are under way. */
#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "races/races_private.h"

struct races *races_open(const _Atomic uint64_t *broken)
{
	struct races *races = calloc(1, sizeof *races);
	if (!races) {
		MESSAGE_SAY(MESSAGE_RACE_NONE, sizeof *races);
		return NULL;
	}
	races->broken = broken;
	lock_races_init(&races->lock);
	return races;
}

void races_close(struct races *races)
{
	if (!races)
		return;
	lock_races_acquire(&races->lock);
	free(races->entries);
	free(races->keys);
	free(races->events);
	lock_races_release(&races->lock);
	lock_races_fini(&races->lock);
	free(races);
}

void races_watch(struct races *races)
{
	atomic_store(&races->is_watching, true);
}

/* Finds the index of the ticket's entry; false: the use is over. */
static bool find_use(const struct races *races, uint64_t ticket, size_t *index) LOCK_REQUIRES(races)
{
	size_t i = 0;
	while (i < races->count && races->keys[i].ticket != ticket)
		i++;
	*index = i;
	return i < races->count;
}

/* ---- what is ordered ---- */

/* Whether all that the stream of the entry had by then is before what stream `slot` gets now, or
 * may be before it. It is before it if both are the same stream. */
static bool is_before_stream(const struct races *races, const struct races_entry *entry, int slot)
	LOCK_REQUIRES(races)
{
	if (!atomic_load(&races->is_watching) || slot < 0 || entry->slot < 0)
		return true;
	const struct races_clock *clock = &races->streams[slot].clock;
	return entry->clock.unknown || clock->unknown || clock->at[entry->slot] >= entry->time;
}

/* A collective begins when the collectives before it in its group are over, on streams too. But a
 * stream may read a collective's input before that. */
static bool is_before_in_group(const struct races_use *earlier, const struct races_use *later,
			       bool later_writes)
{
	return earlier->is_collective && later->is_collective &&
	       earlier->who.group == later->who.group && (!later->who.stream || later_writes);
}

static bool is_before(const struct races *races, const struct races_entry *entry,
		      const struct races_use *later, int slot, bool later_writes)
	LOCK_REQUIRES(races)
{
	const struct races_use *earlier = &entry->use;
	if ((earlier->who.is_program && later->who.is_program) ||
	    is_before_in_group(earlier, later, later_writes))
		return true;
	if (earlier->who.stream && later->who.stream)
		return is_before_stream(races, entry, slot);
	/* A stream that waits for a word may wait until the host is done with the memory. */
	if (earlier->who.stream)
		return entry->slot >= 0 ? entry->clock.unknown : races->rest_is_unknown;
	return later->who.stream &&
	       (slot >= 0 ? races->streams[slot].clock.unknown : races->rest_is_unknown);
}

/* ---- what is the same memory ---- */

bool races_overlap(const struct races_part *a, const struct races_part *b,
		   struct races_conflict *out)
{
	uintptr_t a_at = (uintptr_t)a->address, b_at = (uintptr_t)b->address;
	uintptr_t begin = a_at > b_at ? a_at : b_at;
	uintptr_t a_end = a_at + a->bytes, b_end = b_at + b->bytes;
	uintptr_t end = a_end < b_end ? a_end : b_end;
	if (!a->bytes || !b->bytes || begin >= end)
		return false;
	out->address = begin == a_at ? a->address : b->address;
	out->bytes = end - begin;
	out->earlier_writes = a->writes;
	out->later_writes = b->writes;
	return true;
}

static struct races_key key_of(const struct races_part *parts, int count)
{
	struct races_key key = {.ticket = 0};
	for (int i = 0; i < count; i++)
		if (parts[i].bytes > 0) {
			key.begin[i] = (uintptr_t)parts[i].address;
			key.end[i] = key.begin[i] + parts[i].bytes;
		}
	return key;
}

/* Whether the two have a byte in common. An empty part has 0 as both ends. */
static bool keys_meet(const struct races_key *a, const struct races_key *b)
{
	bool meet = false;
	for (int i = 0; i < RACES_PARTS; i++)
		for (int j = 0; j < RACES_PARTS; j++)
			meet |= (a->begin[i] < b->end[j]) & (b->begin[j] < a->end[i]);
	return meet;
}

/* Whether the use races with the entry. */
static bool races_with(const struct races *races, const struct races_entry *entry,
		       const struct races_use *later, int slot, struct races_conflict *out)
	LOCK_REQUIRES(races)
{
	for (int i = 0; i < RACES_PARTS; i++)
		for (int j = 0; j < RACES_PARTS; j++) {
			const struct races_part *a = &entry->use.parts[i], *b = &later->parts[j];
			if ((!a->writes && !b->writes) || !races_overlap(a, b, out) ||
			    is_before(races, entry, later, slot, b->writes))
				continue;
			out->earlier = entry->use.who;
			return true;
		}
	return false;
}

/* ---- the calls ---- */

static bool find_conflict(const struct races *races, const struct races_use *use, int slot,
			  struct races_conflict *out) LOCK_REQUIRES(races)
{
	struct races_key key = key_of(use->parts, RACES_PARTS);
	for (size_t i = 0; i < races->count; i++)
		if (keys_meet(&races->keys[i], &key) &&
		    races_with(races, &races->entries[i], use, slot, out))
			return true;
	return false;
}

static bool has_room(struct races *races) LOCK_REQUIRES(races)
{
	void *entries =
		races_grow(races->entries, races->count, &races->room, sizeof *races->entries);
	if (!entries)
		return false;
	races->entries = entries;
	void *keys = races_grow(races->keys, races->count, &races->key_room, sizeof *races->keys);
	if (!keys)
		return false;
	races->keys = keys;
	return true;
}

static uint64_t add_use(struct races *races, const struct races_use *use, int slot)
	LOCK_REQUIRES(races)
{
	if (!has_room(races))
		return 0;
	struct races_key *key = &races->keys[races->count];
	struct races_entry *entry = &races->entries[races->count++];
	*entry = (struct races_entry){.use = *use, .slot = slot};
	*key = key_of(use->parts, RACES_PARTS);
	key->ticket = ++races->tickets;
	races->on_streams += use->who.stream != NULL;
	if (slot >= 0) {
		entry->time = races_tick(races, slot);
		if (use->is_collective)
			races_follow_group(races, slot, use);
		entry->clock = races->streams[slot].clock;
	}
	return key->ticket;
}

bool races_begin(struct races *races, const struct races_use *use, uint64_t *ticket,
		 struct races_conflict *out)
{
	*ticket = 0;
	lock_races_acquire(&races->lock);
	races_drop(races);
	int slot = races_slot(races, use->who.stream);
	bool fine = !find_conflict(races, use, slot, out);
	if (fine)
		*ticket = add_use(races, use, slot);
	lock_races_release(&races->lock);
	return fine;
}

void races_number(struct races *races, uint64_t ticket, uint64_t number)
{
	lock_races_acquire(&races->lock);
	size_t i;
	if (find_use(races, ticket, &i))
		races->entries[i].use.who.number = number;
	lock_races_release(&races->lock);
}

void races_launched(struct races *races, uint64_t ticket, const _Atomic uint64_t *done,
		    uint64_t number)
{
	lock_races_acquire(&races->lock);
	size_t i;
	if (find_use(races, ticket, &i)) {
		races->entries[i].use.done = done;
		races->entries[i].use.number = number;
	}
	lock_races_release(&races->lock);
}

bool races_parts(struct races *races, uint64_t ticket, struct races_part *out)
{
	lock_races_acquire(&races->lock);
	size_t i;
	bool found = find_use(races, ticket, &i);
	if (found)
		memcpy(out, races->entries[i].use.parts, sizeof races->entries[i].use.parts);
	lock_races_release(&races->lock);
	return found;
}

void races_end(struct races *races, uint64_t ticket)
{
	lock_races_acquire(&races->lock);
	size_t i;
	if (find_use(races, ticket, &i))
		races_remove(races, i);
	lock_races_release(&races->lock);
}

/* ---- memory that is freed ---- */

/* Whether the entry's use is over once these streams have done all that they have now. */
static bool is_covered(struct races *races, const struct races_entry *entry, void *const *streams,
		       int count) LOCK_REQUIRES(races)
{
	if (!entry->use.who.stream)
		return false;
	for (int i = 0; i < count; i++)
		if (is_before_stream(races, entry, races_slot(races, streams[i])))
			return true;
	return false;
}

bool races_may_free(struct races *races, const void *address, uint64_t bytes, void *const *streams,
		    int count, struct races_conflict *out)
{
	const struct races_part block = {.address = address, .bytes = bytes, .writes = true};
	const struct races_key key = key_of(&block, 1);
	bool fine = true;
	lock_races_acquire(&races->lock);
	races_drop(races);
	for (size_t i = 0; i < races->count && fine; i++) {
		if (!keys_meet(&races->keys[i], &key))
			continue;
		const struct races_entry *entry = &races->entries[i];
		for (int j = 0; j < RACES_PARTS && fine; j++)
			fine = !races_overlap(&entry->use.parts[j], &block, out) ||
			       is_covered(races, entry, streams, count);
		if (!fine)
			out->earlier = entry->use.who;
	}
	lock_races_release(&races->lock);
	return fine;
}

void races_allocated(struct races *races, const void *address, uint64_t bytes)
{
	const struct races_part block = {.address = address, .bytes = bytes, .writes = true};
	const struct races_key key = key_of(&block, 1);
	lock_races_acquire(&races->lock);
	for (size_t i = races->count; i > 0; i--)
		if (keys_meet(&races->keys[i - 1], &key))
			races_remove(races, i - 1);
	lock_races_release(&races->lock);
}

void races_freed(struct races *races, const void *address, uint64_t bytes,
		 const struct races_who *who)
{
	lock_races_acquire(&races->lock);
	struct races_block *block = &races->freed[races->freed_count++ % RACES_FREED];
	*block = (struct races_block){address, bytes, *who};
	lock_races_release(&races->lock);
}

bool races_who_freed(struct races *races, const void *address, uint64_t bytes, const void **part,
		     struct races_who *out)
{
	const struct races_part all = {.address = address, .bytes = bytes};
	struct races_conflict common;
	bool found = false;
	lock_races_acquire(&races->lock);
	for (uint64_t i = races->freed_count; i > 0 && !found; i--) {
		const struct races_block *block = &races->freed[(i - 1) % RACES_FREED];
		if (races->freed_count - (i - 1) > RACES_FREED)
			break;
		const struct races_part freed = {.address = block->address, .bytes = block->bytes};
		found = races_overlap(&freed, &all, &common);
		if (found) {
			*part = common.address;
			*out = block->who;
		}
	}
	lock_races_release(&races->lock);
	return found;
}

size_t races_count(struct races *races)
{
	lock_races_acquire(&races->lock);
	races_drop(races);
	size_t count = races->count;
	lock_races_release(&races->lock);
	return count;
}
