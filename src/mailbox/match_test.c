/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mailbox/match.h"

enum { MANY = 3000, SOURCES = 5, TAGS = 7 };

static struct match_entry *ask(struct match_table *table, struct match_entry *entry, int source,
			       int tag)
{
	*entry = (struct match_entry){.source = source, .tag = tag};
	mailbox_match_add(table, entry);
	return entry;
}

static struct match_entry *find(const struct match_table *table, int source, int tag)
{
	struct match_entry **place = mailbox_match_find(table, source, tag);
	return place ? *place : NULL;
}

static void test_order(void **state)
{
	(void)state;
	struct match_table table;
	struct match_entry entries[6];
	mailbox_match_init(&table);
	assert_null(find(&table, 1, 2));
	struct match_entry *any = ask(&table, &entries[0], MATCH_ANY, MATCH_ANY);
	struct match_entry *first = ask(&table, &entries[1], 1, 2);
	struct match_entry *second = ask(&table, &entries[2], 1, 2);
	struct match_entry *tag = ask(&table, &entries[3], MATCH_ANY, 2);
	struct match_entry *source = ask(&table, &entries[4], 1, MATCH_ANY);
	assert_ptr_equal(find(&table, 1, 2), any);
	assert_ptr_equal(find(&table, 9, 9), any);
	mailbox_match_remove(&table, any);
	assert_ptr_equal(find(&table, 1, 2), first);
	assert_ptr_equal(find(&table, 3, 2), tag);
	assert_ptr_equal(find(&table, 1, 5), source);
	assert_null(find(&table, 3, 5));
	mailbox_match_remove(&table, first);
	assert_ptr_equal(find(&table, 1, 2), second);
	mailbox_match_remove(&table, second);
	assert_ptr_equal(find(&table, 1, 2), tag);
	mailbox_match_remove(&table, tag);
	assert_ptr_equal(find(&table, 1, 2), source);
	mailbox_match_remove(&table, source);
	assert_null(find(&table, 1, 2));
	assert_int_equal(table.count, 0);
	mailbox_match_fini(&table);
}

/* Whether a receive matches a message of this source and tag. */
static bool matches(const struct match_entry *entry, int source, int tag)
{
	return (entry->source == MATCH_ANY || entry->source == source) &&
	       (entry->tag == MATCH_ANY || entry->tag == tag);
}

/* What a list that is searched from its beginning would give. */
static struct match_entry *slow(struct match_entry *entries, const bool *there, int source, int tag)
{
	struct match_entry *best = NULL;
	for (int i = 0; i < MANY; i++)
		if (there[i] && matches(&entries[i], source, tag) &&
		    (!best || entries[i].order < best->order))
			best = &entries[i];
	return best;
}

static void test_against_a_list(void **state)
{
	(void)state;
	static struct match_entry entries[MANY];
	static bool there[MANY];
	struct match_table table;
	mailbox_match_init(&table);
	srand(3);
	int count = 0;
	for (int turn = 0; turn < 20000; turn++) {
		int i = rand() % MANY, source = rand() % SOURCES, tag = rand() % TAGS;
		if (!there[i] && rand() % 3) {
			bool any = rand() % 4 == 0;
			ask(&table, &entries[i], any ? MATCH_ANY : source,
			    rand() % 5 ? tag : MATCH_ANY);
			there[i] = true;
			count++;
		} else if (there[i] && rand() % 4 == 0) {
			/* from the middle of its queue */
			mailbox_match_remove(&table, &entries[i]);
			there[i] = false;
			count--;
		}
		struct match_entry **place = mailbox_match_find(&table, source, tag);
		struct match_entry *found = place ? *place : NULL;
		assert_ptr_equal(found, slow(entries, there, source, tag));
		if (found && rand() % 2) {
			mailbox_match_remove_at(&table, place);
			there[found - entries] = false;
			count--;
		}
		assert_int_equal(table.count, count);
	}
	mailbox_match_fini(&table);
}

static bool is_odd(const struct match_entry *entry)
{
	return entry->tag % 2 != 0;
}

static void test_first(void **state)
{
	(void)state;
	struct match_table table;
	struct match_entry entries[100];
	mailbox_match_init(&table);
	for (int i = 0; i < 100; i++)
		ask(&table, &entries[i], i % 3, 2 * i);
	assert_null(mailbox_match_first(&table, is_odd));
	mailbox_match_remove(&table, &entries[50]);
	ask(&table, &entries[50], 1, 7);
	assert_ptr_equal(mailbox_match_first(&table, is_odd), &entries[50]);
	mailbox_match_fini(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_against_a_list),
		cmocka_unit_test(test_first),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
