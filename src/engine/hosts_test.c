/* SPDX-License-Identifier: BSD-3-Clause
 * A group some of whose members are on another host: the engine sends and receives, and waits, as
 * if they were not. Ranks 0 and 1 are on one host, rank 2 on another; what is between the hosts is
 * a loop-back that is late and has little room. */
#include "engine/engine_fixture.h"
#include "transport/hosts_fixture.h"

#include <sched.h>

enum { RANKS = 3, FAR = 2, MANY = 300, LONGEST = 300000 };

static const int host_of[RANKS] = {0, 0, 1};

struct hosts {
	struct fixture *fixture;
	struct loop *loop;
	_Atomic bool stop;
	pthread_t drivers[RANKS];
};

/* ---- fixture ---- */

static struct hosts *open_hosts(uint64_t seed)
{
	struct hosts *hosts = calloc(1, sizeof *hosts);
	struct fixture *fixture = calloc(1, sizeof *fixture);
	const struct settings settings = {.messages = MAIL_SLOTS};
	struct plan_table table;
	MUST(hosts && fixture);
	plan_table_default(&table);
	hosts->fixture = fixture;
	fixture->job = test_job_new(RANKS, TEST_JOB_LIMIT_MS);
	hosts->loop = hosts_connect(fixture->job, host_of, seed);
	for (int r = 0; r < RANKS; r++) {
		struct unit *unit = &fixture->units[r];
		struct trace_options options = {
			.job = TEST_JOB_ID, .rank = r, .world_size = RANKS, .records = 16};
		*unit = (struct unit){.fixture = fixture,
				      .link = &fixture->job->ranks[r],
				      .rank = r,
				      .size = RANKS};
		unit->link->waiter.cause = &fixture->cause;
		MUST(trace_init(&unit->trace, &options) == LS_OK);
		MUST(engine_init(&unit->engine, &unit->link->team, &unit->trace,
				 &unit->link->memory, &settings) == LS_OK);
		engine_begin(&unit->engine, &fixture->cause, &table);
	}
	return hosts;
}

static void close_hosts(struct hosts *hosts)
{
	hosts_disconnect(hosts->fixture->job, hosts->loop);
	fixture_close(hosts->fixture);
	free(hosts);
}

struct driver {
	struct hosts *hosts;
	int rank;
};

/* Stands for whoever drives while the rank's own threads sleep. */
static void *drive(void *argument)
{
	struct driver *driver = argument;
	struct transport *transport = &driver->hosts->fixture->job->ranks[driver->rank].transport;
	while (!atomic_load(&driver->hosts->stop))
		if (!transport_advance(transport))
			sched_yield();
	return NULL;
}

/* A thread of each rank runs it, while another one drives. */
static void run(unit_function *function)
{
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct hosts *hosts = open_hosts(seed);
		struct driver drivers[RANKS];
		for (int r = 0; r < RANKS; r++) {
			drivers[r] = (struct driver){hosts, r};
			MUST(pthread_create(&hosts->drivers[r], NULL, drive, &drivers[r]) == 0);
		}
		fixture_run(hosts->fixture, function);
		atomic_store(&hosts->stop, true);
		for (int r = 0; r < RANKS; r++)
			wait_join(hosts->drivers[r]);
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
	op->p2p.blocks = true;
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

static const uint64_t lengths[] = {0, 1, 8, 24, 25, 191, 192, 193, 5000, LONGEST};
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

/* ---- words ---- */

static void await_word(struct unit *unit, int owner, const _Atomic uint64_t *word, uint64_t value,
		       unsigned segment)
{
	struct wait_word wait;
	transport_wait_word(&unit->link->team, owner, word, value, owner, &wait);
	MUST(wait.edge.segment == segment);
	MUST(wait.edge.owner == owner && wait.edge.peer == owner);
	/* It names the writer's own copy, also where it waits for another one. */
	const struct transport *writer = &unit->fixture->job->ranks[owner].transport;
	const _Atomic uint64_t *copy =
		(const void *)((const char *)writer->segment + wait.edge.offset);
	MUST(copy == &transport_area_of(&unit->fixture->job->ranks[owner].team, owner)->finished);
	MUST(test_job_await(unit->link, &wait) == LS_OK);
	MUST(atomic_load(copy) >= value);
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

/* Who sees that a member has entered sees what it has called. */
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
	struct hosts *hosts = open_hosts(1);
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
	assert_int_equal(engine_abandon(&source->engine, &send, 0, false), ENGINE_BLOCKED);
	transport_cut(here, FAR);
	assert_int_equal(engine_abandon(&source->engine, &send, 0, false), ENGINE_DONE);
	memset(from, 2, LONGEST);
	while (!transport_is_lost(there, 0))
		transport_advance(there);
	assert_int_equal(engine_advance(&target->engine, &receive), ENGINE_FAILED);
	assert_int_equal(receive.status, LS_ABORTED);
	assert_null(memchr(to, 2, LONGEST));
	assert_int_equal(engine_abandon(&target->engine, &receive, 0, false), ENGINE_DONE);
	assert_false(transport_is_lost(here, FAR)); /* it has cut it itself */
	close_hosts(hosts);
	free(from);
	free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages), cmocka_unit_test(test_more_than_there_is_room_for),
		cmocka_unit_test(test_words),    cmocka_unit_test(test_entries),
		cmocka_unit_test(test_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
