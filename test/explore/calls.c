/* SPDX-License-Identifier: BSD-3-Clause
 * Calls of the library that concern threads, locks, futexes and clocks: the linker redirects them
 * here (--wrap). Threads that are not managed get the functions of the system. */
#include "scheduler_private.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "parked.h"
#include "played.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define PLACE __builtin_return_address(0)

enum { NS_PER_S = 1000000000, SIGNALS = 65 };

int __real_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*main)(void *),
			  void *argument);
int __real_pthread_join(pthread_t id, void **result);
int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __real_sched_yield(void);
int __real_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);
long __real_syscall(long number, ...);

/* ---- threads ---- */

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*main)(void *),
			  void *argument)
{
	struct thread *self = scheduler_self;
	if (!self)
		return __real_pthread_create(id, attributes, main, argument);
	scheduler_point(PLACE, "makes a thread");
	struct thread *thread = scheduler_add(self->rank, "library", main, argument);
	thread->of_library = true;
	int error = scheduler_start(thread, attributes);
	*id = thread->id;
	return error;
}

int __wrap_pthread_join(pthread_t id, void **result)
{
	if (!scheduler_self)
		return __real_pthread_join(id, result);
	scheduler_point(PLACE, "waits for a thread");
	for (int i = 0; i < scheduler.count; i++) {
		struct thread *thread = &scheduler.threads[i];
		bool ends = thread->state != THREAD_DONE || thread->parked;
		if (!ends || !pthread_equal(thread->id, id))
			continue;
		if (!scheduler_join(i) || !thread->parked)
			break;
		if (result)
			*result = thread->result;
		parked_give(thread->parked);
		thread->parked = NULL;
		return 0;
	}
	return __real_pthread_join(id, result);
}

/* A thread of parked.h never ends as the C library sees it. So these do the same for all. */
static struct {
	pthread_key_t key;
	void (*destroy)(void *value);
} keys[16];
static int key_count;

int __real_pthread_key_create(pthread_key_t *key, void (*destroy)(void *value));
int __wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *value))
{
	int error = __real_pthread_key_create(key, NULL);
	if (error || !destroy)
		return error;
	if (key_count == sizeof keys / sizeof keys[0])
		scheduler_fail("more than %d keys of pthread_setspecific", key_count);
	keys[key_count].key = *key;
	keys[key_count++].destroy = destroy;
	return 0;
}

void calls_destroy_specific(void)
{
	for (int round = 0; round < PTHREAD_DESTRUCTOR_ITERATIONS; round++)
		for (int i = 0; i < key_count; i++) {
			void *value = pthread_getspecific(keys[i].key);
			if (!value)
				continue;
			pthread_setspecific(keys[i].key, NULL);
			keys[i].destroy(value);
		}
}

/* ---- locks ---- */

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	if (!scheduler_self)
		return __real_pthread_mutex_lock(mutex);
	scheduler_point(PLACE, "locks");
	int error;
	while ((error = pthread_mutex_trylock(mutex)) == EBUSY)
		scheduler_block(WAITS_MUTEX, (struct thread_key){.at = (uintptr_t)mutex},
				SCHEDULER_NEVER, "waits for a lock");
	return error;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	if (!scheduler_self)
		return __real_pthread_mutex_unlock(mutex);
	int error = __real_pthread_mutex_unlock(mutex);
	scheduler_wake(WAITS_MUTEX, (struct thread_key){.at = (uintptr_t)mutex}, INT_MAX);
	scheduler_point(PLACE, "has unlocked");
	return error;
}

/* ---- futexes ---- */

static uint64_t to_ns(const struct timespec *time)
{
	return time ? (uint64_t)time->tv_sec * NS_PER_S + (uint64_t)time->tv_nsec : SCHEDULER_NEVER;
}

enum { FUTEX_WORDS = 16 };

struct futex_word {
	const volatile uint32_t *word;
	uint32_t value;
};

static long futex_wait(const struct futex_word *words, int count, const struct timespec *until)
{
	struct thread_key on[FUTEX_WORDS];
	scheduler_point(PLACE, "is about to sleep");
	for (int i = 0; i < count; i++) {
		on[i] = files_key(words[i].word);
		if (__atomic_load_n(words[i].word, __ATOMIC_SEQ_CST) != words[i].value) {
			errno = EAGAIN;
			return -1;
		}
	}
	uint64_t until_ns = to_ns(until);
	struct thread *self = scheduler_self;
	self->further = &on[1];
	self->further_count = count - 1;
	bool woken = until_ns > scheduler.now_ns &&
		     scheduler_block(WAITS_FUTEX, on[0], until_ns, "sleeps");
	self->further_count = 0;
	errno = woken ? 0 : ETIMEDOUT;
	return woken ? 0 : -1;
}

#ifdef SYS_futex_waitv
static long futex_wait_any(const struct futex_waitv *all, int count, const struct timespec *until)
{
	struct futex_word words[FUTEX_WORDS];
	if (count > FUTEX_WORDS) {
		errno = EINVAL;
		return -1;
	}
	for (int i = 0; i < count; i++)
		words[i] = (struct futex_word){(const void *)(uintptr_t)all[i].uaddr,
					       (uint32_t)all[i].val};
	return futex_wait(words, count, until);
}
#endif

long __wrap_syscall(long number, ...)
{
	va_list list;
	long a[6];
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (!scheduler_self)
		return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	switch (number) {
#ifdef SYS_futex_waitv
	case SYS_futex_waitv:
		return futex_wait_any((const void *)a[0], (int)a[1], (const void *)a[3]);
#endif
	case SYS_futex:
		if ((a[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) {
			scheduler_point(PLACE, "wakes");
			return scheduler_wake(WAITS_FUTEX, files_key((const void *)a[0]), (int)a[2]);
		}
		return futex_wait(&(struct futex_word){(const void *)a[0], (uint32_t)a[2]}, 1,
				  (const void *)a[3]);
	case SYS_pidfd_open:
		return played_pidfd_open((int)a[0]);
	case SYS_pidfd_send_signal:
		return played_pidfd_signal((int)a[0]);
	default:
		return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
}

/* ---- signals ---- */

/* A wait for descriptors asks for the handlers of all signals. */
int __real_sigaction(int number, const struct sigaction *action, struct sigaction *old);
int __wrap_sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
	static struct sigaction known[SIGNALS];
	static bool is_known[SIGNALS];
	if (number < 0 || number >= SIGNALS)
		return __real_sigaction(number, action, old);
	if (action)
		is_known[number] = false;
	if (action || !old || !scheduler_self)
		return __real_sigaction(number, action, old);
	if (!is_known[number] && __real_sigaction(number, NULL, &known[number]))
		return -1;
	is_known[number] = true;
	*old = known[number];
	return 0;
}

/* ---- time, and processors ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
	if (!scheduler_self)
		return __real_clock_gettime(clock, out);
	scheduler_point(PLACE, "reads the clock");
	*out = (struct timespec){.tv_sec = (time_t)(scheduler.now_ns / NS_PER_S),
				 .tv_nsec = (long)(scheduler.now_ns % NS_PER_S)};
	return 0;
}

int __wrap_sched_yield(void)
{
	if (!scheduler_self)
		return __real_sched_yield();
	scheduler_relax(PLACE, "yields");
	return 0;
}

/* All threads run on one processor. The library is told of two: ranks spin if there are at most two
 * of them. */
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
	if (!scheduler_self)
		return __real_sched_getaffinity(pid, bytes, set);
	CPU_ZERO_S(bytes, set);
	CPU_SET_S(0, bytes, set);
	CPU_SET_S(1, bytes, set);
	return 0;
}

/* ---- sleep ---- */

int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	if (!scheduler_self)
		return __real_nanosleep(time, left);
	static const int never;
	scheduler_point(PLACE, "is about to sleep");
	scheduler_await(&never, 1, scheduler.now_ns + to_ns(time));
	return 0;
}

int __wrap_usleep(unsigned us)
{
	struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
	return __wrap_nanosleep(&time, NULL);
}
