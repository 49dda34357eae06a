/* SPDX-License-Identifier: BSD-3-Clause
 * A rank aborts a group while another thread of it still works out an earlier failure; and one that
 * can find no cause. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "failure/failure.h"

struct explainer {
	ls_group *group;
	pid_t caller; /* the thread that calls the barrier */
	_Atomic bool aborted, returned;
};

/* Whether the kernel says that the thread sleeps. */
static bool is_asleep(pid_t thread)
{
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	size_t length = fread(text, 1, sizeof text - 1, file);
	fclose(file);
	text[length] = '\0';
	const char *end = strrchr(text, ')'); /* of the name */
	return end && end[1] == ' ' && end[2] == 'S';
}

/* Publishes the cause only once the barrier waits, or has returned without it. */
static void *explain(void *argument)
{
	struct explainer *explainer = argument;
	ls_group *group = explainer->group;
	struct failure_cause_ref ref = failure_cause_ref_of(group);
	struct hosts_failure failure = {
		.group = group->id, .status = LS_TIMED_OUT, .culprit = -1, .text = "it took long"};

	while (!atomic_load(&explainer->aborted) ||
	       (!atomic_load(&explainer->returned) && !is_asleep(explainer->caller)))
		sched_yield();
	/* As by a thread that has claimed it. */
	if (failure_write_told(group->world, &ref, NULL, &failure))
		failure_publish(group->world, &ref, 1);
	return NULL;
}

static void a_call_after_an_abort_fails(void **state)
{
	(void)state;
	struct ls_group_options options = {.size = sizeof options, .world_size = 1};
	struct explainer explainer = {.caller = gettid()};
	pthread_t thread;

	assert_int_equal(ls_group_open(&options, &explainer.group), LS_OK);
	atomic_store(&explainer.group->cause_claimed, true);
	assert_int_equal(pthread_create(&thread, NULL, explain, &explainer), 0);
	assert_int_equal(ls_group_abort(explainer.group, "enough"), LS_OK);
	atomic_store(&explainer.aborted, true);
	ls_status status = ls_barrier(explainer.group, NULL);
	atomic_store(&explainer.returned, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(status, LS_TIMED_OUT); /* the first cause */
	assert_int_equal(ls_barrier(explainer.group, NULL), LS_TIMED_OUT);
	ls_group_close(explainer.group);
}

/* The words in which a group finds its cause are another group's: nobody can publish one, and an
 * operation that has failed does not succeed for that. */
static void an_operation_that_finds_no_cause_fails(void **state)
{
	(void)state;
	struct ls_group_options options = {.size = sizeof options, .world_size = 1};
	struct ls_call_options in_time = {.size = sizeof in_time, .timeout_ms = 1};
	ls_group *group;
	ls_request *op;
	char byte;

	assert_int_equal(ls_group_open(&options, &group), LS_OK);
	_Atomic uint64_t *claim = &failure_cause_ref_of(group).head->claim;
	uint64_t mine = atomic_exchange(claim, (uint64_t)(group->id + 1) << 32);
	assert_int_equal(ls_recv(group, &byte, 1, LS_UINT8, 0, &in_time), LS_TIMED_OUT);
	assert_int_equal(ls_irecv(group, &byte, 1, LS_UINT8, 0, &in_time, &op), LS_OK);
	assert_int_equal(ls_wait(op, 0), LS_ABORTED); /* as all of its group */
	ls_request_free(op);
	atomic_store(claim, mine);
	ls_group_close(group);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_after_an_abort_fails),
		cmocka_unit_test(an_operation_that_finds_no_cause_fails),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
