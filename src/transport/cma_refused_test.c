/* SPDX-License-Identifier: BSD-3-Clause
 * Plain memory of peers cannot be read, for each reason that a system may have: nothing fails, both
 * sides know it, and one rank reports it once. Also which rank is asked, and when the answer is
 * final. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/capture.h"
#include "base/messages.h"
#include "transport/cma_fixture.h"

/* Messages pass as ever, whatever can be read. */
static void pass_a_message(struct duo *duo)
{
	struct test_rank *rank = &duo->job->ranks[0];
	struct transport_envelope envelope = {.bytes = 3, .seq = 7};
	struct wait_word blocked;
	uint64_t ticket;
	ls_status refused = LS_INTERNAL;
	assert_true(transport_channel_post(&rank->team, 1, &envelope, "abc", 0, &ticket, &blocked));
	assert_int_equal(duo_ask(duo, 'm'), 1);
	assert_true(transport_channel_taken(&rank->team, 1, ticket, &refused, &blocked));
	assert_int_equal(refused, LS_OK);
}

struct expected {
	bool parent_reads, child_reads;
	const char *text; /* of the one message; NULL: none */
};

/* Any user may run this; returns only if all is as expected. */
static void check_duo(enum duo_kind kind, const struct expected *expected)
{
	struct duo duo;
	struct capture capture;
	unsigned char byte = 0;
	message_set_level(SETTING_LOG_INFO);
	capture_begin(&capture);
	duo_open(&duo, kind);
	struct transport *transport = &duo.job->ranks[0].transport;
	struct transport_team *team = &duo.job->ranks[0].team;
	unsigned char child_readable = duo_ask(&duo, 'b'); /* it has probed when it answers */
	const char *text = capture_end(&capture);
	message_set_level(SETTING_LOG_WARN);
	assert_int_equal(child_readable, expected->child_reads ? 3 : 2);
	assert_int_equal(atomic_load(&transport->segment->cma.readable[0]),
			 expected->parent_reads ? 3 : 1);
	assert_int_equal(transport_reads_me(team), expected->child_reads);
	assert_int_equal(duo_ask(&duo, 'r'), expected->parent_reads);
	assert_true(duo_ask(&duo, 's'));
	assert_int_equal(capture_count(text, "LS-TRANSPORT-CMA"), expected->text ? 1 : 0);
	if (expected->text)
		assert_non_null(strstr(text, expected->text));
	capture_begin(&capture);
	ls_status status = transport_read(team, 1, (uintptr_t)duo.area + 5, &byte, 1);
	text = capture_end(&capture);
	assert_int_equal(status, expected->parent_reads ? LS_OK : LS_SYSTEM);
	assert_int_equal(byte, expected->parent_reads ? duo_byte(5) : 0);
	if (!expected->parent_reads)
		assert_non_null(strstr(text, "Operation not permitted"));
	pass_a_message(&duo);
	assert_int_equal(duo_close(&duo), 0);
}

static void test_allowed(void **state)
{
	(void)state;
	check_duo(DUO_PLAIN, &(struct expected){true, true, NULL});
}

static void test_filters(void **state)
{
	(void)state;
	check_duo(DUO_EPERM, &(struct expected){true, false, "rank 0: Operation not permitted"});
	check_duo(DUO_ENOSYS, &(struct expected){true, false, "rank 0: Function not implemented"});
}

static void test_off(void **state)
{
	(void)state;
	struct duo duo;
	struct capture capture;
	message_set_level(SETTING_LOG_INFO);
	capture_begin(&capture);
	duo_open(&duo, DUO_OFF);
	unsigned char child_readable = duo_ask(&duo, 'b');
	const char *text = capture_end(&capture);
	message_set_level(SETTING_LOG_WARN);
	assert_string_equal(text, "");       /* it is as was asked for */
	assert_int_equal(child_readable, 2); /* itself */
	assert_false(transport_reads_me(&duo.job->ranks[0].team));
	assert_int_equal(duo_ask(&duo, 'r'), 0);
	pass_a_message(&duo);
	assert_int_equal(duo_close(&duo), 0);
}

/* Runs the two cases in which root's rights would hide what the system decides; 0 if all was
 * right. */
static int run_as_nobody(void)
{
	cma_be_nobody();
	check_duo(DUO_PLAIN, &(struct expected){true, true, NULL});
	check_duo(DUO_UNDUMPABLE,
		  &(struct expected){false, true, "rank 1: Operation not permitted"});
	return 0;
}

/* A process of a common user reads its like, unless that one may not be looked into. */
static void test_as_nobody(void **state)
{
	(void)state;
	int status;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		/* a check that fails ends the process with another status */
		_exit(run_as_nobody());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* ---- said once in a job ---- */

enum { CROWD = 4 };

/* A rank that is refused, in a process of its own. */
static int run_refused(struct test_job *job, int r)
{
	cma_filter(EPERM);
	test_job_init_rank(job, r);
	ls_status status = test_job_connect_rank(&job->ranks[r]);
	test_job_fini_rank(job, r);
	return status == LS_OK ? 0 : 1;
}

static void test_said_once(void **state)
{
	(void)state;
	struct test_job *job = test_job_empty(CROWD, TEST_JOB_LIMIT_MS);
	struct capture capture;
	pid_t children[CROWD];
	message_set_level(SETTING_LOG_INFO);
	capture_begin(&capture);
	for (int r = 0; r < CROWD; r++) {
		children[r] = fork();
		assert_true(children[r] >= 0);
		if (children[r] == 0)
			_exit(run_refused(job, r));
	}
	for (int r = 0; r < CROWD; r++) {
		int status;
		assert_int_equal(waitpid(children[r], &status, 0), children[r]);
		assert_int_equal(status, 0);
	}
	const char *text = capture_end(&capture);
	message_set_level(SETTING_LOG_WARN);
	assert_int_equal(capture_count(text, "LS-TRANSPORT-CMA"), 1);
	close(job->listen_fd);
	free(job);
}

/* ---- when the answer stands ---- */

static void test_answers(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(3);
	struct transport_team *me = &job->ranks[1].team;
	struct transport_cma *theirs = &job->ranks[2].transport.segment->cma;
	/* As if rank 2 had not tried yet: no, but not for good. */
	atomic_store(&theirs->probed, 0);
	assert_false(transport_reads_me(me));
	assert_false(transport_reads_me(me));
	atomic_store(&theirs->probed, 1);
	assert_true(transport_reads_me(me));
	atomic_store(&theirs->readable[0], 0);
	assert_true(transport_reads_me(me));
	/* Another rank has not asked yet, and only its own bit counts for it. */
	atomic_store(&theirs->readable[0], ~UINT64_C(1));
	assert_false(transport_reads_me(&job->ranks[0].team));
	atomic_store(&theirs->readable[0], 7);
	assert_false(transport_reads_me(&job->ranks[0].team));
	assert_true(transport_reads_me(&job->ranks[2].team));
	test_job_close(job);
}

static void test_alone(void **state)
{
	(void)state;
	struct test_job *job = test_job_open(1);
	struct transport_team *me = &job->ranks[0].team;
	uint64_t from = 42, to = 0;
	assert_true(transport_reads_me(me));
	assert_int_equal(transport_read(me, 0, (uintptr_t)&from, &to, sizeof to), LS_OK);
	assert_int_equal(to, 42);
	test_job_close(job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allowed),   cmocka_unit_test(test_filters),
		cmocka_unit_test(test_off),       cmocka_unit_test(test_as_nobody),
		cmocka_unit_test(test_said_once), cmocka_unit_test(test_answers),
		cmocka_unit_test(test_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
