/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that lie in cells of their source, step by step in one thread. */
#include "mailbox/mailbox_fixture.h"

#include "mailbox/mailbox_private.h"

enum { PLACES = 64, ONE = MAIL_INLINE_BYTES + 1, BOTH = MAIL_CELL_BYTES + 1 };

static int open_three(void **state)
{
	const struct settings settings = {.messages = PLACES};
	*state = fixture_open(3, &settings);
	return 0;
}

static int close_three(void **state)
{
	fixture_close(*state);
	return 0;
}

struct message {
	struct op op;
	struct op_workspace workspace;
	unsigned char data[MAIL_EAGER_BYTES + 1];
};

static void fill(struct message *message, uint64_t bytes, int tag)
{
	for (uint64_t i = 0; i < bytes; i++)
		message->data[i] = (unsigned char)((unsigned)tag * 31 + i * 7);
}

static void check(const struct message *message, uint64_t bytes, int tag)
{
	for (uint64_t i = 0; i < bytes; i++)
		assert_int_equal(message->data[i], (unsigned char)((unsigned)tag * 31 + i * 7));
}

/* An operation that blocks its caller. */
static enum op_progress begin(struct unit *unit, struct message *message, enum trace_kind kind,
			      uint64_t bytes, int peer, int tag)
{
	struct buffer data = buffer_host(message->data, bytes);
	memset(&message->op, 0, sizeof message->op);
	message->op.call = (struct op_call){.kind = kind,
					    .dtype = LS_UINT8,
					    .count = bytes,
					    .peer = peer,
					    .tag = tag,
					    .send = data,
					    .recv = data};
	mailbox_submit(unit->mailbox, &message->op, &message->workspace);
	return mailbox_advance(unit->mailbox, &message->op);
}

static bool short_call(struct unit *unit, struct message *message, bool sends, uint64_t bytes,
		       int peer, int tag)
{
	struct mailbox_short call = {.peer = peer,
				     .tag = tag,
				     .dtype = LS_UINT8,
				     .count = bytes,
				     .bytes = bytes,
				     .send = message->data,
				     .recv = message->data};
	struct mailbox_short_received received;
	struct mailbox_short_sent sent;
	return sends ? mailbox_send_short(unit->mailbox, &call, 1, &sent)
		     : mailbox_receive_short(unit->mailbox, &call, true, &received, NULL);
}

/* Whether the send is over at once; its buffer is used for something else then. tag: of an even one
 * the send is an operation, of an odd one it is none. */
static bool send_from(struct unit *unit, uint64_t bytes, int peer, int tag)
{
	static struct message message;
	fill(&message, bytes, tag);
	bool complete = tag % 2 ? short_call(unit, &message, true, bytes, peer, tag)
				: begin(unit, &message, TRACE_SEND, bytes, peer, tag) == OP_DONE;
	if (!complete && tag % 2 == 0)
		assert_true(mailbox_cancel(unit->mailbox, &message.op));
	memset(message.data, 0xee, sizeof message.data);
	return complete;
}

static void receive_at(struct unit *unit, uint64_t bytes, int tag)
{
	static struct message message;
	memset(message.data, 0xdd, sizeof message.data);
	if (tag % 3)
		assert_true(short_call(unit, &message, false, bytes, 0, tag));
	else
		assert_int_equal(begin(unit, &message, TRACE_RECV, bytes, 0, tag), OP_DONE);
	check(&message, bytes, tag);
	assert_int_equal(message.data[bytes], 0xdd);
}

static void test_sizes(void **state)
{
	static const uint64_t sizes[] = {MAIL_INLINE_BYTES, ONE, MAIL_CELL_BYTES, BOTH,
					 MAIL_EAGER_BYTES};
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	int tag = 0;
	for (int round = 0; round < 100; round++)
		for (int i = 0; i < 5; i++, tag++) {
			assert_true(send_from(source, sizes[i], 1, tag));
			receive_at(owner, sizes[i], tag);
		}
	assert_false(send_from(source, MAIL_EAGER_BYTES + 1, 1, 0));
	/* To oneself, too. */
	assert_true(send_from(source, MAIL_EAGER_BYTES, 0, 1));
	receive_at(source, MAIL_EAGER_BYTES, 1);
}

/* A rank's cells serve messages to all others, and none is used again before its message has been
 * received. Without a free one a send stays with its caller. */
static void test_cells_run_out(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0];
	for (int tag = 0; tag < MAIL_CELL_PAIRS; tag++)
		assert_true(send_from(source, BOTH, 1 + tag % 2, tag));
	for (int tag = 0; tag < 4; tag++)
		assert_false(send_from(source, tag < 2 ? ONE : BOTH, 1, 100 + tag));
	/* The slots are not used up: the next message finds one. */
	receive_at(&fixture->units[2], BOTH, 31);
	assert_true(send_from(source, ONE, 1, 200));
	assert_false(send_from(source, BOTH, 1, 201));
	assert_true(send_from(source, ONE, 2, 203));
	assert_false(send_from(source, ONE, 2, 205));
	for (int tag = MAIL_CELL_PAIRS - 1; tag >= 0; tag--)
		if (tag != 31)
			receive_at(&fixture->units[1 + tag % 2], BOTH, tag);
	receive_at(&fixture->units[1], ONE, 200);
	receive_at(&fixture->units[2], ONE, 203);
	assert_true(send_from(source, BOTH, 1, 202));
}

/* Messages that nobody wants for long keep their own cells, and keep no others from being used. */
static void test_unexpected_for_long(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0];
	for (int tag = 0; tag < 50; tag++)
		assert_true(send_from(source, tag % 3 ? ONE : BOTH, 2, tag));
	for (int tag = 100; tag < 3000; tag++) {
		uint64_t bytes = tag / 200 % 2 ? ONE : BOTH;
		assert_true(send_from(source, bytes, 1, tag));
		if (tag >= 105) /* some lie there at each time */
			receive_at(&fixture->units[1], (tag - 5) / 200 % 2 ? ONE : BOTH, tag - 5);
	}
	for (int tag = 49; tag >= 0; tag--)
		receive_at(&fixture->units[2], tag % 3 ? ONE : BOTH, tag);
}

/* What a source says of its cells is not believed. */
static void test_nonsense(void **state)
{
	static const uint16_t cells[] = {0, 2 * MAIL_CELL_PAIRS + 1, UINT16_MAX, 2};
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct mail_ring *ring = transport_mail(&source->link->team, 1, 0);
	static struct message message;
	for (uint64_t i = 0; i < 4; i++) {
		assert_true(send_from(source, BOTH, 1, 1));
		ring->slots[transport_mail_index(1 + i)].envelope.cell = cells[i];
		assert_false(short_call(owner, &message, false, BOTH, 0, 1));
		assert_int_equal(begin(owner, &message, TRACE_RECV, BOTH, 0, 1), OP_FAILED);
		assert_int_equal(message.op.status, LS_INTERNAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sizes, open_three, close_three),
		cmocka_unit_test_setup_teardown(test_cells_run_out, open_three, close_three),
		cmocka_unit_test_setup_teardown(test_unexpected_for_long, open_three, close_three),
		cmocka_unit_test_setup_teardown(test_nonsense, open_three, close_three),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
