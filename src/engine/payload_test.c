/* SPDX-License-Identifier: BSD-3-Clause
 * The pages of payloads that travel with entries: how far a rank may run ahead of the ranks that
 * read them, and that it overwrites nothing that is still to be read. */
#include "engine/engine_fixture.h"

static struct op broadcast_of(unsigned char *buffer, uint64_t bytes, bool root)
{
	return (struct op){.call = {.kind = TRACE_BROADCAST,
				    .dtype = LS_INT8,
				    .send = buffer_host(root ? buffer : NULL, root ? bytes : 0),
				    .recv = buffer_host(buffer, bytes),
				    .count = bytes}};
}

/* The reader's next broadcast, which its root has published. */
static void read_one(struct unit *reader, uint64_t bytes)
{
	static unsigned char got[TRANSPORT_INLINE_BYTES];
	struct op op = broadcast_of(got, bytes, false);
	op.seq = ++reader->seq;
	engine_submit(reader->engine, &op, &reader->workspace);
	assert_int_equal(engine_advance(reader->engine, &op), OP_DONE);
	for (uint64_t i = 0; i < bytes; i++)
		assert_int_equal(got[i], (unsigned char)(reader->seq * 37 + i / 64));
}

/* A root that runs ahead of its reader: how far it comes, and that it writes over nothing. */
static int ahead_by(int algorithm, const uint64_t *sizes, uint64_t count)
{
	static unsigned char buffer[TRANSPORT_INLINE_BYTES];
	const struct settings settings = {.algorithm = algorithm};
	struct fixture *fixture = fixture_open(2, &settings);
	struct unit *root = &fixture->units[0], *reader = &fixture->units[1];
	int ahead = 0;
	for (uint64_t seq = 1; seq <= 300; seq++) {
		uint64_t bytes = sizes[seq % count];
		struct op op = broadcast_of(buffer, bytes, true);
		for (uint64_t i = 0; i < bytes; i++)
			buffer[i] = (unsigned char)(seq * 37 + i / 64);
		op.seq = ++root->seq;
		engine_submit(root->engine, &op, &root->workspace);
		while (engine_advance(root->engine, &op) == OP_BLOCKED) {
			ahead = ahead ? ahead : (int)(seq - 1);
			assert_int_equal(op.word_count, 1);
			assert_true(reader->seq + 1 < seq);
			read_one(reader, sizes[(reader->seq + 1) % count]);
		}
		assert_int_equal(op.status, LS_OK);
	}
	while (reader->seq < root->seq)
		read_one(reader, sizes[(reader->seq + 1) % count]);
	fixture_close(fixture);
	return ahead;
}

/* A reader that has entered the collective and not read the payload yet. */
static void a_payload_stays_until_all_have_left(void **state)
{
	(void)state;
	enum { BYTES = TRANSPORT_INLINE_BYTES / 2, PAYLOADS = TRANSPORT_INLINE_PAGES / 2 };
	static unsigned char buffers[3][BYTES];
	const struct settings settings = {0};
	struct fixture *fixture = fixture_open(2, &settings);
	struct unit *first = &fixture->units[0], *late = &fixture->units[1];
	struct op sums[2], op;
	for (int r = 1; r >= 0; r--) {
		struct unit *unit = &fixture->units[r];
		memset(buffers[r], 3 + r, BYTES);
		sums[r] = (struct op){.call = {.kind = TRACE_ALLREDUCE,
					       .dtype = LS_INT8,
					       .reduce = LS_SUM,
					       .peer = -1,
					       .send = buffer_host(buffers[r], BYTES),
					       .recv = buffer_host(buffers[r], BYTES),
					       .count = BYTES}};
		sums[r].seq = ++unit->seq;
		engine_submit(unit->engine, &sums[r], &unit->workspace);
		assert_int_equal(engine_advance(unit->engine, &sums[r]), r ? OP_BLOCKED : OP_DONE);
	}
	for (int i = 1; i <= PAYLOADS; i++) {
		op = broadcast_of(buffers[2], BYTES, true);
		op.seq = ++first->seq;
		engine_submit(first->engine, &op, &first->workspace);
		assert_int_equal(engine_advance(first->engine, &op),
				 i == PAYLOADS ? OP_BLOCKED : OP_DONE);
	}
	assert_int_equal(engine_advance(late->engine, &sums[1]), OP_DONE);
	for (int i = 0; i < BYTES; i++)
		assert_int_equal(buffers[1][i], 7);
	fixture_close(fixture);
}

static void payloads_wait_for_their_readers(void **state)
{
	(void)state;
	static const uint64_t tiny[] = {TRANSPORT_TINY_BYTES}, page[] = {TRANSPORT_PAGE_BYTES},
			      three[] = {3 * TRANSPORT_PAGE_BYTES},
			      most[] = {TRANSPORT_INLINE_BYTES},
			      mixed[] = {TRANSPORT_INLINE_BYTES, 200, 6000, 8, 12288};
	assert_int_equal(ahead_by(SETTING_ALGORITHM_AUTO, tiny, 1), TRANSPORT_ENTRIES - 1);
	assert_int_equal(ahead_by(SETTING_ALGORITHM_AUTO, page, 1), TRANSPORT_ENTRIES - 1);
	assert_int_equal(ahead_by(SETTING_ALGORITHM_AUTO, three, 1), TRANSPORT_INLINE_PAGES / 3);
	assert_int_equal(ahead_by(SETTING_ALGORITHM_AUTO, most, 1), TRANSPORT_INLINE_PAGES / 4);
	assert_int_equal(ahead_by(SETTING_ALGORITHM_AUTO, mixed, 5), 16);
}

/* A plan that reads the buffers themselves: there a plain one travels in the same pages, however
 * short it is, and the root waits for nobody until they are full. */
static void short_plain_buffers_travel_beside_entries(void **state)
{
	(void)state;
	static const uint64_t tiny[] = {TRANSPORT_TINY_BYTES}, page[] = {TRANSPORT_PAGE_BYTES},
			      three[] = {3 * TRANSPORT_PAGE_BYTES},
			      most[] = {TRANSPORT_INLINE_BYTES},
			      mixed[] = {TRANSPORT_INLINE_BYTES, 200, 6000, 8, 12288};
	assert_int_equal(ahead_by(SETTING_ALGORITHM_DIRECT, tiny, 1), TRANSPORT_ENTRIES - 1);
	assert_int_equal(ahead_by(SETTING_ALGORITHM_DIRECT, page, 1), TRANSPORT_ENTRIES - 1);
	assert_int_equal(ahead_by(SETTING_ALGORITHM_DIRECT, three, 1), TRANSPORT_INLINE_PAGES / 3);
	assert_int_equal(ahead_by(SETTING_ALGORITHM_DIRECT, most, 1), TRANSPORT_INLINE_PAGES / 4);
	assert_int_equal(ahead_by(SETTING_ALGORITHM_DIRECT, mixed, 5), 14);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(payloads_wait_for_their_readers),
		cmocka_unit_test(short_plain_buffers_travel_beside_entries),
		cmocka_unit_test(a_payload_stays_until_all_have_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
