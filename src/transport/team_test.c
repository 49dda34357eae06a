/* SPDX-License-Identifier: BSD-3-Clause
 * Teams of some ranks: areas of their own, which take memory when they are used, and are as new
 * when they are used again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "transport/segment.h"
#include "transport/transport_fixture.h"

enum { SIZE = 4 };

/* World ranks 3 and 1, in that order, each with an area of its own choice. */
static const uint16_t members[] = {3, 1};
static const uint16_t areas[] = {TRANSPORT_AREAS - 1, 7};

static struct transport_team *open_team(struct test_job *job, int rank)
{
	struct transport *transport = &job->ranks[members[rank]].transport;
	struct transport_team *team = calloc(1, sizeof *team);
	assert_non_null(team);
	assert_int_equal(transport_team_init(team, transport), LS_OK);
	assert_int_equal(transport_area_grow(transport, areas[rank], 2, rank == 0), LS_OK);
	transport_team_set(team, rank, 2, members, areas);
	return team;
}

static void close_team(struct transport_team *team)
{
	transport_team_fini(team);
	free(team);
}

static bool post(struct transport_team *team, int to, int64_t value, struct wait_word *blocked)
{
	struct transport_envelope envelope = {.seq = 7, .count = 1, .bytes = sizeof value};
	uint64_t ticket;
	return transport_channel_post(team, to, &envelope, &value, 0, &ticket, blocked);
}

static void must_receive(struct transport_team *team, int from, int64_t expected)
{
	struct wait_word blocked;
	int64_t value;
	struct transport_message *message = transport_channel_match(team, from, 7, &blocked);
	assert_non_null(message);
	memcpy(&value, transport_channel_payload(team, from, message), sizeof value);
	assert_int_equal(value, expected);
	transport_channel_take(team, from, message, LS_OK);
}

static void test_apart(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(SIZE);
	struct transport_team *team[] = {open_team(job, 0), open_team(job, 1)};
	struct transport_team *all[] = {&job->ranks[3].team, &job->ranks[1].team};
	struct wait_word blocked;
	/* Rank 1 of the team is rank 1 of the world, and its rank 0 is rank 3 there. */
	assert_true(post(team[1], 0, 11, &blocked));
	assert_true(post(all[1], 3, 22, &blocked));
	must_receive(all[0], 1, 22);
	assert_null(transport_channel_match(all[0], 1, 7, &blocked));
	must_receive(team[0], 1, 11);
	assert_null(transport_channel_match(team[0], 1, 7, &blocked));
	assert_int_equal(blocked.edge.owner, 3);
	assert_int_equal(blocked.edge.peer, 1);
	assert_ptr_equal((const char *)job->ranks[3].transport.segment + blocked.edge.offset,
			 blocked.word);
	/* What a member writes, the other sees in its own mapping. */
	atomic_store(&transport_area_of(team[1], 1)->finished, 5);
	assert_int_equal(atomic_load(&transport_area_of(team[0], 1)->finished), 5);
	assert_int_equal(atomic_load(&transport_area_of(all[0], 1)->finished), 0);
	assert_true(transport_is_valid(team[0]) && transport_is_valid(team[1]));
	assert_true(transport_reads_me(team[0]));
	for (int i = 0; i < 2; i++)
		close_team(team[i]);
	test_job_close(job);
}

static bool is_zero(const void *memory, size_t bytes)
{
	const unsigned char *at = memory;
	while (bytes > 0 && *at == 0)
		at++, bytes--;
	return bytes == 0;
}

static bool is_new_channel(const struct transport_channel *channel)
{
	bool fresh = is_zero(channel, offsetof(struct transport_channel, slots));
	for (int i = 0; i < TRANSPORT_CHANNEL_SLOTS; i++)
		fresh = fresh && atomic_load(&channel->slots[i].state) == 0;
	return fresh;
}

static bool is_new_box(const struct mail_ring *ring)
{
	bool fresh = atomic_load(&ring->taken) == 0 && is_zero(ring->rts, sizeof ring->rts);
	for (int i = 0; i < MAIL_SLOTS; i++)
		fresh = fresh && atomic_load(&ring->slots[i].sequence) == 0 &&
			atomic_load(&ring->slots[i].held) == 0 && atomic_load(&ring->freed[i]) == 0;
	return fresh;
}

/* Posts messages until the ring is full, every other one long; takes some. */
static void use_box(struct mail_ring *ring, unsigned count)
{
	struct mail_message message;
	struct mail_out out;
	struct mail_in in;
	transport_mail_out_init(&out);
	transport_mail_in_init(&in);
	for (unsigned i = 0; i < count && transport_mail_find_room(ring, &out, MAIL_SLOTS); i++) {
		struct mail_envelope envelope = {.count = 1};
		if (i % 2)
			envelope.rts = (uint16_t)(1 + transport_mail_rts_alloc(ring, &out, false,
									       4096, false, 1000));
		transport_mail_post(ring, &out, &envelope, "12345678", 8);
		if (i % 3 == 0 && transport_mail_poll(ring, &in, &message))
			transport_mail_free_slot(ring, &in, &message);
	}
}

static bool is_new(struct transport_area *area, int size)
{
	bool fresh = is_zero(area, offsetof(struct transport_area, times_closed)) &&
		     is_zero(area->inboxes, sizeof area->inboxes) &&
		     atomic_load(&area->mail_ended) == 0 &&
		     is_zero(&area->claim, offsetof(struct transport_area, entries) -
						   offsetof(struct transport_area, claim));
	for (int i = 0; i < TRANSPORT_ENTRIES; i++)
		fresh = fresh && atomic_load(&area->entries[i].signal) == 0;
	for (int q = 0; q < size; q++)
		fresh = fresh && is_new_channel(&transport_inbox(area, q)->channel) &&
			is_new_box(&transport_inbox(area, q)->mail);
	return fresh;
}

/* Everything in it was used; the next members find nothing of it but how many there were before. */
static void test_again(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(SIZE);
	for (int round = 0; round < 3; round++) {
		struct transport_team *team[] = {open_team(job, 0), open_team(job, 1)};
		struct transport_area *area = transport_area_of(team[0], 0);
		uint64_t seq = round == 1 ? 3 : 1000;
		struct wait_word blocked;
		int64_t sent = 0;
		assert_true(is_new(area, 2));
		assert_true(transport_inbox_open(team[0], 0, 1));
		use_box(transport_mail(team[0], 0, 1), round == 1 ? 3 : 1000);
		while (post(team[1], 0, sent, &blocked)) /* nobody takes them */
			sent++;
		assert_int_equal(sent, TRANSPORT_CHANNEL_SLOTS);
		must_receive(team[0], 1, 0);
		_Atomic uint64_t *words[] = {&area->finished,   &area->completed_seq,
					     &area->claim,      &area->cause,
					     &area->looked_ns,  &area->reported,
					     &area->stopped[0], &area->mail_ended};
		for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
			atomic_store(words[i], UINT64_MAX);
		for (uint64_t s = 1; s <= seq; s++)
			atomic_store(&transport_entry(team[0], 0, s)->signal,
				     transport_signal(s, 3));
		atomic_store(&area->times_closed, (uint64_t)round + 1);
		assert_false(is_new(area, 2));
		for (int i = 0; i < 2; i++)
			transport_area_reset(&job->ranks[members[i]].transport, areas[i], 2, seq);
		assert_true(is_new(area, 2));
		assert_int_equal(atomic_load(&area->times_closed), round + 1);
		for (int i = 0; i < 2; i++)
			close_team(team[i]);
	}
	test_job_close(job);
}

static int64_t there(struct test_job *job, int rank)
{
	struct stat stat;
	assert_int_equal(fstat(job->ranks[rank].transport.segment_fd, &stat), 0);
	return stat.st_blocks * 512;
}

/* An area takes what its members need, once. */
static void test_memory(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(SIZE);
	struct transport *transport = &job->ranks[1].transport;
	int64_t before = there(job, 1), page = TRANSPORT_PAGE_BYTES;
	assert_int_equal(transport_area_grow(transport, 3, 2, false), LS_OK);
	int64_t two = there(job, 1) - before;
	int64_t needed = (int64_t)offsetof(struct transport_area, cells);
	assert_true(two >= needed && two <= needed + 2 * page);
	assert_int_equal(transport_area_grow(transport, 3, 2, false), LS_OK);
	assert_int_equal(there(job, 1) - before, two);
	assert_int_equal(transport_area_grow(transport, 3, SIZE, true), LS_OK);
	int64_t reports = SIZE * (int64_t)sizeof(struct transport_report);
	assert_in_range(there(job, 1) - before - two, reports, reports + 2 * page);
	test_job_close(job);
}

/* Inboxes and cells get their memory when they are opened, by whichever rank. */
static void test_memory_of_inboxes(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(SIZE);
	struct transport_team *team[] = {open_team(job, 0), open_team(job, 1)};
	int owner = members[0];
	struct transport_area *area = transport_area_of(team[0], 0);
	int64_t inbox = sizeof(struct transport_inbox), page = TRANSPORT_PAGE_BYTES;
	int64_t before = there(job, owner);
	assert_false(transport_inbox_is_open(area, 1));
	assert_true(transport_inbox_open(team[1], 0, 1));
	assert_true(transport_inbox_is_open(area, 1) && !transport_inbox_is_open(area, 0));
	int64_t opened = there(job, owner);
	assert_in_range(opened - before, inbox, inbox + 2 * page);
	assert_true(transport_inbox_open(team[0], 0, 1));
	assert_int_equal(there(job, owner), opened);
	assert_true(transport_cells_open(team[0]));
	assert_in_range(there(job, owner) - opened, sizeof(struct mail_cells) - 2 * page,
			sizeof(struct mail_cells) + 2 * page);
	for (int i = 0; i < 2; i++)
		close_team(team[i]);
	test_job_close(job);
}

/* Before Linux 5.14 inboxes get all their memory at the beginning, and again after a reset. */
static void test_memory_without_populate(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(SIZE);
	struct transport *transport = &job->ranks[members[0]].transport;
	int64_t before = there(job, members[0]), page = TRANSPORT_PAGE_BYTES;
	transport->populates = false;
	struct transport_team *team = open_team(job, 0);
	struct transport_area *area = transport_area_of(team, 0);
	int64_t needed = (int64_t)transport_area_reports_at(2) +
			 SIZE * (int64_t)sizeof(struct transport_report);
	assert_in_range(there(job, members[0]) - before, needed, needed + 4 * page);
	for (int round = 0; round < 2; round++) {
		for (int q = 0; q < 2; q++)
			assert_true(transport_inbox_is_open(area, q) &&
				    transport_inbox_open(team, 0, q));
		assert_true(transport_cells_open(team));
		transport_area_reset(transport, areas[0], 2, 0);
	}
	close_team(team);
	test_job_close(job);
}

/* A rank has a topic in each of its first groups, and the ranks of a group have different ones. */
static void test_topics(void **state)
{
	(void)state;
	enum { OTHERS = TRANSPORT_TOPIC_MESSAGES - 1 };
	for (int fixed = 0; fixed < OTHERS; fixed++) {
		bool of_areas[WAIT_TOPICS + 1] = {0}, of_ranks[WAIT_TOPICS + 1] = {0};
		for (int i = 0; i < OTHERS; i++) {
			uint8_t area = transport_topic(fixed, i), rank = transport_topic(i, fixed);
			assert_in_range(area, 1, OTHERS);
			assert_in_range(rank, 1, OTHERS);
			assert_false(of_areas[area] || of_ranks[rank]);
			of_areas[area] = of_ranks[rank] = true;
		}
	}
	assert_in_range(transport_topic(RANKS_WORLD_MAX - 1, UINT16_MAX), 1, OTHERS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_memory_of_inboxes),
		cmocka_unit_test(test_memory_without_populate),
		cmocka_unit_test(test_topics),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
