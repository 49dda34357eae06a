/* SPDX-License-Identifier: BSD-3-Clause
 * Messages: their form, levels, ranks, help, and that each is one write. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/capture.h"
#include "base/messages.h"

static void test_form(void **state)
{
	(void)state;
	struct capture capture;
	capture_begin(&capture);
	MESSAGE_SAY(MESSAGE_LOCK_ORDER, "rank", "memory");
	assert_string_equal(capture_end(&capture),
			    "lockstep: lock order: wants a 'rank' lock while it holds a 'memory' "
			    "lock [LS-LOCK-ORDER]\n");
	message_set_rank(3);
	capture_begin(&capture);
	errno = ENOENT;
	MESSAGE_SAY(MESSAGE_LOCK_WAIT, "peer");
	assert_int_equal(errno, ENOENT);
	assert_string_equal(capture_end(&capture),
			    "lockstep: rank 3: about to wait while it holds a 'peer' lock "
			    "[LS-LOCK-WAIT]\n");
	message_set_rank(-1);
}

static void test_level(void **state)
{
	(void)state;
	struct capture capture;
	message_set_level(SETTING_LOG_ERROR);
	capture_begin(&capture);
	MESSAGE_SAY(MESSAGE_SETTING_UNKNOWN, "A", "B");
	assert_string_equal(capture_end(&capture), "");
	message_set_level(SETTING_LOG_WARN);
	capture_begin(&capture);
	MESSAGE_SAY(MESSAGE_SETTING_UNKNOWN, "A", "B");
	assert_string_not_equal(capture_end(&capture), "");
}

static void test_report(void **state)
{
	(void)state;
	struct capture capture;
	capture_begin(&capture);
	message_report("LS-LOCK-WAIT", "one\n  two\n\n");
	assert_string_equal(capture_end(&capture), "one\n  two [LS-LOCK-WAIT]\n");
}

/* A message removes control characters from text of others, so that no terminal obeys them. */
static void test_controls(void **state)
{
	(void)state;
	struct capture capture;
	char last[256];
	capture_begin(&capture);
	MESSAGE_SAY(MESSAGE_LOCK_WAIT, "a\x1b[31m\xc2\x9b"
				       "31m\xe2\x80\xae\xff"
				       "b");
	message_report("LS-LOCK-WAIT", "one\n\xc2\x9b"
				       "31m");
	const char *text = capture_end(&capture);
	assert_non_null(strstr(text, "a?[31m?31m??b"));
	assert_non_null(strstr(text, "one\n?31m [LS-LOCK-WAIT]\n"));
	assert_true(ls_last_error(last, sizeof last) > 0);
	assert_non_null(strstr(last, "a?[31m?31m??b"));
}

/* A message that is too long loses its end, but neither its id nor the newline. */
static void test_too_long(void **state)
{
	(void)state;
	static char big[20000];
	memset(big, 'x', sizeof big - 1);
	static const char tail[] = " [LS-LOCK-WAIT]\n";
	for (int report = 0; report < 2; report++) {
		struct capture capture;
		capture_begin(&capture);
		if (report)
			message_report("LS-LOCK-WAIT", big);
		else
			MESSAGE_SAY(MESSAGE_LOCK_WAIT, big);
		const char *text = capture_end(&capture);
		size_t size = strlen(text);
		assert_true(size > 4096 && size <= 8192);
		assert_string_equal(text + size - strlen(tail), tail);
		assert_int_equal(text[size - strlen(tail) - 1], 'x');
	}
}

/* A full pipe that nobody reads costs messages, and no time but the first's wait; the first that is
 * read again says how many. */
static void test_nobody_reads(void **state)
{
	(void)state;
	static char bytes[1 << 20];
	for (int socket = 0; socket < 2; socket++) {
		int ends[2];
		assert_int_equal(socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)
					: pipe2(ends, O_CLOEXEC),
				 0);
		int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
		assert_true(saved >= 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
		int flags = fcntl(ends[1], F_GETFL);
		assert_int_equal(fcntl(ends[1], F_SETFL, flags | O_NONBLOCK), 0);
		for (size_t size = sizeof bytes; size > 0;)
			if (write(ends[1], bytes, size) < 0)
				size /= 2;
		assert_int_equal(fcntl(ends[1], F_SETFL, flags), 0);
		for (int i = 0; i < 3; i++)
			MESSAGE_SAY(MESSAGE_LOCK_WAIT, "peer");
		assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
		while (read(ends[0], bytes, sizeof bytes) > 0)
			;
		MESSAGE_SAY(MESSAGE_LOCK_WAIT, "mail");
		ssize_t got = 0, more;
		while ((more = read(ends[0], bytes + got, sizeof bytes - 1 - (size_t)got)) > 0)
			got += more;
		assert_true(dup2(saved, STDERR_FILENO) == STDERR_FILENO);
		bytes[got] = '\0';
		assert_non_null(strstr(bytes, "3 messages were lost here"));
		assert_non_null(strstr(bytes, "[LS-MESSAGE-LOST]\nlockstep: "));
		assert_non_null(strstr(bytes, "'mail'"));
		assert_null(strstr(bytes, "'peer'"));
		close(saved);
		close(ends[0]);
		close(ends[1]);
	}
}

/* A pipe that keeps the borders of writes shows that there is one. */
static void test_one_write(void **state)
{
	(void)state;
	int ends[2];
	assert_int_equal(pipe2(ends, O_CLOEXEC | O_DIRECT), 0);
	int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	assert_true(saved >= 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
	MESSAGE_SAY(MESSAGE_LOCK_WAIT, "peer");
	message_report("LS-LOCK-WAIT", "one\ntwo");
	assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
	char text[512];
	static const char first[] = "lockstep: about to wait while it holds a 'peer' lock "
				    "[LS-LOCK-WAIT]\n";
	assert_int_equal(read(ends[0], text, sizeof text), strlen(first));
	static const char second[] = "one\ntwo [LS-LOCK-WAIT]\n";
	assert_int_equal(read(ends[0], text, sizeof text), strlen(second));
	close(ends[0]);
	close(ends[1]);
	close(saved);
}

/* Taken once; warnings are none, and a buffer that is too short gets what fits. */
static void test_last_error(void **state)
{
	(void)state;
	static const char said[] = "about to wait while it holds a 'peer' lock";
	char text[64] = "?", few[6];
	ls_last_error(NULL, 0);
	assert_int_equal(ls_last_error(text, sizeof text), 0);
	assert_string_equal(text, "");
	message_set_rank(3);
	MESSAGE_SAY(MESSAGE_LOCK_WAIT, "peer");
	message_say("LS-TEST", SETTING_LOG_WARN, "only a warning");
	message_set_rank(-1);
	assert_string_equal(message_last(), said);
	assert_true(message_last_was(MESSAGE_LOCK_WAIT));
	assert_false(message_last_was(MESSAGE_LOCK_ORDER));
	assert_int_equal(ls_last_error(few, sizeof few), strlen(said));
	assert_string_equal(message_last(), "");
	assert_string_equal(few, "about");
	assert_int_equal(ls_last_error(text, sizeof text), 0);
	MESSAGE_SAY(MESSAGE_LOCK_WAIT, "peer");
	assert_int_equal(ls_last_error(text, sizeof text), strlen(said));
	assert_string_equal(text, said);
}

static void test_help(void **state)
{
	(void)state;
	static const char *const names[] = {
#define X(id, level, help) #id,
#include "base/messages.def"
#undef X
	};
	size_t count = sizeof names / sizeof names[0];
	assert_null(message_help_at(count));
	for (size_t i = 0; i < count; i++) {
		const struct message_help *help = message_help_at(i);
		char id[64];
		snprintf(id, sizeof id, "LS-%s", names[i]);
		for (char *at = id; *at; at++)
			if (*at == '_')
				*at = '-';
		assert_string_equal(help->id, id);
		assert_true(strlen(help->help) > 40);
		assert_ptr_equal(message_help_find(id), help);
		assert_ptr_equal(message_help_find(id + 3), help);
	}
	assert_non_null(message_help_find("ls-lock-order"));
	assert_ptr_equal(message_help_find("Lock-Order"), message_help_find("LS-LOCK-ORDER"));
	assert_null(message_help_find("LS-NO-SUCH"));
	assert_null(message_help_find(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_form),       cmocka_unit_test(test_level),
		cmocka_unit_test(test_report),     cmocka_unit_test(test_controls),
		cmocka_unit_test(test_too_long),   cmocka_unit_test(test_one_write),
		cmocka_unit_test(test_help),       cmocka_unit_test(test_nobody_reads),
		cmocka_unit_test(test_last_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
