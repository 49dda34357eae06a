/* SPDX-License-Identifier: BSD-3-Clause
 * Cancels of messages to another host, in random orders: beside their match, their payload, and the
 * next use of their slots. Rank 0 sends, rank 1 on another host receives; one thread plays both,
 * and the threads that make progress on their links. */
#include "mailbox/mailbox_fixture.h"
#include "op/hosts_unit_fixture.h"

enum { RANKS = 2, TOGETHER = 3, MESSAGES = 3000, LONGEST = 20000, LARGE = 300000, SENDS = 20 };

static const int host_of[RANKS] = {0, 1};

struct message {
	struct op send, receive;
	struct op_workspace workspaces[2];
	bool is_sent, receives, asks, send_ended, receive_ended;
	int tag;
	uint64_t length;
	unsigned char from[LONGEST], to[LONGEST];
};

static uint64_t draw(uint64_t *random, uint64_t limit)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*random >> 33) % limit;
}

static void begin(struct unit *unit, struct op *op, struct op_workspace *workspace,
		  enum trace_kind kind, int tag, void *buffer, uint64_t count, bool is_cancellable)
{
	memset(op, 0, sizeof *op);
	op->call = (struct op_call){
		.kind = kind, .dtype = LS_UINT8, .peer = 1 - unit->rank, .tag = tag, .count = count};
	if (kind == TRACE_SEND)
		op->call.send = buffer_host(buffer, count);
	else
		op->call.recv = buffer_host(buffer, count);
	op->p2p.cancellable = is_cancellable;
	mailbox_submit(unit->mailbox, op, workspace);
}

/* ---- drawn orders ---- */

static void start(struct message *message, struct unit *source, int tag, uint64_t *random)
{
	static const uint64_t lengths[] = {1, 128, 193, 5000, LONGEST};
	memset(message, 0, sizeof *message);
	message->tag = tag;
	message->length = lengths[draw(random, 5)];
	memset(message->from, tag % 255 + 1, sizeof message->from);
	begin(source, &message->send, &message->workspaces[0], TRACE_SEND, tag, message->from,
	      message->length, true);
	message->is_sent = true;
}

static void cancel(struct message *message, struct unit *source)
{
	struct wait_word words[2];
	message->asks = true;
	if (!message->send_ended && !mailbox_cancel(source->mailbox, &message->send))
		(void)mailbox_ask_cancel(source->mailbox, &message->send, words);
}

static void go_on(struct unit *unit, struct op *op, bool *ended)
{
	if (*ended)
		return;
	enum op_progress progress = mailbox_advance(unit->mailbox, op);
	*ended = progress == OP_DONE || progress == OP_FAILED;
}

static void step(struct message *message, struct unit *units, uint64_t *random)
{
	switch (draw(random, 6)) {
	case 0:
		if (draw(random, 4) == 0)
			cancel(message, &units[0]);
		break;
	case 1:
		go_on(&units[0], &message->send, &message->send_ended);
		break;
	case 2:
		if (!message->receives && draw(random, 3) == 0) {
			begin(&units[1], &message->receive, &message->workspaces[1], TRACE_RECV,
			      message->tag, message->to, message->length, false);
			message->receives = true;
		}
		break;
	case 3:
		if (message->receives)
			go_on(&units[1], &message->receive, &message->receive_ended);
		break;
	default:
		hosts_advance(&units[draw(random, 2)].link->transport);
		break;
	}
}

/* It was cancelled, and nobody has received it; or all of it has arrived. */
static bool is_over(struct message *message, struct unit *units, int *cancelled)
{
	if (!message->send_ended)
		return false;
	if (message->send.status == LS_CANCELLED) {
		assert_true(message->asks);
		assert_false(message->receive_ended);
		assert_null(memchr(message->to, message->tag % 255 + 1, sizeof message->to));
		if (message->receives && message->receive.p2p.state != OP_P2P_NEW)
			assert_true(mailbox_cancel(units[1].mailbox, &message->receive));
		++*cancelled;
		return true;
	}
	assert_int_equal(message->send.status, LS_OK);
	memset(message->from, 0, sizeof message->from); /* it is the caller's again */
	if (!message->receive_ended)
		return false;
	assert_int_equal(message->receive.status, LS_OK);
	for (uint64_t i = 0; i < message->length; i++)
		assert_int_equal(message->to[i], message->tag % 255 + 1);
	return true;
}

/* More than the ring and its RTS slots hold, so that all of them are free again. */
static void test_drawn(void **state)
{
	(void)state;
	int cancelled = 0, received = 0;
	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct test_hosts *hosts = open_hosts(RANKS, host_of, seed);
		struct message *messages = calloc(TOGETHER, sizeof *messages);
		struct unit *units = hosts->fixture->units;
		uint64_t random = seed;
		assert_non_null(messages);
		for (int begun = 0, ended = 0; ended < MESSAGES;) {
			struct message *message = &messages[draw(&random, TOGETHER)];
			if (!message->is_sent && begun < MESSAGES)
				start(message, &units[0], begun++, &random);
			if (!message->is_sent)
				continue;
			step(message, units, &random);
			int before = cancelled;
			if (!is_over(message, units, &cancelled))
				continue;
			message->is_sent = false;
			received += before == cancelled;
			ended++;
		}
		free(messages);
		close_hosts(hosts);
	}
	assert_true(cancelled > MESSAGES / 10 && received > MESSAGES / 10);
}

/* ---- after a failure ---- */

static void begin_now(struct message *message, struct unit *source, int tag, uint64_t *random)
{
	start(message, source, tag, random);
	assert_int_equal(mailbox_advance(source->mailbox, &message->send), OP_BLOCKED);
}

/* Sends of which no one is received; the group fails. `answers`: there is still progress on the
 * receiver's link. */
static void fail_with_sends(bool answers)
{
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[1];
	struct message *messages = calloc(SENDS, sizeof *messages);
	uint64_t random = 1;
	assert_non_null(messages);
	for (int i = 0; i < SENDS; i++)
		begin_now(&messages[i], source, i, &random);
	for (int i = 0; i < 1000; i++) { /* all is offered, or as much as there is room for */
		hosts_advance(&source->link->transport);
		hosts_advance(&target->link->transport);
	}
	atomic_store(&hosts->fixture->cause, 1);
	for (int i = 0; i < SENDS; i++) {
		struct op *send = &messages[i].send;
		enum op_progress progress;
		int turns = 0;
		/* Their payload is a copy, which may be read forever. */
		while ((progress = mailbox_abandon(source->mailbox, send, NULL, !answers)) ==
		       OP_BLOCKED) {
			assert_true(answers && ++turns < 10000);
			hosts_advance(&source->link->transport);
			hosts_advance(&target->link->transport);
		}
		assert_int_equal(progress, OP_DONE);
	}
	free(messages);
	close_hosts(hosts);
}

/* Sends of shared memory, more than the link has room to offer. */
static void fail_without_room(bool cuts)
{
	enum { BYTES = 5000, TURNS = 20000 };
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[1];
	struct message *messages = calloc(SENDS, sizeof *messages);
	int over = 0;
	assert_non_null(messages);
	for (int i = 0; i < 100; i++) { /* both have opened the group */
		hosts_advance(&source->link->transport);
		hosts_advance(&target->link->transport);
	}
	for (int i = 0; i < SENDS; i++) {
		void *block;
		assert_int_equal(memory_alloc(&source->link->memory, BYTES, &block), LS_OK);
		begin(source, &messages[i].send, &messages[i].workspaces[0], TRACE_SEND, i, block,
		      BYTES, false);
		assert_int_equal(mailbox_advance(source->mailbox, &messages[i].send), OP_BLOCKED);
	}
	for (int i = 0; i < 10; i++)
		hosts_advance(&source->link->transport); /* as much as there is room for */
	assert_false(messages[SENDS - 1].send.p2p.rts->cursor & MAIL_MATCHED);
	atomic_store(&hosts->fixture->cause, 1);
	for (int turn = 0; turn < TURNS && over < SENDS; turn++) {
		for (int i = SENDS - 1; i >= 0; i--) {
			struct message *message = &messages[i];
			bool forces = cuts && turn > TURNS / 2;
			if (message->send_ended || mailbox_abandon(source->mailbox, &message->send,
								   NULL, forces) != OP_DONE)
				continue;
			message->send_ended = true;
			over++;
		}
		hosts_advance(&source->link->transport);
		if (!cuts)
			hosts_advance(&target->link->transport);
	}
	assert_int_equal(over, SENDS);
	free(messages);
	close_hosts(hosts);
}

static void test_failed_without_room(void **state)
{
	(void)state;
	fail_without_room(false);
	fail_without_room(true);
}

static void test_failed(void **state)
{
	(void)state;
	fail_with_sends(true);
	fail_with_sends(false);
}

/* The link writes to the buffer of a receive, so its source is cut. */
static void test_receive_is_left(void **state)
{
	(void)state;
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[1];
	unsigned char *from = malloc(LARGE), *to = calloc(1, LARGE);
	struct op send, receive;
	assert_true(from && to);
	memset(from, 1, LARGE);
	begin(source, &send, &source->workspace, TRACE_SEND, 5, from, LARGE, false);
	begin(target, &receive, &target->workspace, TRACE_RECV, 5, to, LARGE, false);
	while (mailbox_advance(target->mailbox, &receive) == OP_BLOCKED && !to[0]) {
		assert_int_equal(mailbox_advance(source->mailbox, &send), OP_BLOCKED);
		hosts_advance(&source->link->transport);
		hosts_advance(&target->link->transport);
	}
	assert_int_equal(to[LARGE - 1], 0); /* it is under way, or this tests nothing */
	atomic_store(&hosts->fixture->cause, 1);
	assert_int_equal(mailbox_abandon(target->mailbox, &receive, NULL, false), OP_BLOCKED);
	assert_int_equal(mailbox_abandon(target->mailbox, &receive, NULL, true), OP_DONE);
	memset(to, 0, LARGE);
	for (int i = 0; i < 10000; i++) {
		hosts_advance(&source->link->transport);
		hosts_advance(&target->link->transport);
	}
	assert_null(memchr(to, 1, LARGE));
	assert_int_equal(mailbox_abandon(source->mailbox, &send, NULL, false), OP_DONE);
	close_hosts(hosts);
	free(from);
	free(to);
}

/* ---- what comes in between ---- */

static bool refuses_memory;
static struct unit *other_thread; /* receives something else in the next cancel */

int __real_transport_populate(void *from, size_t bytes);
int __wrap_transport_populate(void *from, size_t bytes);
int __wrap_transport_populate(void *from, size_t bytes)
{
	if (!refuses_memory)
		return __real_transport_populate(from, bytes);
	errno = ENOMEM;
	return -1;
}

bool __real_mailbox_take_back(struct mailbox *mailbox, struct op *op);
bool __wrap_mailbox_take_back(struct mailbox *mailbox, struct op *op);
bool __wrap_mailbox_take_back(struct mailbox *mailbox, struct op *op)
{
	static struct op other;
	static struct op_workspace workspace;
	static unsigned char byte;
	if (other_thread) {
		begin(other_thread, &other, &workspace, TRACE_RECV, 99, &byte, 1, false);
		assert_int_equal(mailbox_advance(mailbox, &other), OP_BLOCKED);
		other_thread = NULL;
	}
	return __real_mailbox_take_back(mailbox, op);
}

static void advance_both(struct test_hosts *hosts, int turns)
{
	for (int i = 0; i < turns; i++) {
		hosts_advance(&hosts->fixture->units[0].link->transport);
		hosts_advance(&hosts->fixture->units[1].link->transport);
	}
}

/* A receive is given up at the moment at which another thread of its rank matches it. */
static void test_given_up(void **state)
{
	(void)state;
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[1];
	unsigned char *from = malloc(LARGE), *to = calloc(1, LARGE);
	struct op send, receive;
	assert_true(from && to);
	memset(from, 1, LARGE);
	begin(target, &receive, &target->workspace, TRACE_RECV, 5, to, LARGE, false);
	assert_int_equal(mailbox_advance(target->mailbox, &receive), OP_BLOCKED);
	begin(source, &send, &source->workspace, TRACE_SEND, 5, from, LARGE, false);
	assert_int_equal(mailbox_advance(source->mailbox, &send), OP_BLOCKED);
	advance_both(hosts, 1000); /* the slot is there, and not matched */
	atomic_store(&hosts->fixture->cause, 1);
	other_thread = target;
	enum op_progress progress = OP_BLOCKED;
	for (int i = 0; i < 100000 && progress == OP_BLOCKED; i++) {
		progress = mailbox_abandon(target->mailbox, &receive, NULL, false);
		if (progress == OP_BLOCKED)
			advance_both(hosts, 1);
	}
	assert_int_equal(progress, OP_DONE);
	assert_null(other_thread); /* it came in between, or this tests nothing */
	memset(to, 0, LARGE);      /* the caller's again */
	advance_both(hosts, 10000);
	assert_null(memchr(to, 1, LARGE));
	close_hosts(hosts);
	free(from);
	free(to);
}

/* No memory for what the cells of a rank hold: nothing more comes from it, least of all zeros. */
static void test_no_memory_for_cells(void **state)
{
	(void)state;
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[1];
	unsigned char from[1000], to[1000];
	struct op send, receive;
	memset(from, 7, sizeof from);
	memset(to, 9, sizeof to);
	advance_both(hosts, 100);
	begin(source, &send, &source->workspace, TRACE_SEND, 5, from, sizeof from, false);
	assert_int_equal(mailbox_advance(source->mailbox, &send), OP_DONE);
	refuses_memory = target->link->transport.populates = true;
	begin(target, &receive, &target->workspace, TRACE_RECV, 5, to, sizeof to, false);
	for (int i = 0; i < 10000; i++) {
		advance_both(hosts, 1);
		assert_int_equal(mailbox_advance(target->mailbox, &receive), OP_BLOCKED);
	}
	refuses_memory = false;
	assert_int_equal(to[0], 9);
	assert_true(hosts_is_lost(&source->link->transport, 1)); /* it was cut off */
	close_hosts(hosts);
}

/* The answer to a cancel comes when nobody waits for it any more, but for the send. */
static void test_late_answer(void **state)
{
	(void)state;
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0];
	struct message *message = calloc(1, sizeof *message);
	struct wait_word words[2];
	uint64_t random = 1;
	assert_non_null(message);
	begin_now(message, source, 5, &random);
	advance_both(hosts, 1000);
	assert_false(mailbox_cancel(source->mailbox, &message->send));
	assert_true(mailbox_ask_cancel(source->mailbox, &message->send, words));
	assert_int_equal(mailbox_advance(source->mailbox, &message->send), OP_BLOCKED);
	struct wait_call call = {.words = message->send.words,
				 .count = message->send.word_count,
				 .any = message->send.any_suffices};
	assert_false(wait_satisfied(&call));
	advance_both(hosts, 1000);
	assert_true(wait_satisfied(&call));
	assert_int_not_equal(mailbox_advance(source->mailbox, &message->send), OP_BLOCKED);
	assert_int_equal(message->send.status, LS_CANCELLED);
	free(message);
	close_hosts(hosts);
}

/* ---- the next group with the same objects ---- */

static void receive_large(struct test_hosts *hosts)
{
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[1];
	unsigned char *from = calloc(1, LARGE), *to = malloc(LARGE);
	struct op send, receive;
	bool sent = false, received = false;
	assert_true(from && to);
	begin(source, &send, &source->workspace, TRACE_SEND, 5, from, LARGE, false);
	begin(target, &receive, &target->workspace, TRACE_RECV, 5, to, LARGE, false);
	while (!sent || !received) {
		go_on(source, &send, &sent);
		go_on(target, &receive, &received);
		advance_both(hosts, 1);
	}
	assert_int_equal(receive.status, LS_OK);
	free(from);
	free(to);
}

static void open_next_group(struct test_hosts *hosts)
{
	static const uint16_t areas[RANKS] = {0, 0};
	static const uint64_t closed[RANKS] = {1, 1};
	struct unit *units = hosts->fixture->units;
	for (int r = 0; r < RANKS; r++) {
		struct transport_team *team = &units[r].link->team;
		wait_store(&transport_area_of(team, r)->times_closed, 1);
		transport_notify_all(team);
	}
	advance_both(hosts, 1000);
	for (int r = 0; r < RANKS; r++) {
		assert_true(hosts_team_close(&units[r].link->team));
		transport_area_reset(&units[r].link->transport, 0, RANKS, 0);
	}
	for (int r = 0; r < RANKS; r++) {
		transport_team_set_world(&units[r].link->team);
		hosts_team_open(&units[r].link->team, 0, areas, closed);
		hosts_team_announce(&units[r].link->team);
		mailbox_begin(units[r].mailbox, &units[r].link->waiter);
	}
	advance_both(hosts, 1000);
}

/* In each group the RTS slots count their uses from 1. The link told the source of the last group
 * that the first use had ended; of a message that was cancelled it tells nothing. */
static void test_next_group(void **state)
{
	(void)state;
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *units = hosts->fixture->units;
	struct message *message = calloc(1, sizeof *message);
	struct wait_word words[2];
	struct op other;
	unsigned char byte;
	assert_non_null(message);
	receive_large(hosts);
	open_next_group(hosts);
	message->length = LONGEST;
	begin(&units[0], &message->send, &message->workspaces[0], TRACE_SEND, 7, message->from,
	      LONGEST, true);
	assert_int_equal(mailbox_advance(units[0].mailbox, &message->send), OP_BLOCKED);
	advance_both(hosts, 1000);
	assert_false(mailbox_cancel(units[0].mailbox, &message->send));
	assert_true(mailbox_ask_cancel(units[0].mailbox, &message->send, words));
	advance_both(hosts, 1000);
	assert_int_equal(mailbox_advance(units[0].mailbox, &message->send), OP_FAILED);
	assert_int_equal(message->send.status, LS_CANCELLED);
	begin(&units[1], &other, &message->workspaces[1], TRACE_RECV, 99, &byte, 1, false);
	assert_int_equal(mailbox_advance(units[1].mailbox, &other), OP_BLOCKED);
	advance_both(hosts, 1000);
	assert_int_equal(mailbox_advance(units[1].mailbox, &other), OP_BLOCKED);
	advance_both(hosts, 1000);
	const struct mail_rts *rts = &transport_mail(&units[0].link->team, 1, 0)->rts[0];
	assert_int_equal(atomic_load(&rts->done), transport_mail_word(rts->generation, 0));
	free(message);
	close_hosts(hosts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_drawn),
		cmocka_unit_test(test_failed),
		cmocka_unit_test(test_failed_without_room),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_no_memory_for_cells),
		cmocka_unit_test(test_late_answer),
		cmocka_unit_test(test_next_group),
		cmocka_unit_test(test_receive_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
