/* SPDX-License-Identifier: BSD-3-Clause
 * Biases are given and revoked here; see bias.h. */
#include "bias.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wait.h"

_Thread_local _Alignas(BIAS_OWNERS) char bias_thread;

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* Here the process usually has one thread. Once it has several, the system waits for each of its
 * processors to have switched threads, which takes some 10 ms. A child of fork stays registered. */
__attribute__((constructor)) static void register_early(void)
{
	membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

void bias_init(struct bias *bias)
{
	*bias = (struct bias){.owners = BIAS_OWNERS};
	/* One short system call if the process has registered before. */
	if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0)
		bias->owners = 0;
}

void bias_give(struct bias *bias)
{
	if (bias->owners < BIAS_OWNERS)
		atomic_store_explicit(&bias->owner, bias_me() + bias->owners++,
				      memory_order_release);
}

void bias_revoke(struct bias *bias)
{
	uintptr_t owner = atomic_exchange(&bias->owner, BIAS_TAKEN);
	if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
		/* A filter of system calls was installed after bias_init. */
		bias->owners = BIAS_OWNERS;
		wait_stores();
	}
	wait_moment(&bias->inside[owner % BIAS_OWNERS]);
	/* Release: a thread that sees it sees what the owner has done. */
	atomic_store_explicit(&bias->owner, 0, memory_order_release);
}
