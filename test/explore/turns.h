/* SPDX-License-Identifier: BSD-3-Clause
 * One of several threads runs, and passes its turn on. Each is a real thread, with a stack and
 * thread-local storage of its own. On x86-64 they all run on the kernel thread of whoever calls
 * turn_begin: it takes over registers, stack and thread-local storage of the one whose turn it is,
 * and the kernel's own thread of that one sleeps. That is a fiftieth of what waking one thread and
 * putting another to sleep takes, which was two thirds of the time of a schedule. Elsewhere each
 * runs on its own kernel thread, which is woken for its turn. */
#ifndef TEST_EXPLORE_TURNS_H
#define TEST_EXPLORE_TURNS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct turn {
	void *stack;                 /* of a thread that does not run: where its registers are */
	_Atomic uint32_t is_waiting; /* it may be given the turn; a futex */
	_Atomic uint32_t is_called;  /* its own kernel thread is to go on; a futex */
	uint64_t local;              /* base of its thread-local storage */
};

/* The caller has the turn; before anybody else does. `woken`: kernel threads are woken here as
 * well. */
void turn_begin(struct turn *self, bool woken);
/* A new thread calls this; it returns when it is given the turn for the first time. */
void turn_await(struct turn *self);
/* The running thread passes its turn on; returns when it gets the turn back, if ever. */
void turn_pass(struct turn *self, struct turn *to);
/* The same of a thread that is never given the turn again; returns at once, beside `to`. */
void turn_leave(struct turn *self, struct turn *to);

#endif
