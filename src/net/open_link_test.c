/* SPDX-License-Identifier: BSD-3-Clause
 * A process that can start no thread gets an error from net_open. UCX by itself would end the
 * process. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/capture.h"
#include "net/net.h"

static bool can_start;

/* The library and UCX find this function before that of the C library. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *user),
		   void *user)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
		(__typeof__(real))dlsym(RTLD_NEXT, "pthread_create");
	return can_start ? real(thread, attributes, run, user) : EAGAIN;
}

static void test_no_thread(void **state)
{
	const struct net_options options = {
		.size = 2, .job = 1, .host = "127.0.0.1", .transports = "tcp"};
	struct capture capture;
	struct link *link;
	(void)state;
	capture_begin(&capture);
	ls_status status = net_open(&options, &link);
	const char *text = capture_end(&capture);
	assert_int_equal(status, LS_OUT_OF_MEMORY);
	assert_null(link);
	assert_non_null(strstr(text, "cannot start a thread"));
	assert_non_null(strstr(text, strerror(EAGAIN)));
	can_start = true;
	assert_int_equal(net_open(&options, &link), LS_OK);
	link->ops->close(link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_thread)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
