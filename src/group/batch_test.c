/* SPDX-License-Identifier: BSD-3-Clause
 * Batches that are abandoned: nothing else of the group changes, nor of the next batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lockstep/lockstep.h>

#include "base/capture.h"

enum { TOO_LONG = 32 << 20 }; /* twice the arena */

static const struct ls_group_options alone = {.size = sizeof alone, .world_size = 1};

/* When the group is closed it still counts the handles that were not freed. */
static void test_a_send_without_memory(void **state)
{
	(void)state;
	struct capture capture;
	ls_group *group;
	ls_request *op;
	char byte, *buffer = calloc(1, TOO_LONG);
	assert_non_null(buffer);
	assert_int_equal(setenv("LOCKSTEP_ARENA_BYTES", "16777216", 1), 0);
	assert_int_equal(setenv("LOCKSTEP_CMA", "off", 1), 0);
	assert_int_equal(ls_group_open(&alone, &group), LS_OK);
	assert_int_equal(ls_batch_begin(group), LS_OK);
	capture_begin(&capture);
	ls_status sent = ls_send(group, buffer, TOO_LONG, LS_UINT8, 0, NULL);
	capture_end(&capture);
	assert_int_equal(sent, LS_OUT_OF_MEMORY);
	assert_int_equal(ls_batch_end(group, NULL), LS_OUT_OF_MEMORY);
	assert_int_equal(ls_irecv(group, &byte, 1, LS_UINT8, 0, NULL, &op), LS_OK);
	assert_int_equal(ls_cancel(op), LS_OK);
	capture_begin(&capture);
	ls_group_close(group);
	assert_non_null(strstr(capture_end(&capture), "1 handle was not freed"));
	free(buffer);
}

/* The group that gets the object of the closed one is in no batch. */
static void test_a_batch_that_is_not_ended(void **state)
{
	(void)state;
	struct capture capture;
	ls_group *world, *group;
	assert_int_equal(ls_group_open(&alone, &world), LS_OK);
	assert_int_equal(ls_group_split(world, 0, 0, &group), LS_OK);
	assert_int_equal(ls_batch_begin(group), LS_OK);
	capture_begin(&capture);
	ls_group_close(group);
	assert_non_null(strstr(capture_end(&capture), "that of a batch"));
	assert_int_equal(ls_group_split(world, 0, 0, &group), LS_OK);
	assert_int_equal(ls_batch_begin(group), LS_OK);
	assert_int_equal(ls_batch_end(group, NULL), LS_OK);
	ls_group_close(group);
	ls_group_close(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_send_without_memory),
		cmocka_unit_test(test_a_batch_that_is_not_ended),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
