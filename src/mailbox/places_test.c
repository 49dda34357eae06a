/* SPDX-License-Identifier: BSD-3-Clause
 * Long sends of plain memory by a call that blocks: the block has a few places, which the source
 * uses again as soon as the receiver has copied their last content. Two ranks, step by step in one
 * thread. */
#include "mailbox/mailbox_private.h"
#include "mailbox/mailbox_fixture.h"

enum { MANY = 64, WORDS = 17 * MAIL_PIECE_BYTES / 4 + 5, PIECES = 18 };

static const struct ranks first_gone = {{1}}, second_gone = {{2}};

static int open_pair(void **state)
{
	const struct settings settings = {.messages = MANY, .cma = SETTING_CMA_OFF};
	*state = fixture_open(2, &settings);
	return 0;
}

static int close_pair(void **state)
{
	fixture_close(*state);
	return 0;
}

struct message {
	struct op op;
	struct op_workspace workspace;
	uint32_t data[WORDS];
};

static struct message *begin(struct unit *unit, enum trace_kind kind, uint64_t count)
{
	struct message *message = calloc(1, sizeof *message);
	assert_non_null(message);
	struct buffer data = buffer_host(message->data, count * sizeof message->data[0]);
	message->op.call = (struct op_call){.kind = kind,
					    .dtype = LS_INT32,
					    .count = count,
					    .peer = 1 - unit->rank,
					    .tag = 1,
					    .send = data,
					    .recv = data};
	message->op.p2p.is_blocking = true;
	for (uint32_t i = 0; kind == TRACE_SEND && i < count; i++)
		message->data[i] = i * 2654435761u;
	mailbox_submit(unit->mailbox, &message->op, &message->workspace);
	return message;
}

static bool is_there(const struct op *op)
{
	struct wait_call call = {.words = op->words, .count = op->word_count, .any = true};
	return wait_satisfied(&call);
}

static uint64_t staged(const struct message *send)
{
	return (uint32_t)atomic_load(&send->op.p2p.rts->staged);
}

static enum op_progress advance(struct unit *unit, struct message *message)
{
	return mailbox_advance(unit->mailbox, &message->op);
}

/* The source stages as many pieces as there are places, and waits until half of them are free; so
 * does the receiver for the next piece. Nobody waits for what it has to do itself. */
static void test_in_turn(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = begin(source, TRACE_SEND, WORDS);
	assert_int_equal(advance(source, send), OP_BLOCKED);
	assert_true(send->op.p2p.in_places);
	assert_int_equal(send->op.p2p.pieces, PIECES);
	assert_int_equal(staged(send), MAIL_PLACES);
	assert_int_equal(advance(source, send), OP_BLOCKED);
	assert_int_equal(staged(send), MAIL_PLACES);
	assert_false(is_there(&send->op));

	struct message *receive = begin(owner, TRACE_RECV, WORDS);
	enum op_progress received = OP_BLOCKED, sent = OP_BLOCKED;
	for (uint64_t turns = 1; received == OP_BLOCKED; turns++) {
		assert_true(turns <= PIECES / MAIL_PLACES + 1);
		received = advance(owner, receive);
		assert_true(is_there(&send->op));
		if (received == OP_DONE)
			break;
		assert_false(is_there(&receive->op));
		sent = advance(source, send);
		assert_int_equal(sent, OP_BLOCKED);
		assert_true(staged(send) == PIECES || staged(send) == (turns + 1) * MAIL_PLACES);
		assert_true(is_there(&receive->op));
	}
	assert_memory_equal(receive->data, send->data, sizeof send->data);
	assert_int_equal(advance(source, send), OP_DONE);
	assert_null(send->op.input_block);
	free(receive);
	free(send);
}

/* Pieces that the receiver has not copied stay where they are. */
static void test_half_is_free(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = begin(source, TRACE_SEND, WORDS);
	struct message *receive = begin(owner, TRACE_RECV, WORDS);
	assert_int_equal(advance(source, send), OP_BLOCKED);
	struct mail_rts *rts = send->op.p2p.rts;
	/* As if the receiver had copied only so many. */
	for (uint64_t copied = 1; copied <= MAIL_PLACES / 2; copied++) {
		assert_false(is_there(&send->op));
		atomic_store(&rts->owner_copied, transport_mail_word(rts->generation, copied));
	}
	assert_true(is_there(&send->op));
	assert_int_equal(advance(source, send), OP_BLOCKED);
	assert_int_equal(staged(send), MAIL_PLACES + MAIL_PLACES / 2);
	const uint32_t *block = send->op.input_block;
	uint64_t words = MAIL_PIECE_BYTES / sizeof *block;
	for (uint64_t place = 0; place < MAIL_PLACES; place++) {
		uint64_t piece = place < MAIL_PLACES / 2 ? place + MAIL_PLACES : place;
		assert_memory_equal(block + place * words, send->data + piece * words,
				    MAIL_PIECE_BYTES);
	}
	atomic_store(&fixture->cause, 1); /* the group fails */
	unit_abandon(owner, &receive->op);
	unit_abandon(source, &send->op);
	assert_null(send->op.input_block);
	free(receive);
	free(send);
}

/* A rank that waits for a place or a piece learns that the other one is gone. */
static void test_other_is_gone(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	int peer;
	struct message *send = begin(source, TRACE_SEND, WORDS);
	assert_int_equal(advance(source, send), OP_BLOCKED);
	assert_int_equal(mailbox_needs(source->mailbox, &send->op, &second_gone, &peer),
			 MAILBOX_NEEDS_GONE);
	assert_int_equal(peer, 1);
	struct message *receive = begin(owner, TRACE_RECV, WORDS);
	assert_int_equal(advance(owner, receive), OP_BLOCKED);
	assert_int_equal(mailbox_needs(owner->mailbox, &receive->op, &first_gone, &peer),
			 MAILBOX_NEEDS_GONE);
	assert_int_equal(peer, 0);
	atomic_store(&fixture->cause, 1);
	unit_abandon(source, &send->op);
	unit_abandon(owner, &receive->op);
	free(receive);
	free(send);
}

/* Without a free slot the send waits in the queue, where other threads post it: so all of its
 * payload is in its block. */
static void test_queued_is_whole(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *before[MANY];
	for (int i = 0; i < MANY; i++) {
		before[i] = begin(source, TRACE_SEND, 1);
		assert_int_equal(advance(source, before[i]), OP_DONE);
	}
	struct message *send = begin(source, TRACE_SEND, WORDS);
	assert_int_equal(advance(source, send), OP_BLOCKED);
	assert_false(send->op.p2p.in_places);
	assert_memory_equal(send->op.input_block, send->data, sizeof send->data);
	for (int i = 0; i < MANY; i++) {
		struct message *short_one = begin(owner, TRACE_RECV, 1);
		assert_int_equal(advance(owner, short_one), OP_DONE);
		free(short_one);
		free(before[i]);
	}
	assert_int_equal(advance(source, send), OP_BLOCKED);
	struct message *receive = begin(owner, TRACE_RECV, WORDS);
	enum op_progress received;
	do
		received = advance(owner, receive);
	while (received == OP_MORE);
	assert_int_equal(received, OP_DONE);
	assert_memory_equal(receive->data, send->data, sizeof send->data);
	assert_int_equal(advance(source, send), OP_DONE);
	free(receive);
	free(send);
}

/* Then a longer one, which the receiver can read by address, is not copied. */
static void test_queued_is_read(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	atomic_store(&source->link->team.reads_me, TRANSPORT_READS_YES);
	for (int i = 0; i < MANY; i++) {
		struct message *before = begin(source, TRACE_SEND, 1);
		assert_int_equal(advance(source, before), OP_DONE);
		free(before);
	}
	uint64_t count = MAILBOX_READ_LONG_BYTES / sizeof(uint32_t);
	uint32_t *out = malloc(count * sizeof *out), *in = malloc(count * sizeof *in);
	assert_true(out && in);
	for (uint32_t i = 0; i < count; i++)
		out[i] = i * 2654435761u;
	struct message *send = begin(source, TRACE_SEND, 1), *receive;
	send->op.call.count = count;
	send->op.call.send = buffer_host(out, count * sizeof *out);
	assert_int_equal(advance(source, send), OP_BLOCKED);
	assert_true(send->op.p2p.by_address && !send->op.p2p.in_places);
	assert_null(send->op.input_block);
	for (int i = 0; i < MANY; i++) {
		receive = begin(owner, TRACE_RECV, 1);
		assert_int_equal(advance(owner, receive), OP_DONE);
		free(receive);
	}
	assert_int_equal(advance(source, send), OP_BLOCKED);
	receive = begin(owner, TRACE_RECV, 1);
	receive->op.call.count = count;
	receive->op.call.recv = buffer_host(in, count * sizeof *in);
	assert_int_equal(advance(owner, receive), OP_DONE);
	assert_memory_equal(in, out, count * sizeof *in);
	assert_int_equal(advance(source, send), OP_DONE);
	free(receive);
	free(send);
	free(out);
	free(in);
}

/* A nonblocking send that is cancelled before it has a slot frees the copy of its payload. */
static void test_cancelled_in_the_queue(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0];
	struct memory_stats stats;
	for (int i = 0; i < MANY; i++) {
		struct message *before = begin(source, TRACE_SEND, 1);
		assert_int_equal(advance(source, before), OP_DONE);
		free(before);
	}
	struct message *send = begin(source, TRACE_SEND, WORDS);
	send->op.p2p.is_blocking = false;
	send->op.p2p.detached = true;
	assert_int_equal(advance(source, send), OP_BLOCKED);
	assert_true(mailbox_is_queued(&send->op));
	memory_stats(&source->link->memory, &stats);
	assert_true(stats.live >= WORDS * sizeof(uint32_t));
	assert_true(mailbox_cancel(source->mailbox, &send->op));
	memory_stats(&source->link->memory, &stats);
	assert_int_equal(stats.live, 0);
	assert_ptr_equal(mailbox_take_complete(source->mailbox), &send->op);
	free(send);
}

static int open_reading_pair(void **state)
{
	const struct settings settings = {.messages = MANY, .cma = SETTING_CMA_AUTO};
	*state = fixture_open(2, &settings);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_in_turn, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_half_is_free, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_other_is_gone, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_queued_is_whole, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_queued_is_read, open_reading_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_cancelled_in_the_queue, open_pair, close_pair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
