/* SPDX-License-Identifier: BSD-3-Clause
 * Messages that a rank on another host announces, and whose payload comes later, or never: those of
 * sends on streams. Rank REMOTE sends, rank HERE receives. */
#include <stdlib.h>
#include <string.h>

#include "hosts/pair_fixture.h"

enum { LONG_BYTES = 8192, SHORT_BYTES = 16 };

struct late {
	struct pair pair;
	struct mail_out out;
	struct mail_in in;
	void *payload;
	uint64_t offset;
	unsigned char to[LONG_BYTES];
};

static int set_up(void **state)
{
	struct late *late = calloc(1, sizeof *late);
	assert_non_null(late);
	late->pair = open_pair();
	struct memory *memory = &late->pair.job->ranks[REMOTE].memory;
	transport_mail_out_init(&late->out);
	transport_mail_in_init(&late->in);
	assert_int_equal(memory_alloc(memory, LONG_BYTES, &late->payload), LS_OK);
	assert_true(memory_offset(memory, late->payload, LONG_BYTES, &late->offset));
	*state = late;
	return 0;
}

static int tear_down(void **state)
{
	struct late *late = *state;
	assert_int_equal(memory_free(&late->pair.job->ranks[REMOTE].memory, late->payload, NULL),
			 LS_OK);
	close_pair(&late->pair);
	free(late);
	return 0;
}

static struct hosts_relay *sender(const struct late *late)
{
	return &late->pair.remote_team->relays[HERE];
}

static struct hosts_relay *receiver(const struct late *late)
{
	return &late->pair.team->relays[REMOTE];
}

static void copy_payload(struct late *late, unsigned index)
{
	struct mail_rts *rts = &sender(late)->to->rts[index];
	memset(late->payload, 7, LONG_BYTES);
	wait_store(&rts->staged, transport_mail_word(rts->generation, MAIL_CLAIMS));
	transport_notify(late->pair.remote_team, HERE);
	advance_both(&late->pair);
}

/* Returns the RTS slot. is_there: REMOTE's stream has copied the payload at once. */
static unsigned post(struct late *late, uint64_t bytes, bool is_there)
{
	struct mail_ring *ring = sender(late)->to;
	unsigned index =
		transport_mail_rts_alloc(ring, &late->out, false, late->offset, false, bytes);
	struct mail_envelope envelope = {.count = bytes, .rts = (uint16_t)(index + 1)};
	transport_mail_post(ring, &late->out, &envelope, NULL, 0);
	if (is_there)
		copy_payload(late, index);
	transport_notify(late->pair.remote_team, HERE);
	advance_both(&late->pair);
	return index;
}

static unsigned announce(struct late *late, uint64_t bytes)
{
	return post(late, bytes, false);
}

static void match(struct late *late, unsigned index, uint64_t bytes)
{
	struct mail_message message;
	struct mail_rts *rts = &receiver(late)->from->rts[index];
	assert_true(transport_mail_poll(receiver(late)->from, &late->in, &message));
	assert_int_equal(message.envelope.rts, index + 1);
	assert_int_equal(rts->bytes, bytes);
	assert_true(transport_mail_match(rts, rts->generation));
	assert_true(hosts_fetch_message(late->pair.team, REMOTE, index, late->to, bytes));
	transport_notify(late->pair.team, REMOTE);
	advance_both(&late->pair);
}

/* Whether the receiver has all pieces, or knows that it gets none. */
static bool is_over(const struct late *late, unsigned index, uint64_t bytes)
{
	const struct mail_rts *rts = &receiver(late)->from->rts[index];
	return (int64_t)(atomic_load(&rts->source_copied) -
			 transport_mail_word(rts->generation,
					     bytes > 0 ? transport_mail_pieces(bytes) : 1)) >= 0;
}

static bool is_closed(const struct late *late, unsigned index)
{
	const struct mail_rts *rts = &receiver(late)->from->rts[index];
	return transport_mail_is_closed(rts, rts->generation);
}

/* ---- in time ---- */

static void test_matched_before(void **state)
{
	struct late *late = *state;
	static const uint64_t sizes[] = {LONG_BYTES, 0};
	for (int i = 0; i < 2; i++) {
		unsigned index = announce(late, sizes[i]);
		match(late, index, sizes[i]);
		assert_false(is_over(late, index, sizes[i]));
		copy_payload(late, index);
		assert_true(is_over(late, index, sizes[i]));
		assert_false(is_closed(late, index));
		/* It cannot be given up any more. */
		struct mail_rts *rts = &sender(late)->to->rts[index];
		assert_false(transport_mail_cancel(rts, rts->generation));
		for (uint64_t b = 0; b < sizes[i]; b++)
			assert_int_equal(late->to[b], 7);
	}
}

static void test_matched_after(void **state)
{
	struct late *late = *state;
	static const uint64_t sizes[] = {LONG_BYTES, 0};
	for (int i = 0; i < 4; i++) {
		uint64_t bytes = sizes[i % 2];
		unsigned index = post(late, bytes, i < 2);
		if (i >= 2)
			copy_payload(late, index);
		assert_false(is_over(late, index, bytes));
		match(late, index, bytes);
		assert_true(is_over(late, index, bytes));
		assert_false(is_closed(late, index));
	}
}

/* ---- never ---- */

/* The group fails here, before or after the message is matched. What comes then goes back. */
static void test_withdrawn(void **state)
{
	struct late *late = *state;
	static const uint64_t sizes[] = {LONG_BYTES, 0};
	unsigned index[2];
	for (int i = 0; i < 2; i++) {
		index[i] = announce(late, sizes[i]);
		match(late, index[i], sizes[i]);
	}
	unsigned unmatched = announce(late, LONG_BYTES);
	hosts_withdraw(late->pair.team);
	advance_both(&late->pair);
	for (int i = 0; i < 2; i++) {
		assert_true(is_over(late, index[i], sizes[i]));
		assert_true(is_closed(late, index[i]));
		assert_int_equal(hosts_fetch_status(late->pair.team, REMOTE, index[i]), LS_ABORTED);
		copy_payload(late, index[i]);
	}
	copy_payload(late, unmatched);
	assert_int_equal(late->to[0], 0);
	assert_false(sender(late)->sent[index[0]].is_under_way);
	assert_false(sender(late)->sent[unmatched].is_under_way);
}

/* The sender has given the send up, and offers nothing. */
static void test_given_up(void **state)
{
	struct late *late = *state;
	unsigned index = announce(late, LONG_BYTES);
	struct mail_rts *rts = &sender(late)->to->rts[index];
	match(late, index, LONG_BYTES);
	assert_true(transport_mail_cancel(rts, rts->generation));
	copy_payload(late, index);
	assert_false(is_over(late, index, LONG_BYTES) || is_closed(late, index));
	assert_int_equal(sender(late)->late_sent, 0);
	hosts_withdraw(late->pair.team);
	advance_both(&late->pair);
	assert_true(is_over(late, index, LONG_BYTES));
}

/* ---- what a peer must not write ---- */

/* REMOTE says this of RTS slot `index`, with `bytes` of payload, which come with the note if they
 * are short. */
static void say(const struct late *late, enum hosts_note kind, unsigned index, uint32_t generation,
		uint64_t announced, uint64_t bytes)
{
	static struct hosts_relay nobody = {.peer = HERE}; /* the sender's state stays as it is */
	struct hosts_transfer transfer = {.relay = &nobody};
	struct hosts *hosts = late->pair.there->hosts;
	struct hosts_path path = {.hosts = hosts,
				  .relay = sender(late),
				  .link = hosts->link,
				  .peer = HERE,
				  .mine = late->pair.there->segment,
				  .mirror = late->pair.there->peers[HERE].segment};
	struct link_note note = {.words = {kind, hosts_place_at_target(&path, path.relay->to),
					   index, generation, announced}};
	assert_true(hosts_path_post(&path, HOSTS_KEEP_NOT, &note, late->payload, bytes,
				    bytes > SHORT_BYTES ? &transfer.link_transfer : NULL));
	advance_both(&late->pair);
	if (bytes > SHORT_BYTES) /* it went back */
		assert_int_equal(transfer.link_transfer.status, LS_CANCELLED);
}

/* A payload that comes with its note is too short to have an RTS slot of its own. */
static void test_short_payload(void **state)
{
	struct late *late = *state;
	unsigned index = announce(late, SHORT_BYTES);
	struct mail_rts *rts = &receiver(late)->from->rts[index];
	match(late, index, SHORT_BYTES);
	say(late, HOSTS_NOTE_LONG, index, rts->generation, 0, SHORT_BYTES);
	assert_false(is_over(late, index, SHORT_BYTES));
	copy_payload(late, index);
	assert_true(is_over(late, index, SHORT_BYTES));
	assert_int_equal(late->to[SHORT_BYTES - 1], 7);
}

/* Nothing of it is taken for the payload, all of it goes back, and the right payload still can
 * come. */
static void test_nonsense(void **state)
{
	struct late *late = *state;
	unsigned index = announce(late, LONG_BYTES), unused = index + 1;
	uint32_t is = receiver(late)->from->rts[index].generation;
	const struct {
		enum hosts_note kind;
		unsigned index;
		uint32_t generation;
		uint64_t announced, bytes;
	} notes[] = {
		{HOSTS_NOTE_LONG, index, is, 0, LONG_BYTES - 8},
		{HOSTS_NOTE_LONG, index, is + 1, 0, LONG_BYTES},
		{HOSTS_NOTE_LONG, index, is, 0, 0},
		{HOSTS_NOTE_LATE, index, is, LONG_BYTES, LONG_BYTES},
		{HOSTS_NOTE_LATE, index, is + 1, SHORT_BYTES, 0},
		{HOSTS_NOTE_LATE, MAIL_SLOTS, is, SHORT_BYTES, 0},
		{HOSTS_NOTE_LATE, unused, is, LONG_BYTES, LONG_BYTES},
		{HOSTS_NOTE_LONG, unused, is, 0, 0},
	};
	match(late, index, LONG_BYTES);
	for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
		say(late, notes[i].kind, notes[i].index, notes[i].generation, notes[i].announced,
		    notes[i].bytes);
		assert_false(is_over(late, index, LONG_BYTES) || is_closed(late, index));
		assert_int_equal(receiver(late)->from->rts[index].generation, is);
		assert_int_equal(receiver(late)->late_received, UINT64_C(1) << index);
	}
	copy_payload(late, index);
	assert_true(is_over(late, index, LONG_BYTES));
	assert_int_equal(late->to[LONG_BYTES - 1], 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_matched_before, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_matched_after, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_withdrawn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_given_up, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_short_payload, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nonsense, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
