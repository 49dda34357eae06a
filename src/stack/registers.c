/* SPDX-License-Identifier: BSD-3-Clause
 * The registers of a thread of another process, and the top of its stack: copied while the thread
 * is stopped, so that it continues after some 100 us, and frames are found afterwards. The thread
 * continues in any case: if this process ends before, the kernel detaches from the thread. */
#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/wait.h"
#include "stack/stack_private.h"

enum { STOP_MS = 50, PIECE_BYTES = 4096 };

#if defined(__x86_64__)
static void take_registers(const struct user_regs_struct *from, struct stack_registers *out)
{
	const uint64_t values[] = {from->rax, from->rdx, from->rcx, from->rbx, from->rsi, from->rdi,
				   from->rbp, from->rsp, from->r8,  from->r9,  from->r10, from->r11,
				   from->r12, from->r13, from->r14, from->r15, from->rip};
	out->count = sizeof values / sizeof *values;
	memcpy(out->values, values, sizeof values);
	out->pc = from->rip;
	out->sp = from->rsp;
}
#elif defined(__aarch64__)
static void take_registers(const struct user_regs_struct *from, struct stack_registers *out)
{
	out->count = 32;
	memcpy(out->values, from->regs, sizeof from->regs);
	out->values[31] = from->sp;
	out->pc = from->pc;
	out->sp = from->sp;
}
#else
#error "which registers are which in DWARF?"
#endif

/* Copies as much of the stack as there is. */
static void copy_stack(const struct stack_memory *memory, struct stack_registers *out)
{
	out->bytes = sizeof out->stack;
	if (memory->read(memory, out->sp, out->stack, out->bytes))
		return;
	/* Up to the end of the page, and then page by page. */
	size_t piece = PIECE_BYTES - out->sp % PIECE_BYTES;
	for (out->bytes = 0; out->bytes + piece <= sizeof out->stack; piece = PIECE_BYTES) {
		if (!memory->read(memory, out->sp + out->bytes, out->stack + out->bytes, piece))
			return;
		out->bytes += piece;
	}
}

/* The state in which the thread has stopped; -1: it has not stopped in time, or has ended. */
static int await_stop(uint32_t tid)
{
	uint64_t deadline_ns = clock_now_ns() + STOP_MS * UINT64_C(1000000);
	for (uint64_t pause_ns = 20000;; pause_ns *= 2) {
		int state = 0;
		pid_t found = waitpid((pid_t)tid, &state, __WALL | WNOHANG);
		if (found == (pid_t)tid && WIFSTOPPED(state))
			return state;
		uint64_t now_ns = clock_now_ns();
		if (found != 0 || now_ns >= deadline_ns)
			return -1;
		ls_status slept = wait_fds(NULL, NULL, 0, -1, now_ns + pause_ns);
		(void)slept;
	}
}

/* Lets the thread continue. If a signal stopped it, delivers the signal. */
static void detach_thread(uint32_t tid, int state)
{
	bool event = state >> 16 == PTRACE_EVENT_STOP;
	uintptr_t number = event ? 0 : (uintptr_t)WSTOPSIG(state);
	(void)ptrace(PTRACE_DETACH, (pid_t)tid, NULL, (void *)number);
}

static enum stack_answer copy_thread(const struct stack_memory *memory, uint32_t tid,
				     struct stack_registers *out)
{
	struct user_regs_struct registers;
	struct iovec into = {.iov_base = &registers, .iov_len = sizeof registers};
	if (stack_thread_state(memory->pid, tid) == 'D')
		return STACK_HANGS; /* the thread would not stop in time */
	enum stack_answer answer = STACK_FOUND;
	if (ptrace(PTRACE_SEIZE, (pid_t)tid, NULL, NULL) != 0) {
		answer = errno == ESRCH ? STACK_GONE : STACK_REFUSED;
	} else if (ptrace(PTRACE_INTERRUPT, (pid_t)tid, NULL, NULL) != 0) {
		answer = STACK_GONE;
	} else {
		int state = await_stop(tid);
		if (!stack_thread_state(memory->pid, tid))
			/* and its number is that of a thread of another process */
			answer = STACK_GONE;
		else if (state < 0 || ptrace(PTRACE_GETREGSET, (pid_t)tid,
					     (void *)(uintptr_t)NT_PRSTATUS, &into) != 0)
			answer = STACK_MOVED;
		if (answer == STACK_FOUND) {
			take_registers(&registers, out);
			copy_stack(memory, out);
		}
		if (state >= 0)
			detach_thread(tid, state);
	}
	return answer;
}

struct copying {
	const struct stack_memory *memory;
	uint32_t tid;
	struct stack_registers *out;
	enum stack_answer answer;
};

static void *copy_main(void *argument)
{
	struct copying *copying = argument;
	copying->answer = copy_thread(copying->memory, copying->tid, copying->out);
	return NULL;
}

/* Runs in a thread of its own: its end detaches also from a thread that did not stop in time, from
 * which PTRACE_DETACH is refused while it runs. Signals that stop (except SIGSTOP) or end this
 * process take effect afterwards. */
enum stack_answer stack_copy_registers(const struct stack_memory *memory, uint32_t tid,
				       struct stack_registers *out)
{
	struct copying copying = {.memory = memory, .tid = tid, .out = out};
	sigset_t all, old;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&thread, NULL, copy_main, &copying) == 0)
		wait_join(thread);
	else
		copying.answer = STACK_REFUSED;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return copying.answer;
}
