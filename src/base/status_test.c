/* SPDX-License-Identifier: BSD-3-Clause
 * Statuses: the table's promises, which are part of the ABI. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <lockstep/lockstep.h>

/* All there are. */
static const ls_status statuses[] = {
#define X(name, value, scope, sentence) LS_##name,
#include <lockstep/status.def>
#undef X
};
enum { STATUSES = sizeof statuses / sizeof statuses[0] };

static void test_names_and_values(void **state)
{
	(void)state;
	assert_int_equal(LS_OK, 0);
	assert_int_equal(LS_TIMED_OUT, 6);
	assert_int_equal(LS_INTERNAL, 21);
	assert_int_equal(LS_PENDING, 22);
	assert_string_equal(ls_status_name(LS_OK), "LS_OK");
	assert_string_equal(ls_status_name(LS_PEER_DIED), "LS_PEER_DIED");
	assert_string_equal(ls_status_name(LS_PENDING), "LS_PENDING");
	assert_string_equal(ls_status_text(LS_OK), "success");
	assert_int_equal(ls_status_scope(LS_OK), LS_SCOPE_NONE);
	assert_int_equal(ls_status_scope(LS_PENDING), LS_SCOPE_NONE);
	assert_int_equal(ls_status_scope(LS_BAD_ARGUMENT), LS_SCOPE_CALL);
	assert_int_equal(ls_status_scope(LS_TRUNCATED), LS_SCOPE_GROUP);
	assert_int_equal(ls_status_scope(LS_CANCELLED), LS_SCOPE_OP);
	assert_int_equal(ls_status_scope(LS_MISMATCH), LS_SCOPE_GROUP);
	assert_int_equal(ls_status_scope(LS_SYSTEM), LS_SCOPE_PROCESS);
}

static void test_all_differ(void **state)
{
	(void)state;
	for (int i = 0; i < STATUSES; i++) {
		const char *name = ls_status_name(statuses[i]), *text = ls_status_text(statuses[i]);
		assert_int_equal(statuses[i], i); /* so far without gaps */
		assert_memory_equal(name, "LS_", 3);
		assert_string_not_equal(name, "LS_?");
		/* One sentence that can stand inside another. */
		assert_true((text[0] >= 'a' && text[0] <= 'z') ||
			    strncmp(text, "Lockstep ", 9) == 0);
		assert_int_not_equal(text[strlen(text) - 1], '.');
		for (int j = 0; j < i; j++) {
			assert_string_not_equal(name, ls_status_name(statuses[j]));
			assert_string_not_equal(text, ls_status_text(statuses[j]));
		}
	}
}

static void test_no_status(void **state)
{
	(void)state;
	static const int numbers[] = {-1, STATUSES, INT32_MAX, INT32_MIN};
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		ls_status status;
		memcpy(&status, &numbers[i], sizeof status);
		assert_string_equal(ls_status_name(status), "LS_?");
		assert_non_null(ls_status_text(status));
		assert_int_equal(ls_status_scope(status), LS_SCOPE_PROCESS);
	}
}

static void test_version(void **state)
{
	(void)state;
	assert_string_equal(ls_version(), LOCKSTEP_VERSION);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_and_values),
		cmocka_unit_test(test_all_differ),
		cmocka_unit_test(test_no_status),
		cmocka_unit_test(test_version),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
