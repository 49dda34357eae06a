/* SPDX-License-Identifier: BSD-3-Clause
 * Threads that the first process makes ahead, and that need no kernel thread afterwards. Each one
 * waits for its first turn. What a thread is made of lies in memory: its stack, with the registers
 * it has saved, and its thread-local storage. So a process that is forked has these threads, too,
 * and gives them the turn on its only kernel thread (turns.h). A schedule then makes no kernel
 * threads, and leaves none for the kernel to clean up. */
#ifndef TEST_EXPLORE_PARKED_H
#define TEST_EXPLORE_PARKED_H

#include <pthread.h>

#include "turns.h"

struct parked {
	struct turn turn;
	pthread_t id;
	struct parked *next; /* in the list of those that nobody uses */
};

/* Call once, in the first process. Where threads cannot be switched, there will be none. */
void parked_make(void);
/* One that nobody uses, or NULL. When it gets the turn it calls scheduler_thread_body. */
struct parked *parked_take(void);
/* Its thread has been joined. The next one that is taken is the one given last, because so the C
 * library uses stacks: the address of a new thread's storage may be that of an ended one. */
void parked_give(struct parked *parked);

#endif
