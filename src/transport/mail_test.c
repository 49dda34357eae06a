/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "transport/mail.h"

struct ends {
	struct mail_ring *ring;
	struct mail_cells *cells;
	struct mail_out out;
	struct mail_in in;
};

static int open_box(void **state)
{
	struct ends *ends = calloc(1, sizeof *ends);
	ends->ring = aligned_alloc(64, sizeof *ends->ring);
	memset(ends->ring, 0, sizeof *ends->ring);
	ends->cells = aligned_alloc(64, sizeof *ends->cells);
	transport_mail_out_init(&ends->out);
	transport_mail_in_init(&ends->in);
	*state = ends;
	return 0;
}

static int close_box(void **state)
{
	struct ends *ends = *state;
	free(ends->ring);
	free(ends->cells);
	free(ends);
	return 0;
}

static bool post(struct ends *ends, uint64_t value, size_t bytes)
{
	unsigned char payload[MAIL_INLINE_BYTES] = {0};
	struct mail_envelope envelope = {.count = value, .tag = (int32_t)bytes};
	memcpy(payload, &value, sizeof value);
	if (!transport_mail_find_room(ends->ring, &ends->out, MAIL_SLOTS))
		return false;
	transport_mail_post(ends->ring, &ends->out, &envelope, payload, bytes);
	return true;
}

static uint64_t value_of(const struct ends *ends, const struct mail_message *message)
{
	uint64_t value = 0;
	size_t bytes = (size_t)message->envelope.tag;
	memcpy(&value, transport_mail_payload(ends->ring, ends->cells, message, bytes),
	       bytes < 8 ? bytes : 8);
	return value;
}

static void test_sizes(void **state)
{
	struct ends *ends = *state;
	struct mail_message message;
	for (size_t bytes = 0; bytes <= MAIL_INLINE_BYTES; bytes++) {
		uint64_t value = bytes >= 8 ? UINT64_C(0x1234567890abcdef) + bytes : 0;
		assert_false(transport_mail_poll(ends->ring, &ends->in, &message));
		assert_true(post(ends, value, bytes));
		assert_true(transport_mail_poll(ends->ring, &ends->in, &message));
		assert_int_equal(message.envelope.count, value);
		assert_int_equal(value_of(ends, &message), value);
		transport_mail_free_slot(ends->ring, &ends->in, &message);
	}
}

/* Payloads that are too long for a slot lie in one cell, or in both of a pair. */
static void test_cells(void **state)
{
	static const struct {
		uint64_t bytes;
		uint16_t cell;
		bool there;
	} cases[] = {
		{MAIL_INLINE_BYTES + 1, 1, true},
		{MAIL_INLINE_BYTES + 1, 0, false},
		{MAIL_CELL_BYTES, 2 * MAIL_CELL_PAIRS, true},
		{MAIL_CELL_BYTES, 2 * MAIL_CELL_PAIRS + 1, false},
		{MAIL_CELL_BYTES + 1, 2 * MAIL_CELL_PAIRS - 1, true},
		{MAIL_CELL_BYTES + 1, 2 * MAIL_CELL_PAIRS, false},
		{MAIL_EAGER_BYTES, 1, true},
		{MAIL_EAGER_BYTES + 1, 1, false},
		{MAIL_EAGER_BYTES, UINT16_MAX, false},
	};
	struct ends *ends = *state;
	const unsigned char *all = &ends->cells->cells[0][0][0];
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct mail_message message = {.envelope = {.cell = cases[i].cell}};
		const unsigned char *payload =
			transport_mail_payload(ends->ring, ends->cells, &message, cases[i].bytes);
		assert_ptr_equal(payload, cases[i].there ? all + (size_t)(cases[i].cell - 1) *
									   MAIL_CELL_BYTES
							 : NULL);
		assert_true(!payload || payload + cases[i].bytes <= all + sizeof *ends->cells);
	}
}

/* A source knows of each message whether it has left its slot, also long afterwards. */
static void test_has_left(void **state)
{
	enum { TURNS = 1000, KEPT = 5 };
	struct ends *ends = *state;
	struct mail_message message, kept = {0};
	for (uint64_t i = 1; i < TURNS; i++) {
		assert_true(post(ends, i, 8));
		uint64_t position = ends->out.next - 1;
		assert_false(transport_mail_has_left(ends->ring, &ends->out, position));
		assert_true(transport_mail_poll(ends->ring, &ends->in, &message));
		if (i == KEPT) {
			kept = message;
			continue;
		}
		transport_mail_free_slot(ends->ring, &ends->in, &message);
		assert_true(transport_mail_has_left(ends->ring, &ends->out, position));
		assert_true(transport_mail_has_left(ends->ring, &ends->out, 1));
		assert_true(i < KEPT ||
			    !transport_mail_has_left(ends->ring, &ends->out, kept.position));
	}
	transport_mail_free_slot(ends->ring, &ends->in, &kept);
	assert_true(transport_mail_has_left(ends->ring, &ends->out, kept.position));
}

/* There is room for as many as the limit says, whatever its size, and again once some are taken. */
static void test_room(void **state)
{
	struct ends *ends = *state;
	struct mail_message messages[MAIL_SLOTS];
	for (uint64_t i = 0; i < MAIL_SLOTS; i++)
		assert_true(post(ends, i, 8));
	assert_false(post(ends, 99, 8));
	for (uint64_t i = 0; i < MAIL_SLOTS; i++) {
		assert_true(transport_mail_poll(ends->ring, &ends->in, &messages[i]));
		assert_int_equal(messages[i].envelope.count, i);
	}
	assert_false(transport_mail_poll(ends->ring, &ends->in, &messages[0]));
	transport_mail_free_slot(ends->ring, &ends->in, &messages[17]);
	assert_true(post(ends, 100, 8));
	assert_false(post(ends, 101, 8));
	/* Sixty-three slots are passed over on the way to the one that is free. */
	assert_true(transport_mail_poll(ends->ring, &ends->in, &messages[17]));
	assert_int_equal(messages[17].envelope.count, 100);
	assert_int_equal(messages[17].slot, transport_mail_index(18));
	assert_false(transport_mail_find_room(ends->ring, &ends->out, 1));
}

/* A source that finds little room learns that it looks too often, unless the owner does nothing. */
static void test_receiver_lags(void **state)
{
	struct ends *ends = *state;
	struct mail_message messages[MAIL_SLOTS];
	for (uint64_t i = 0; i < MAIL_SLOTS; i++) {
		assert_true(post(ends, i, 8));
		assert_false(ends->out.receiver_lags);
		assert_true(transport_mail_poll(ends->ring, &ends->in, &messages[i]));
	}
	assert_false(post(ends, 0, 8));
	assert_false(ends->out.receiver_lags);
	transport_mail_free_slot(ends->ring, &ends->in, &messages[0]);
	assert_true(post(ends, 0, 8));
	assert_true(ends->out.receiver_lags);
	ends->out.receiver_lags = false;
	assert_false(post(ends, 0, 8));
	assert_false(ends->out.receiver_lags);
	for (int i = 1; i <= MAIL_SLOTS / 2; i++)
		transport_mail_free_slot(ends->ring, &ends->in, &messages[i]);
	for (int i = 1; i <= MAIL_SLOTS / 2; i++)
		assert_true(post(ends, 0, 8));
	assert_false(ends->out.receiver_lags);
}

/* Slots are freed in any order, messages arrive in their order, for many rounds; some stay for
 * long. */
static void test_any_order(void **state)
{
	struct ends *ends = *state;
	struct mail_message lying[MAIL_SLOTS];
	uint64_t posted = 0, seen = 0, seed = 7;
	int count = 0;
	for (int turn = 0; turn < 200000; turn++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
		unsigned choice = (unsigned)(seed >> 60);
		if (choice < 7) {
			posted += post(ends, posted, 8);
		} else if (choice < 11 && count < MAIL_SLOTS &&
			   transport_mail_poll(ends->ring, &ends->in, &lying[count])) {
			assert_int_equal(lying[count].envelope.count, seen++);
			count++;
		} else if (count > 0) {
			int at = (int)((seed >> 32) % (unsigned)count);
			assert_int_equal(value_of(ends, &lying[at]), lying[at].envelope.count);
			transport_mail_free_slot(ends->ring, &ends->in, &lying[at]);
			lying[at] = lying[--count];
		}
		assert_true(posted - seen <= MAIL_SLOTS);
	}
	assert_true(seen > 10000);
}

static void test_rts_slots(void **state)
{
	struct ends *ends = *state;
	struct mail_ring *ring = ends->ring;
	for (uint32_t use = 1; use <= 3; use++) {
		unsigned index = transport_mail_rts_alloc(ring, &ends->out, false, 4096, false,
							  10 * MAIL_PIECE_BYTES);
		struct mail_rts *rts = &ring->rts[index];
		uint64_t piece, pieces = transport_mail_pieces(rts->bytes);
		assert_int_equal(index, 0);
		assert_int_equal(rts->generation, use);
		assert_int_equal(pieces, 10);
		assert_false(transport_mail_is_cancelled(rts));
		assert_false(transport_mail_match(rts, use + 1));
		assert_true(transport_mail_match(rts, use));
		assert_false(transport_mail_cancel(rts, use));
		for (uint64_t i = 0; i < 4; i++) {
			assert_true(transport_mail_claim(rts, use, pieces, &piece));
			assert_int_equal(piece, i);
		}
		if (use == 1) {
			assert_int_equal(transport_mail_close(rts, use, pieces), 4);
			assert_false(transport_mail_claim(rts, use, pieces, &piece));
			assert_int_equal(transport_mail_close(rts, use, pieces), 4);
			assert_true(transport_mail_is_closed(rts, rts->generation));
			assert_false(transport_mail_is_cancelled(rts));
		} else {
			for (uint64_t i = 4; i < pieces; i++)
				assert_true(transport_mail_claim(rts, use, pieces, &piece));
			assert_false(transport_mail_claim(rts, use, pieces, &piece));
			assert_int_equal(transport_mail_close(rts, use, pieces), 10);
		}
		/* A late claim changes nothing of a later use. */
		assert_false(transport_mail_claim(rts, use - 1, pieces, &piece));
		assert_int_equal(transport_mail_close(rts, use - 1, pieces), 0);
		transport_mail_rts_free(&ends->out, index, use - 1);
		assert_int_equal(ends->out.rts[0], 1);
		transport_mail_rts_free(&ends->out, index, use);
	}
	unsigned index = transport_mail_rts_alloc(ring, &ends->out, false, 4096, true, 1);
	assert_true(transport_mail_cancel(&ring->rts[index], 4));
	assert_true(transport_mail_is_cancelled(&ring->rts[index]));
	assert_false(transport_mail_match(&ring->rts[index], 4));
	/* One that is in use is not taken again. */
	assert_int_equal(transport_mail_rts_alloc(ring, &ends->out, false, 0, false, 1), 1);
}

/* Their numbers begin again after 2^32 uses: the words go on growing, and no use has the number 0,
 * at which a reset would take the slot for one that was never used. */
static void test_rts_slots_used_for_long(void **state)
{
	struct ends *ends = *state;
	struct mail_ring *ring = ends->ring;
	static const uint64_t none[2];
	static const uint32_t uses[] = {UINT32_MAX - 1, UINT32_MAX, 1, 2};
	for (size_t stop = 1; stop <= sizeof uses / sizeof uses[0]; stop++) {
		transport_mail_out_init(&ends->out);
		ends->out.generations[0] = ends->out.generations[1] = UINT32_MAX - 2;
		ring->rts[0].done = ring->rts[1].done = transport_mail_word(UINT32_MAX - 2, 0);
		for (size_t i = 0; i < stop; i++) {
			for (unsigned slot = 0; slot < 2; slot++) {
				assert_int_equal(transport_mail_rts_alloc(ring, &ends->out, false,
									  0, false, 1),
						 slot);
				assert_int_equal(ring->rts[slot].generation, uses[i]);
				assert_true(transport_mail_match(&ring->rts[slot], uses[i]));
			}
			ends->out.rts[0] = UINT64_MAX;
			transport_mail_reclaim(ring, &ends->out, false, none);
			assert_int_equal(ends->out.rts[0] & 3, 3);
			transport_mail_rts_done(ring, 0, uses[i]);
			transport_mail_rts_done(ring, 1, uses[i]);
			ends->out.rts[0] = UINT64_MAX;
			transport_mail_reclaim(ring, &ends->out, false, none);
			assert_int_equal(ends->out.rts[0] & 3, 0);
		}
		transport_mail_reset(ring);
		for (unsigned slot = 0; slot < 2; slot++) {
			assert_int_equal(ring->rts[slot].generation, 0);
			assert_true(ring->rts[slot].done == 0 && ring->rts[slot].cursor == 0);
		}
	}
}

/* All are in use: any of them may be over first. Nor does a half wait for the other one. */
static void test_rts_slots_reclaimed(void **state)
{
	struct ends *ends = *state;
	struct mail_ring *ring = ends->ring;
	struct mail_out *out = &ends->out;
	static const uint64_t none[2];
	for (unsigned half = 0; half < 2; half++)
		for (unsigned i = 0; i < MAIL_SLOTS; i++) {
			transport_mail_reclaim(ring, out, half, none);
			assert_true(transport_mail_has_rts(out, half));
			assert_int_equal(transport_mail_rts_alloc(ring, out, half, 4096, false, 1),
					 half * MAIL_SLOTS + i);
		}
	for (uint32_t use = 1; use <= 5; use += 2)
		for (unsigned i = MAIL_RTS; i-- > 0;) {
			unsigned half = i / MAIL_SLOTS;
			uint64_t kept[2] = {0};
			transport_mail_reclaim(ring, out, half, none);
			assert_false(transport_mail_has_rts(out, half));
			assert_int_equal(out->returned, ring->returned);
			transport_mail_rts_done(ring, i, use);
			assert_int_equal(ring->returned, out->returned + 1);
			transport_mail_reclaim(ring, out, !half, kept);
			assert_false(transport_mail_has_rts(out, !half));
			assert_true(transport_mail_has_rts(out, half));
			assert_int_equal(transport_mail_rts_alloc(ring, out, half, 4096, false, 1),
					 i);
			transport_mail_rts_done(ring, i, use + 1);
			kept[half] = UINT64_C(1) << i % MAIL_SLOTS;
			transport_mail_reclaim(ring, out, half, kept);
			assert_false(transport_mail_has_rts(out, half));
			transport_mail_reclaim(ring, out, half, none);
			assert_int_equal(transport_mail_rts_alloc(ring, out, half, 4096, false, 1),
					 i);
		}
}

/* The owner is to look, though there is nothing new: it learns so, and later messages come as
 * before. */
static void test_passes(void **state)
{
	struct ends *ends = *state;
	struct mail_ring *ring = ends->ring;
	struct mail_message message;
	for (uint64_t turn = 0; turn < 1000; turn++) {
		const _Atomic uint64_t *awaited = transport_mail_awaited(ring, &ends->in);
		uint64_t next = ends->in.next;
		assert_true(*awaited < next);
		for (uint64_t i = 0; i <= turn % 150; i++)
			transport_mail_skip(ring, &ends->out);
		assert_true(*awaited >= next);
		assert_false(ends->in.skipped);
		assert_false(transport_mail_poll(ring, &ends->in, &message));
		assert_true(ends->in.skipped);
		ends->in.skipped = false;
		if (turn % 3)
			continue;
		assert_true(transport_mail_find_room(ring, &ends->out, MAIL_SLOTS));
		struct mail_envelope envelope = {.count = turn};
		transport_mail_post(ring, &ends->out, &envelope, NULL, 0);
		assert_true(transport_mail_poll(ring, &ends->in, &message));
		assert_int_equal(message.envelope.count, turn);
		transport_mail_free_slot(ring, &ends->in, &message);
		ends->in.skipped = false;
	}
}

/* Pieces cover any length, without gaps, in not too many and not too large ones. */
static void test_pieces(void **state)
{
	(void)state;
	for (uint64_t bytes = 1; bytes < UINT64_C(1) << 40; bytes = bytes * 3 / 2 + 1) {
		uint64_t piece = transport_mail_piece_bytes(bytes),
			 pieces = transport_mail_pieces(bytes);
		assert_true(piece >= MAIL_PIECE_LEAST_BYTES && piece <= MAIL_PIECE_BYTES);
		assert_true(pieces * piece >= bytes && (pieces - 1) * piece < bytes);
		assert_true(pieces < MAIL_CLAIMS);
	}
}

enum { STREAM = 300000 };

static void *send_stream(void *argument)
{
	struct ends *ends = argument;
	for (uint64_t i = 0; i < STREAM;)
		i += post(ends, i, i % 3 ? 8 : 100);
	return NULL;
}

/* Each from a thread of its own, in another order than they came. */
static void test_threads(void **state)
{
	struct ends *ends = *state;
	struct mail_message lying[2];
	pthread_t thread;
	int count = 0;
	assert_int_equal(pthread_create(&thread, NULL, send_stream, ends), 0);
	for (uint64_t i = 0; i < STREAM;) {
		if (!transport_mail_poll(ends->ring, &ends->in, &lying[count]))
			continue;
		assert_int_equal(lying[count].envelope.count, i);
		assert_int_equal(value_of(ends, &lying[count]), i);
		i++;
		if (++count < 2)
			continue;
		transport_mail_free_slot(ends->ring, &ends->in, &lying[1]);
		count = 1;
		if (i % 50 == 0) {
			transport_mail_free_slot(ends->ring, &ends->in, &lying[0]);
			count = 0;
		}
	}
	pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sizes, open_box, close_box),
		cmocka_unit_test_setup_teardown(test_cells, open_box, close_box),
		cmocka_unit_test_setup_teardown(test_has_left, open_box, close_box),
		cmocka_unit_test_setup_teardown(test_receiver_lags, open_box, close_box),
		cmocka_unit_test_setup_teardown(test_room, open_box, close_box),
		cmocka_unit_test_setup_teardown(test_any_order, open_box, close_box),
		cmocka_unit_test_setup_teardown(test_rts_slots, open_box, close_box),
		cmocka_unit_test_setup_teardown(test_rts_slots_used_for_long, open_box, close_box),
		cmocka_unit_test_setup_teardown(test_rts_slots_reclaimed, open_box, close_box),
		cmocka_unit_test_setup_teardown(test_passes, open_box, close_box),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test_setup_teardown(test_threads, open_box, close_box),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
