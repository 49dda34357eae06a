/* SPDX-License-Identifier: BSD-3-Clause
 * Gives and revokes biases; see bias.h. */
#include "base/bias.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#if __has_include(<sys/single_threaded.h>) /* musl has none */
#include <sys/single_threaded.h>
#else
enum { __libc_single_threaded = 0 };
#endif

#include "base/wait.h"

_Thread_local _Alignas(BIAS_OWNERS) char bias_thread;

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* A process registers before its first barrier. That is cheap while it has one thread. Once it has
 * several, the system waits for each of its processors to have switched threads, some 10 ms: then
 * only the first revocation of the process pays for that, if there is one. A child of fork stays
 * registered. */
__attribute__((constructor)) static void register_early(void)
{
	if (__libc_single_threaded)
		membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

static bool barrier_in_all_threads(void)
{
	return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0 ||
	       (errno == EPERM && membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
		membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
}

void bias_init(struct bias *bias)
{
	int known = membarrier(MEMBARRIER_CMD_QUERY);
	*bias = (struct bias){.owners = BIAS_OWNERS};
	if (known > 0 && known & MEMBARRIER_CMD_PRIVATE_EXPEDITED)
		bias->owners = 0;
}

void bias_give(struct bias *bias)
{
	if (bias->owners < BIAS_OWNERS)
		atomic_store_explicit(&bias->owner, bias_me() + bias->owners++,
				      memory_order_release);
}

void bias_offer(struct bias *bias)
{
	if (bias->owners < BIAS_OWNERS)
		atomic_store_explicit(&bias->owner, BIAS_OFFERED, memory_order_relaxed);
}

void bias_revoke(struct bias *bias)
{
	uintptr_t owner = atomic_exchange(&bias->owner, BIAS_TAKEN);
	if (!barrier_in_all_threads()) {
		/* A filter of system calls was installed after bias_init. */
		bias->owners = BIAS_OWNERS;
		wait_until_stores_are_seen();
	}
	wait_moment(&bias->inside[owner % BIAS_OWNERS]);
	/* Release: a thread that sees the 0 sees what the owner has done. */
	atomic_store_explicit(&bias->owner, 0, memory_order_release);
}
