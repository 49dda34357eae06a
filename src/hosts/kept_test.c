/* SPDX-License-Identifier: BSD-3-Clause
 * Notes that the link keeps back between two hosts with a rank each: when they are sent, although
 * the thread that would push them in the end is not there; and which parts of a payload the link
 * keeps after a failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "hosts/hosts_fixture.h"
#include "hosts/hosts_private.h"

enum { PASSES = 1000, LONG_BYTES = LINK_EAGER_BYTES + 1 };

static const int host_of[2] = {0, 1};
static struct test_job *job;
static struct loop *loop;
static struct transport_team *teams[2];

static void advance_both(void)
{
	for (int i = 0; i < PASSES; i++)
		for (int r = 0; r < 2; r++)
			hosts_advance(&job->ranks[r].transport);
}

static int set_up(void **state)
{
	(void)state;
	job = test_job_new_of(2, TEST_JOB_LIMIT_MS, true);
	loop = hosts_connect(job, host_of, 1);
	for (int r = 0; r < 2; r++)
		teams[r] = &job->ranks[r].team;
	advance_both(); /* both have the group */
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (int r = 0; r < 2; r++)
		atomic_store(&job->ranks[r].transport.hosts->pump.runs, false);
	hosts_disconnect(job, loop);
	test_job_close(job);
	return 0;
}

/* Makes the ranks rely on pumps, which do nothing here. */
static void begin_to_keep(void)
{
	for (int r = 0; r < 2; r++)
		atomic_store(&job->ranks[r].transport.hosts->pump.runs, true);
}

static void enter(int r, uint64_t seq)
{
	struct transport_entry *entry = transport_entry(teams[r], r, seq);
	entry->signature = seq;
	wait_store(&entry->signal, transport_signal(seq, 0));
	transport_notify(teams[r], 1 - r);
}

/* Whether the other rank knows that rank r has entered. */
static bool is_known(int r, uint64_t seq)
{
	const struct transport_entry *entry = transport_entry(teams[1 - r], r, seq);
	return transport_signal_reached(atomic_load(&entry->signal), transport_signal(seq, 0));
}

/* LONG_BYTES of 7 in rank 0's arena, and the offset there. */
static void *make_payload(uint64_t *offset)
{
	struct memory *memory = &job->ranks[0].memory;
	void *payload;
	assert_int_equal(memory_alloc(memory, LONG_BYTES, &payload), LS_OK);
	assert_true(memory_offset(memory, payload, LONG_BYTES, offset));
	memset(payload, 7, LONG_BYTES);
	return payload;
}

/* The source of a long message waits for the entry of its target. */
static void test_fetch(void **state)
{
	(void)state;
	static unsigned char to[LONG_BYTES];
	struct transport_envelope envelope = {.seq = 1, .bytes = LONG_BYTES};
	struct transport_message *message = NULL;
	struct wait_word blocked;
	uint64_t ticket, offset;
	ls_status status;
	void *from = make_payload(&offset);
	begin_to_keep();
	assert_true(transport_channel_post(teams[0], 1, &envelope, from, offset, &ticket, &blocked));
	enter(1, 1);
	advance_both();
	message = transport_channel_match(teams[1], 0, 1, &blocked);
	assert_non_null(message);
	assert_false(is_known(1, 1)); /* it is kept back */
	assert_false(hosts_collect(teams[1], 0, message, to, &status, &blocked));
	advance_both();
	assert_true(is_known(1, 1));
	assert_true(hosts_collect(teams[1], 0, message, to, &status, &blocked));
	assert_int_equal(status, LS_OK);
	assert_memory_equal(from, to, LONG_BYTES);
	assert_true(transport_channel_taken(teams[0], 1, ticket, &status, &blocked));
	transport_channel_take(teams[1], 0, message, LS_OK);
	assert_int_equal(memory_free(&job->ranks[0].memory, from, NULL), LS_OK);
}

/* A question goes at once, with what was kept back before it, and the counts say so. */
static void test_ask(void **state)
{
	(void)state;
	static const uint64_t words[HOSTS_ASK_WORDS];
	const struct transport_traffic *traffic =
		transport_traffic(job->ranks[1].transport.segment, 0);
	begin_to_keep();
	enter(1, 1);
	advance_both();
	assert_false(is_known(1, 1));
	assert_int_not_equal(traffic->kept_back, 0);
	assert_true(hosts_ask(&job->ranks[1].transport, 0, words));
	assert_int_equal(traffic->kept_back, 0);
	advance_both();
	assert_true(is_known(1, 1));
}

/* The peer has written another length beside its message than the link has counted. Nothing is
 * fetched: a longer payload has no room, and a shorter one leaves old bytes in it. */
static void test_another_length(void **state)
{
	(void)state;
	static unsigned char to[LONG_BYTES];
	struct transport_envelope envelope = {.seq = 1, .bytes = LONG_BYTES};
	struct transport_message *message = NULL;
	struct wait_word blocked;
	uint64_t ticket, offset;
	ls_status status;
	void *from = make_payload(&offset);
	assert_true(transport_channel_post(teams[0], 1, &envelope, from, offset, &ticket, &blocked));
	advance_both();
	teams[1]->relays[0].channel.from->slots[0].packed.bytes = LINK_SHORT_BYTES + 8;
	message = transport_channel_match(teams[1], 0, 1, &blocked);
	assert_non_null(message);
	assert_int_equal(message->bytes, LINK_SHORT_BYTES + 8);
	assert_false(hosts_collect(teams[1], 0, message, to, &status, &blocked));
	advance_both();
	assert_true(hosts_collect(teams[1], 0, message, to, &status, &blocked));
	assert_int_equal(status, LS_INTERNAL);
	assert_null(memchr(to, 7, LONG_BYTES));
	transport_channel_take(teams[1], 0, message, LS_OK);
	transport_notify(teams[1], 0);
	advance_both(); /* it goes back */
	assert_true(transport_channel_taken(teams[0], 1, ticket, &status, &blocked));
	assert_int_equal(memory_free(&job->ranks[0].memory, from, NULL), LS_OK);
}

/* An offer goes back to its source once this rank has withdrawn from the group. */
static void test_withdrawn(void **state)
{
	(void)state;
	/* One comes with its payload, the other one is to be fetched. */
	static const uint64_t sizes[] = {LINK_SHORT_BYTES + 8, LONG_BYTES};
	static unsigned char to[LONG_BYTES];
	struct transport_message *messages[2];
	struct wait_word blocked;
	uint64_t ticket, offset;
	ls_status status;
	void *from = make_payload(&offset);
	for (int i = 0; i < 2; i++) {
		struct transport_envelope envelope = {.seq = 1 + (uint64_t)i, .bytes = sizes[i]};
		assert_true(transport_channel_post(teams[0], 1, &envelope, from, offset, &ticket,
						   &blocked));
		advance_both();
		messages[i] = transport_channel_match(teams[1], 0, envelope.seq, &blocked);
		assert_non_null(messages[i]);
	}
	hosts_withdraw(teams[1]);
	advance_both();
	for (int i = 0; i < 2; i++) {
		assert_true(hosts_collect(teams[1], 0, messages[i], to, &status, &blocked));
		assert_int_equal(status, LS_ABORTED);
		transport_channel_take(teams[1], 0, messages[i], LS_ABORTED);
	}
	assert_int_equal(to[0], 0);
	hosts_withdraw(teams[0]);
	advance_both();
	assert_true(transport_channel_quiet(teams[0], 1, &blocked));
	assert_int_equal(memory_free(&job->ranks[0].memory, from, NULL), LS_OK);
}

/* A thread that makes progress for something else sends what others have left to it. If nobody is
 * there who pushes that later, it pushes. */
static void test_left(void **state)
{
	(void)state;
	struct hosts *hosts = job->ranks[1].transport.hosts;
	hosts_progress_begin(hosts);
	enter(1, 1);
	hosts_progress_end(hosts);
	for (int i = 0; i < PASSES; i++)
		hosts_advance_without_push(&job->ranks[0].transport);
	assert_true(is_known(1, 1));
}

/* While a rank arms its link another thread wants all pushed, and does not ask again: see
 * leave_collective. */
static const struct link_ops *loop_ops_of_both;

static bool arm_and_push(struct link *link, int *fd)
{
	bool armed = loop_ops_of_both->arm(link, fd);
	enter(1, 1);
	hosts_push(&job->ranks[1].transport);
	return armed;
}

static void test_push_while_arming(void **state)
{
	(void)state;
	struct link *link = job->ranks[1].transport.hosts->link;
	struct link_ops ops = *link->ops;
	loop_ops_of_both = link->ops;
	int link_fd;
	ops.arm = arm_and_push;
	begin_to_keep();
	link->ops = &ops;
	assert_int_equal(hosts_arm(&job->ranks[1].transport, &link_fd), HOSTS_NOT_ARMED);
	link->ops = loop_ops_of_both;
	advance_both();
	assert_true(is_known(1, 1));
}

/* A pump that finds the link in use is woken by the thread that has it, once that stops, and only
 * then. */
static void test_in_use(void **state)
{
	(void)state;
	struct hosts *hosts = job->ranks[1].transport.hosts;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), unused = hosts->pump.event_fd, link_fd;
	eventfd_t wakes;
	assert_true(fd >= 0);
	hosts->pump.event_fd = fd;
	hosts_progress_begin(hosts);
	hosts_progress_end(hosts);
	assert_int_equal(eventfd_read(fd, &wakes), -1); /* nobody has called */
	hosts_progress_begin(hosts);
	assert_int_equal(hosts_arm(&job->ranks[1].transport, &link_fd), HOSTS_IN_USE);
	assert_int_equal(eventfd_read(fd, &wakes), -1);
	hosts_progress_end(hosts);
	assert_int_equal(eventfd_read(fd, &wakes), 0);
	assert_int_not_equal(hosts_arm(&job->ranks[1].transport, &link_fd), HOSTS_IN_USE);
	assert_int_equal(eventfd_read(fd, &wakes), -1);
	hosts->pump.event_fd = unused;
	close(fd);
}

/* Nobody reads an entry any more that a later one has replaced; but each number is told, as ranks
 * wait for it. */
static void test_replaced(void **state)
{
	(void)state;
	struct hosts *hosts = job->ranks[1].transport.hosts;
	hosts_progress_begin(hosts);
	for (uint64_t seq = 1; seq <= TRANSPORT_ENTRIES + 1; seq++)
		enter(1, seq);
	hosts_progress_end(hosts);
	advance_both();
	for (uint64_t seq = 1; seq <= TRANSPORT_ENTRIES + 1; seq++)
		assert_true(is_known(1, seq));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_fetch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_ask, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_another_length, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_withdrawn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_push_while_arming, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_in_use, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_replaced, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
