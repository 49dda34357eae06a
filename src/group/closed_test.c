/* SPDX-License-Identifier: BSD-3-Clause
 * Calls on a group after it was closed: each returns a status and prints the reason, also when its
 * world is closed; none touches freed memory. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <lockstep/lockstep.h>

static const struct ls_group_options alone = {.size = sizeof alone, .world_size = 1};

static void assert_said(ls_status status)
{
	char text[512];
	assert_int_equal(status, LS_BAD_ARGUMENT);
	assert_true(ls_last_error(text, sizeof text) > 0);
	assert_non_null(strstr(text, "ls_group_close has closed this one"));
}

static void data_calls_refuse(ls_group *group)
{
	struct ls_call_options options = {.size = sizeof options};
	struct ls_message message = {.size = sizeof message};
	float value = 1;
	ls_request *op = NULL;
	assert_said(ls_allreduce(group, &value, &value, 1, LS_FLOAT32, LS_SUM, NULL));
	assert_said(ls_barrier(group, NULL));
	options.request = &op;
	assert_said(ls_barrier(group, &options));
	assert_null(op);
	assert_said(ls_send(group, &value, 1, LS_FLOAT32, 0, NULL));
	assert_said(ls_recv(group, &value, 1, LS_FLOAT32, 0, NULL));
	assert_said(ls_isend(group, &value, 1, LS_FLOAT32, 0, NULL, &op));
	assert_said(ls_irecv(group, &value, 1, LS_FLOAT32, 0, NULL, &op));
	assert_said(ls_iprobe(group, 0, NULL, &message));
	assert_said(ls_probe(group, 0, NULL, &message));
	assert_said(ls_batch_begin(group));
	assert_said(ls_batch_end(group, &op));
	assert_null(op);
}

static void group_calls_refuse(ls_group *group)
{
	struct ls_failure failure = {.size = sizeof failure};
	ls_group *made = NULL;
	int only = 0;
	assert_said(ls_group_split(group, 0, 0, &made));
	assert_said(ls_group_from_members(group, &only, 1, NULL, &made));
	assert_said(ls_group_abort(group, "late"));
	assert_said(ls_group_failure(group, &failure));
	assert_null(ls_group_get(group, &only, 1));
	assert_int_equal(ls_group_rank(group), -1);
	assert_int_equal(ls_group_size(group), -1);
	assert_int_equal(ls_group_rank_in(group, 0, group), -1);
}

static void memory_calls_refuse(ls_group *group)
{
	struct ls_memory_stats stats = {.size = sizeof stats};
	struct ls_device_stats device_stats = {.size = sizeof device_stats};
	float value;
	void *block;
	assert_said(ls_alloc(group, 64, &block));
	assert_null(block);
	assert_said(ls_free(group, &value));
	assert_said(ls_register(group, &value, sizeof value, 0, 0, NULL));
	assert_said(ls_deregister(group, &value));
	assert_said(ls_memory_stats(group, &stats));
	assert_said(ls_device_alloc(group, 64, NULL, &block));
	assert_said(ls_device_free(group, &value));
	assert_said(ls_device_record(group, &value, NULL));
	assert_said(ls_device_trim(group, 0));
	assert_said(ls_device_forget(group, NULL));
	assert_said(ls_device_stats(group, &device_stats));
	assert_said(ls_launch_begin(&group, 1));
}

static void a_second_close_says_so(ls_group *group)
{
	char text[64];
	ls_group_close(group);
	assert_true(ls_last_error(text, sizeof text) > 0);
}

static void all_calls_refuse(ls_group *group)
{
	data_calls_refuse(group);
	group_calls_refuse(group);
	memory_calls_refuse(group);
	a_second_close_says_so(group);
}

static ls_group *open_alone(void)
{
	ls_group *group;
	assert_int_equal(ls_group_open(&alone, &group), LS_OK);
	return group;
}

static void a_closed_subgroup_is_refused(void **state)
{
	(void)state;
	ls_group *world = open_alone(), *part;
	assert_int_equal(ls_group_split(world, 0, 0, &part), LS_OK);
	assert_int_equal(ls_barrier(part, NULL), LS_OK);
	ls_group_close(part);
	all_calls_refuse(part);
	assert_int_equal(ls_barrier(world, NULL), LS_OK);
	ls_group_close(world);
	all_calls_refuse(part);
}

static void a_closed_world_is_refused(void **state)
{
	(void)state;
	ls_group *world = open_alone(), *part;
	assert_int_equal(ls_group_split(world, 0, 0, &part), LS_OK);
	ls_group_close(world); /* closes the other one, too */
	all_calls_refuse(world);
	all_calls_refuse(part);
}

/* A new group may be the same object. */
static void a_group_opened_again_works(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		ls_group *world = open_alone();
		float value = 2;
		assert_int_equal(ls_allreduce(world, &value, &value, 1, LS_FLOAT32, LS_SUM, NULL),
				 LS_OK);
		assert_true(value == 2);
		assert_int_equal(ls_group_size(world), 1);
		ls_group_close(world);
	}
}

/* The second world has got the object of the first one, and no memory for its watch. */
static void a_closed_world_is_refused_after_another_failed_to_open(void **state)
{
	(void)state;
	ls_group *world = open_alone(), *other;
	pthread_attr_t before, huge;
	ls_group_close(world);
	assert_int_equal(pthread_getattr_default_np(&before), 0);
	assert_int_equal(pthread_getattr_default_np(&huge), 0);
	assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 60), 0);
	assert_int_equal(pthread_setattr_default_np(&huge), 0);
	ls_status status = ls_group_open(&alone, &other);
	assert_int_equal(pthread_setattr_default_np(&before), 0);
	pthread_attr_destroy(&before);
	pthread_attr_destroy(&huge);
	assert_int_equal(status, LS_OUT_OF_MEMORY);
	assert_null(other);
	all_calls_refuse(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_closed_subgroup_is_refused),
		cmocka_unit_test(a_closed_world_is_refused),
		cmocka_unit_test(a_group_opened_again_works),
		cmocka_unit_test(a_closed_world_is_refused_after_another_failed_to_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
