/* SPDX-License-Identifier: BSD-3-Clause
 * A group some of whose members are on another host: the engine sends and receives, and waits, as
 * if they were not. Ranks 0 and 1 are on one host, rank 2 on another; what is between the hosts is
 * a loop-back that is late and has little room. */
#include "engine/call_fixture.h"
#include "engine/hosts_fixture.h"

#include <sched.h>

enum { RANKS = 3, FAR = 2, MANY = 300, LONGEST = 300000 };

static const int host_of[RANKS] = {0, 0, 1};

struct progress {
	struct hosts *hosts;
	_Atomic bool *stop;
	int rank;
};

/* Stands for whoever makes progress while the rank's own threads sleep. */
static void *make_progress(void *argument)
{
	struct progress *progress = argument;
	struct transport *transport =
		&progress->hosts->fixture->job->ranks[progress->rank].transport;
	while (!atomic_load(progress->stop))
		if (!transport_advance(transport))
			sched_yield();
	return NULL;
}

/* A thread of each rank runs it, while another one makes progress. */
static void run(unit_function *function)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct hosts *hosts = open_hosts(RANKS, host_of, seed);
		_Atomic bool stop = false;
		struct progress progress[RANKS];
		pthread_t threads[RANKS];
		for (int r = 0; r < RANKS; r++) {
			progress[r] = (struct progress){hosts, &stop, r};
			MUST(pthread_create(&threads[r], NULL, make_progress, &progress[r]) == 0);
		}
		fixture_run(hosts->fixture, function);
		atomic_store(&stop, true);
		for (int r = 0; r < RANKS; r++)
			wait_join(threads[r]);
		close_hosts(hosts);
	}
}

static void begin(struct unit *unit, struct engine_op *op, struct engine_workspace *workspace,
		  enum trace_kind kind, int peer, int tag, void *buffer, uint64_t count)
{
	memset(op, 0, sizeof *op);
	op->call = (struct engine_call){
		.kind = kind, .dtype = LS_UINT8, .peer = peer, .tag = tag, .count = count};
	if (kind == TRACE_SEND)
		op->call.send = buffer_host(buffer, count);
	else
		op->call.recv = buffer_host(buffer, count);
	op->p2p.is_blocking = true;
	engine_submit(&unit->engine, op, workspace);
}

static void transfer(struct unit *unit, enum trace_kind kind, int peer, int tag, void *buffer,
		     uint64_t count)
{
	struct engine_op op;
	begin(unit, &op, &unit->workspace, kind, peer, tag, buffer, count);
	MUST(unit_finish(unit, &op) == LS_OK);
}

/* ---- messages ---- */

static const uint64_t lengths[] = {0,   1,   8,    24,   25,   191,  192,
				   193, 194, 2112, 2113, 4096, 5000, LONGEST};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

static unsigned char byte_of(int from, int to, uint64_t length, uint64_t i)
{
	return (unsigned char)((uint64_t)from * 89 + (uint64_t)to * 53 + length + i * 7 + i / 250);
}

static void send_one(struct unit *unit, int to, int n)
{
	unsigned char *buffer = malloc(LONGEST);
	uint64_t length = lengths[n];
	MUST(buffer);
	for (uint64_t i = 0; i < length; i++)
		buffer[i] = byte_of(unit->rank, to, length, i);
	transfer(unit, TRACE_SEND, to, n, buffer, length);
	memset(buffer, 0, length); /* it is over, so nobody reads it */
	free(buffer);
}

static void receive_one(struct unit *unit, int from, int n)
{
	unsigned char *buffer = calloc(1, LONGEST);
	uint64_t length = lengths[n];
	MUST(buffer);
	transfer(unit, TRACE_RECV, from, n, buffer, length);
	for (uint64_t i = 0; i < length; i++)
		MUST(buffer[i] == byte_of(from, unit->rank, length, i));
	free(buffer);
}

/* Every pair, both ways, each length. */
static void exchange(struct unit *unit)
{
	for (int n = 0; n < LENGTHS; n++)
		for (int a = 0; a < RANKS; a++)
			for (int b = 0; b < RANKS; b++) {
				if (a != b && unit->rank == a)
					send_one(unit, b, n);
				if (a != b && unit->rank == b)
					receive_one(unit, a, n);
			}
}

static void test_messages(void **state)
{
	(void)state;
	run(exchange);
}

/* More than there is room for: the sender waits for `taken`, in its mirror. One that is received
 * last of all lies in a slot meanwhile, so that others pass it. */
static void flood(struct unit *unit)
{
	uint32_t number, got;
	int from = unit->rank == FAR ? 0 : FAR;
	if (unit->rank == 1)
		return;
	transfer(unit, TRACE_SEND, from, 7, &(uint32_t){77}, 4);
	if (unit->rank == 0)
		for (number = 0; number < MANY; number++)
			transfer(unit, TRACE_SEND, FAR, 1, &number, 4);
	for (number = 0; unit->rank == FAR && number < MANY; number++) {
		transfer(unit, TRACE_RECV, 0, 1, &got, 4);
		MUST(got == number);
	}
	transfer(unit, TRACE_RECV, from, 7, &got, 4);
	MUST(got == 77);
}

static void test_more_than_there_is_room_for(void **state)
{
	(void)state;
	run(flood);
}

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
		struct engine_op op;
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
		while (!transport_post(team, FAR, &envelope, block, offset, &tickets[i], &word))
			MUST(test_job_await(unit->link, &word) == LS_OK);
	}
	for (uint64_t i = 0; i < PASSED; i++)
		while (!transport_taken(team, FAR, tickets[i], &refused, &word))
			MUST(test_job_await(unit->link, &word) == LS_OK);
	MUST(transport_quiet(team, FAR, &word));
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
		while (!(message = transport_match(team, 0, PASSED_SEQ, &word)))
			MUST(test_job_await(unit->link, &word) == LS_OK);
		MUST(message->count == i && transport_must_fetch(team, 0, message));
		bool wanted = i % 2 == 0;
		while (wanted && !transport_collect(team, 0, message, to, &status, &word))
			MUST(test_job_await(unit->link, &word) == LS_OK);
		MUST(!wanted || (status == LS_OK && to[0] == i && to[PASSED_BYTES - 1] == i));
		if (i == 0)
			first = message;
		else
			transport_take(team, 0, message, LS_OK);
	}
	transport_take(team, 0, first, LS_OK);
}

static void pass(struct unit *unit)
{
	void *block;
	if (unit->rank == 1)
		return;
	MUST(memory_alloc(&unit->link->memory, PASSED * PASSED_BYTES, &block) == LS_OK);
	if (unit->rank == FAR)
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
	bool far = host_of[before] != host_of[unit->rank];
	for (uint64_t round = 1; round <= 50; round++) {
		if (unit->rank > 0)
			await_word(unit, before, &transport_area_of(team, before)->finished, round,
				   far ? WAIT_SEGMENT_MIRROR : WAIT_SEGMENT_MAPPED);
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

/* Who sees that a member has entered sees what it has called; members of its host also see its
 * phases. */
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

/* ---- failure ---- */

/* What a rank's thread is blocked on, for one whose operation has just been blocked. */
static void must_be_unproven(const struct engine_op *op)
{
	assert_true(op->word_count > 0);
	for (int i = 0; i < op->word_count; i++)
		assert_int_equal(op->words[i].edge.segment, WAIT_SEGMENT_MIRROR);
}

/* A long message is cut while its bytes are under way. The source's buffer is its own at once; the
 * receive fails, and says nothing of what it has got. */
static void test_cut(void **state)
{
	(void)state;
	struct hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[FAR];
	struct transport *here = &source->link->transport, *there = &target->link->transport;
	unsigned char *from = malloc(LONGEST), *to = calloc(1, LONGEST);
	struct engine_op send, receive;
	memset(from, 1, LONGEST);
	begin(source, &send, &source->workspace, TRACE_SEND, FAR, 5, from, LONGEST);
	begin(target, &receive, &target->workspace, TRACE_RECV, 0, 5, to, LONGEST);
	while (engine_advance(&target->engine, &receive) == ENGINE_BLOCKED && !to[0]) {
		assert_int_equal(engine_advance(&source->engine, &send), ENGINE_BLOCKED);
		must_be_unproven(&receive);
		must_be_unproven(&send);
		transport_advance(here);
		transport_advance(there);
	}
	assert_int_equal(to[LONGEST - 1], 0); /* it is under way, or this tests nothing */
	atomic_store(&hosts->fixture->cause, 1);
	assert_int_equal(engine_abandon(&source->engine, &send, NULL, false), ENGINE_BLOCKED);
	transport_cut(here, FAR);
	assert_int_equal(engine_abandon(&source->engine, &send, NULL, false), ENGINE_DONE);
	memset(from, 2, LONGEST);
	while (!transport_is_lost(there, 0))
		transport_advance(there);
	assert_int_equal(engine_advance(&target->engine, &receive), ENGINE_FAILED);
	assert_int_equal(receive.status, LS_PEER_DIED);
	assert_null(memchr(to, 2, LONGEST));
	assert_int_equal(engine_abandon(&target->engine, &receive, NULL, false), ENGINE_DONE);
	assert_false(transport_is_lost(here, FAR)); /* it has cut it itself */
	close_hosts(hosts);
	free(from);
	free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_more_than_there_is_room_for),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_entries),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_collectives),
		cmocka_unit_test(test_taken_without_payload),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
