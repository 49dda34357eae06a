/* SPDX-License-Identifier: BSD-3-Clause
 * Two ranks on two hosts. A thread leaves notes that the link keeps back to a thread that just
 * pushes: they are sent, too; this thread plays both. What a peer must not write (mirror.c); and
 * how the ranks part (parting.c). */
#include <lockstep/types.h>

#include "hosts/pair_fixture.h"

/* No rank waits for this word, so the link keeps it back. */
static void publish(struct transport_team *team, uint64_t finished)
{
	wait_store(&transport_area_of(team, HERE)->finished, finished);
	transport_notify(team, REMOTE);
}

/* Rank HERE does nothing more. */
static uint64_t comes(const struct pair *pair)
{
	for (int i = 0; i < PASSES; i++)
		hosts_advance(pair->there);
	return atomic_load(&transport_area_of(pair->remote_team, HERE)->finished);
}

static struct transport_team *publishes; /* NULL: nothing more */
static const struct link_ops *plain;

static void push_and_publish(struct link *link, int peer)
{
	struct transport_team *team = publishes;
	plain->push(link, peer);
	publishes = NULL;
	if (team)
		publish(team, 2);
}

static void test_left_to_who_pushes(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	struct link *link = loop_link(pair.loop, HERE);
	plain = link->ops;
	struct link_ops pushing = *plain;
	pushing.push = push_and_publish;
	link->ops = &pushing;
	publishes = pair.team;
	publish(pair.team, 1);
	assert_null(publishes); /* it has pushed, or this tests nothing */
	assert_int_equal(comes(&pair), 2);
	link->ops = plain;
	close_pair(&pair);
}

/* ---- slots ---- */

static uint64_t written; /* bytes that were last sent to a place */

static bool note_and_post(struct link *link, int peer, const struct link_note *note,
			  const void *payload, uint64_t bytes, struct link_transfer *transfer)
{
	if (note->words[0] == HOSTS_NOTE_WRITE)
		written = bytes;
	return plain->post(link, peer, note, payload, bytes, transfer);
}

/* The link sends only those bytes of a slot that the message has; a longer payload is in a cell. */
static void test_no_more_than_the_payload(void **state)
{
	(void)state;
	static const struct {
		uint64_t bytes, behind;
	} cases[] = {
		{0, 0},   {1, 0},    {MAIL_TINY_BYTES, 0}, {MAIL_TINY_BYTES + 1, 32}, {192, 192},
		{193, 0}, {1000, 0}, {MAIL_CELL_BYTES, 0}};
	struct pair pair = open_pair();
	struct link *link = loop_link(pair.loop, HERE);
	struct mail_ring *to = pair.team->relays[REMOTE].to,
			 *from = pair.remote_team->relays[HERE].from;
	const struct transport_area *mirror = transport_area_of(pair.remote_team, HERE);
	struct mail_cells *cells = &transport_area_of(pair.team, HERE)->cells;
	struct link_ops noting = *link->ops;
	struct mail_message message;
	struct mail_out out;
	struct mail_in in;
	unsigned char payload[MAIL_CELL_BYTES];
	plain = link->ops;
	noting.post = note_and_post;
	link->ops = &noting;
	transport_mail_out_init(&out);
	transport_mail_in_init(&in);
	assert_true(transport_inbox_open(pair.team, REMOTE, HERE));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t bytes = cases[i].bytes;
		struct mail_envelope envelope = {
			.count = bytes, .dtype = LS_UINT8, .cell = bytes > MAIL_INLINE_BYTES};
		memset(payload, (int)(1 + i), sizeof payload);
		if (envelope.cell)
			memcpy(cells->cells[0][0], payload, bytes);
		transport_mail_post(to, &out, &envelope, payload, bytes);
		transport_notify(pair.team, REMOTE);
		advance_both(&pair);
		assert_int_equal(written, offsetof(struct mail_slot, payload) -
						  offsetof(struct mail_slot, held) +
						  cases[i].behind);
		assert_true(transport_mail_poll(from, &in, &message));
		assert_memory_equal(transport_mail_payload(from, &mirror->cells, &message, bytes),
				    payload, bytes);
		transport_mail_free_slot(from, &in, &message);
	}
	link->ops = plain;
	close_pair(&pair);
}

/* ---- nonsense ---- */

/* Posts an empty note for this offset in the area of the world group. */
static void post_empty(const struct pair *pair, enum hosts_note kind, uint64_t offset)
{
	struct link *link = loop_link(pair->loop, HERE);
	struct link_note note = {.words = {kind, offset << 1 | HOSTS_OF_TARGET}};
	assert_true(link->ops->post(link, REMOTE, &note, NULL, 0, NULL));
}

/* Where the inbox ends, there is room for no byte: nobody's inbox counts as in use. */
static void test_nothing_behind_the_inboxes(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	const uint64_t end = sizeof(struct transport_area) + sizeof(struct transport_inbox);
	struct transport_area *area = transport_area_of(pair.remote_team, REMOTE);
	const struct transport_traffic *traffic = transport_traffic(pair.there->segment, HERE);
	uint64_t arrived = atomic_load(&traffic->arrived);
	atomic_store(&area->inboxes[0], 0);
	post_empty(&pair, HOSTS_NOTE_WRITE, end);
	post_empty(&pair, HOSTS_NOTE_CELL, end);
	for (int i = 0; i < PASSES; i++) {
		loop_link(pair.loop, HERE)->ops->push(loop_link(pair.loop, HERE), REMOTE);
		hosts_advance(pair.there);
	}
	assert_true(atomic_load(&traffic->arrived) >= arrived + 2);
	assert_int_equal(atomic_load(&area->inboxes[0]), 0);
	close_pair(&pair);
}

/* ---- the next group ---- */

/* A rank that has opened a group says so when it announces it, even if it has something to send
 * before that. */
static void test_announced(void **state)
{
	(void)state;
	static const uint16_t areas[RANKS] = {0, 0};
	static const uint64_t closed[RANKS] = {1, 1};
	struct pair pair = open_pair();
	struct transport_team *teams[RANKS] = {pair.team, pair.remote_team};
	for (int r = 0; r < RANKS; r++) {
		wait_store(&transport_area_of(teams[r], r)->times_closed, 1);
		transport_notify_all(teams[r]);
	}
	advance_both(&pair);
	for (int r = 0; r < RANKS; r++) {
		assert_true(hosts_team_close(teams[r]));
		transport_area_reset(teams[r]->transport, 0, RANKS, 0);
	}
	for (int r = 0; r < RANKS; r++) {
		transport_team_set_world(teams[r]);
		hosts_team_open(teams[r], 0, areas, closed);
	}
	hosts_team_announce(pair.remote_team);
	publish(pair.team, 1);
	advance_both(&pair);
	assert_true(pair.team->relays[REMOTE].is_ready);
	assert_false(pair.remote_team->relays[HERE].is_ready);
	hosts_team_announce(pair.team);
	advance_both(&pair);
	assert_true(pair.remote_team->relays[HERE].is_ready);
	hosts_push(pair.here);
	assert_int_equal(comes(&pair), 1); /* it was not sent too early */
	close_pair(&pair);
}

/* ---- parting ---- */

static bool has_come(const struct wait_word *word)
{
	return atomic_load(word->word) >= word->edge.value;
}

/* The end of a rank arrives with its history, and raises `members_ended` as on one host. */
static void test_end_arrives(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	struct transport_area *mine = transport_area_of(pair.team, HERE);
	const struct transport_area *mirror = transport_area_of(pair.remote_team, HERE);
	atomic_store(&mine->history, UINT64_MAX - 6);
	atomic_store(&mine->ended, 3);
	assert_int_equal(atomic_load(&transport_area_of(pair.remote_team, REMOTE)->members_ended),
			 0);
	transport_notify(pair.team, REMOTE);
	advance_both(&pair);
	assert_int_equal(atomic_load(&mirror->ended), 3);
	assert_true(atomic_load(&mirror->history) == UINT64_MAX - 6);
	assert_int_equal(atomic_load(&transport_area_of(pair.remote_team, REMOTE)->members_ended),
			 1);
	close_pair(&pair);
}

/* The other rank goes on; it is enough that a thread of it makes progress on the link. */
static void test_parts_when_heard(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	struct wait_word parted;
	assert_true(hosts_leave(pair.here, &parted));
	for (int i = 0; i < PASSES; i++)
		hosts_advance(pair.here);
	assert_false(has_come(&parted));
	advance_both(&pair);
	assert_true(has_come(&parted));
	close_pair(&pair);
}

static void test_parts_when_both_leave(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	struct wait_word here, there;
	assert_true(hosts_leave(pair.here, &here));
	assert_true(hosts_leave(pair.there, &there));
	advance_both(&pair);
	assert_true(has_come(&here));
	assert_true(has_come(&there));
	close_pair(&pair);
}

/* Nothing more comes from a rank that has been cut off. */
static void test_parts_when_cut(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	struct wait_word parted;
	hosts_cut(pair.here, REMOTE);
	assert_true(hosts_leave(pair.here, &parted));
	assert_true(has_come(&parted));
	close_pair(&pair);
}

static int lost_rank;

static void note_lost(void *context, int rank)
{
	(void)context;
	lost_rank = rank;
}

/* The link says so only to the other rank; but this one must not wait for it either. */
static void test_cutter_knows(void **state)
{
	(void)state;
	struct pair pair = open_pair();
	pair.here->hosts->events.lost = note_lost;
	lost_rank = -1;
	hosts_cut(pair.here, REMOTE);
	assert_int_equal(lost_rank, REMOTE);
	assert_int_equal(atomic_load(&transport_traffic(pair.here->segment, REMOTE)->lost), 1);
	/* Its connection has not broken by itself. */
	assert_false(hosts_is_lost(pair.here, REMOTE));
	close_pair(&pair);
}

/* Ranks on another host cannot read plain memory of this rank, and do not have to. */
static void test_who_reads_plain_memory(void **state)
{
	(void)state;
	static const int two_hosts[] = {0, 0, 1};
	struct test_job *job = test_job_new_of(3, TEST_JOB_LIMIT_MS, true);
	struct loop *loop = hosts_connect(job, two_hosts, 1);
	for (int r = 0; r < 2; r++)
		assert_false(transport_reads_me(&job->ranks[r].team));
	for (int r = 0; r < 3; r++)
		transport_probe(&job->ranks[r].transport, true);
	for (int r = 0; r < 3; r++)
		assert_true(transport_reads_me(&job->ranks[r].team));
	hosts_disconnect(job, loop);
	test_job_close(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_reads_plain_memory),
		cmocka_unit_test(test_left_to_who_pushes),
		cmocka_unit_test(test_no_more_than_the_payload),
		cmocka_unit_test(test_nothing_behind_the_inboxes),
		cmocka_unit_test(test_announced),
		cmocka_unit_test(test_end_arrives),
		cmocka_unit_test(test_parts_when_heard),
		cmocka_unit_test(test_parts_when_both_leave),
		cmocka_unit_test(test_parts_when_cut),
		cmocka_unit_test(test_cutter_knows),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
