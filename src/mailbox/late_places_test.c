/* SPDX-License-Identifier: BSD-3-Clause
 * Long nonblocking sends of plain memory that nobody reads by address: their payload is staged once
 * its receiver has matched it, in places that all such sends to one peer share. Two ranks, step by
 * step in one thread. */
#include "mailbox/mailbox_private.h"
#include "mailbox/mailbox_fixture.h"

enum { WORDS = (int)(MAILBOX_STAGED_MAX_BYTES / 4) + 5, PIECES = 65, LAST = 2, SLOTS = 64 };

static const struct ranks second_gone = {{2}};

static int open_pair(void **state)
{
	const struct settings settings = {.messages = SLOTS, .cma = SETTING_CMA_OFF};
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

static struct message *begin_bytes(struct unit *unit, enum trace_kind kind, int tag, uint64_t bytes)
{
	struct message *message = calloc(1, sizeof *message);
	assert_non_null(message);
	struct buffer data = buffer_host(message->data, bytes);
	message->op.call = (struct op_call){.kind = kind,
					    .dtype = LS_INT32,
					    .count = bytes / sizeof(uint32_t),
					    .peer = 1 - unit->rank,
					    .tag = tag,
					    .send = data,
					    .recv = data};
	message->op.p2p.detached = true;
	for (uint32_t i = 0; kind == TRACE_SEND && i < WORDS; i++)
		message->data[i] = i * 2654435761u + (uint32_t)tag;
	mailbox_submit(unit->mailbox, &message->op, &message->workspace);
	assert_int_equal(mailbox_advance(unit->mailbox, &message->op), OP_BLOCKED);
	return message;
}

static struct message *begin(struct unit *unit, enum trace_kind kind, int tag)
{
	return begin_bytes(unit, kind, tag, WORDS * sizeof(uint32_t));
}

/* One pass over all operations. The words that are left are all that a thread would wait for. */
static bool pass(struct unit *unit, struct wait_call *call)
{
	static struct wait_word words[2][WAIT_EDGE_MAX];
	*call = (struct wait_call){.words = words[unit->rank], .any = true};
	return mailbox_progress(unit->mailbox, NULL, 0, words[unit->rank], WAIT_EDGE_MAX,
				&call->count);
}

/* All passes that follow each other without a wait. */
static struct wait_call sweep(struct unit *unit)
{
	struct wait_call call;
	while (pass(unit, &call))
		;
	return call;
}

static uint64_t staged(const struct message *send)
{
	return send->op.p2p.pieces_staged;
}

static uint64_t live_bytes(struct unit *unit)
{
	struct memory_stats stats;
	memory_stats(&unit->link->memory, &stats);
	return stats.live;
}

static void finish(struct unit *unit, struct message *message)
{
	assert_ptr_equal(mailbox_take_complete(unit->mailbox), &message->op);
	assert_int_equal(message->op.status, LS_OK);
}

/* Each rank waits only for what the other one does next, and each sees that it has come. */
static void exchange(struct unit *source, struct unit *owner, struct message *send,
		     struct message *receive)
{
	for (int turn = 0; turn < PIECES; turn++) {
		struct wait_call sender = sweep(source);
		if (mailbox_state_of(&send->op) == OP_P2P_COMPLETE) {
			finish(source, send);
			finish(owner, receive);
			assert_memory_equal(receive->data, send->data, sizeof send->data);
			return;
		}
		assert_false(wait_satisfied(&sender));
		assert_false(mailbox_is_ready(source->mailbox));
		struct wait_call receiver = sweep(owner);
		assert_true(wait_satisfied(&sender));
		assert_true(mailbox_is_ready(source->mailbox));
		assert_true(receiver.count == 0 || !wait_satisfied(&receiver));
	}
	fail_msg("the message with tag %d did not arrive", send->op.call.tag);
}

static void test_after_the_match(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = begin(source, TRACE_SEND, 1);
	uint64_t places = live_bytes(source);
	assert_true(send->op.p2p.staged_late && !send->op.p2p.by_address);
	assert_int_equal(places, MAIL_PLACES * MAIL_PIECE_BYTES);
	struct wait_call call = sweep(source);
	assert_int_equal(staged(send), 0);
	assert_false(wait_satisfied(&call));
	struct message *receive = begin(owner, TRACE_RECV, 1);
	assert_true(wait_satisfied(&call));
	call = sweep(source);
	assert_int_equal(staged(send), MAIL_PLACES);
	exchange(source, owner, send, receive);
	/* The next one takes no more memory, and none is left in the end. */
	free(send);
	send = begin(source, TRACE_SEND, 2);
	assert_int_equal(live_bytes(source), places);
	assert_true(mailbox_cancel(source->mailbox, &send->op));
	assert_ptr_equal(mailbox_take_complete(source->mailbox), &send->op);
	assert_int_equal(send->op.status, LS_CANCELLED);
	mailbox_free_returned(source->mailbox);
	assert_int_equal(live_bytes(source), 0);
	free(receive);
	free(send);
}

/* Whichever is matched first uses the places. The others wait until it is done, and then need
 * nobody to wake their thread. */
static void test_one_after_the_other(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *sends[LAST + 1], *receives[LAST + 1];
	for (int i = 0; i <= LAST; i++)
		sends[i] = begin(source, TRACE_SEND, i);
	receives[LAST] = begin(owner, TRACE_RECV, LAST);
	sweep(source);
	assert_int_equal(staged(sends[LAST]), MAIL_PLACES);
	for (int i = 0; i < LAST; i++)
		receives[i] = begin(owner, TRACE_RECV, i);
	exchange(source, owner, sends[LAST], receives[LAST]);
	/* The first of the others has begun in the same sweep. */
	assert_int_equal(staged(sends[0]), MAIL_PLACES);
	assert_int_equal(staged(sends[1]), 0);
	exchange(source, owner, sends[0], receives[0]);
	assert_int_equal(staged(sends[1]), MAIL_PLACES);
	exchange(source, owner, sends[1], receives[1]);
	for (int i = 0; i <= LAST; i++) {
		free(sends[i]);
		free(receives[i]);
	}
}

/* A pass copies a slice only, so that other operations advance, too. */
static void test_in_slices(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = begin(source, TRACE_SEND, 1), *receive = begin(owner, TRACE_RECV, 1);
	struct wait_call call;
	/* As if the receiver had copied all that comes. */
	atomic_store(&send->op.p2p.rts->owner_copied,
		     transport_mail_word(send->op.p2p.generation, PIECES));
	for (uint64_t now = 0; now < PIECES - 1;) {
		assert_true(pass(source, &call));
		now += MAILBOX_SLICE_BYTES / MAIL_PIECE_BYTES;
		assert_int_equal(staged(send), now);
	}
	assert_false(pass(source, &call));
	assert_int_equal(staged(send), PIECES);
	atomic_store(&fixture->cause, 1);
	struct op *left = mailbox_remove(owner->mailbox, true);
	assert_ptr_equal(left, &receive->op);
	unit_abandon(owner, left);
	left = mailbox_remove(source->mailbox, true);
	assert_ptr_equal(left, &send->op);
	unit_abandon(source, left);
	free(receive);
	free(send);
}

/* After a failure the places are used again only if the receiver no longer reads them. */
static void fail_group(struct fixture *fixture, bool reads)
{
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = begin(source, TRACE_SEND, 1), *receive = begin(owner, TRACE_RECV, 1);
	int peer;
	sweep(source);
	assert_int_equal(staged(send), MAIL_PLACES);
	assert_int_equal(mailbox_needs(source->mailbox, &send->op, &second_gone, &peer),
			 MAILBOX_NEEDS_GONE);
	uint64_t piece;
	if (reads) /* it has begun to copy a piece, and never ends */
		assert_true(transport_mail_claim(send->op.p2p.rts, send->op.p2p.generation, PIECES,
						 &piece));
	atomic_store(&fixture->cause, 1);
	assert_ptr_equal(mailbox_remove(source->mailbox, true), &send->op);
	struct wait_word word;
	send->op.words = &word;
	enum op_progress progress = mailbox_abandon(source->mailbox, &send->op, NULL, false);
	assert_int_equal(progress, reads ? OP_BLOCKED : OP_DONE);
	if (reads)
		assert_int_equal(mailbox_abandon(source->mailbox, &send->op, NULL, true), OP_DONE);
	assert_int_equal(source->mailbox->peers[1].places != NULL, !reads);
	assert_null(source->mailbox->peers[1].in_places);
	mailbox_free_returned(source->mailbox);
	assert_int_equal(live_bytes(source) == 0, !reads);
	assert_ptr_equal(mailbox_remove(owner->mailbox, true), &receive->op);
	if (!reads)
		unit_abandon(owner, &receive->op);
	free(receive);
	free(send);
}

static void test_fails(void **state)
{
	fail_group(*state, false);
}

static void test_fails_while_it_is_read(void **state)
{
	fail_group(*state, true);
}

/* Other sends are staged whole when they are posted: for example one to the rank itself, and one of
 * medium length, if few others are under way. */
static void test_staged_at_once(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0];
	struct op op = {.call = {.send = {.bytes = MAILBOX_STAGED_MAX_BYTES + 1}, .peer = 1}};
	assert_false(mailbox_may_stage_late(source->mailbox, &op)); /* a blocking one */
	op.p2p.detached = true;
	assert_true(mailbox_may_stage_late(source->mailbox, &op));
	op.call.peer = 0;
	assert_false(mailbox_may_stage_late(source->mailbox, &op));
	op.call.peer = 1;
	op.call.send.bytes = MAILBOX_STAGED_MAX_BYTES;
	assert_false(mailbox_may_stage_late(source->mailbox, &op));
	source->mailbox->peers[1].out.rts[0] = 0xf0;
	assert_true(mailbox_may_stage_late(source->mailbox, &op));
	op.call.send.bytes = MAILBOX_PLACES_BYTES;
	assert_false(mailbox_may_stage_late(source->mailbox, &op));
	source->mailbox->peers[1].out.rts[0] = 0;
}

/* A send that is cancelled before it has a slot frees the copy of its payload. */
static void test_cancelled_in_the_queue(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0];
	struct message *sends[SLOTS + 1];
	for (int i = 0; i < SLOTS; i++)
		sends[i] = begin_bytes(source, TRACE_SEND, i, sizeof(uint32_t));
	assert_int_equal(live_bytes(source), 0);
	sends[SLOTS] = begin_bytes(source, TRACE_SEND, SLOTS, MAIL_PIECE_BYTES);
	assert_true(mailbox_is_queued(&sends[SLOTS]->op));
	assert_int_equal(live_bytes(source), MAIL_PIECE_BYTES);
	assert_true(mailbox_cancel(source->mailbox, &sends[SLOTS]->op));
	assert_int_equal(live_bytes(source), 0);
	while (mailbox_take_complete(source->mailbox))
		;
	for (int i = 0; i <= SLOTS; i++)
		free(sends[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_after_the_match, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_one_after_the_other, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_in_slices, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_fails, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_fails_while_it_is_read, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_staged_at_once, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_cancelled_in_the_queue, open_pair, close_pair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
