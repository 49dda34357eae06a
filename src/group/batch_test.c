/* SPDX-License-Identifier: BSD-3-Clause
 * A batch of which a part cannot begin: it ends with that part's status, and nothing else of the
 * group changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lockstep/lockstep.h>

#include "base/capture.h"

enum { TOO_LONG = 32 << 20 }; /* twice the arena */

/* When the group is closed it still counts the handles that were not freed. */
static void test_a_send_without_memory(void **state)
{
	(void)state;
	const struct ls_group_options alone = {.size = sizeof alone, .world_size = 1};
	struct capture capture;
	ls_group *group;
	ls_op *op;
	char byte, *buffer = calloc(1, TOO_LONG);
	assert_non_null(buffer);
	assert_int_equal(setenv("LOCKSTEP_ARENA_BYTES", "16777216", 1), 0);
	assert_int_equal(setenv("LOCKSTEP_REMOTE", "off", 1), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_send_without_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
