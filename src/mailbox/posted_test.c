/* SPDX-License-Identifier: BSD-3-Clause
 * Short sends that find the ring full, short receives that are posted at once, and which complete
 * operations are returned together. */
#include "mailbox/mailbox_private.h"
#include "mailbox/mailbox_fixture.h"

static int open_pair(void **state)
{
	const struct settings settings = {.messages = MAIL_SLOTS};
	*state = fixture_open(2, &settings);
	return 0;
}

static int close_pair(void **state)
{
	fixture_close(*state);
	return 0;
}

struct receive {
	struct op op;
	int32_t value;
};

/* As p2p_post_short does; the inbox has been opened by a look for the message. */
static bool post(struct unit *owner, struct receive *receive, int tag)
{
	*receive = (struct receive){.op.call = {.kind = TRACE_RECV,
						.dtype = LS_INT32,
						.count = 1,
						.peer = 0,
						.tag = tag,
						.recv = buffer_host(&receive->value, 4)},
				    .op.p2p = {.detached = true, .ends_quietly = true}};
	return mailbox_post_short(owner->mailbox, &receive->op);
}

static bool look(struct unit *owner, int tag)
{
	int32_t value;
	const struct mailbox_short call = {
		.peer = 0, .tag = tag, .dtype = LS_INT32, .count = 1, .bytes = 4, .recv = &value};
	struct mailbox_short_received received;
	return mailbox_receive_short(owner->mailbox, &call, true, &received, NULL);
}

static void send_value(struct unit *source, int32_t value, int tag)
{
	const struct mailbox_short call = {
		.peer = 1, .tag = tag, .dtype = LS_INT32, .count = 1, .bytes = 4, .send = &value};
	struct mailbox_short_sent sent;
	assert_true(mailbox_send_short(source->mailbox, &call, 0, &sent));
}

static bool try_send(struct unit *source, int peer)
{
	int32_t value = 7;
	const struct mailbox_short call = {
		.peer = peer, .dtype = LS_INT32, .count = 1, .bytes = 4, .send = &value};
	struct mailbox_short_sent sent;
	return mailbox_send_short(source->mailbox, &call, 0, &sent);
}

static bool awaits_room(struct unit *source, int peer, struct wait_word *word)
{
	return mailbox_awaits_room(source->mailbox, peer, word);
}

/* The word comes when the receiver has matched messages. A caller does not poll for itself. */
static void test_full_ring(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct wait_word word;
	const struct wait_call wait = {.words = &word, .count = 1};
	assert_false(awaits_room(source, 1, &word)); /* not opened yet */
	for (int i = 0; i < MAIL_SLOTS; i++) {
		assert_false(awaits_room(source, 1, &word));
		assert_true(try_send(source, 1));
		assert_true(try_send(source, 0));
	}
	assert_false(try_send(source, 1));
	assert_true(awaits_room(source, 1, &word));
	assert_false(wait_satisfied(&wait));
	for (int i = 0; i < MAIL_SLOTS; i++)
		assert_true(look(owner, 0));
	assert_true(wait_satisfied(&wait));
	assert_true(try_send(source, 1));
	assert_false(awaits_room(source, 1, &word));
	assert_false(try_send(source, 0));
	assert_false(awaits_room(source, 0, &word));
}

/* Its message comes after the look for it, and so does that of an earlier receive. */
static void test_comes_before_the_post(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct receive first, second, third;
	assert_false(look(owner, 1));
	assert_true(post(owner, &first, 1));
	assert_false(look(owner, 1));
	send_value(source, 10, 1);
	assert_true(post(owner, &second, 1)); /* the message is the first one's */
	assert_int_equal(first.value, 10);
	assert_false(look(owner, 2));
	send_value(source, 11, 1);
	send_value(source, 12, 2);
	assert_false(post(owner, &third, 2));
	assert_int_equal(second.value, 11);
	assert_int_equal(third.value, 12);
	assert_int_equal(mailbox_pending(owner->mailbox), 3);
	struct op *complete = mailbox_take_complete(owner->mailbox);
	assert_ptr_equal(complete, &first.op);
	assert_ptr_equal(complete->p2p.next, &second.op);
	assert_ptr_equal(complete->p2p.next->p2p.next, &third.op);
	assert_null(third.op.p2p.next);
	assert_int_equal(mailbox_pending(owner->mailbox), 0);
	assert_null(mailbox_take_complete(owner->mailbox));
}

/* Those that are cancelled, or whose end may call the program, are handed out alone. */
static void test_alone(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct receive receives[6];
	assert_false(look(owner, 0));
	for (int i = 0; i < 6; i++)
		assert_true(post(owner, &receives[i], i));
	receives[3].op.p2p.ends_quietly = false;
	for (int i = 0; i < 6; i++) {
		if (i != 1)
			send_value(source, i, i);
		assert_false(look(owner, 99));
		if (i == 1)
			assert_true(mailbox_cancel(owner->mailbox, &receives[i].op));
	}
	for (int i = 0; i < 6; i++) {
		struct op *complete = mailbox_take_complete(owner->mailbox);
		assert_ptr_equal(complete, &receives[i].op);
		assert_int_equal(complete->status, i == 1 ? LS_CANCELLED : LS_OK);
		i += i == 4; /* the last two end together */
		assert_ptr_equal(complete->p2p.next, i == 5 ? &receives[5].op : NULL);
	}
	assert_null(mailbox_take_complete(owner->mailbox));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_full_ring, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_comes_before_the_post, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_alone, open_pair, close_pair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
