/* SPDX-License-Identifier: BSD-3-Clause
 * Long nonblocking sends of plain memory: the receiver reads them by address, and the sender copies
 * pieces ahead if it makes progress meanwhile. Two ranks, step by step in one thread. */
#include "mailbox/mailbox_private.h"
#include "mailbox/mailbox_fixture.h"

enum { MANY = 64, PIECES = 18, WORDS = 17 * MAIL_PIECE_BYTES / 4 + 5 };

static int open_with(void **state, enum setting_cma cma)
{
	const struct settings settings = {.messages = MANY, .cma = cma};
	struct fixture *fixture = *state = fixture_open(2, &settings);
	for (int r = 0; r < 2; r++)
		atomic_store(&fixture->units[r].link->team.reads_me, TRANSPORT_READS_YES);
	return 0;
}

static int open_pair(void **state)
{
	return open_with(state, SETTING_CMA_AUTO);
}

static int open_always(void **state)
{
	return open_with(state, SETTING_CMA_ALWAYS);
}

static int open_never(void **state)
{
	return open_with(state, SETTING_CMA_OFF);
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

static struct message *begin(struct unit *unit, enum trace_kind kind, uint64_t count, int tag,
			     bool detached)
{
	struct message *message = calloc(1, sizeof *message);
	assert_non_null(message);
	struct buffer data = buffer_host(message->data, count * sizeof message->data[0]);
	message->op.call = (struct op_call){.kind = kind,
					    .dtype = LS_INT32,
					    .count = count,
					    .peer = 1 - unit->rank,
					    .tag = tag,
					    .send = data,
					    .recv = data};
	message->op.p2p.detached = detached;
	message->op.p2p.is_blocking = !detached;
	for (uint32_t i = 0; kind == TRACE_SEND && i < count; i++)
		message->data[i] = (i + (uint32_t)tag) * 2654435761u;
	mailbox_submit(unit->mailbox, &message->op, &message->workspace);
	enum op_progress progress = mailbox_advance(unit->mailbox, &message->op);
	assert_true(!detached || progress == OP_BLOCKED);
	return message;
}

static struct message *send_long(struct unit *unit, int tag)
{
	return begin(unit, TRACE_SEND, WORDS, tag, true);
}

static struct message *receive_long(struct unit *unit, int tag)
{
	return begin(unit, TRACE_RECV, WORDS, tag, true);
}

/* One pass of a rank; whether there is more to do at once. */
static bool pass(struct unit *unit, struct wait_word *words, int *count)
{
	return mailbox_progress(unit->mailbox, NULL, 0, words, WAIT_EDGE_MAX, count);
}

/* Goes on as far as possible; whether one of the words to wait for has come. */
static bool sweep(struct unit *unit)
{
	struct wait_word words[WAIT_EDGE_MAX];
	struct wait_call call = {.words = words, .any = true};
	while (pass(unit, words, &call.count))
		;
	return call.count > 0 && wait_satisfied(&call);
}

static bool pass_once(struct unit *unit)
{
	struct wait_word words[WAIT_EDGE_MAX];
	int count;
	return pass(unit, words, &count);
}

static uint64_t copied(const struct message *receive)
{
	return receive->op.p2p.pieces_copied;
}

static bool has_ended(struct unit *unit, const struct message *message)
{
	return mailbox_take_complete(unit->mailbox) == &message->op && message->op.status == LS_OK;
}

static uint64_t live_bytes(const struct unit *unit)
{
	struct memory_stats stats;
	memory_stats(&unit->link->memory, &stats);
	return stats.live;
}

/* The receiver has the whole message; then both operations end. */
static void finish(struct unit *source, struct message *send, struct unit *owner,
		   struct message *receive)
{
	assert_memory_equal(receive->data, send->data, sizeof send->data);
	assert_true(has_ended(owner, receive));
	sweep(source);
	assert_true(has_ended(source, send));
	free(receive);
	free(send);
}

/* What the sender copies ahead changes the buffer of the send afterwards: so a receiver that takes
 * the copy gets the old content. */
static void spoil(struct message *send, uint64_t piece)
{
	send->data[piece * MAIL_PIECE_BYTES / sizeof send->data[0]] ^= 1;
}

/* Nothing is copied ahead before the receiver has asked; then as many pieces as there are places,
 * and more once half of these are free. */
static void test_copies_ahead(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = send_long(source, 1);
	assert_true(send->op.p2p.by_address && send->op.p2p.in_places);
	assert_false(sweep(source));
	assert_int_equal(live_bytes(source), 0);
	struct message *receive = receive_long(owner, 1);
	mailbox_ask_for_help(owner->mailbox, &receive->op);
	receive->op.p2p.patience = 0; /* the fixture decides who goes on */
	assert_false(sweep(source));
	assert_int_equal(send->op.p2p.pieces_staged, MAIL_PLACES);
	for (uint64_t piece = 0; piece < MAIL_PLACES; piece++)
		spoil(send, piece);
	assert_true(pass_once(owner));
	assert_int_equal(copied(receive), MAILBOX_SLICE_BYTES / MAIL_PIECE_BYTES);
	for (uint64_t piece = 0; piece < MAIL_PLACES; piece++)
		spoil(send, piece);
	/* The receiver has read pieces 8 to 15 by address, and reads 16 perhaps: the sender copies
	 * 17. */
	assert_false(sweep(source));
	assert_int_equal(send->op.p2p.pieces_staged, PIECES);
	const struct mail_places *places = send->op.input_block;
	assert_int_equal((uint32_t)atomic_load(&places->holds[16 % MAIL_PLACES].word), 1);
	spoil(send, PIECES - 1);
	assert_false(sweep(owner));
	spoil(send, PIECES - 1);
	finish(source, send, owner, receive);
	assert_int_equal(live_bytes(source), 0);
}

/* A place is filled again only when the receiver has copied what was there; the sender waits until
 * half of the places are free. */
static void test_place_is_free(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = send_long(source, 1), *receive = receive_long(owner, 1);
	mailbox_ask_for_help(owner->mailbox, &receive->op);
	assert_false(sweep(source));
	struct mail_rts *rts = send->op.p2p.rts;
	uint64_t asked = atomic_load(&rts->cursor);
	for (uint64_t n = 1; n <= MAIL_PLACES / 2; n++) {
		assert_false(sweep(source));
		assert_int_equal(send->op.p2p.pieces_staged, MAIL_PLACES + (n > 1 ? n - 1 : 0));
		atomic_store(&rts->cursor, asked + n);
		atomic_store(&rts->owner_copied, transport_mail_word(rts->generation, n));
	}
	assert_false(sweep(source));
	assert_int_equal(send->op.p2p.pieces_staged, MAIL_PLACES + MAIL_PLACES / 2);
	const struct mail_places *places = send->op.input_block;
	for (uint64_t place = 0; place < MAIL_PLACES; place++) {
		uint64_t piece = place < MAIL_PLACES / 2 ? place + MAIL_PLACES : place;
		assert_int_equal((uint32_t)atomic_load(&places->holds[place].word), piece + 1);
		assert_memory_equal(places->bytes + place * MAIL_PIECE_BYTES,
				    (unsigned char *)send->data + piece * MAIL_PIECE_BYTES,
				    MAIL_PIECE_BYTES);
	}
	atomic_store(&fixture->cause, 1); /* the group fails */
	assert_ptr_equal(mailbox_remove(owner->mailbox, true), &receive->op);
	assert_ptr_equal(mailbox_remove(source->mailbox, true), &send->op);
	receive->op.p2p.pieces_copied = MAIL_PLACES / 2;
	unit_abandon(owner, &receive->op);
	unit_abandon(source, &send->op);
	assert_int_equal(live_bytes(source), 0);
	free(receive);
	free(send);
}

/* The receiver needs no help. */
static void test_sender_does_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = send_long(source, 1), *receive = receive_long(owner, 1);
	assert_false(sweep(owner));
	finish(source, send, owner, receive);
}

/* A receive polls for help in vain a few times only, then reads; and waits again once it has got
 * some. */
static void test_patience(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	owner->mailbox->polls = true;
	struct message *send = send_long(source, 1), *receive = receive_long(owner, 1);
	for (int i = 0; i < MAILBOX_PATIENCE; i++) {
		assert_true(pass_once(owner));
		assert_int_equal(copied(receive), 0);
	}
	assert_false(sweep(source));
	for (int i = 0; i < MAILBOX_PATIENCE_LATER; i++) {
		assert_true(pass_once(owner));
		assert_int_equal(copied(receive), MAIL_PLACES);
	}
	assert_false(sweep(owner));
	finish(source, send, owner, receive);
}

/* A rank that copies pieces for its peer knows that the peer makes progress: so it polls longer for
 * those of the peer, which is busy with the others. It does so once: the peer may never help. */
static void test_patience_both_ways(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	owner->mailbox->polls = true;
	struct message *send = send_long(source, 1), *receive = receive_long(owner, 1);
	struct message *back = send_long(owner, 2), *taken = receive_long(source, 2);
	mailbox_ask_for_help(source->mailbox, &taken->op);
	assert_true(pass_once(owner));
	assert_int_equal(back->op.p2p.pieces_staged, MAIL_PLACES);
	for (int i = 0; i < MAILBOX_PATIENCE_LATER; i++) {
		assert_true(pass_once(owner));
		assert_int_equal(copied(receive), 0);
	}
	owner->mailbox->peers[0].takes = true;
	assert_true(pass_once(owner));
	assert_true(copied(receive) > 0);
	assert_false(sweep(owner));
	assert_memory_equal(receive->data, send->data, sizeof send->data);
	assert_true(has_ended(owner, receive));
	sweep(source);
	sweep(owner);
	assert_memory_equal(taken->data, back->data, sizeof back->data);
	for (int i = 0; i < 2; i++)
		assert_non_null(mailbox_take_complete(source->mailbox));
	assert_true(has_ended(owner, back));
	free(receive);
	free(send);
	free(back);
	free(taken);
}

/* What a rank has learned about the peer does not count in the next group. */
static void test_new_group(void **state)
{
	struct fixture *fixture = *state;
	struct unit *owner = &fixture->units[1];
	owner->mailbox->peers[0].takes = true;
	mailbox_begin(owner->mailbox, &owner->link->waiter);
	assert_false(owner->mailbox->peers[0].takes);
}

/* Of the messages of one source the first two ask for help; the others wait for their turn. A call
 * that blocks has its turn at once. */
static void test_in_turn(void **state)
{
	enum { COUNT = 4 };
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *sends[COUNT], *receives[COUNT];
	for (int i = 0; i < COUNT; i++)
		sends[i] = send_long(source, i);
	for (int i = 0; i < COUNT - 1; i++)
		receives[i] = receive_long(owner, i);
	assert_true(pass_once(owner));
	for (int i = 0; i < COUNT - 1; i++)
		assert_int_equal(receives[i]->op.p2p.asked, i < MAILBOX_IN_TURN);
	receives[COUNT - 1] = begin(owner, TRACE_RECV, WORDS, COUNT - 1, false);
	assert_int_equal(mailbox_state_of(&receives[COUNT - 1]->op), OP_P2P_COMPLETE);
	assert_false(receives[COUNT - 2]->op.p2p.asked);
	assert_false(sweep(owner));
	sweep(source);
	for (int i = 0; i < COUNT; i++) {
		assert_memory_equal(receives[i]->data, sends[i]->data, sizeof sends[i]->data);
		assert_true(i == COUNT - 1 || has_ended(owner, receives[i]));
		free(receives[i]);
	}
	for (int i = 0; i < COUNT; i++) {
		struct op *op = mailbox_take_complete(source->mailbox);
		assert_non_null(op);
		assert_int_equal(op->status, LS_OK);
	}
	for (int i = 0; i < COUNT; i++)
		free(sends[i]);
}

/* Where a read is fast, reading and staging compete up to 1 MiB: what the sender's help costs
 * counts as a part of the read. */
static void test_cost_of_help(void **state)
{
	enum { SHORT = 15 * MAIL_PIECE_BYTES / 4, LOG2 = 19, HELP = 1 << 30 };
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	atomic_store(&source->link->transport.reads_fast, TRANSPORT_READS_YES);
	struct message *send = begin(source, TRACE_SEND, SHORT, 1, true);
	struct message *receive = begin(owner, TRACE_RECV, SHORT, 1, true);
	mailbox_ask_for_help(owner->mailbox, &receive->op);
	assert_false(sweep(source));
	assert_true(send->op.p2p.staging_ticks > 0);
	send->op.p2p.staging_ticks += HELP;
	assert_false(sweep(owner));
	assert_memory_equal(receive->data, send->data, SHORT * sizeof send->data[0]);
	assert_true(has_ended(owner, receive));
	sweep(source);
	assert_true(has_ended(source, send));
	lock_mail_acquire(&source->mailbox->lock);
	float cost =
		source->mailbox->tuner.cases[OP_CHOICE_SEND][LOG2 - OP_TUNER_MIN_LOG2].cost[false];
	lock_mail_release(&source->mailbox->lock);
	assert_true(cost >= (float)HELP / (SHORT * sizeof send->data[0]));
	free(receive);
	free(send);
}

/* An arena without room for places helps nobody, says nothing, and fails nothing. */
static void test_arena_is_full(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	void *blocks[TEST_ARENA_BYTES / (1 << 19)];
	int count = 0;
	while (count < (int)(sizeof blocks / sizeof blocks[0]) &&
	       (blocks[count] = memory_alloc_quietly(&source->link->memory, 1 << 19)))
		count++;
	assert_null(memory_alloc_quietly(&source->link->memory, 1 << 19));
	struct message *send = send_long(source, 1), *receive = receive_long(owner, 1);
	mailbox_ask_for_help(owner->mailbox, &receive->op);
	assert_false(sweep(source));
	assert_null(send->op.input_block);
	assert_int_equal(send->op.status, LS_OK);
	assert_false(sweep(owner));
	finish(source, send, owner, receive);
	while (count > 0)
		assert_int_equal(memory_free(&source->link->memory, blocks[--count], NULL), LS_OK);
}

/* A receiver that looks for pieces of a message takes none that were copied for an earlier use of
 * the RTS slot, or of the block. */
static void test_old_places(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	const void *block = NULL;
	for (int i = 0; i < 3; i++) {
		struct message *send = send_long(source, i), *receive = receive_long(owner, i);
		bool waits;
		if (i != 1)
			mailbox_ask_for_help(owner->mailbox, &receive->op);
		assert_null(mailbox_find_ahead(owner->mailbox, &receive->op, &waits));
		assert_false(sweep(source));
		const void *ahead = mailbox_find_ahead(owner->mailbox, &receive->op, &waits);
		assert_int_equal(ahead != NULL, i != 1);
		assert_true(i != 2 || block == send->op.input_block);
		block = i == 1 ? block : send->op.input_block;
		assert_false(sweep(owner));
		finish(source, send, owner, receive);
	}
}

/* The sender ends with its group while the receiver copies a piece out of a place: the block stays
 * until the piece is copied. */
static void test_group_fails(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = send_long(source, 1), *receive = receive_long(owner, 1);
	uint64_t piece;
	mailbox_ask_for_help(owner->mailbox, &receive->op);
	assert_false(sweep(source));
	struct mail_rts *rts = send->op.p2p.rts;
	assert_true(transport_mail_claim(rts, rts->generation, PIECES, &piece));
	atomic_store(&fixture->cause, 1);
	assert_ptr_equal(mailbox_remove(source->mailbox, true), &send->op);
	send->op.words = send->workspace.words;
	assert_int_equal(mailbox_abandon(source->mailbox, &send->op, NULL, false), OP_BLOCKED);
	assert_true(live_bytes(source) > 0);
	atomic_store(&rts->owner_copied, transport_mail_word(rts->generation, 1));
	assert_int_equal(mailbox_abandon(source->mailbox, &send->op, NULL, false), OP_DONE);
	assert_int_equal(live_bytes(source), 0);
	assert_false(transport_mail_claim(rts, rts->generation, PIECES, &piece));
	receive->op.p2p.pieces_copied = 1;
	assert_ptr_equal(mailbox_remove(owner->mailbox, true), &receive->op);
	unit_abandon(owner, &receive->op);
	free(receive);
	free(send);
}

/* Whoever wants all plain memory read, or none, gets that. */
static void test_not_with_other_settings(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = send_long(source, 1), *receive = receive_long(owner, 1);
	assert_false(send->op.p2p.in_places);
	sweep(owner);
	assert_false(receive->op.p2p.asked);
	sweep(source);
	sweep(owner);
	finish(source, send, owner, receive);
}

/* So does a message to oneself. */
static void test_not_to_oneself(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0];
	struct message *send = calloc(1, sizeof *send);
	assert_non_null(send);
	send->op.call = (struct op_call){.kind = TRACE_SEND,
					 .dtype = LS_INT32,
					 .count = WORDS,
					 .send = buffer_host(send->data, sizeof send->data)};
	send->op.p2p.detached = true;
	mailbox_submit(source->mailbox, &send->op, &send->workspace);
	assert_int_equal(mailbox_advance(source->mailbox, &send->op), OP_BLOCKED);
	assert_false(send->op.p2p.in_places);
	assert_true(mailbox_cancel(source->mailbox, &send->op));
	assert_ptr_equal(mailbox_take_complete(source->mailbox), &send->op);
	free(send);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_copies_ahead, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_place_is_free, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_sender_does_nothing, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_patience, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_patience_both_ways, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_new_group, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_in_turn, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_cost_of_help, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_arena_is_full, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_old_places, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_group_fails, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_not_with_other_settings, open_always,
						close_pair),
		cmocka_unit_test_setup_teardown(test_not_with_other_settings, open_never, close_pair),
		cmocka_unit_test_setup_teardown(test_not_to_oneself, open_pair, close_pair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
