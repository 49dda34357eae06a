/* SPDX-License-Identifier: BSD-3-Clause
 * Biases: the owner enters and leaves, other threads do not, and after a revocation no thread
 * does. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bias.h"

static bool may_enter(struct bias *bias)
{
	_Atomic uint32_t *inside = bias_enter(bias);
	if (inside)
		bias_leave(inside);
	return inside != NULL;
}

static void test_nobodys(void **state)
{
	struct bias bias;
	(void)state;
	bias_init(&bias);
	assert_false(bias_has_owner(&bias));
	assert_false(may_enter(&bias));
}

static void *try(void *bias)
{
	return may_enter(bias) ? bias : NULL;
}

static void *take_away(void *bias)
{
	bias_revoke(bias);
	return NULL;
}

static void *in_thread(void *(*run)(void *), struct bias *bias)
{
	pthread_t thread;
	void *result;
	assert_int_equal(pthread_create(&thread, NULL, run, bias), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	return result;
}

static void test_owner(void **state)
{
	struct bias bias;
	(void)state;
	bias_init(&bias);
	bias_give(&bias);
	assert_true(bias_has_owner(&bias));
	assert_true(may_enter(&bias));
	assert_true(may_enter(&bias));
	assert_null(in_thread(try, &bias));
	in_thread(take_away, &bias);
	assert_false(bias_has_owner(&bias));
	assert_false(may_enter(&bias));
}

static void test_last_owner(void **state)
{
	struct bias bias;
	(void)state;
	bias_init(&bias);
	for (int i = 0; i < BIAS_OWNERS; i++) {
		bias_give(&bias);
		assert_true(may_enter(&bias));
		bias_revoke(&bias);
	}
	bias_give(&bias);
	assert_false(bias_has_owner(&bias));
	assert_false(may_enter(&bias));
}

/* A revocation returns when the owner has left. */
static struct bias watched;
static _Atomic bool is_inside, is_revoking;
static uint64_t seen, written; /* by the owner, in there */

static void *revoke_watched(void *unused)
{
	while (!atomic_load(&is_inside))
		;
	atomic_store(&is_revoking, true);
	bias_revoke(&watched);
	seen = written;
	return unused;
}

static void test_revoke_waits(void **state)
{
	pthread_t thread;
	(void)state;
	bias_init(&watched);
	bias_give(&watched);
	assert_int_equal(pthread_create(&thread, NULL, revoke_watched, NULL), 0);
	_Atomic uint32_t *inside = bias_enter(&watched);
	assert_non_null(inside);
	atomic_store(&is_inside, true);
	while (!atomic_load(&is_revoking) || atomic_load(&watched.owner) != BIAS_TAKEN)
		;
	/* It is not mine any more, nor nobody's yet: others may not go in. */
	assert_null(bias_enter(&watched));
	assert_true(bias_has_owner(&watched));
	written = 7;
	bias_leave(inside);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(seen, 7);
	assert_false(bias_has_owner(&watched));
}

/* Installs a filter by which membarrier fails for the calling thread. */
static bool forbid_membarrier(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 &&
	       syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) < 0;
}

static void *give_without_membarrier(void *bias)
{
	if (!forbid_membarrier())
		return NULL;
	bias_init(bias);
	bias_give(bias);
	return bias;
}

static void test_refused(void **state)
{
	struct bias bias;
	(void)state;
	assert_ptr_equal(in_thread(give_without_membarrier, &bias), &bias);
	assert_false(bias_has_owner(&bias));
	bias_give(&bias);
	assert_false(bias_has_owner(&bias));
	assert_false(may_enter(&bias));
}

static void *revoke_without_membarrier(void *bias)
{
	if (!forbid_membarrier())
		return NULL;
	bias_revoke(bias);
	return bias;
}

/* The filter against membarrier is installed after the bias got its owner. */
static void test_refused_later(void **state)
{
	struct bias bias;
	(void)state;
	bias_init(&bias);
	bias_give(&bias);
	assert_true(may_enter(&bias));
	assert_ptr_equal(in_thread(revoke_without_membarrier, &bias), &bias);
	assert_false(bias_has_owner(&bias));
	bias_give(&bias);
	assert_false(bias_has_owner(&bias));
	assert_false(may_enter(&bias));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobodys),    cmocka_unit_test(test_owner),
		cmocka_unit_test(test_last_owner), cmocka_unit_test(test_revoke_waits),
		cmocka_unit_test(test_refused),    cmocka_unit_test(test_refused_later),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
