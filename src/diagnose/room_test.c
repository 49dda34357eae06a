/* SPDX-License-Identifier: BSD-3-Clause
 * Threads that wait for room in the queue of a device, on live memory. */
#include "diagnose/behind_fixture.h"

enum { ROOM_SLOT = 2, PUT_SLOT = 3 };

/* Rank 0 is about to put an operation on its stream, whose queue has no room. Returns the
 * record. */
static uint64_t add_late(struct stream_fixture *fixture)
{
	struct trace_begin begin = {.kind = TRACE_ALLREDUCE,
				    .group = TWO,
				    .seq = 2,
				    .peer = -1,
				    .stream = TRACE_ON_STREAM};
	return trace_begin(&fixture->collect->traces[0], &begin);
}

static struct wait_edge device_edge(uint64_t offset)
{
	return (struct wait_edge){.value = 1,
				  .offset = offset,
				  .owner = -1,
				  .peer = -1,
				  .segment = WAIT_SEGMENT_DEVICE};
}

/* A thread waits until one of these two operations is done, the first ones of two streams. */
static struct wait_slot_body wait_for_room(uint64_t late, uint64_t one, uint64_t other)
{
	return (struct wait_slot_body){.state = WAIT_ANY_WORD,
				       .tid = 3,
				       .group = TWO,
				       .record = late,
				       .edge_count = 4,
				       .edges = {device_edge(WAIT_DEVICE_ROOM), device_edge(one),
						 device_edge(other),
						 device_edge(WAIT_DEVICE_BROKEN)}};
}

/* Another one waits until the operation has been put on its stream, or the stream has come to
 * it. */
static struct wait_slot_body wait_until_put(uint64_t late)
{
	return (struct wait_slot_body){
		.state = WAIT_ANY_WORD,
		.tid = 4,
		.group = TWO,
		.record = late,
		.edge_count = 2,
		.edges = {device_edge(late), device_edge(late | WAIT_DEVICE_PUT)}};
}

static void a_wait_for_room(void **state)
{
	struct stream_fixture *fixture = *state;
	struct collect_fixture *collect = fixture->collect;
	uint64_t late = add_late(fixture);
	struct wait_slot_body room = wait_for_room(late, fixture->front[0], fixture->behind[0]);
	publish(collect, 0, ROOM_SLOT, &room);
	assert_true(is_deadlock(fixture));
	/* Nobody knows when the other stream goes on. */
	room.edges[2].offset = 0;
	publish(collect, 0, ROOM_SLOT, &room);
	assert_false(is_deadlock(fixture));
	room.edges[2].offset = fixture->behind[0];
	room.has_own_limit = 1;
	publish(collect, 0, ROOM_SLOT, &room);
	assert_false(is_deadlock(fixture));
	room.has_own_limit = 0;
	publish(collect, 0, ROOM_SLOT, &room);
	atomic_store(&collect->segments[0][0], 5); /* what is in front goes on */
	assert_false(is_deadlock(fixture));
}

/* The queue has become empty, and the thread has not seen that. */
static void a_wait_for_room_that_is_over(void **state)
{
	struct stream_fixture *fixture = *state;
	struct wait_slot_body room = wait_for_room(add_late(fixture), 0, 0);
	room.edges[1] = device_edge(WAIT_DEVICE_BROKEN);
	room.edge_count = 2;
	publish(fixture->collect, 0, ROOM_SLOT, &room);
	assert_false(is_deadlock(fixture));
}

static void what_is_to_be_put_there(void **state)
{
	struct stream_fixture *fixture = *state;
	struct collect_fixture *collect = fixture->collect;
	uint64_t late = add_late(fixture);
	struct wait_slot_body room = wait_for_room(late, fixture->front[0], fixture->behind[0]);
	struct wait_slot_body put = wait_until_put(late);
	publish(collect, 0, PUT_SLOT, &put);
	assert_false(is_deadlock(fixture)); /* some thread may be putting it there */
	publish(collect, 0, ROOM_SLOT, &room);
	assert_true(is_deadlock(fixture));
	/* What is in front of it on its stream is known, too. */
	trace_behind(&collect->traces[0], late, fixture->front[0], 0);
	assert_true(is_deadlock(fixture));
	/* Not the thread that puts this operation there. */
	room.record = fixture->behind[0];
	publish(collect, 0, ROOM_SLOT, &room);
	assert_false(is_deadlock(fixture));
	room.record = late;
	publish(collect, 0, ROOM_SLOT, &room);
	assert_true(is_deadlock(fixture));
	/* A stream goes on, for all that is known. */
	room.edges[2].offset = 0;
	publish(collect, 0, ROOM_SLOT, &room);
	assert_false(is_deadlock(fixture));
	room.edges[2].offset = fixture->behind[0];
	publish(collect, 0, ROOM_SLOT, &room);
	trace_stream(&collect->traces[0], late, TRACE_LAUNCHED);
	assert_false(is_deadlock(fixture));
}

/* More operations run behind it than a snapshot holds. */
static void a_long_queue(void **state)
{
	struct stream_fixture *fixture = *state;
	struct collect_fixture *collect = fixture->collect;
	uint64_t last = fixture->behind[0], first = 0;
	struct trace_begin begin = {
		.kind = TRACE_RECV, .group = ONE, .peer = 1, .stream = TRACE_ON_STREAM};
	for (int i = 0; i < DIAGNOSE_RECORD_MAX + 8; i++) {
		uint64_t record = trace_begin(&collect->traces[0], &begin);
		trace_stream(&collect->traces[0], record, TRACE_LAUNCHED);
		trace_behind(&collect->traces[0], record, i == 0 ? 0 : last, 0);
		first = first ? first : record;
		last = record;
	}
	struct wait_slot_body room = wait_for_room(add_late(fixture), first, first);
	publish(collect, 0, ROOM_SLOT, &room);
	assert_true(is_deadlock(fixture));
}

/* ---- more words than a slot has ---- */

enum { MANY = 2 * WAIT_EDGE_MAX, PAGE = 3 };

/* On rank 0 a thread waits for any of MANY words that its device stores, of two operations by
 * turns; the last one is of `last`. record: as struct wait_edge has it. */
static void publish_many(const struct stream_fixture *fixture, int slot, uint64_t last,
			 uint32_t record)
{
	struct wait_table *wait_table = fixture->collect->traces[0].wait_table;
	struct wait_slot_body body = wait_for_device(fixture, 0);
	body.edge_count = WAIT_EDGE_MAX;
	body.further = MANY - WAIT_EDGE_MAX;
	body.pages = 1 << PAGE;
	for (int i = 0; i < MANY; i++) {
		struct wait_edge edge = device_edge(i % 2 ? fixture->front[0] : fixture->behind[0]);
		edge.record = record;
		edge.offset = i == MANY - 1 ? last : edge.offset;
		*(i < WAIT_EDGE_MAX ? &body.edges[i] : &wait_table->pages[PAGE][i % WAIT_EDGE_MAX]) =
			edge;
	}
	publish(fixture->collect, 0, slot, &body);
}

static void many_words(void **state)
{
	struct stream_fixture *fixture = *state;
	struct wait_edge *page = fixture->collect->traces[0].wait_table->pages[PAGE];
	publish_many(fixture, ROOM_SLOT, WAIT_DEVICE_BROKEN, 0);
	assert_true(is_deadlock(fixture));
	publish_many(fixture, ROOM_SLOT, WAIT_DEVICE_ROOM, 0);
	assert_true(is_deadlock(fixture));
	/* The very last one is of an operation of which nothing is known. */
	publish_many(fixture, ROOM_SLOT, 0, 0);
	assert_false(is_deadlock(fixture));
	/* More of them than a sum of them has room for. */
	publish_many(fixture, ROOM_SLOT, WAIT_DEVICE_BROKEN, 0);
	for (int i = 0; i < WAIT_EDGE_MAX; i++)
		page[i].offset = 1000 + (uint64_t)i;
	assert_false(is_deadlock(fixture));
}

/* A thread that shows them for others needs none of them, and is blocked as long as none comes. */
static void many_words_of_others(void **state)
{
	struct stream_fixture *fixture = *state;
	struct collect_fixture *collect = fixture->collect;
	struct wait_edge *page = collect->traces[0].wait_table->pages[PAGE];
	struct diagnose_thread *thread = &collect->snapshot->ranks[0].threads[ROOM_SLOT];
	publish_many(fixture, ROOM_SLOT, WAIT_DEVICE_BROKEN, WAIT_RECORD_OTHERS);
	assert_true(is_deadlock(fixture));
	assert_int_equal(test_bits(thread->others), 1 << 1);
	assert_false(thread->others_unclear);
	publish_many(fixture, ROOM_SLOT, 0, WAIT_RECORD_OTHERS);
	assert_false(is_deadlock(fixture));
	assert_true(thread->others_unclear);
	/* A word of another rank among them counts by itself: it has come, or not. */
	struct wait_edge *last = &page[WAIT_EDGE_MAX - 1];
	publish_many(fixture, ROOM_SLOT, 0, WAIT_RECORD_OTHERS);
	*last = wait_for(0, 1).edges[0];
	last->record = WAIT_RECORD_OTHERS;
	assert_true(is_deadlock(fixture));
	last->value = 0;
	assert_false(is_deadlock(fixture));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_STREAMS(a_wait_for_room),
		ON_STREAMS(a_wait_for_room_that_is_over),
		ON_STREAMS(what_is_to_be_put_there),
		ON_STREAMS(a_long_queue),
		ON_STREAMS(many_words),
		ON_STREAMS(many_words_of_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
