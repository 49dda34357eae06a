/* SPDX-License-Identifier: BSD-3-Clause
 * Which streams follow which: a vector clock for each stream and for each event. */
#include <stdlib.h>

#include "races/races_private.h"

static int find_slot(struct races *races, const void *stream) LOCK_REQUIRES(races)
{
	for (int i = 0; i < RACES_STREAMS; i++)
		if (races->streams[i].handle == stream)
			return i;
	return -1;
}

/* The times of the slot go on, as the clocks of other streams may have them. */
static void empty_slot(struct races *races, int slot) LOCK_REQUIRES(races)
{
	struct races_stream *gone = &races->streams[slot];
	uint64_t time = gone->clock.at[slot];
	*gone = (struct races_stream){0};
	gone->clock.at[slot] = time;
}

/* Whether all that the clock has is over: then the clock says as little as an empty one. */
static bool says_nothing(const struct races *races, const struct races_clock *clock)
	LOCK_REQUIRES(races)
{
	bool nothing = !clock->unknown;
	for (size_t i = 0; i < races->count && nothing; i++) {
		const struct races_entry *entry = &races->entries[i];
		nothing = entry->slot < 0 || clock->at[entry->slot] < entry->time;
	}
	return nothing;
}

static int free_slot(struct races *races) LOCK_REQUIRES(races)
{
	int slot = find_slot(races, NULL);
	for (int i = 0; i < RACES_STREAMS && slot < 0; i++)
		if (says_nothing(races, &races->streams[i].clock)) {
			empty_slot(races, i);
			slot = i;
		}
	return slot;
}

int races_slot(struct races *races, const void *stream)
{
	if (!stream)
		return -1;
	int slot = find_slot(races, stream);
	if (slot >= 0)
		return slot;
	slot = free_slot(races);
	if (slot >= 0) {
		races->streams[slot].handle = stream;
		races->streams[slot].clock.unknown = races->rest_is_unknown;
	}
	return slot;
}

uint64_t races_tick(struct races *races, int slot)
{
	return ++races->streams[slot].clock.at[slot];
}

static void join_clock(struct races_clock *into, const struct races_clock *other)
{
	for (int i = 0; i < RACES_STREAMS; i++)
		if (into->at[i] < other->at[i])
			into->at[i] = other->at[i];
	into->unknown |= other->unknown;
}

static void follow_anything(struct races *races, int slot) LOCK_REQUIRES(races)
{
	if (slot >= 0)
		races->streams[slot].clock.unknown = true;
	else
		races->rest_is_unknown = true;
}

static void follow_clock(struct races *races, int slot, const struct races_clock *clock)
	LOCK_REQUIRES(races)
{
	if (slot >= 0)
		join_clock(&races->streams[slot].clock, clock);
	else
		races->rest_is_unknown |= !says_nothing(races, clock);
}

static void follow_entry(struct races *races, int slot, const struct races_entry *entry)
	LOCK_REQUIRES(races)
{
	if (entry->slot >= 0)
		follow_clock(races, slot, &entry->clock);
	else
		follow_anything(races, slot); /* the stream of the entry has no slot */
}

void races_follow_group(struct races *races, int slot, const struct races_use *collective)
{
	for (size_t i = 0; i < races->count; i++) {
		const struct races_entry *entry = &races->entries[i];
		if (entry->use.is_collective && entry->use.who.stream &&
		    entry->use.who.group == collective->who.group)
			follow_entry(races, slot, entry);
	}
}

void races_follow(struct races *races, uint64_t ticket, const void *stream)
{
	lock_races_acquire(&races->lock);
	races_drop(races);
	int slot = races_slot(races, stream);
	for (size_t i = 0; i < races->count && stream; i++)
		if (races->keys[i].ticket == ticket)
			follow_entry(races, slot, &races->entries[i]);
	lock_races_release(&races->lock);
}

static struct races_event *find_event(struct races *races, const void *event) LOCK_REQUIRES(races)
{
	for (size_t i = 0; i < races->event_count; i++)
		if (races->events[i].event == event)
			return &races->events[i];
	return NULL;
}

/* To follow an event whose clock says nothing is no wait, so that the event's place may be used
 * again. */
static struct races_event *reuse_event(struct races *races, const void *event) LOCK_REQUIRES(races)
{
	for (size_t i = 0; i < races->event_count; i++)
		if (says_nothing(races, &races->events[i].clock)) {
			races->events[i].event = event;
			return &races->events[i];
		}
	return NULL;
}

static struct races_event *add_event(struct races *races, const void *event) LOCK_REQUIRES(races)
{
	if (races->event_count == RACES_EVENTS)
		return reuse_event(races, event);
	void *grown = races_grow(races->events, races->event_count, &races->event_room,
				 sizeof *races->events);
	if (!grown)
		return NULL;
	races->events = grown;
	struct races_event *added = &races->events[races->event_count++];
	added->event = event;
	return added;
}

void races_record(struct races *races, const void *event, const void *stream)
{
	lock_races_acquire(&races->lock);
	races_drop(races);
	int slot = races_slot(races, stream);
	struct races_event *found = find_event(races, event);
	if (!found)
		found = add_event(races, event);
	races->events_are_missing |= !found;
	if (found && slot >= 0)
		found->clock = races->streams[slot].clock;
	else if (found)
		found->clock = (struct races_clock){.unknown = true};
	lock_races_release(&races->lock);
}

/* To follow an event that was never recorded is no wait. If some recorded events had no place, the
 * event may be one of those. */
void races_follow_event(struct races *races, const void *event, const void *stream)
{
	lock_races_acquire(&races->lock);
	races_drop(races);
	int slot = races_slot(races, stream);
	const struct races_event *found = find_event(races, event);
	if (found)
		follow_clock(races, slot, &found->clock);
	else if (races->events_are_missing)
		follow_anything(races, slot);
	lock_races_release(&races->lock);
}

void races_await(struct races *races, const void *stream)
{
	lock_races_acquire(&races->lock);
	races_drop(races);
	follow_anything(races, races_slot(races, stream));
	lock_races_release(&races->lock);
}

/* Uses on the old stream that are still listed may still be under way. So the old stream keeps its
 * slot, under a name that no stream has, and its uses do not belong to the new stream. */
void races_made(struct races *races, const void *handle)
{
	lock_races_acquire(&races->lock);
	int slot = handle ? find_slot(races, handle) : -1;
	if (slot >= 0)
		races->streams[slot].handle = &races->streams[slot];
	for (size_t i = 0; handle && i < races->count; i++)
		races->entries[i].renamed |= races->entries[i].use.who.stream == handle;
	struct races_event *event = find_event(races, handle);
	if (event)
		*event = races->events[--races->event_count];
	lock_races_release(&races->lock);
}

void races_forget(struct races *races, const void *stream)
{
	lock_races_acquire(&races->lock);
	int slot = stream ? find_slot(races, stream) : -1;
	if (slot >= 0)
		empty_slot(races, slot);
	for (size_t i = races->count; stream && i > 0; i--) {
		const struct races_entry *entry = &races->entries[i - 1];
		if (entry->use.who.stream == stream && !entry->renamed)
			races_remove(races, i - 1);
	}
	lock_races_release(&races->lock);
}
