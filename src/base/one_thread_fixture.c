/* SPDX-License-Identifier: BSD-3-Clause
 * For tests that claim to start no thread (one_thread in src/meson.build): whatever does so in them
 * comes here. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument)
{
	(void)thread;
	(void)attributes;
	(void)start;
	(void)argument;
	fprintf(stderr, "this test starts a thread: remove it from one_thread in src/meson.build\n");
	abort();
}
