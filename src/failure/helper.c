/* SPDX-License-Identifier: BSD-3-Clause
 * A process of its own, because it may hang in the kernel forever, which a thread of the rank must
 * not. Between the rank and the program stands a keeper:
 *
 *     rank --- clone ---> keeper --- clone ---> program
 *              no signal         SIGCHLD
 *
 * The keeper shares the memory of the rank, so that nothing is copied, however large the rank is.
 * It ends without a signal, so the rank's own waitpid(-1) and SIGCHLD do not see it. A process
 * loses that property when it executes a program; therefore the keeper executes none, and waits for
 * the one that does. The program keeps its ancestors, by whom Yama decides what it may read. */
#include "failure/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/wait.h"

enum {
	STACK_BYTES = 16384,
	STOP_MS = 100, /* how long a killed keeper may take to end */
};

struct failure_helper {
	struct failure_command command;
	char *words[HELPER_WORD_MAX + 1];
	struct timespec limit;
	pid_t rank, keeper;
	int pidfd;                                     /* of the keeper */
	int answer[2];                                 /* a pipe; the rank has only its first end */
	_Alignas(16) unsigned char stack[STACK_BYTES]; /* of the keeper, and of what it starts */
};

/* ---- the keeper, and the program until it is executed ---- */

/* These functions run beside the threads of the rank, with their memory, also with the errno of the
 * calling thread and its flag for pthread_cancel. So they call nothing of the C library. */
#define ALONE \
	__attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

/* A system call. Inlined, because two processes return from the call that makes a process. */
ALONE static inline __attribute__((always_inline)) long raw_syscall(long number, long a, long b,
								    long c, long d, long e)
{
#if defined(__x86_64__)
	register long fourth __asm__("r10") = d;
	register long fifth __asm__("r8") = e;
	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
			 : "rcx", "r11", "memory");
	return number;
#elif defined(__aarch64__)
	register long name __asm__("x8") = number;
	register long first __asm__("x0") = a;
	register long second __asm__("x1") = b;
	register long third __asm__("x2") = c;
	register long fourth __asm__("x3") = d;
	register long fifth __asm__("x4") = e;
	__asm__ volatile("svc 0"
			 : "+r"(first)
			 : "r"(name), "r"(second), "r"(third), "r"(fourth), "r"(fifth)
			 : "memory");
	return first;
#else
	(void)number, (void)a, (void)b, (void)c, (void)d, (void)e;
	return -ENOSYS;
#endif
}

/* A process with the memory of this one, and a stack of its own, that calls function(argument),
 * which does not return; argument->pidfd refers to it. Not clone(3): the thread sanitizer has its
 * own, which takes it for a fork. */
ALONE static long clone_here(void (*function)(struct failure_helper *),
			     struct failure_helper *argument)
{
	void **stack = (void **)(argument->stack + STACK_BYTES) - 2;
	stack[0] = (void *)function;
	stack[1] = argument;
#if defined(__x86_64__)
	register long child_tid __asm__("r10") = 0;
	register long tls __asm__("r8") = 0;
	long result = SYS_clone;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "pop %%rax\n\t"
			 "pop %%rdi\n\t"
			 "call *%%rax\n\t"
			 "hlt\n"
			 "1:"
			 : "+a"(result)
			 : "D"((long)(CLONE_VM | CLONE_PIDFD)), "S"(stack), "d"(&argument->pidfd),
			   "r"(child_tid), "r"(tls)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long name __asm__("x8") = SYS_clone;
	register long result __asm__("x0") = CLONE_VM | CLONE_PIDFD;
	register void **top __asm__("x1") = stack;
	register int *pidfd __asm__("x2") = &argument->pidfd;
	register long tls __asm__("x3") = 0;
	register long child_tid __asm__("x4") = 0;
	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t"
			 "ldp x1, x0, [sp], #16\n\t"
			 "blr x1\n\t"
			 "brk #0\n"
			 "1:"
			 : "+r"(result), "+r"(top)
			 : "r"(name), "r"(pidfd), "r"(tls), "r"(child_tid)
			 : "memory");
	return result;
#else
	return -ENOSYS;
#endif
}

/* Makes this process end with its parent; false: the parent has ended before. */
ALONE static bool end_with(pid_t parent)
{
	return raw_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 &&
	       raw_syscall(SYS_getppid, 0, 0, 0, 0, 0) == parent;
}

/* Closes all other descriptors, which are a copy of the rank's. */
ALONE static bool keep_pipe_only(int pipe)
{
	raw_syscall(SYS_fcntl, pipe, F_SETFD, 0, 0, 0);
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fd != pipe && raw_syscall(SYS_dup3, pipe, fd, 0, 0, 0) < 0)
			return false;
	return raw_syscall(SYS_close_range, STDERR_FILENO + 1, UINT32_MAX, 0, 0, 0) == 0;
}

/* A function of its own, so that what it writes to the stack is not what the keeper has there. */
ALONE static __attribute__((noinline, noreturn)) void execute_program(struct failure_helper *helper,
								      pid_t keeper)
{
	char *no_environment[] = {NULL};
	for (int i = 0; end_with(keeper) && i < HELPER_PLACE_MAX; i++)
		raw_syscall(SYS_execve, (long)helper->command.places[i], (long)helper->words,
			    (long)no_environment, 0, 0);
	for (;;)
		raw_syscall(SYS_exit, 1, 0, 0, 0, 0);
}

ALONE static void run_program(struct failure_helper *helper)
{
	if (!end_with(helper->rank) || !keep_pipe_only(helper->answer[1]))
		return;
	/* The rank may ignore SIGCHLD: then the program would be reaped without the keeper. */
	struct { /* of the kernel */
		void (*handler)(int);
		unsigned long flags;
		void (*restorer)(void);
		uint64_t mask;
	} by_default = {.handler = SIG_DFL};
	raw_syscall(SYS_rt_sigaction, SIGCHLD, (long)&by_default, 0, sizeof by_default.mask, 0);
	pid_t self = (pid_t)raw_syscall(SYS_getpid, 0, 0, 0, 0, 0);
	long program = raw_syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
	if (program == 0)
		execute_program(helper, self);
	if (program < 0)
		return;
	struct pollfd end = {.fd = (int)raw_syscall(SYS_pidfd_open, program, 0, 0, 0, 0),
			     .events = POLLIN};
	raw_syscall(SYS_ppoll, (long)&end, 1, (long)&helper->limit, 0, 0);
	raw_syscall(SYS_kill, program, SIGKILL, 0, 0, 0);
	raw_syscall(SYS_wait4, program, 0, 0, 0, 0);
}

ALONE static __attribute__((noreturn)) void keeper_main(struct failure_helper *helper)
{
	run_program(helper);
	for (;;)
		raw_syscall(SYS_exit, 0, 0, 0, 0, 0);
}

/* ---- the rank ---- */

/* Starts the keeper with all signals blocked for good, so no handler of the rank can run in it. */
static pid_t clone_keeper(struct failure_helper *helper)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid_t keeper = (pid_t)clone_here(keeper_main, helper);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return keeper;
}

struct failure_helper *failure_helper_start(const struct failure_command *command, uint64_t limit_ms)
{
	struct failure_helper *helper = mmap(NULL, sizeof *helper, PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (helper == MAP_FAILED)
		return NULL;
	helper->command = *command;
	for (int i = 0; i < HELPER_WORD_MAX && command->words[i][0]; i++)
		helper->words[i] = helper->command.words[i];
	helper->limit = (struct timespec){.tv_sec = (time_t)(limit_ms / 1000),
					  .tv_nsec = (long)(limit_ms % 1000) * 1000000};
	helper->rank = getpid();
	helper->pidfd = -1;
	if (pipe2(helper->answer, O_CLOEXEC | O_NONBLOCK) != 0) {
		munmap(helper, sizeof *helper);
		return NULL;
	}
	helper->keeper = clone_keeper(helper);
	close(helper->answer[1]);
	if (helper->keeper > 0)
		return helper;
	close(helper->answer[0]);
	munmap(helper, sizeof *helper);
	return NULL;
}

bool failure_helper_await(const struct failure_helper *helper, uint64_t deadline_ns)
{
	struct pollfd end = {.fd = helper->pidfd, .events = POLLIN};
	ls_status status;
	do
		status = wait_fds(NULL, &end, 1, -1, deadline_ns);
	while (status == LS_INTERRUPTED);
	return status == LS_OK;
}

void failure_helper_read(const struct failure_helper *helper, char *out, size_t bytes)
{
	ssize_t length = read(helper->answer[0], out, bytes - 1);
	out[length > 0 ? length : 0] = '\0';
}

int failure_helper_fd(const struct failure_helper *helper)
{
	return helper->pidfd;
}

bool failure_helper_reap(struct failure_helper *helper)
{
	/* A program that waits for all sorts of children (__WALL) may have been faster. */
	int how = 0;
	pid_t ended = waitpid(helper->keeper, &how, __WALL | WNOHANG);
	if (ended == 0)
		return false;
	close(helper->pidfd);
	close(helper->answer[0]);
	/* A keeper that was killed may leave the program on the stack here, before it is executed:
	 * then the memory stays. */
	if (ended > 0 && WIFEXITED(how))
		munmap(helper, sizeof *helper);
	return true;
}

void failure_helper_stop(struct failure_helper *helper)
{
	/* The signal fails if the program has reaped the keeper: see failure_helper_reap. */
	bool there = syscall(SYS_pidfd_send_signal, helper->pidfd, SIGKILL, NULL, 0) == 0;
	if (!there || failure_helper_await(helper, clock_deadline_ns(STOP_MS)))
		(void)failure_helper_reap(helper);
}
