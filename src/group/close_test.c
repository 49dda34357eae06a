/* SPDX-License-Identifier: BSD-3-Clause
 * A group that another thread uses is not closed: ls_group_close says which thread uses it. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lockstep/lockstep.h>

#include "world/ls_group.h"

static const struct ls_group_options alone = {.size = sizeof alone, .world_size = 1};

static ls_group *open_alone(void)
{
	ls_group *group;
	assert_int_equal(ls_group_open(&alone, &group), LS_OK);
	return group;
}

/* ---- a thread in a call ---- */

struct caller {
	pthread_t thread;
	ls_group *group;
	ls_request *op;
	ls_status status;
};

static void *receive(void *argument)
{
	struct caller *self = argument;
	float value;
	self->status = ls_recv(self->group, &value, 1, LS_FLOAT32, 0, NULL);
	return NULL;
}

/* Whether the rank's wait table shows a wait in the group. */
static bool is_shown(const ls_group *group)
{
	const struct world *world = group->world;
	for (int i = 0; i < WAIT_SLOT_MAX; i++) {
		struct wait_slot_body wait;
		uint32_t epoch;
		if (trace_read_slot(&world->views[world->rank], i, &wait, &epoch) &&
		    (wait.state == WAIT_WORDS || wait.state == WAIT_ANY_WORD) &&
		    wait.group == group->id)
			return true;
	}
	return false;
}

/* Until its wait shows the group. */
static void begin(struct caller *caller, ls_group *group, void *(*waits)(void *caller))
{
	caller->group = group;
	assert_int_equal(pthread_create(&caller->thread, NULL, waits, caller), 0);
	while (!is_shown(group))
		sched_yield();
}

static void begin_receive(struct caller *caller, ls_group *group)
{
	begin(caller, group, receive);
}

static void end_receive(struct caller *caller)
{
	assert_int_equal(ls_group_abort(caller->group, "enough"), LS_OK);
	pthread_join(caller->thread, NULL);
	assert_int_equal(caller->status, LS_ABORTED);
}

static void assert_still_open(ls_group *group, const char *said)
{
	char text[512];
	assert_true(ls_last_error(text, sizeof text) > 0);
	if (!strstr(text, said))
		fail_msg("not \"%s\": %s", said, text);
	assert_int_equal(ls_group_rank(group), 0);
}

static void test_thread_in_a_call(void **state)
{
	(void)state;
	ls_group *world = open_alone(), *group;
	struct caller receiver;
	assert_int_equal(ls_group_split(world, 0, 0, &group), LS_OK);
	begin_receive(&receiver, group);
	ls_group_close(group);
	assert_still_open(group, "waits in receive #1 of group 2 (rank 0) from rank 0 (tag 0), "
				 "called from close_test.c:");
	ls_group_close(world);
	assert_still_open(world, "waits in receive #1 of group 2 (rank 0) ");
	assert_int_equal(ls_group_rank(group), 0);
	end_receive(&receiver);
	ls_group_close(group);
	ls_group_close(world);
	assert_int_equal(ls_group_rank(world), -1);
}

/* A call on another group is no reason. */
static void test_thread_in_a_call_on_another_group(void **state)
{
	(void)state;
	ls_group *world = open_alone(), *group, *other;
	struct caller receiver;
	assert_int_equal(ls_group_split(world, 0, 0, &group), LS_OK);
	assert_int_equal(ls_group_split(world, 0, 0, &other), LS_OK);
	begin_receive(&receiver, group);
	ls_group_close(other);
	assert_int_equal(ls_group_rank(other), -1);
	end_receive(&receiver);
	ls_group_close(world);
}

static void *await_send(void *argument)
{
	struct caller *self = argument;
	self->status = ls_wait(self->op, 0);
	ls_request_free(self->op);
	return NULL;
}

/* With P2P=serial the thread waits until the send of the group that is closed has ended, and so its
 * wait shows that send. */
static void test_thread_behind_a_send(void **state)
{
	enum { LONG = 1 << 20 };
	(void)state;
	assert_int_equal(setenv("LOCKSTEP_P2P", "serial", 1), 0);
	ls_group *world = open_alone(), *group, *other;
	struct caller behind;
	char *bytes = calloc(1, LONG), *to = malloc(LONG);
	ls_request *first;
	assert_true(bytes && to);
	assert_int_equal(ls_group_split(world, 0, 0, &group), LS_OK);
	assert_int_equal(ls_group_split(world, 0, 0, &other), LS_OK);
	assert_int_equal(ls_isend(group, bytes, LONG, LS_UINT8, 0, NULL, &first), LS_OK);
	assert_int_equal(ls_isend(other, bytes, LONG, LS_UINT8, 0, NULL, &behind.op), LS_OK);
	begin(&behind, group, await_send);
	ls_request_free(first);
	ls_group_close(group);
	assert_int_equal(ls_group_rank(group), -1);
	assert_int_equal(ls_recv(other, to, LONG, LS_UINT8, 0, NULL), LS_OK);
	pthread_join(behind.thread, NULL);
	assert_int_equal(behind.status, LS_OK);
	ls_group_close(world);
	assert_int_equal(ls_group_rank(world), -1);
	assert_int_equal(unsetenv("LOCKSTEP_P2P"), 0);
	free(bytes);
	free(to);
}

/* ---- a thread that closes ---- */

static void test_group_that_is_being_closed(void **state)
{
	(void)state;
	ls_group *world = open_alone(), *groups[3];
	for (int i = 0; i < 3; i++)
		assert_int_equal(ls_group_split(world, 0, 0, &groups[i]), LS_OK);
	atomic_store(&groups[1]->is_closing, true); /* as a thread does that has just begun to */
	ls_group_close(world);
	assert_still_open(world, "another thread is closing");
	atomic_store(&groups[1]->is_closing, false);
	atomic_fetch_add(&world->world->closers, 1); /* as when that group is not open any more */
	ls_group_close(world);
	assert_still_open(world, "another thread is closing");
	atomic_fetch_sub(&world->world->closers, 1);
	for (int i = 0; i < 3; i++) {
		ls_group_close(groups[i]);
		assert_int_equal(ls_group_rank(groups[i]), -1);
	}
	ls_group_close(world);
	assert_int_equal(ls_group_rank(world), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thread_in_a_call),
		cmocka_unit_test(test_thread_in_a_call_on_another_group),
		cmocka_unit_test(test_thread_behind_a_send),
		cmocka_unit_test(test_group_that_is_being_closed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
