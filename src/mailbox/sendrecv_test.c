/* SPDX-License-Identifier: BSD-3-Clause
 * Sends and receives of two ranks, step by step in one thread: what a rank waits for, what it does
 * for operations that no thread advances, and what its other threads may do between two steps. */
#include <dlfcn.h>

#include "mailbox/mailbox_private.h"
#include "mailbox/mailbox_fixture.h"

enum { LONG = MAIL_EAGER_BYTES / sizeof(int32_t) + 1, MANY = 64 };

static const struct ranks first_gone = {{1}};

static int open_pair(void **state)
{
	const struct settings settings = {.messages = MANY};
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
	int32_t data[LONG];
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
	mailbox_submit(unit->mailbox, &message->op, &message->workspace);
	return message;
}

static struct message *nonblocking(struct unit *unit, enum trace_kind kind, uint64_t count, int tag)
{
	struct message *message = begin(unit, kind, count, tag, true);
	assert_int_equal(mailbox_advance(unit->mailbox, &message->op), OP_BLOCKED);
	return message;
}

static bool is_there(const struct wait_word *words, int count)
{
	struct wait_call call = {.words = words, .count = count, .any = true};
	return wait_satisfied(&call);
}

/* Goes on with all; how many words there are to wait for. */
static int sweep(struct unit *unit, struct wait_word *words)
{
	int count;
	while (mailbox_progress(unit->mailbox, NULL, 0, words, WAIT_EDGE_MAX, &count))
		;
	return count;
}

static void hand_out(struct unit *unit, struct message *message, ls_status status)
{
	assert_ptr_equal(mailbox_take_complete(unit->mailbox), &message->op);
	assert_int_equal(message->op.status, status);
	free(message);
}

/* Somebody else takes in what ends a detached one: no word tells, so it is work. */
static void test_over_is_work(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *receive = nonblocking(owner, TRACE_RECV, 1, 1);
	struct message *probe = begin(owner, TRACE_PROBE, 0, 2, false);
	assert_false(mailbox_has_work(owner->mailbox));
	assert_int_equal(mailbox_advance(owner->mailbox, &probe->op), OP_BLOCKED);
	struct message *send = begin(source, TRACE_SEND, 1, 1, false);
	assert_int_equal(mailbox_advance(source->mailbox, &send->op), OP_DONE);
	assert_true(is_there(probe->op.words, probe->op.word_count));
	assert_int_equal(mailbox_advance(owner->mailbox, &probe->op), OP_BLOCKED);
	assert_true(mailbox_has_work(owner->mailbox));
	hand_out(owner, receive, LS_OK);
	assert_false(mailbox_has_work(owner->mailbox));
	free(probe);
	free(send);
}

/* What a probe asks for is taken in by another call, after it has looked; then its source goes. */
static void test_probe_of_who_is_gone(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	int peer;
	struct message *probe = begin(owner, TRACE_PROBE, 0, 2, false);
	struct message *receive = begin(owner, TRACE_RECV, 1, 1, false);
	assert_int_equal(mailbox_advance(owner->mailbox, &probe->op), OP_BLOCKED);
	assert_int_equal(mailbox_needs(owner->mailbox, &probe->op, &first_gone, &peer),
			 MAILBOX_NEEDS_GONE);
	assert_int_equal(peer, 0);
	struct message *send = begin(source, TRACE_SEND, 1, 2, false);
	assert_int_equal(mailbox_advance(source->mailbox, &send->op), OP_DONE);
	assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_BLOCKED);
	assert_int_equal(mailbox_needs(owner->mailbox, &probe->op, &first_gone, &peer),
			 MAILBOX_NEEDS_NOBODY);
	assert_int_equal(mailbox_needs(owner->mailbox, &receive->op, &first_gone, &peer),
			 MAILBOX_NEEDS_GONE);
	probe->op.call.peer = -1; /* any source */
	assert_int_equal(mailbox_needs(owner->mailbox, &probe->op, &first_gone, &peer),
			 MAILBOX_NEEDS_NOBODY);
	assert_int_equal(mailbox_advance(owner->mailbox, &probe->op), OP_DONE);
	assert_true(mailbox_cancel(owner->mailbox, &receive->op));
	free(probe);
	free(receive);
	free(send);
}

/* A message that has come, and that nobody has looked at yet, is enough for a receive from any
 * source when all other ranks are gone: one of a rank that has left, or of the rank itself. */
static void test_any_source_has_come(void **state)
{
	struct fixture *fixture = *state;
	struct unit *owner = &fixture->units[1];
	int peer;
	for (int sender = 0; sender < 2; sender++) {
		struct message *receive = begin(owner, TRACE_RECV, 1, 1, false);
		receive->op.call.peer = -1;
		assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_BLOCKED);
		assert_int_equal(mailbox_needs(owner->mailbox, &receive->op, &first_gone, &peer),
				 MAILBOX_NEEDS_SELF);
		struct message *send = begin(&fixture->units[sender], TRACE_SEND, 1, 1, false);
		send->op.call.peer = 1;
		assert_int_equal(mailbox_advance(fixture->units[sender].mailbox, &send->op),
				 OP_DONE);
		assert_int_equal(mailbox_needs(owner->mailbox, &receive->op, &first_gone, &peer),
				 MAILBOX_NEEDS_NOBODY);
		assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_DONE);
		free(receive);
		free(send);
	}
}

/* What happens as soon as a mailbox is unlocked for the `countdown`th time. */
static struct meantime {
	struct fixture *fixture;
	int countdown;
	struct message *send;
} meantime;

/* The message comes, and another thread of its receiver takes it in. */
static void message_comes(struct fixture *fixture)
{
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *other = begin(owner, TRACE_PROBE, 0, 2, false);
	meantime.send = begin(source, TRACE_SEND, 1, 1, false);
	assert_int_equal(mailbox_advance(source->mailbox, &meantime.send->op), OP_DONE);
	assert_int_equal(mailbox_advance(owner->mailbox, &other->op), OP_BLOCKED);
	free(other);
}

/* In the place of the C library's. */
int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	static int (*unlock)(pthread_mutex_t *);
	if (!unlock)
		*(void **)&unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	int error = unlock(mutex);
	struct fixture *fixture = meantime.fixture;
	if (fixture && mutex == &fixture->units[1].mailbox->lock.state.mutex &&
	    --meantime.countdown == 0)
		message_comes(fixture);
	return error;
}

/* A step of a receive or probe, with something else to happen at the `at`th moment in which the
 * mailbox is unlocked. False: there is no such moment. */
static bool step(struct fixture *fixture, struct message *message, int at)
{
	struct unit *owner = &fixture->units[1];
	meantime = (struct meantime){.fixture = fixture, .countdown = at};
	enum op_progress progress = mailbox_advance(owner->mailbox, &message->op);
	meantime.fixture = NULL;
	if (!meantime.send)
		return false;
	/* No later message would tell it of this one. */
	assert_true(progress == OP_DONE || is_there(message->op.words, message->op.word_count));
	if (progress != OP_DONE)
		assert_int_equal(mailbox_advance(owner->mailbox, &message->op), OP_DONE);
	free(meantime.send);
	return true;
}

/* A thread looks for a message, and then reads which word to wait for. Whenever another thread
 * takes the message in, the first one finds it, or waits for a word that has changed. */
static void test_taken_in_meanwhile(void **state)
{
	static const enum trace_kind kinds[] = {TRACE_PROBE, TRACE_RECV, TRACE_RECV};
	struct fixture *fixture = *state;
	struct unit *owner = &fixture->units[1];
	owner->mailbox->lock.state.run_least = 0; /* the lock never goes without its mutex */
	for (int way = 0; way < 3; way++) {
		bool met = true;
		int at;
		for (at = 1; met; at++) {
			struct message *message = begin(owner, kinds[way], way ? 1 : 0, 1, false);
			if (way == 2) /* it waits already */
				assert_int_equal(mailbox_advance(owner->mailbox, &message->op),
						 OP_BLOCKED);
			met = step(fixture, message, at);
			if (kinds[way] == TRACE_PROBE && met) { /* the message is still there */
				struct message *receive = begin(owner, TRACE_RECV, 1, 1, false);
				assert_int_equal(mailbox_advance(owner->mailbox, &receive->op),
						 OP_DONE);
				free(receive);
			}
			if (kinds[way] == TRACE_RECV && !met)
				assert_true(mailbox_cancel(owner->mailbox, &message->op));
			free(message);
		}
		assert_true(at > 2);
	}
}

/* All RTS slots are in use, and no thread advances their sends. One more send waits until any of
 * them is complete; then it is posted. */
static void test_rts_slots_of_others(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *sends[MANY], *receives[MANY];
	struct wait_word words[WAIT_EDGE_MAX];
	for (int i = 0; i < MANY; i++)
		sends[i] = nonblocking(source, TRACE_SEND, LONG, i);
	struct message *last = begin(source, TRACE_SEND, LONG, MANY, false);
	assert_int_equal(mailbox_advance(source->mailbox, &last->op), OP_BLOCKED);
	for (int i = MANY - 1; i >= 0; i--) {
		receives[i] = nonblocking(owner, TRACE_RECV, LONG, i);
		sweep(owner, words);
		hand_out(owner, receives[i], LS_OK);
		if (i == MANY - 1) {
			/* First a place in the ring, then an RTS slot. */
			assert_true(is_there(last->op.words, last->op.word_count));
			mailbox_advance(source->mailbox, &last->op);
			assert_int_equal(last->op.p2p.index, MANY - 1);
			assert_false(is_there(last->op.words, last->op.word_count));
		}
	}
	/* Those whose RTS slot another one has by now end all the same. */
	struct message *receive = nonblocking(owner, TRACE_RECV, LONG, MANY);
	for (int i = 0; i < MANY; i++)
		assert_false(mailbox_is_queued(&sends[i]->op));
	sweep(source, words);
	for (int i = 0; i < MANY; i++)
		hand_out(source, sends[i], LS_OK);
	assert_false(is_there(last->op.words, last->op.word_count));
	sweep(owner, words);
	hand_out(owner, receive, LS_OK);
	assert_true(is_there(last->op.words, last->op.word_count));
	assert_int_equal(mailbox_advance(source->mailbox, &last->op), OP_DONE);
	free(last);
}

/* One that is taken back is over at once, and so is its place in the ring as soon as its owner
 * looks for anything else, at what it has seen before and what it has not. */
static void test_taken_back(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct wait_word words[WAIT_EDGE_MAX];
	struct message *receive = begin(owner, TRACE_RECV, LONG, MANY, false);
	struct message *sends[MANY];
	assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_BLOCKED);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < MANY; i++)
			sends[i] = nonblocking(source, TRACE_SEND, LONG, i);
		struct message *queued = nonblocking(source, TRACE_SEND, LONG, 0);
		if (round != 1) /* it has seen them */
			mailbox_advance(owner->mailbox, &receive->op);
		for (int i = 0; i < MANY; i++) {
			assert_true(mailbox_cancel(source->mailbox, &sends[i]->op));
			assert_false(mailbox_cancel(source->mailbox, &sends[i]->op));
			hand_out(source, sends[i], LS_CANCELLED);
		}
		assert_true(is_there(receive->op.words, receive->op.word_count));
		assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_BLOCKED);
		assert_false(is_there(receive->op.words, receive->op.word_count));
		sweep(source, words);
		assert_false(mailbox_is_queued(&queued->op));
		assert_true(mailbox_cancel(source->mailbox, &queued->op));
		hand_out(source, queued, LS_CANCELLED);
	}
	struct message *send = nonblocking(source, TRACE_SEND, LONG, MANY);
	assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_DONE);
	sweep(source, words);
	hand_out(source, send, LS_OK);
	free(receive);
}

/* The group has failed, and one thread ends the send while its caller's thread cancels it: only the
 * first frees the block. */
static void test_failed_is_not_cancelled(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0];
	struct message *send = nonblocking(source, TRACE_SEND, LONG, 1);
	void *block = send->op.input_block;
	assert_non_null(block);
	assert_ptr_equal(mailbox_remove(source->mailbox, false), &send->op);
	assert_false(mailbox_cancel(source->mailbox, &send->op));
	assert_ptr_equal(send->op.input_block, block);
	assert_int_equal(mailbox_abandon(source->mailbox, &send->op, NULL, false), OP_DONE);
	assert_null(send->op.input_block);
	free(send);
}

/* A blocking send whose second piece is not staged yet: as if its thread were still at it. */
static struct message *half_staged(struct unit *source)
{
	struct message *send = begin(source, TRACE_SEND, LONG, 1, false);
	struct mail_rts *rts;
	send->op.p2p.is_blocking = true;
	for (int i = 0; i < LONG; i++)
		send->data[i] = i + 1;
	assert_int_equal(mailbox_advance(source->mailbox, &send->op), OP_BLOCKED);
	rts = send->op.p2p.rts;
	assert_int_equal(send->op.p2p.pieces, 2);
	assert_true(rts->staged == transport_mail_word(rts->generation, 2));
	rts->staged = transport_mail_word(rts->generation, 1);
	return send;
}

static void stage_rest(struct message *send)
{
	struct mail_rts *rts = send->op.p2p.rts;
	rts->staged = transport_mail_word(rts->generation, 2);
}

/* What the source writes after the match changes nothing for the receive. */
static void test_rts_is_read_once(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = half_staged(source);
	struct message *receive = begin(owner, TRACE_RECV, LONG, 1, false);
	assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_BLOCKED);
	struct mail_rts *rts = send->op.p2p.rts;
	rts->window = UINT64_MAX;
	rts->bytes = 1;
	rts->by_address = !rts->by_address;
	stage_rest(send);
	assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_DONE);
	assert_memory_equal(receive->data, send->data, sizeof send->data);
	assert_int_equal(mailbox_advance(source->mailbox, &send->op), OP_DONE);
	free(receive);
	free(send);
}

/* The receiver of such a send copies the first piece, and waits for the second, or for a source
 * that is gone; and there is no work meanwhile. */
static void test_staged_in_pieces(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = half_staged(source);
	struct message *receive = begin(owner, TRACE_RECV, LONG, 1, false);
	struct wait_word words[WAIT_EDGE_MAX];
	int peer;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_BLOCKED);
		assert_int_equal(receive->op.word_count, 1);
		assert_false(is_there(receive->op.words, 1));
	}
	assert_int_equal(mailbox_needs(owner->mailbox, &receive->op, &first_gone, &peer),
			 MAILBOX_NEEDS_GONE);
	assert_int_equal(receive->data[0], 1);
	assert_int_equal(receive->data[LONG - 1], 0);
	stage_rest(send);
	assert_true(is_there(receive->op.words, 1));
	assert_int_equal(mailbox_needs(owner->mailbox, &receive->op, &first_gone, &peer),
			 MAILBOX_NEEDS_NOBODY);
	assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_DONE);
	assert_memory_equal(receive->data, send->data, sizeof send->data);
	assert_int_equal(mailbox_advance(source->mailbox, &send->op), OP_DONE);
	free(receive);
	free(send);

	send = half_staged(source);
	receive = nonblocking(owner, TRACE_RECV, LONG, 1);
	assert_int_equal(sweep(owner, words), 1);
	assert_false(is_there(words, 1));
	assert_false(mailbox_has_work(owner->mailbox));
	assert_false(mailbox_is_ready(owner->mailbox));
	stage_rest(send);
	assert_true(is_there(words, 1));
	assert_true(mailbox_has_work(owner->mailbox));
	sweep(owner, words);
	assert_memory_equal(receive->data, send->data, sizeof send->data);
	hand_out(owner, receive, LS_OK);
	assert_int_equal(mailbox_advance(source->mailbox, &send->op), OP_DONE);
	free(send);
}

/* The receiver of one gives up, or its source does: neither waits for what is not staged. */
static void test_abandoned_in_pieces(void **state)
{
	struct fixture *fixture = *state;
	struct unit *source = &fixture->units[0], *owner = &fixture->units[1];
	struct message *send = half_staged(source);
	struct message *receive = begin(owner, TRACE_RECV, LONG, 1, false);
	assert_int_equal(mailbox_advance(owner->mailbox, &receive->op), OP_BLOCKED);
	assert_int_equal(mailbox_abandon(source->mailbox, &send->op, NULL, false), OP_DONE);
	assert_int_equal(mailbox_abandon(owner->mailbox, &receive->op, NULL, false), OP_DONE);
	free(receive);
	free(send);
}

static bool has_word(const struct wait_word *words, int count, uint32_t record, uint32_t alternative)
{
	for (int i = 0; i < count; i++)
		if (words[i].edge.record == record && words[i].edge.alternative == alternative)
			return true;
	return false;
}

/* A word that both a batch and somebody else need is shown as both: that another part of the batch
 * never comes says nothing of what the other one waits for. */
static void test_shared_words(void **state)
{
	struct fixture *fixture = *state;
	struct unit *owner = &fixture->units[1];
	struct wait_word words[4 * WAIT_EDGE_MAX];
	struct op batch = {0};
	const struct mailbox_awaited own = {.op = &batch, .alternative = 1};
	struct message *part = nonblocking(owner, TRACE_RECV, 1, 1);
	int count;
	part->op.record = 7;
	part->op.p2p.batch = &batch;
	assert_false(mailbox_progress(owner->mailbox, &own, 1, words, 4 * WAIT_EDGE_MAX, &count));
	assert_true(has_word(words, count, 7, 1));
	assert_false(has_word(words, count, WAIT_RECORD_OTHERS, 0));
	struct message *other = nonblocking(owner, TRACE_RECV, 1, 2);
	assert_false(mailbox_progress(owner->mailbox, &own, 1, words, 4 * WAIT_EDGE_MAX, &count));
	assert_true(has_word(words, count, 7, 1) && has_word(words, count, WAIT_RECORD_OTHERS, 0));
	/* The same of room. */
	struct message *sends[MANY + 2];
	for (int i = 0; i < MANY + 2; i++)
		sends[i] = nonblocking(owner, TRACE_SEND, LONG, i);
	sends[MANY]->op.p2p.batch = &batch;
	sends[MANY]->op.record = 8;
	while (mailbox_progress(owner->mailbox, &own, 1, words, 4 * WAIT_EDGE_MAX, &count))
		;
	assert_true(has_word(words, count, 8, 1));
	assert_true(mailbox_is_queued(&sends[MANY]->op));
	assert_true(mailbox_cancel(owner->mailbox, &other->op));
	hand_out(owner, other, LS_CANCELLED);
	sends[MANY + 1]->op.p2p.batch = &batch;
	int all = 0;
	while (mailbox_progress(owner->mailbox, &own, 1, words, 4 * WAIT_EDGE_MAX, &all))
		;
	assert_int_equal(all, count - 2); /* neither the source's nor the room's is another's now */
	assert_true(mailbox_cancel(owner->mailbox, &part->op));
	hand_out(owner, part, LS_CANCELLED);
	for (int i = MANY + 1; i >= 0; i--) {
		assert_true(mailbox_cancel(owner->mailbox, &sends[i]->op));
		hand_out(owner, sends[i], LS_CANCELLED);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_over_is_work, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_probe_of_who_is_gone, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_any_source_has_come, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_taken_in_meanwhile, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_rts_slots_of_others, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_taken_back, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_failed_is_not_cancelled, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_rts_is_read_once, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_staged_in_pieces, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_abandoned_in_pieces, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_shared_words, open_pair, close_pair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
