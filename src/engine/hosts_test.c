/* SPDX-License-Identifier: BSD-3-Clause
 * A group with members on another host: the engine sends, receives and waits as if all were on one.
 * Ranks 0 and 1 are on one host, rank 2 on another; a loop-back with delays and little room
 * connects the hosts. */
#include "engine/call_fixture.h"
#include "op/hosts_run_fixture.h"

/* ---- collectives ---- */

/* As hosts_collective_test.c, but ranks sleep until a word comes. */
static void collectives(struct unit *unit)
{
	static const enum trace_kind kinds[] = {TRACE_ALLREDUCE, TRACE_ALLTOALL, TRACE_BROADCAST,
						TRACE_BARRIER, TRACE_REDUCE_SCATTER};
	for (uint64_t i = 0; i < 40; i++) {
		struct call call = {.kind = kinds[i % 5],
				    .dtype = LS_INT32,
				    .size = RANKS,
				    .root = (int)(i % RANKS),
				    .salt = i,
				    .count = i % 5 == 3 ? 0
					     : i % 2    ? 7000
							: i * 5};
		struct call_buffers buffers;
		struct op op;
		for (int r = 0; r < RANKS; r++) {
			call.parts[r] = call.count;
			for (int q = 0; q < RANKS; q++)
				call.pairs[r][q] = call.count;
		}
		call_open(&call, unit->rank, &op, &buffers);
		MUST(unit_call(unit, &op) == LS_OK);
		call_check(&call, unit->rank, &buffers);
		free(buffers.memory);
	}
}

static void test_collectives(void **state)
{
	(void)state;
	run(collectives);
}

/* ---- messages of collectives ---- */

enum { PASSED = 100, PASSED_BYTES = 10000, PASSED_SEQ = 9 };

static void post_all(struct unit *unit, unsigned char *block)
{
	struct transport_team *team = &unit->link->team;
	struct transport_envelope envelope = {.seq = PASSED_SEQ, .bytes = PASSED_BYTES};
	uint64_t tickets[PASSED], offset;
	struct wait_word word;
	ls_status refused;
	for (uint64_t i = 0; i < PASSED; i++, block += PASSED_BYTES) {
		MUST(memory_offset(&unit->link->memory, block, PASSED_BYTES, &offset));
		memset(block, (int)i, PASSED_BYTES);
		envelope.count = i;
		while (!transport_channel_post(team, REMOTE, &envelope, block, offset, &tickets[i],
					       &word))
			MUST(test_job_await(unit->link, &word) == LS_OK);
	}
	for (uint64_t i = 0; i < PASSED; i++)
		while (!transport_channel_taken(team, REMOTE, tickets[i], &refused, &word))
			MUST(test_job_await(unit->link, &word) == LS_OK);
	MUST(transport_channel_quiet(team, REMOTE, &word));
}

/* Every second one is taken without its payload; the first one last, so that its slot is in use all
 * the time. */
static void take_all(struct unit *unit, unsigned char *to)
{
	struct transport_team *team = &unit->link->team;
	struct transport_message *message, *first = NULL;
	struct wait_word word;
	ls_status status = LS_OK;
	for (uint64_t i = 0; i < PASSED; i++) {
		while (!(message = transport_channel_match(team, 0, PASSED_SEQ, &word)))
			MUST(test_job_await(unit->link, &word) == LS_OK);
		MUST(message->count == i && hosts_must_fetch(team, 0, message));
		bool wanted = i % 2 == 0;
		while (wanted && !hosts_collect(team, 0, message, to, &status, &word))
			MUST(test_job_await(unit->link, &word) == LS_OK);
		MUST(!wanted || (status == LS_OK && to[0] == i && to[PASSED_BYTES - 1] == i));
		if (i == 0)
			first = message;
		else
			transport_channel_take(team, 0, message, LS_OK);
	}
	transport_channel_take(team, 0, first, LS_OK);
}

static void pass(struct unit *unit)
{
	void *block;
	if (unit->rank == 1)
		return;
	MUST(memory_alloc(&unit->link->memory, PASSED * PASSED_BYTES, &block) == LS_OK);
	if (unit->rank == REMOTE)
		take_all(unit, block);
	else
		post_all(unit, block);
	MUST(memory_free(&unit->link->memory, block, trace_caller_text) == LS_OK);
}

static void test_taken_without_payload(void **state)
{
	(void)state;
	run(pass);
}

/* ---- words ---- */

static void await_word(struct unit *unit, int owner, const _Atomic uint64_t *word, uint64_t value,
		       unsigned segment)
{
	struct wait_word wait;
	transport_wait_word(&unit->link->team, owner, word, value, owner, &wait);
	MUST(wait.edge.segment == segment);
	bool mirrored = segment == WAIT_SEGMENT_MIRROR;
	MUST(wait.edge.owner == (mirrored ? unit->rank : owner) && wait.edge.peer == owner);
	/* Other ranks of this host find it by owner and offset, also a mirror. */
	const struct transport *file = &unit->fixture->job->ranks[wait.edge.owner].transport;
	MUST(wait.edge.offset < file->file_bytes);
	MUST((const void *)((const char *)file->segment + wait.edge.offset) == (const void *)word ||
	     !mirrored);
	MUST(test_job_await(unit->link, &wait) == LS_OK);
	/* The writer has it, too. */
	const struct test_rank *writer = &unit->fixture->job->ranks[owner];
	MUST(atomic_load(&transport_area_of(&writer->team, owner)->finished) >= value);
}

/* Each stores its word in turn, once it has seen that of the one before. */
static void words(struct unit *unit)
{
	struct transport_team *team = &unit->link->team;
	int before = (unit->rank + RANKS - 1) % RANKS;
	bool remote = host_of[before] != host_of[unit->rank];
	for (uint64_t round = 1; round <= 50; round++) {
		if (unit->rank > 0)
			await_word(unit, before, &transport_area_of(team, before)->finished, round,
				   remote ? WAIT_SEGMENT_MIRROR : WAIT_SEGMENT_MAPPED);
		wait_store(&transport_area_of(team, unit->rank)->finished, round);
		transport_notify_all(team);
		if (unit->rank == 0)
			await_word(unit, before, &transport_area_of(team, before)->finished, round,
				   WAIT_SEGMENT_MIRROR);
	}
}

static void test_words(void **state)
{
	(void)state;
	run(words);
}

/* A rank that sees that a member has entered sees what the member has called; ranks of the member's
 * host also see its phases. */
static void entries(struct unit *unit)
{
	struct transport_team *team = &unit->link->team;
	for (uint64_t seq = 1; seq <= TRANSPORT_ENTRIES - 1; seq++) {
		struct transport_entry *mine = transport_entry(team, unit->rank, seq);
		mine->signature = seq * 11;
		mine->count = seq * 13;
		memcpy(mine->tiny, &seq, sizeof seq);
		wait_store(&mine->signal, transport_signal(seq, 0));
		transport_notify_all(team);
		wait_store(&mine->signal, transport_signal(seq, 3));
		transport_notify_all(team);
	}
	for (int q = 0; q < RANKS; q++)
		for (uint64_t seq = 1; seq <= TRANSPORT_ENTRIES - 1; seq++) {
			struct transport_entry *entry = transport_entry(team, q, seq);
			struct wait_word wait;
			uint64_t tiny;
			transport_wait_word(team, q, &entry->signal, transport_signal(seq, 0), q,
					    &wait);
			MUST(test_job_await(unit->link, &wait) == LS_OK);
			MUST(entry->signature == seq * 11 && entry->count == seq * 13);
			memcpy(&tiny, entry->tiny, sizeof tiny);
			MUST(tiny == seq);
			if (host_of[q] != host_of[unit->rank])
				continue;
			transport_wait_word(team, q, &entry->signal, transport_signal(seq, 3), q,
					    &wait);
			MUST(test_job_await(unit->link, &wait) == LS_OK);
		}
}

static void test_entries(void **state)
{
	(void)state;
	run(entries);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_collectives),
		cmocka_unit_test(test_taken_without_payload),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
