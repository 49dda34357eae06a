/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: two ranks in two processes, of which the second obeys the first; and ways to make the
 * system refuse what one process may read of another. */
#ifndef TRANSPORT_CMA_FIXTURE_H
#define TRANSPORT_CMA_FIXTURE_H

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "transport/segment.h"
#include "transport/transport_fixture.h"

/* From now on process_vm_readv fails with `error` in this process, as under a container's
 * filter. */
static inline void cma_filter(int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* Gives up root's right to read any process. */
static inline void cma_be_nobody(void)
{
	if (geteuid() == 0)
		assert_int_equal(setresuid(65534, 65534, 65534), 0);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
}

/* What is done to the second rank before it connects. */
enum duo_kind { DUO_PLAIN, DUO_EPERM, DUO_ENOSYS, DUO_UNDUMPABLE, DUO_OFF };

enum { DUO_PAGES = 300 };

struct duo {
	struct test_job *job; /* rank 0 is this process */
	enum duo_kind kind;
	pid_t child;
	int control; /* to the other process */
	/* DUO_PAGES pages at this address in both, of which the child's are filled */
	unsigned char *area;
	size_t page, bytes;
};

/* What the area holds at `i` in the child's process; nothing of it is 0. */
static inline unsigned char duo_byte(size_t i)
{
	return (unsigned char)(1 + i % 251);
}

/* The child answers with one byte each:
 * 'r' does rank 0 read me?  'b' which ranks can I read?  'u' unmap the middle page of the area
 * 'w' unmap my word  'm' pass one message back  's' can I read my own area?
 * 'x' become another program, without an answer */
static inline unsigned char duo_obey(struct duo *duo, unsigned char order)
{
	struct test_rank *rank = &duo->job->ranks[1];
	struct transport *transport = &rank->transport;
	struct transport_message *message;
	struct wait_word blocked;
	switch (order) {
	case 'r':
		return transport_reads_me(&rank->team);
	case 'b':
		return (unsigned char)atomic_load(&transport->segment->cma.readable[0]);
	case 'u':
		return munmap(duo->area + DUO_PAGES / 2 * duo->page, duo->page) == 0;
	case 'w':
		transport_cma_fini(transport);
		return 1;
	case 'm':
		while (!(message = transport_channel_match(&rank->team, 0, 7, &blocked)))
			if (test_job_await(rank, &blocked) != LS_OK)
				return 0;
		transport_channel_take(&rank->team, 0, message, LS_OK);
		return 1;
	case 's': {
		unsigned char byte = 0;
		return transport_read(&rank->team, 1, (uintptr_t)duo->area + 5, &byte, 1) == LS_OK &&
		       byte == duo_byte(5);
	}
	case 'x':
		execl("/proc/self/exe", "cma_test", "idle", (char *)NULL);
		return 0;
	default:
		return 0;
	}
}

static inline int duo_child(struct duo *duo)
{
	struct test_rank *rank = &duo->job->ranks[1];
	unsigned char order;
	for (size_t i = 0; i < duo->bytes; i++)
		duo->area[i] = duo_byte(i);
	if (duo->kind == DUO_EPERM || duo->kind == DUO_ENOSYS)
		cma_filter(duo->kind == DUO_EPERM ? EPERM : ENOSYS);
	if (duo->kind == DUO_UNDUMPABLE && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
		return 1;
	test_job_init_rank(duo->job, 1);
	duo->job->no_cma = duo->kind == DUO_OFF;
	if (test_job_connect_rank(rank) != LS_OK)
		return 1;
	while (recv(duo->control, &order, 1, 0) == 1) {
		unsigned char answer = duo_obey(duo, order);
		if (send(duo->control, &answer, 1, 0) != 1)
			return 1;
	}
	test_job_fini_rank(duo->job, 1);
	return 0;
}

/* Returns once both ranks are connected. The other process ends with this one. */
static inline void duo_open(struct duo *duo, enum duo_kind kind)
{
	int ends[2];
	pid_t parent = getpid();
	*duo = (struct duo){.kind = kind, .page = (size_t)sysconf(_SC_PAGESIZE)};
	duo->bytes = DUO_PAGES * duo->page;
	duo->area =
		mmap(NULL, duo->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(duo->area != MAP_FAILED);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	duo->job = test_job_empty(2, TEST_JOB_LIMIT_MS);
	duo->child = fork();
	assert_true(duo->child >= 0);
	duo->control = ends[duo->child == 0];
	close(ends[duo->child != 0]);
	if (duo->child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		_exit(getppid() == parent ? duo_child(duo) : 1);
	}
	test_job_init_rank(duo->job, 0);
	assert_int_equal(test_job_connect_rank(&duo->job->ranks[0]), LS_OK);
}

static inline unsigned char duo_ask(struct duo *duo, unsigned char order)
{
	unsigned char answer;
	assert_int_equal(send(duo->control, &order, 1, 0), 1);
	assert_int_equal(recv(duo->control, &answer, 1, 0), 1);
	return answer;
}

/* Works also when the child was killed. Returns the child's wait status. */
static inline int duo_close(struct duo *duo)
{
	int status = 0;
	close(duo->control);
	if (duo->child > 0)
		assert_int_equal(waitpid(duo->child, &status, 0), duo->child);
	test_job_fini_rank(duo->job, 0);
	close(duo->job->listen_fd);
	free(duo->job);
	assert_int_equal(munmap(duo->area, duo->bytes), 0);
	return status;
}

#endif
