/* SPDX-License-Identifier: BSD-3-Clause
 * Messages of a group with members on another host. Ranks 0 and 1 are on one host, rank 2 on
 * another; a loop-back with delays and little room connects the hosts. */
#include "mailbox/mailbox_fixture.h"
#include "op/hosts_run_fixture.h"
#include "hosts/hosts_private.h"

enum { MANY = 300, LONGEST = 300000, TURNS = 10000 };

static void begin(struct unit *unit, struct op *op, struct op_workspace *workspace,
		  enum trace_kind kind, int peer, int tag, void *buffer, uint64_t count)
{
	memset(op, 0, sizeof *op);
	op->call = (struct op_call){
		.kind = kind, .dtype = LS_UINT8, .peer = peer, .tag = tag, .count = count};
	if (kind == TRACE_SEND)
		op->call.send = buffer_host(buffer, count);
	else
		op->call.recv = buffer_host(buffer, count);
	op->p2p.is_blocking = true;
	mailbox_submit(unit->mailbox, op, workspace);
}

static void transfer(struct unit *unit, enum trace_kind kind, int peer, int tag, void *buffer,
		     uint64_t count)
{
	struct op op;
	begin(unit, &op, &unit->workspace, kind, peer, tag, buffer, count);
	MUST(unit_finish(unit, &op) == LS_OK);
}

/* ---- messages ---- */

static const uint64_t lengths[] = {0,   1,   8,    24,   25,   191,  192,
				   193, 194, 2112, 2113, 4096, 5000, LONGEST};
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
	int from = unit->rank == REMOTE ? 0 : REMOTE;
	if (unit->rank == 1)
		return;
	transfer(unit, TRACE_SEND, from, 7, &(uint32_t){77}, 4);
	if (unit->rank == 0)
		for (number = 0; number < MANY; number++)
			transfer(unit, TRACE_SEND, REMOTE, 1, &number, 4);
	for (number = 0; unit->rank == REMOTE && number < MANY; number++) {
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

/* ---- failure ---- */

/* What a rank's thread is blocked on, for one whose operation has just been blocked. */
static void must_be_unproven(const struct op *op)
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
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[REMOTE];
	struct transport *here = &source->link->transport, *there = &target->link->transport;
	unsigned char *from = malloc(LONGEST), *to = calloc(1, LONGEST);
	struct op send, receive;
	memset(from, 1, LONGEST);
	begin(source, &send, &source->workspace, TRACE_SEND, REMOTE, 5, from, LONGEST);
	begin(target, &receive, &target->workspace, TRACE_RECV, 0, 5, to, LONGEST);
	while (mailbox_advance(target->mailbox, &receive) == OP_BLOCKED && !to[0]) {
		assert_int_equal(mailbox_advance(source->mailbox, &send), OP_BLOCKED);
		must_be_unproven(&receive);
		must_be_unproven(&send);
		hosts_advance(here);
		hosts_advance(there);
	}
	assert_int_equal(to[LONGEST - 1], 0); /* it is under way, or this tests nothing */
	atomic_store(&hosts->fixture->cause, 1);
	assert_int_equal(mailbox_abandon(source->mailbox, &send, NULL, false), OP_BLOCKED);
	hosts_cut(here, REMOTE);
	assert_int_equal(mailbox_abandon(source->mailbox, &send, NULL, false), OP_DONE);
	memset(from, 2, LONGEST);
	while (!hosts_is_lost(there, 0))
		hosts_advance(there);
	assert_int_equal(mailbox_advance(target->mailbox, &receive), OP_FAILED);
	assert_int_equal(receive.status, LS_PEER_DIED);
	assert_null(memchr(to, 2, LONGEST));
	assert_int_equal(mailbox_abandon(target->mailbox, &receive, NULL, false), OP_DONE);
	assert_false(hosts_is_lost(here, REMOTE)); /* it has cut it itself */
	close_hosts(hosts);
	free(from);
	free(to);
}

/* A receive does not fit its message, and so fails the group. The source gets its buffer back
 * without a cut, because other groups need the connection. */
static void test_does_not_fit(void **state)
{
	(void)state;
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[REMOTE];
	unsigned char *to = calloc(1, LONGEST);
	enum op_progress progress = OP_BLOCKED;
	struct op send, receive;
	void *from; /* shared memory: its payload is no copy, which may be read for ever */
	MUST(to && memory_alloc(&source->link->memory, LONGEST, &from) == LS_OK);
	begin(source, &send, &source->workspace, TRACE_SEND, REMOTE, 5, from, LONGEST);
	begin(target, &receive, &target->workspace, TRACE_RECV, 0, 5, to, LONGEST - 1);
	for (int i = 0; i < TURNS && progress == OP_BLOCKED; i++) {
		progress = mailbox_advance(target->mailbox, &receive);
		assert_int_equal(mailbox_advance(source->mailbox, &send), OP_BLOCKED);
		hosts_advance(&source->link->transport);
		hosts_advance(&target->link->transport);
	}
	assert_int_equal(progress, OP_FAILED);
	assert_int_equal(receive.status, LS_TRUNCATED);
	atomic_store(&hosts->fixture->cause, 1);
	for (int r = 0; r < RANKS; r++)
		hosts_withdraw(&hosts->fixture->units[r].link->team);
	progress = OP_BLOCKED;
	for (int i = 0; i < TURNS && progress == OP_BLOCKED; i++) {
		progress = mailbox_abandon(source->mailbox, &send, NULL, false);
		hosts_advance(&source->link->transport);
		hosts_advance(&target->link->transport);
	}
	assert_int_equal(progress, OP_DONE);
	assert_int_equal(mailbox_abandon(target->mailbox, &receive, NULL, false), OP_DONE);
	close_hosts(hosts);
	free(to);
}

/* ---- a peer that lies ---- */

static const struct link_ops *plain;
static uint64_t offered; /* instead of the length that the envelope says */
static unsigned char offered_bytes[LONGEST];

static bool offer_another_length(struct link *link, int peer, const struct link_note *note,
				 const void *payload, uint64_t bytes, struct link_transfer *moves)
{
	if (note->words[0] == HOSTS_NOTE_LONG) {
		payload = offered_bytes;
		bytes = offered;
	}
	return plain->post(link, peer, note, payload, bytes, moves);
}

static void receive_from_liar(uint64_t length)
{
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[REMOTE];
	struct link *link = loop_link(hosts->loop, 0);
	struct link_ops lying = *link->ops;
	unsigned char *from = calloc(1, LONGEST), *to = calloc(1, LONGEST);
	struct op send, receive;
	enum op_progress progress = OP_BLOCKED;
	MUST(from && to);
	plain = link->ops;
	lying.post = offer_another_length;
	link->ops = &lying;
	begin(source, &send, &source->workspace, TRACE_SEND, REMOTE, 5, from, length);
	begin(target, &receive, &target->workspace, TRACE_RECV, 0, 5, to, length);
	(void)mailbox_advance(source->mailbox, &send);
	for (int i = 0; i < 100000 && progress == OP_BLOCKED; i++) {
		progress = mailbox_advance(target->mailbox, &receive);
		hosts_advance(&source->link->transport);
		hosts_advance(&target->link->transport);
	}
	assert_int_equal(progress, OP_FAILED);
	assert_int_equal(receive.status, LS_INTERNAL);
	assert_int_equal(receive.culprit, 0);
	assert_null(memchr(to, 1, LONGEST));
	atomic_store(&hosts->fixture->cause, 1);
	assert_int_equal(mailbox_abandon(target->mailbox, &receive, NULL, false), OP_DONE);
	link->ops = plain;
	close_hosts(hosts);
	free(from);
	free(to);
}

/* The payload is longer or shorter than the message: nothing of it is fetched. */
static void test_another_length(void **state)
{
	(void)state;
	memset(offered_bytes, 1, sizeof offered_bytes);
	offered = LONGEST;
	receive_from_liar(5000);
	offered = 5000;
	receive_from_liar(LONGEST / 2);
}

/* What the source has sent of a slot of the ring: an envelope that names RTS slot 0. */
static void forge_message(struct link *link, uint64_t position, uint64_t bytes)
{
	struct {
		uint64_t held;
		struct mail_envelope envelope;
		unsigned char tiny[MAIL_TINY_BYTES];
	} line = {.held = position,
		  .envelope = {.count = bytes, .tag = 5, .rts = 1, .dtype = LS_UINT8}};
	uint64_t slot = sizeof(struct transport_area) + offsetof(struct transport_inbox, mail) +
			offsetof(struct mail_ring, slots) +
			transport_mail_index(position) * sizeof(struct mail_slot);
	uint64_t held = slot + offsetof(struct mail_slot, held);
	struct link_note note = {.words = {HOSTS_NOTE_WRITE, held << 1 | HOSTS_OF_TARGET,
					   slot << 1 | HOSTS_OF_TARGET, position}};
	MUST(link->ops->post(link, REMOTE, &note, &line, sizeof line, NULL));
	link->ops->push(link, REMOTE);
}

/* The source uses an RTS slot again whose payload is being fetched. The link needs what belongs to
 * that until it is done. */
static void test_slot_used_twice(void **state)
{
	enum { SHORT = 5000 };
	(void)state;
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[REMOTE];
	struct link *link = loop_link(hosts->loop, 0);
	uint64_t ring = sizeof(struct transport_area) + offsetof(struct transport_inbox, mail);
	struct link_note note = {.words = {HOSTS_NOTE_LONG, ring << 1 | HOSTS_OF_TARGET, 0, 2}};
	/* Its end looks like that of a block (hosts/ask.c), which frees it. */
	struct hosts_transfer *forged = calloc(2, sizeof *forged);
	unsigned char *from = malloc(LONGEST), *to = calloc(1, LONGEST), *other = calloc(1, SHORT);
	struct op send, receive, second;
	struct op_workspace workspace;
	enum op_progress progress = OP_BLOCKED, next = OP_BLOCKED;
	MUST(from && to && other && forged);
	forged->kind = HOSTS_TRANSFER_TELL;
	memset(from, 1, LONGEST);
	begin(source, &send, &source->workspace, TRACE_SEND, REMOTE, 5, from, LONGEST);
	begin(target, &receive, &target->workspace, TRACE_RECV, 0, 5, to, LONGEST);
	while (mailbox_advance(target->mailbox, &receive) == OP_BLOCKED && !to[0]) {
		assert_int_equal(mailbox_advance(source->mailbox, &send), OP_BLOCKED);
		hosts_advance(&source->link->transport);
		hosts_advance(&target->link->transport);
	}
	assert_int_equal(to[LONGEST - 1], 0); /* it is under way, or this tests nothing */
	MUST(link->ops->post(link, REMOTE, &note, offered_bytes, SHORT, &forged->link_transfer));
	forge_message(link, 2, SHORT);
	begin(target, &second, &workspace, TRACE_RECV, 0, 5, other, SHORT);
	for (int i = 0; i < TURNS && (progress == OP_BLOCKED || next == OP_BLOCKED); i++) {
		if (progress == OP_BLOCKED)
			progress = mailbox_advance(target->mailbox, &receive);
		if (progress == OP_DONE)
			assert_null(memchr(to, 0, LONGEST));
		if (next == OP_BLOCKED)
			next = mailbox_advance(target->mailbox, &second);
		hosts_advance(&source->link->transport);
		hosts_advance(&target->link->transport);
	}
	assert_int_equal(progress, OP_DONE);
	atomic_store(&hosts->fixture->cause, 1);
	close_hosts(hosts);
	free(from);
	free(to);
	free(other);
}

/* ---- in another order ---- */

static struct link_transfer *held; /* has ended, and its user is not told yet */
static void (*tell_done)(void *context, struct link_transfer *transfer);

static void hold_done(void *context, struct link_transfer *transfer)
{
	(void)context;
	assert_null(held);
	held = transfer;
}

static void advance(struct test_hosts *hosts, int turns)
{
	for (int i = 0; i < turns; i++)
		for (int r = 0; r < RANKS; r++)
			hosts_advance(&hosts->fixture->units[r].link->transport);
}

/* A message is cancelled, then a receive finds that, and its rank returns the RTS slot. The source
 * learns of that before it learns that the payload was refused. The message was not received. */
static void test_returned_before_refused(void **state)
{
	(void)state;
	struct test_hosts *hosts = open_hosts(RANKS, host_of, 1);
	struct unit *source = &hosts->fixture->units[0], *target = &hosts->fixture->units[REMOTE];
	struct link *link = loop_link(hosts->loop, 0);
	unsigned char *from = calloc(1, LONGEST), *to = calloc(1, LONGEST);
	struct wait_word words[2];
	struct op send, receive;
	MUST(from && to);
	begin(source, &send, &source->workspace, TRACE_SEND, REMOTE, 5, from, LONGEST);
	for (int i = 0; i < 100; i++) { /* it is offered */
		assert_int_equal(mailbox_advance(source->mailbox, &send), OP_BLOCKED);
		advance(hosts, 1);
	}
	tell_done = link->events.done;
	link->events.done = hold_done;
	assert_false(mailbox_cancel(source->mailbox, &send));
	assert_true(mailbox_ask_cancel(source->mailbox, &send, words));
	advance(hosts, 100);
	assert_non_null(held); /* it was refused */
	begin(target, &receive, &target->workspace, TRACE_RECV, 0, 5, to, LONGEST);
	assert_int_equal(mailbox_advance(target->mailbox, &receive), OP_BLOCKED);
	advance(hosts, 100);
	assert_int_equal(mailbox_advance(source->mailbox, &send), OP_BLOCKED);
	link->events.done = tell_done;
	tell_done(link->events.context, held);
	assert_int_equal(mailbox_advance(source->mailbox, &send), OP_FAILED);
	assert_int_equal(send.status, LS_CANCELLED);
	assert_true(mailbox_cancel(target->mailbox, &receive));
	close_hosts(hosts);
	free(from);
	free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_more_than_there_is_room_for),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_does_not_fit),
		cmocka_unit_test(test_another_length),
		cmocka_unit_test(test_slot_used_twice),
		cmocka_unit_test(test_returned_before_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
