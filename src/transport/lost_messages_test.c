/* SPDX-License-Identifier: BSD-3-Clause
 * A lost message is reported once, by whichever of the two ranks looks first, and only after its
 * owner has ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "transport/mail.h"

static struct mail_ring *ring;
static struct mail_out out;
static struct mail_in in;

static int set_up(void **state)
{
	(void)state;
	ring = aligned_alloc(64, sizeof *ring);
	assert_non_null(ring);
	*ring = (struct mail_ring){0};
	transport_mail_out_init(&out);
	transport_mail_in_init(&in);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	free(ring);
	return 0;
}

static void post(int tag, uint16_t rts, uint8_t flags)
{
	struct mail_envelope envelope = {.tag = tag, .rts = rts, .flags = flags};
	assert_true(transport_mail_find_room(ring, &out, MAIL_SLOTS));
	transport_mail_post(ring, &out, &envelope, NULL, 0);
}

static void take(void)
{
	struct mail_message message;
	assert_true(transport_mail_poll(ring, &in, &message));
	transport_mail_free_slot(ring, &in, &message);
}

static void expect(uint64_t next, int count, int tag)
{
	struct mail_envelope first = {.tag = -1};
	assert_int_equal(transport_mail_lost(ring, next, &first), count);
	assert_int_equal(first.tag, tag);
}

static void each_is_told_once(void **state)
{
	struct mail_message message;
	(void)state;
	for (int tag = 1; tag <= 3; tag++)
		post(tag, 0, 0);
	take();
	while (transport_mail_poll(ring, &in, &message))
		;
	assert_false(transport_mail_has_ended(ring));
	transport_mail_end(ring);
	assert_true(transport_mail_has_ended(ring));
	post(4, 0, 0); /* the owner has not seen it */
	expect(in.next, 2, 2);
	expect(in.next, 0, -1);
	expect(out.next, 1, 4);
	expect(out.next, 0, -1);
	expect(in.next, 0, -1);
	transport_mail_reset(ring);
	assert_false(transport_mail_has_ended(ring));
}

static void the_source_may_be_first(void **state)
{
	(void)state;
	post(1, 0, 0);
	transport_mail_end(ring);
	post(2, 0, 0);
	expect(out.next, 2, 1);
	expect(out.next - 1, 0, -1);
	expect(out.next, 0, -1);
	assert_true(transport_mail_has_ended(ring));
}

/* The send of a long one has not been over, but that of a block that was handed over has. */
static void long_ones_are_not_lost(void **state)
{
	(void)state;
	post(1, 1, 0);
	post(2, 2, MAIL_BLOCK);
	post(3, 3, 0);
	transport_mail_end(ring);
	expect(out.next, 1, 2);
}

/* Slots are used again, and positions passed over. */
static void among_many(void **state)
{
	(void)state;
	post(1000, 0, 0);
	for (int i = 0; i < 3 * MAIL_SLOTS; i++) {
		struct mail_message message;
		post(i, 0, 0);
		do
			assert_true(transport_mail_poll(ring, &in, &message));
		while (message.envelope.tag == 1000);
		transport_mail_free_slot(ring, &in, &message);
	}
	transport_mail_end(ring);
	expect(in.next, 1, 1000);
	expect(out.next, 0, -1);
}

/* A slot that was only passed over holds no message, even if one of its round's last has been taken
 * out. */
static void a_slot_that_was_never_filled(void **state)
{
	(void)state;
	transport_mail_skip(ring, &out);
	for (int i = 0; i < MAIL_SLOTS - 1; i++) {
		post(i, 0, 0);
		take();
	}
	transport_mail_end(ring);
	expect(in.next, 0, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_is_told_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_source_may_be_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(long_ones_are_not_lost, set_up, tear_down),
		cmocka_unit_test_setup_teardown(among_many, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_slot_that_was_never_filled, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
