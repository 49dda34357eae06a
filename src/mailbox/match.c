/* SPDX-License-Identifier: BSD-3-Clause
 * The table of match.h. */
#include "mailbox/match.h"

#include <stdlib.h>
#include <string.h>

static unsigned bucket_of(unsigned bits, int32_t source, int32_t tag)
{
	uint64_t key = (uint64_t)(uint32_t)source << 32 | (uint32_t)tag;
	/* Fibonacci hashing. */
	return (unsigned)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits));
}

void mailbox_match_init(struct match_table *table)
{
	*table = (struct match_table){.bits = 4};
	table->buckets = table->few;
}

void mailbox_match_fini(struct match_table *table)
{
	if (table->buckets != table->few)
		free(table->buckets);
	mailbox_match_init(table);
}

/* The place of the pointer to the first receive of this queue. */
static struct match_entry **find_queue(const struct match_table *table, int32_t source, int32_t tag)
{
	struct match_entry **at = &table->buckets[bucket_of(table->bits, source, tag)];
	while (*at && ((*at)->source != source || (*at)->tag != tag))
		at = &(*at)->next_queue;
	return at;
}

static void grow_table(struct match_table *table)
{
	struct match_entry **old = table->buckets;
	size_t count = (size_t)1 << table->bits;
	struct match_entry **buckets = calloc(4 * count, sizeof *buckets);
	if (!buckets)
		return;
	table->bits += 2;
	table->buckets = buckets;
	for (size_t i = 0; i < count; i++)
		while (old[i]) {
			struct match_entry *first = old[i];
			old[i] = first->next_queue;
			unsigned bucket = bucket_of(table->bits, first->source, first->tag);
			first->next_queue = buckets[bucket];
			buckets[bucket] = first;
		}
	if (old != table->few)
		free(old);
}

void mailbox_match_add(struct match_table *table, struct match_entry *entry)
{
	if (table->count >> table->bits > 1)
		grow_table(table);
	struct match_entry **at = find_queue(table, entry->source, entry->tag);
	entry->order = ++table->order;
	entry->next = NULL;
	if (*at) {
		(*at)->last->next = entry;
		(*at)->last = entry;
	} else {
		entry->last = entry;
		entry->next_queue = NULL;
		*at = entry;
	}
	table->count++;
	table->any_source += entry->source == MATCH_ANY;
	table->any_tag += entry->tag == MATCH_ANY;
}

static struct match_entry **earlier(struct match_entry **a, struct match_entry **b)
{
	return !*a || (*b && (*b)->order < (*a)->order) ? b : a;
}

struct match_entry **mailbox_match_find(const struct match_table *table, int32_t source, int32_t tag)
{
	if (table->count == 0)
		return NULL;
	struct match_entry **found = find_queue(table, source, tag);
	if (table->any_tag)
		found = earlier(found, find_queue(table, source, MATCH_ANY));
	if (table->any_source)
		found = earlier(found, find_queue(table, MATCH_ANY, tag));
	if (table->any_source && table->any_tag)
		found = earlier(found, find_queue(table, MATCH_ANY, MATCH_ANY));
	return *found ? found : NULL;
}

struct match_entry *mailbox_match_first(const struct match_table *table,
					bool (*question)(const struct match_entry *))
{
	for (size_t i = 0; i < (size_t)1 << table->bits; i++)
		for (struct match_entry *first = table->buckets[i]; first; first = first->next_queue)
			for (struct match_entry *entry = first; entry; entry = entry->next)
				if (question(entry))
					return entry;
	return NULL;
}

void mailbox_match_each(const struct match_table *table,
			void (*visit)(const struct match_entry *, void *context), void *context)
{
	for (size_t i = 0; i < (size_t)1 << table->bits; i++)
		for (const struct match_entry *first = table->buckets[i]; first;
		     first = first->next_queue)
			for (const struct match_entry *entry = first; entry; entry = entry->next)
				visit(entry, context);
}

static void count_out(struct match_table *table, const struct match_entry *entry)
{
	table->count--;
	table->any_source -= entry->source == MATCH_ANY;
	table->any_tag -= entry->tag == MATCH_ANY;
}

void mailbox_match_remove_at(struct match_table *table, struct match_entry **place)
{
	struct match_entry *first = *place, *second = first->next;
	count_out(table, first);
	if (second) {
		second->last = first->last;
		second->next_queue = first->next_queue;
	}
	*place = second ? second : first->next_queue;
}

void mailbox_match_remove(struct match_table *table, struct match_entry *entry)
{
	struct match_entry **at = find_queue(table, entry->source, entry->tag);
	struct match_entry *first = *at;
	if (first == entry) {
		mailbox_match_remove_at(table, at);
		return;
	}
	count_out(table, entry);
	struct match_entry *before = first;
	while (before->next != entry)
		before = before->next;
	before->next = entry->next;
	if (first->last == entry)
		first->last = before;
}
