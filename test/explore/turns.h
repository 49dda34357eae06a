/* SPDX-License-Identifier: BSD-3-Clause
 * One of several threads has the turn and runs; then it passes the turn on. Each is a real thread,
 * with its own stack and thread-local storage. On x86-64 all of them run on the kernel thread that
 * called turn_begin: it switches to the registers, stack and thread-local storage of the thread
 * that has the turn, whose own kernel thread sleeps. This takes a fiftieth of the time in which the
 * kernel wakes one thread and puts another to sleep, which was two thirds of the time of a
 * schedule. On other processors each thread runs on its own kernel thread, which is woken for its
 * turn. */
#ifndef TEST_EXPLORE_TURNS_H
#define TEST_EXPLORE_TURNS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct turn {
	void *stack;                 /* of a thread that does not run: has its registers */
	_Atomic uint32_t is_waiting; /* the thread may be given the turn; a futex */
	_Atomic uint32_t is_called;  /* its own kernel thread has to continue; a futex */
	uint64_t local;              /* base of its thread-local storage */
};

/* Whether this processor lets a program switch threads. */
bool turn_can_switch(void);
/* Call first. Gives the turn to the caller. `woken`: also on x86-64 the kernel wakes each thread
 * for its turn. */
void turn_begin(struct turn *self, bool woken);
/* A thread that is made before turn_begin calls this in place of turn_await. */
void turn_park(struct turn *self);
/* Returns when that thread has come so far. */
void turn_await_parked(struct turn *turn);
/* A new thread calls this. It returns when the thread gets the turn for the first time. */
void turn_await(struct turn *self);
/* The running thread passes the turn to `to`. Returns when it gets the turn back, if ever. */
void turn_pass(struct turn *self, struct turn *to);
/* The same, for a thread that never gets the turn again. Returns at once, while `to` runs. */
void turn_leave(struct turn *self, struct turn *to);

#endif
