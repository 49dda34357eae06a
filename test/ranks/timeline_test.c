/* SPDX-License-Identifier: BSD-3-Clause
 * Timelines of the ranks of a test: timeline.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"
#include "timeline.h"

enum { ROUNDS = 3 };

static struct ls_call_options with_tag(int tag)
{
	return (struct ls_call_options){.size = sizeof(struct ls_call_options), .tag = tag};
}

static void *receive_late(void *argument)
{
	struct ls_call_options options = with_tag(99);
	int value = 0;

	OK(ls_recv(argument, &value, 1, LS_INT32, 1, &options));
	CHECK(value == 5);
	return NULL;
}

static char *drawn(void)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	CHECK(out);
	timeline_print(out);
	CHECK(fclose(out) == 0);
	return text;
}

/* A timeline is longer than a failure's line may be. */
#define SHOWS(text, condition)                 \
	do {                                   \
		if (!(condition)) {            \
			fputs((text), stderr); \
			CHECK(condition);      \
		}                              \
	} while (0)

/* The row of `label` under rank `rank`. */
static const char *row(const char *text, int rank, const char *label)
{
	char head[24];

	snprintf(head, sizeof head, "\nrank %d  ", rank);
	const char *band = strstr(text, head);
	SHOWS(text, band);
	const char *next = strstr(band + 1, "\nrank ");
	const char *found = strstr(band, label);
	SHOWS(text, found && (!next || found < next));
	return found;
}

static void expect_in_row(const char *text, int rank, const char *label, const char *part)
{
	const char *line = row(text, rank, label), *found = strstr(line, part);

	SHOWS(text, found && found < strchr(line, '\n'));
}

/* One of these letters: where time is short several operations share a column. */
static void expect_some_in_row(const char *text, int rank, const char *label, const char *letters)
{
	const char *bars = strchr(row(text, rank, label), '|');

	SHOWS(text, bars && strcspn(bars, letters) < strcspn(bars, "\n"));
}

/* Rank 0 draws all, while it receives what rank 1 has not sent yet. */
void timelines_show_all_ranks(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	struct ls_call_options seven = with_tag(7);
	pthread_t thread;
	int value = 5, sum;

	if (self->rank == 0)
		CHECK(pthread_create(&thread, NULL, receive_late, group) == 0);
	for (int i = 0; i < ROUNDS; i++)
		OK(ls_allreduce(group, &value, &sum, 1, LS_INT32, LS_SUM, NULL));
	if (self->rank == 0)
		OK(ls_send(group, &value, 1, LS_INT32, self->size - 1, &seven));
	if (self->rank == self->size - 1)
		OK(ls_recv(group, &value, 1, LS_INT32, 0, &seven));
	runner_meet(self);
	if (self->rank == 0) {
		char *text = drawn();
		/* The thread may not have come to its call yet. */
		while (!strstr(text, "from 1 tag 99")) {
			free(text);
			text = drawn();
		}
		/* Up to now: the arrow, or the letter alone, if it has just begun. */
		expect_some_in_row(text, 0, "from 1 tag 99", "r>");
		SHOWS(text, strstr(text, "\nrank 0: receive #1 from 1, tag 99 (timeline_test.c:"));
		SHOWS(text, strstr(text, ") still runs after "));
		row(text, 0, "to 2 tag 7");
		expect_in_row(text, 2, "from 0 tag 7", "r");
		for (int rank = 0; rank < self->size; rank++)
			expect_some_in_row(text, rank, "world", "A#:");
		free(text);
	}
	runner_meet(self);
	if (self->rank == 1) {
		struct ls_call_options late = with_tag(99);
		OK(ls_send(group, &value, 1, LS_INT32, 0, &late));
	}
	if (self->rank == 0)
		CHECK(pthread_join(thread, NULL) == 0);
	runner_meet(self);
	if (self->rank == 0) {
		char *text = drawn();
		SHOWS(text, !strstr(text, "still runs"));
		free(text);
	}
	runner_meet(self);
	ls_group_close(group);
	/* Nothing is held of a group that is closed. */
	if (!self->threads) {
		char *text = drawn();
		CHECK(!text[0]);
		free(text);
	}
}
