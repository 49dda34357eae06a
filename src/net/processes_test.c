/* SPDX-License-Identifier: BSD-3-Clause
 * The link between processes: one that dies, one that is stopped and cut off, and the number of
 * connections. Only the children load UCX. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "net/rank_fixture.h"

enum { LONG = 64 << 20 };

typedef void rank_function(struct rank *rank);

/* ---- processes ---- */

struct job {
	int size;
	struct shared *shared;
	pid_t pids[RANK_MAX];
};

static void make(struct job *job, int size)
{
	*job = (struct job){.size = size};
	job->shared = mmap(NULL, sizeof *job->shared, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(job->shared, MAP_FAILED);
}

static void start_ranks(struct job *job, rank_function *function, bool meet)
{
	int size = job->size;
	for (int r = 0; r < size; r++) {
		job->pids[r] = fork();
		assert_true(job->pids[r] >= 0);
		if (job->pids[r] > 0)
			continue;
		struct rank rank;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		unsigned others = ((1U << size) - 1) & ~(1U << r);
		rank_connect(&rank, job->shared, r, size, "127.0.0.1",
			     job->shared->peers[r] ? job->shared->peers[r] : others);
		if (meet)
			rank_meet(&rank, 1);
		function(&rank);
		rank_close(&rank);
		/* Not by exit: the leak sanitizer stops the threads that UCX has left, and may
		 * fault in them. contract_test.c looks for leaks. */
		fflush(NULL);
		_exit(0);
	}
}

static void start(struct job *job, int size, rank_function *function)
{
	make(job, size);
	start_ranks(job, function, true);
}

/* Each rank ends with 0, but for `killed`. */
static void end(struct job *job, int killed)
{
	for (int r = 0; r < job->size; r++) {
		int status;
		assert_int_equal(waitpid(job->pids[r], &status, 0), job->pids[r]);
		if (r == killed)
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	munmap(job->shared, sizeof *job->shared);
}

static double since_ms(const struct shared *shared)
{
	return (double)(clock_now_ns() - atomic_load(&shared->at_ns)) / 1e6;
}

/* ---- all connections are made in connect ---- */

static void exchange(struct rank *rank)
{
	int sockets = rank_sockets();
	rank_exchange(rank, rank->peers, 0, 200);
	rank_exchange_long(rank, 200, 1 << 20);
	rank_exchange(rank, rank->peers, 201, 200);
	MUST(rank_sockets() == sockets);
	if (rank->rank == 0)
		printf("# %d sockets for %d peers\n", sockets, rank->size - 1);
	rank_meet(rank, 2);
}

static void no_connection_is_made_later(void **state)
{
	struct job job;
	(void)state;
	start(&job, 4, exchange);
	end(&job, -1);
}

/* ---- strangers ---- */

enum { FDS = 256, STRANGERS = 4 };

/* The program of one rank listens at its own sockets, and is connected to all other sockets that
 * listen. */
static struct {
	int own[2], strangers[STRANGERS], count;
} hall;

static int listen_here(void)
{
	const struct sockaddr_in any = {.sin_family = AF_INET,
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	MUST(fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any) == 0);
	MUST(listen(fd, SOMAXCONN) == 0);
	return fd;
}

static int connect_to(int listening, int flags)
{
	struct sockaddr_in at;
	int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
	MUST(fd >= 0 && rank_listens(listening, &at));
	int rc = connect(fd, (const struct sockaddr *)&at, sizeof at);
	MUST(rc == 0 || errno == EINPROGRESS);
	return fd;
}

static void knock(int rank)
{
	struct sockaddr_in at;
	(void)rank;
	hall.own[1] = listen_here();
	for (int fd = 0; fd < FDS; fd++)
		if (rank_listens(fd, &at) && fd != hall.own[0] && fd != hall.own[1]) {
			MUST(hall.count < STRANGERS);
			hall.strangers[hall.count++] = connect_to(fd, 0);
		}
}

/* Nobody reaches UCX any more, and everybody the program's own sockets. */
static void close_doors(struct rank *rank)
{
	/* UCX's number of TCP, and a header that it does not expect */
	uint64_t bad[32] = {UINT64_C(0xcafebabe12345678), UINT64_MAX, UINT64_MAX};
	struct sockaddr_in at;
	rank_meet(rank, 2);
	MUST(hall.count > 0);
	for (int i = 0; i < hall.count; i++)
		MUST(send(hall.strangers[i], bad, sizeof bad, MSG_NOSIGNAL) > 0 || errno == EPIPE ||
		     errno == ECONNRESET);
	for (int fd = 0; fd < FDS; fd++) {
		struct sock_filter filter[4];
		socklen_t count = 4;
		if (!rank_listens(fd, &at))
			continue;
		MUST(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, filter, &count) == 0);
		bool own = fd == hall.own[0] || fd == hall.own[1];
		MUST(own ? count == 0 : count == 1 && filter[0].code == BPF_RET && filter[0].k == 0);
		struct pollfd poll_fd = {.fd = connect_to(fd, SOCK_NONBLOCK), .events = POLLOUT};
		MUST(poll(&poll_fd, 1, own ? -1 : 100) == own);
		MUST(close(poll_fd.fd) == 0);
	}
	rank_exchange(rank, rank->peers, 0, 200);
	rank_meet(rank, 3);
}

static void strangers_reach_no_rank(void **state)
{
	struct job job;
	(void)state;
	hall.own[0] = listen_here();
	make(&job, 3);
	job.shared->opened = knock;
	start_ranks(&job, close_doors, true);
	end(&job, -1);
	close(hall.own[0]);
}

/* ---- ranks that leave ---- */

/* Rank 1, which has no other peer than rank 2, leaves while rank 2 waits for rank 0. */
static void leave(struct rank *rank)
{
	if (rank->rank == 1) {
		rank_flush(rank);
		rank->link->ops->cut(rank->link, 2);
		rank_step(rank, 2);
		return;
	}
	RANK_UNTIL(rank, rank->rank != 2 || rank->lost[1] == 1);
	MUST(rank->lost[0] == 0);
	rank_exchange(rank, rank->peers & ~2U, 0, 100);
	rank_flush(rank);
}

static void a_rank_may_leave_while_another_connects(void **state)
{
	struct job job;
	(void)state;
	make(&job, 3);
	job.shared->peers[0] = job.shared->peers[1] = 1U << 2;
	job.shared->late[0] = true;
	start_ranks(&job, leave, false);
	end(&job, -1);
}

enum { LAST = 32, TRIES = 1000 };

/* Rank 0 sends its last notes, and leaves; rank 1 sends before it looks at what has come. Without
 * rank 1 the flush cannot end: rank 1 begins when rank 0 has tried for a while, or has left. */
static void send_and_leave(struct rank *rank)
{
	const struct link_ops *ops = rank->link->ops;
	unsigned char payload[LINK_SHORT_BYTES];
	if (rank->rank == 0) {
		for (uint64_t n = 0; n < LAST; n++) {
			rank_fill(payload, 0, n, sizeof payload);
			rank_post(rank, 1, n, payload, sizeof payload, NULL);
		}
		for (int i = 0; !ops->flush(rank->link, 1); i++) {
			rank_progress(rank);
			if (i == TRIES)
				rank_step(rank, 2);
		}
		ops->cut(rank->link, 1);
		rank_step(rank, 2);
		return;
	}
	while (atomic_load(&rank->shared->step[0]) < 2)
		sched_yield();
	for (uint64_t n = 0; rank->lost[0] == 0; rank_progress(rank))
		for (int i = 0; i < 4; i++, ops->push(rank->link, 0))
			n += ops->store(rank->link, 0, ~n, n);
	MUST(rank->told[0] == LAST);
}

static void what_was_flushed_arrives(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		struct job job;
		make(&job, 2);
		start_ranks(&job, send_and_leave, false);
		end(&job, -1);
	}
}

/* ---- a process that dies ---- */

struct under_way {
	unsigned char *from, *to;
	struct link_transfer sent, fetched;
};

/* Ranks 0 and 1 each offer a payload; 0 fetches that of 1, which is under way then. */
static void begin_transfers(struct rank *rank, struct under_way *out)
{
	*out = (struct under_way){.from = malloc(LONG),
				  .to = calloc(1, LONG),
				  .sent.status = LS_PENDING,
				  .fetched.status = LS_PENDING};
	MUST(out->from && out->to);
	rank_fill(out->from, rank->rank, 0, LONG);
	rank_post(rank, !rank->rank, 0, out->from, LONG, &out->sent);
	RANK_UNTIL(rank, rank->kept_count == 1);
	if (rank->rank == 0)
		rank->link->ops->fetch(rank->link, 1, &rank->kept[0], out->to, &out->fetched);
	while (rank->rank == 0 && out->to[0] == 0 && out->to[1] == 0)
		rank_progress(rank);
	MUST(rank->done == 0);
}

static void end_transfers(struct under_way *transfers)
{
	free(transfers->from);
	free(transfers->to);
}

/* Rank 1 makes progress until some has arrived at rank 0. */
static void feed(struct rank *rank)
{
	RANK_UNTIL(rank, atomic_load(&rank->shared->step[0]) >= 2);
}

static void one_dies(struct rank *rank)
{
	struct under_way transfers;
	if (rank->rank == 2) {
		RANK_UNTIL(rank, rank->lost[1] == 1);
		rank_exchange(rank, 1, 0, 100);
		RANK_UNTIL(rank, atomic_load(&rank->shared->step[0]) >= 3);
		return;
	}
	begin_transfers(rank, &transfers);
	if (rank->rank == 1) {
		feed(rank);
		atomic_store(&rank->shared->at_ns, clock_now_ns());
		raise(SIGKILL);
	}
	rank_step(rank, 2);
	/* Without progress, so that no more comes than the system's buffers hold. */
	while (!atomic_load(&rank->shared->at_ns))
		sched_yield();
	RANK_UNTIL(rank, rank->lost[1] == 1);
	printf("# lost %.1f ms after kill -9\n", since_ms(rank->shared));
	MUST(rank->done == 2);
	MUST(transfers.sent.status == LS_PEER_DIED && transfers.fetched.status == LS_PEER_DIED);
	rank_exchange(rank, 4, 0, 100);
	MUST(rank->lost[1] == 1 && rank->lost[2] == 0);
	rank_step(rank, 3);
	RANK_UNTIL(rank, rank->lost[2] == 1); /* it leaves */
	end_transfers(&transfers);
}

static void a_death_ends_transfers(void **state)
{
	struct job job;
	(void)state;
	start(&job, 3, one_dies);
	end(&job, 1);
}

/* ---- a process that ends, or executes a program, and what it has started ---- */

enum heir { CHILD, SPAWNED, SELF };
static enum heir heir;
static int door[2]; /* an heir lives until nobody holds the second end */

static void leave_an_heir(void)
{
	char *words[] = {"cat", NULL}, *none[] = {NULL}, byte;
	close(door[1]);
	if (heir == CHILD && fork() == 0) {
		while (read(door[0], &byte, 1) > 0)
			continue;
		_exit(0);
	}
	MUST(dup2(door[0], STDIN_FILENO) == STDIN_FILENO);
	pid_t spawned;
	if (heir == SPAWNED)
		MUST(posix_spawnp(&spawned, "cat", NULL, NULL, words, none) == 0);
	if (heir == SELF)
		execvp("cat", words);
	raise(SIGKILL);
}

static void one_leaves_an_heir(struct rank *rank)
{
	if (rank->rank == 1)
		leave_an_heir();
	RANK_UNTIL(rank, rank->lost[1] == 1);
	rank_exchange(rank, 5U & ~(1U << rank->rank), 0, 100);
	rank_step(rank, 3);
	RANK_UNTIL(rank, atomic_load(&rank->shared->step[2 - rank->rank]) >= 3);
}

static void an_heir_holds_no_connections(void **state)
{
	(void)state;
	for (heir = CHILD; heir <= SELF; heir++) {
		struct job job;
		int status;
		assert_int_equal(pipe2(door, O_CLOEXEC), 0);
		start(&job, 3, one_leaves_an_heir);
		close(door[0]);
		for (int r = 0; r < 3; r += 2)
			assert_int_equal(waitpid(job.pids[r], &status, 0), job.pids[r]);
		assert_int_equal(status, 0);
		close(door[1]);
		assert_int_equal(waitpid(job.pids[1], &status, 0), job.pids[1]);
		munmap(job.shared, sizeof *job.shared);
	}
}

/* ---- a process that is stopped ---- */

enum { PARENT = RANK_MAX - 1 };

static void cut_off(struct rank *rank, struct under_way *transfers)
{
	const struct link_ops *ops = rank->link->ops;
	struct link_note note = {.words = {1}};
	unsigned char *copy = malloc(LONG), payload[LINK_SHORT_BYTES] = {0};
	/* It has taken none of these: what goes to it is full. */
	for (rank_fill(payload, 0, 1, 8); ops->post(rank->link, 1, &note, payload, 8, NULL);
	     rank_fill(payload, 0, note.words[0], 8))
		note.words[0]++;
	MUST(rank->done == 0 && rank->lost[1] == 0);
	atomic_store(&rank->shared->at_ns, clock_now_ns());
	ops->cut(rank->link, 1);
	printf("# cut in %.2f ms\n", since_ms(rank->shared));
	MUST(rank->done == 2);
	MUST(transfers->sent.status == LS_ABORTED && transfers->fetched.status == LS_ABORTED);
	MUST(copy);
	memcpy(copy, transfers->to, LONG);
	memset(transfers->from, 0xee, LONG);
	rank_exchange(rank, 4, 0, 200);
	rank_step(rank, 3);
	rank_exchange(rank, 4, 200, 200);
	RANK_UNTIL(rank, atomic_load(&rank->shared->step[1]) >= 3); /* it goes on, and notices */
	MUST(memcmp(copy, transfers->to, LONG) == 0);
	MUST(rank->lost[1] == 0 && rank->lost[2] == 0);
	rank_exchange(rank, 4, 400, 200);
	rank_meet(rank, 4);
	free(copy);
}

static void one_is_stopped(struct rank *rank)
{
	struct under_way transfers;
	if (rank->rank == 2) {
		rank_exchange(rank, 1, 0, 600);
		MUST(rank->lost[1] == 0);
		rank_meet(rank, 4);
		return;
	}
	begin_transfers(rank, &transfers);
	if (rank->rank == 0) {
		rank_step(rank, 2);
		while (atomic_load(&rank->shared->step[PARENT]) != 1) /* as in one_dies */
			sched_yield();
		cut_off(rank, &transfers);
		end_transfers(&transfers);
		return;
	}
	feed(rank);
	raise(SIGSTOP);
	RANK_UNTIL(rank, rank->lost[0] == 1);
	MUST(rank->done == 1 && transfers.sent.status == LS_PEER_DIED);
	rank_step(rank, 3);
	rank_meet(rank, 4);
	end_transfers(&transfers);
}

static void a_stopped_process_is_cut_off(void **state)
{
	struct job job;
	int status;
	(void)state;
	start(&job, 3, one_is_stopped);
	assert_int_equal(waitpid(job.pids[1], &status, WUNTRACED), job.pids[1]);
	assert_true(WIFSTOPPED(status));
	atomic_store(&job.shared->step[PARENT], 1);
	while (atomic_load(&job.shared->step[0]) < 3 &&
	       waitid(P_PID, (id_t)job.pids[0], &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) == 0)
		sched_yield();
	kill(job.pids[1], SIGCONT);
	end(&job, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_connection_is_made_later),
		cmocka_unit_test(strangers_reach_no_rank),
		cmocka_unit_test(a_rank_may_leave_while_another_connects),
		cmocka_unit_test(what_was_flushed_arrives),
		cmocka_unit_test(a_death_ends_transfers),
		cmocka_unit_test(an_heir_holds_no_connections),
		cmocka_unit_test(a_stopped_process_is_cut_off),
	};
	setvbuf(stdout, NULL, _IONBF, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
