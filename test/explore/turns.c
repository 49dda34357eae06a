/* SPDX-License-Identifier: BSD-3-Clause
 * Passes the turn from one thread to the next; see turns.h. */
#include "turns.h"

#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include "scheduler_private.h"

long __real_syscall(long number, ...);

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
	__real_syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void await(_Atomic uint32_t *word)
{
	while (atomic_load(word) == 0)
		futex(word, FUTEX_WAIT, 0);
}

static void call(struct turn *turn)
{
	atomic_store(&turn->is_called, 1);
	futex(&turn->is_called, FUTEX_WAKE, 1);
}

static void sleep_until_called(struct turn *turn)
{
	await(&turn->is_called);
	atomic_store(&turn->is_called, 0);
}

#if defined(__x86_64__)

enum {
	HAS_FSGSBASE = 1 << 1
}; /* AT_HWCAP2 of Linux: user programs may write the base of their thread-local storage */

/* Saves the registers that a called function preserves on the stack, in the same order in both
 * functions, so that one can resume what the other has saved. */
#define SAVE "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
#define RESTORE "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"

_Static_assert(offsetof(struct turn, stack) == 0 && offsetof(struct turn, is_waiting) == 8 &&
		       offsetof(struct turn, is_called) == 12,
	       "the assembler below knows where they are");

bool turn_can_switch(void)
{
	return getauxval(AT_HWCAP2) & HAS_FSGSBASE;
}

static void note_local(struct turn *turn)
{
	__asm__("rdfsbase %0" : "=r"(turn->local));
}

/* Saves the calling thread in *stack, and resumes the one that was saved at `to`. */
void turns_switch(void **stack, void *to, uint64_t local);
__asm__(".text\n.type turns_switch, @function\nturns_switch:\n" SAVE "mov %rsp, (%rdi)\n"
	"mov %rsi, %rsp\nwrfsbase %rdx\n" RESTORE ".size turns_switch, .-turns_switch\n");

/* Saves the caller, says so, and puts its kernel thread to sleep. Until that is called it touches
 * neither stack nor thread-local storage, because another kernel thread may use both. Returns on
 * the other kernel thread each time the caller gets the turn, and here when the kernel thread is
 * called. Futex is call 202; 129 wakes, 128 waits, both within this process. */
void turns_park(struct turn *self);
__asm__(".text\n.type turns_park, @function\nturns_park:\n" SAVE "mov %rdi, %rbx\n"
	"mov %rsp, (%rbx)\nmovl $1, 8(%rbx)\n"
	"mov $202, %eax\nlea 8(%rbx), %rdi\nmov $129, %esi\nmov $1, %edx\nsyscall\n"
	"1: mov $202, %eax\nlea 12(%rbx), %rdi\nmov $128, %esi\nxor %edx, %edx\nxor %r10d, %r10d\nsyscall\n"
	"cmpl $0, 12(%rbx)\nje 1b\n"
	"mov (%rbx), %rsp\n" RESTORE ".size turns_park, .-turns_park\n");

#else

bool turn_can_switch(void)
{
	return false;
}

/* This processor cannot switch threads, so nothing calls these. */

static void note_local(struct turn *turn)
{
	(void)turn;
}

static void turns_switch(void **stack, void *to, uint64_t local)
{
	(void)stack;
	(void)to;
	(void)local;
	abort();
}

static void turns_park(struct turn *self)
{
	(void)self;
	abort();
}

#endif

static bool switches; /* else each thread has its own kernel thread, which is woken for its turn */
/* has left; its own kernel thread continues once no other one uses its stack */
static struct turn *left;

static void see_off(void)
{
	struct turn *turn = left;
	left = NULL;
	if (turn)
		call(turn);
}

void turn_begin(struct turn *self, bool woken)
{
	switches = !woken && turn_can_switch();
	if (switches)
		note_local(self);
	atomic_store(&self->is_waiting, 1);
}

void turn_park(struct turn *self)
{
	note_local(self);
	turns_park(self);
	see_off();
}

void turn_await_parked(struct turn *turn)
{
	await(&turn->is_waiting);
}

void turn_await(struct turn *self)
{
	if (!switches) {
		sleep_until_called(self);
		return;
	}
	turn_park(self);
}

void turn_pass(struct turn *self, struct turn *to)
{
	if (!switches) {
		call(to);
		sleep_until_called(self);
		return;
	}
	await(&to->is_waiting);
	turns_switch(&self->stack, to->stack, to->local);
	see_off();
}

void turn_leave(struct turn *self, struct turn *to)
{
	if (!switches) {
		call(to);
		return;
	}
	await(&to->is_waiting);
	left = self;
	turns_switch(&self->stack, to->stack, to->local);
}
