/* SPDX-License-Identifier: BSD-3-Clause
 * Which streams follow which: a vector clock for each stream and for each event. */
#include <stdlib.h>

#include "races_private.h"

static int find_slot(struct races *races, const void *stream) LOCK_REQUIRES(races)
{
	for (int i = 0; i < RACES_STREAMS; i++)
		if (races->streams[i].handle == stream)
			return i;
	return -1;
}

int races_slot(struct races *races, const void *stream)
{
	if (!stream)
		return -1;
	int slot = find_slot(races, stream);
	if (slot < 0)
		slot = find_slot(races, NULL);
	if (slot >= 0)
		races->streams[slot].handle = stream;
	return slot;
}

uint64_t races_tick(struct races *races, int slot)
{
	return ++races->streams[slot].clock.at[slot];
}

static void join(struct races_clock *into, const struct races_clock *other)
{
	for (int i = 0; i < RACES_STREAMS; i++)
		if (into->at[i] < other->at[i])
			into->at[i] = other->at[i];
	into->unknown |= other->unknown;
}

void races_follow(struct races *races, uint64_t ticket, const void *stream)
{
	lock_races_acquire(&races->lock);
	int slot = races_slot(races, stream);
	for (size_t i = 0; i < races->count && slot >= 0; i++) {
		const struct races_entry *entry = &races->entries[i];
		if (entry->ticket != ticket)
			continue;
		join(&races->streams[slot].clock, &entry->clock);
		/* The operation has a stream without a slot, so it is not known what is before. */
		races->streams[slot].clock.unknown |= entry->slot < 0;
	}
	lock_races_release(&races->lock);
}

static struct races_event *find_event(struct races *races, const void *event) LOCK_REQUIRES(races)
{
	for (size_t i = 0; i < races->event_count; i++)
		if (races->events[i].event == event)
			return &races->events[i];
	return NULL;
}

static struct races_event *add_event(struct races *races, const void *event) LOCK_REQUIRES(races)
{
	if (races->event_count == RACES_EVENTS)
		return NULL;
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

/* An event that was never recorded is no wait. If some had no place, it may be one of those. */
void races_follow_event(struct races *races, const void *event, const void *stream)
{
	lock_races_acquire(&races->lock);
	int slot = races_slot(races, stream);
	const struct races_event *found = find_event(races, event);
	if (slot >= 0 && found)
		join(&races->streams[slot].clock, &found->clock);
	else if (slot >= 0 && races->events_are_missing)
		races->streams[slot].clock.unknown = true;
	lock_races_release(&races->lock);
}

void races_await(struct races *races, const void *stream)
{
	lock_races_acquire(&races->lock);
	int slot = races_slot(races, stream);
	if (slot >= 0)
		races->streams[slot].clock.unknown = true;
	lock_races_release(&races->lock);
}

void races_forget(struct races *races, const void *stream)
{
	lock_races_acquire(&races->lock);
	int slot = stream ? find_slot(races, stream) : -1;
	if (slot >= 0) {
		struct races_stream *gone = &races->streams[slot];
		uint64_t time = gone->clock.at[slot];
		*gone = (struct races_stream){0};
		gone->clock.at[slot] = time;
	}
	size_t kept = 0;
	for (size_t i = 0; i < races->count; i++)
		if (!stream || races->entries[i].use.who.stream != stream)
			races->entries[kept++] = races->entries[i];
	races->count = kept;
	lock_races_release(&races->lock);
}
