/* SPDX-License-Identifier: BSD-3-Clause
 * A rank of a play. Each of its threads calls one operation after the other until one fails. Then
 * it marks every byte of its buffers at once, and checks until the end that all marks stay. Data
 * have no high bit and are combined by max; marks have the high bit. So a result with a high bit
 * was read too late. */
#include "late.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { MARK = 0xee, GUARD = 0x6b, HIGH = 0x80, EXTRA = 3, BLOCKS_MAX = 2 + EXTRA, LINE_BYTES = 64 };
/* a prime: reads from each page, and some of what was written last */
enum { RESULT_STRIDE = 1021 };

enum role { COLLECTIVE, SENDER, RECEIVER };

/* Memory whose bytes only the caller may change. */
struct block {
	unsigned char *start; /* as it was allocated */
	unsigned char *data;  /* what operations use */
	size_t bytes;
	bool plain, packed;
};

struct rank;

/* A thread that makes calls. */
struct worker {
	struct rank *rank;
	enum role role;
	enum late_way way; /* of a message */
	int peer, tag;
	sem_t told; /* posted by a callback */
	ls_status status;
	pthread_t thread;
	struct block blocks[BLOCKS_MAX];
	int block_count;
	const unsigned char *send;
	unsigned char *result; /* NULL: none */
};

struct rank {
	const struct late_plan *plan;
	struct late_shared *shared;
	const struct late_pipes *pipes;
	int me;
	ls_group *group;
	_Atomic bool wrong;
	unsigned char *pack; /* the block of packed buffers; how many of them are free */
	int pack_left;
	int worker_count;
	struct worker workers[1 + 2 * LATE_LINKS_MAX];
};

/* Where the victim must stop; for the signal handler. */
static struct {
	_Atomic(unsigned char *) page;
	size_t bytes;
	int tell, go;
	char rank;
} trap;

static void complain(struct rank *rank, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void complain(struct rank *rank, const char *format, ...)
{
	char text[256];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	fprintf(stderr, "WRONG: rank %d: %s\n", rank->me, text);
	rank->wrong = true;
}

_Noreturn static void give_up(const struct rank *rank, const char *what)
{
	fprintf(stderr, "WRONG: rank %d: %s\n", rank->me, what);
	_exit(2);
}

static void tell(const struct rank *rank, char what)
{
	char message[2] = {what, (char)rank->me};
	if (write(rank->pipes->tell, message, sizeof message) != sizeof message)
		give_up(rank, "the test is gone");
}

/* Blocks until the pipe has a byte, or its other end is closed. */
static void await_pipe(int pipe)
{
	char byte;
	while (read(pipe, &byte, 1) < 0 && errno == EINTR)
		;
}

/* ---- the trap ---- */

/* A page of the result; or all of the data to send, because a sender copies only what its receiver
 * leaves to it. */
static void set_trap(struct worker *worker)
{
	const struct late_plan *plan = worker->rank->plan;
	const unsigned char *from = worker->send, *to = from + plan->bytes;
	uintptr_t first = ((uintptr_t)from + LATE_PAGE_BYTES - 1) / LATE_PAGE_BYTES;
	uintptr_t end = (uintptr_t)to / LATE_PAGE_BYTES;
	if (worker->result) {
		first = (uintptr_t)(worker->result + plan->trap_at) / LATE_PAGE_BYTES;
		end = first + 1;
	}
	trap.bytes = (end - first) * LATE_PAGE_BYTES;
	trap.page = (unsigned char *)(first * LATE_PAGE_BYTES);
	if (mprotect(trap.page, trap.bytes, PROT_NONE) != 0)
		give_up(worker->rank, "no trap");
}

static void lift_trap(void)
{
	unsigned char *page = atomic_exchange(&trap.page, NULL);
	if (page && mprotect(page, trap.bytes, PROT_READ | PROT_WRITE) != 0)
		_exit(3);
}

/* A thread of the library copies messages, too, and a handler does not stop that one. The system
 * also does; for it the page simply does not exist. */
static bool is_trapped(const struct worker *worker)
{
	const struct rank *rank = worker->rank;
	const struct late_plan *plan = rank->plan;
	if (!plan->trap || rank->me != plan->victim || worker != rank->workers)
		return false;
	return worker->role == COLLECTIVE || (worker->result ? !plan->read : !plan->plain);
}

/* The thread is in the middle of a copy or a reduction. */
static void on_fault(int number, siginfo_t *info, void *context)
{
	(void)context;
	unsigned char *page = trap.page, *at = info->si_addr;
	if (!page || at < page || at >= page + trap.bytes) {
		signal(number, SIG_DFL);
		return;
	}
	char message[2] = {LATE_TRAPPED, trap.rank};
	if (write(trap.tell, message, sizeof message) != sizeof message)
		_exit(3);
	await_pipe(trap.go);
	lift_trap();
}

static void catch_faults(const struct rank *rank)
{
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_RESTART};
	trap.tell = rank->pipes->tell;
	trap.go = rank->pipes->go;
	trap.rank = (char)rank->me;
	if (sigaction(SIGSEGV, &action, NULL) != 0)
		give_up(rank, "sigaction");
}

/* ---- memory ---- */

static size_t block_bytes(const struct late_plan *plan)
{
	return (plan->bytes + 2 * plan->guard_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static struct block *add_block(struct worker *worker, bool plain)
{
	struct rank *rank = worker->rank;
	struct block *block = &worker->blocks[worker->block_count++];
	size_t guard_bytes = rank->plan->guard_bytes, all = block_bytes(rank->plan);
	void *memory = NULL;
	*block = (struct block){
		.bytes = rank->plan->bytes, .plain = plain, .packed = rank->pack_left > 0};
	if (block->packed)
		memory = rank->pack + all * (size_t)--rank->pack_left;
	else if (plain)
		memory = aligned_alloc(LATE_PAGE_BYTES,
				       (all / LATE_PAGE_BYTES + 1) * LATE_PAGE_BYTES);
	else if (ls_alloc(rank->group, all, &memory) != LS_OK)
		give_up(rank, "ls_alloc");
	if (!memory)
		give_up(rank, "no memory");
	block->start = memory;
	block->data = block->start + guard_bytes;
	memset(block->start, GUARD, guard_bytes);
	memset(block->data + block->bytes, GUARD, guard_bytes);
	return block;
}

static void drop_blocks(struct worker *worker)
{
	for (int i = 0; i < worker->block_count; i++) {
		struct block *block = &worker->blocks[i];
		if (block->plain)
			free(block->start);
		else if (!block->packed && ls_free(worker->rank->group, block->start) != LS_OK)
			give_up(worker->rank, "ls_free");
	}
	worker->block_count = 0;
}

static bool is_filled(const unsigned char *memory, size_t bytes, unsigned char byte)
{
	return bytes == 0 || (memory[0] == byte && memcmp(memory, memory + 1, bytes - 1) == 0);
}

static void check_part(struct worker *worker, const unsigned char *memory, size_t bytes,
		       unsigned char byte, const char *what)
{
	struct rank *rank = worker->rank;
	if (rank->wrong || is_filled(memory, bytes, byte))
		return;
	size_t at = 0;
	while (at < bytes && memory[at] == byte)
		at++;
	complain(rank, "byte %zu of %zu %s was changed to 0x%02x after the error", at, bytes, what,
		 at < bytes ? memory[at] : byte);
}

static void check_blocks(struct worker *worker)
{
	size_t guard_bytes = worker->rank->plan->guard_bytes;
	for (int i = 0; i < worker->block_count; i++) {
		const struct block *block = &worker->blocks[i];
		check_part(worker, block->data, block->bytes, MARK, "of a buffer");
		check_part(worker, block->start, guard_bytes, GUARD, "before a buffer");
		check_part(worker, block->data + block->bytes, guard_bytes, GUARD,
			   "behind a buffer");
	}
}

/* Data have no high bit, so a byte with one came from a peer's buffer after the peer's error. */
static void check_result(struct worker *worker, size_t stride)
{
	const unsigned char *result = worker->result;
	for (size_t i = 0; result && i < worker->rank->plan->bytes; i += stride)
		if (result[i] & HIGH) {
			complain(worker->rank, "byte %zu was read after its owner's error", i);
			return;
		}
}

static void make_buffers(struct worker *worker)
{
	const struct late_plan *plan = worker->rank->plan;
	struct block *block = add_block(worker, plan->plain);
	memset(block->data, 0x11 + worker->rank->me, block->bytes);
	worker->send = block->data;
	worker->result = worker->role == SENDER ? NULL : block->data;
	if (worker->role != COLLECTIVE || plan->in_place)
		return;
	block = add_block(worker, plan->plain);
	memset(block->data, 0, block->bytes);
	worker->result = block->data;
}

/* ---- calls ---- */

static void tell_worker(void *data, ls_status status)
{
	struct worker *worker = data;
	worker->status = status;
	sem_post(&worker->told);
}

static ls_status call_message(struct worker *worker, const struct ls_call_options *options)
{
	const struct late_plan *plan = worker->rank->plan;
	ls_group *group = worker->rank->group;
	if (worker->role == SENDER)
		return ls_send(group, worker->send, plan->bytes, LS_UINT8, worker->peer, options);
	return ls_recv(group, worker->result, plan->bytes, LS_UINT8, worker->peer, options);
}

static ls_status pass_message(struct worker *worker)
{
	struct ls_call_options options = {.size = sizeof options, .tag = worker->tag};
	ls_group *group = worker->rank->group;
	ls_request *op = NULL;
	if (worker->way == LATE_BATCH && (worker->status = ls_batch_begin(group)) != LS_OK)
		return worker->status;
	if (worker->way == LATE_HANDLE)
		options.request = &op;
	if (worker->way == LATE_CALLBACK) {
		options.callback = tell_worker;
		options.callback_data = worker;
	}
	ls_status status = call_message(worker, &options), ended;
	if (op)
		status = ls_wait(op, 0);
	ls_request_free(op);
	if (worker->way == LATE_BATCH && (ended = ls_batch_end(group, NULL)) != LS_OK)
		return ended;
	if (worker->way != LATE_CALLBACK || status != LS_OK)
		return status;
	while (sem_wait(&worker->told) != 0)
		;
	return worker->status;
}

static ls_status call(struct worker *worker)
{
	const struct late_plan *plan = worker->rank->plan;
	ls_group *group = worker->rank->group;
	if (worker->role != COLLECTIVE)
		return pass_message(worker);
	if (plan->kind == LATE_BROADCAST)
		return ls_broadcast(group, worker->send, worker->result, plan->bytes, LS_UINT8,
				    plan->root, NULL);
	return ls_allreduce(group, worker->send, worker->result, plan->bytes, LS_UINT8, LS_MAX,
			    NULL);
}

/* Whether every rank that lives has had all its errors, and no rank is stopped. */
static bool is_over(const struct rank *rank)
{
	const struct late_plan *plan = rank->plan;
	for (int r = 0; r < plan->size; r++)
		if (!(plan->kill && r == plan->victim) &&
		    rank->shared->errors[r] < late_workers(plan, r))
			return false;
	return rank->shared->over;
}

static void after_error(struct worker *worker, ls_status status)
{
	struct rank *rank = worker->rank;
	const struct late_plan *plan = rank->plan;
	/* Nothing can stop a system call that reads a peer's memory. So a call that fails may have
	 * read too late; what it has read is not a result. */
	if (!plan->read)
		check_result(worker, 1);
	if (plan->reuse)
		drop_blocks(worker);
	/* What the engine has freed must not be touched either: user buffers, and blocks for
	 * staging. */
	if (plan->reuse || plan->plain)
		for (int i = 0; i < EXTRA; i++)
			add_block(worker, false);
	if (status == LS_SYSTEM && plan->starved)
		worker->block_count = 0; /* the library says that it could not keep the promise */
	for (int i = 0; i < worker->block_count; i++)
		memset(worker->blocks[i].data, MARK, worker->blocks[i].bytes);
	atomic_fetch_add(&rank->shared->errors[rank->me], 1);
	tell(rank, LATE_ERROR);
	while (!is_over(rank)) {
		check_blocks(worker);
		sched_yield(); /* there are more of these threads than processors */
	}
	check_blocks(worker);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct rank *rank = worker->rank;
	const struct late_plan *plan = rank->plan;
	bool traps = is_trapped(worker);
	ls_status status = LS_OK;
	for (unsigned round = 0; status == LS_OK; round++) {
		if (traps && round == plan->trap_round)
			set_trap(worker);
		status = call(worker);
		if (status == LS_OK && plan->read)
			check_result(worker, RESULT_STRIDE);
	}
	if (traps)
		lift_trap();
	if (ls_status_scope(status) != LS_SCOPE_GROUP && !(plan->starved && status == LS_SYSTEM))
		complain(rank, "got %s", ls_status_name(status));
	after_error(worker, status);
	return NULL;
}

/* ---- a rank ---- */

bool late_messages_only(const struct late_plan *plan)
{
	return plan->kind == LATE_SEND || plan->kind == LATE_RECEIVE || plan->kind == LATE_BOTH;
}

int late_workers(const struct late_plan *plan, int rank)
{
	int count = !late_messages_only(plan);
	for (int i = 0; i < plan->link_count; i++)
		count += (plan->links[i].source == rank) + (plan->links[i].target == rank);
	return count;
}

static void add_worker(struct rank *rank, enum role role, int peer, int tag, enum late_way way)
{
	struct worker *worker = &rank->workers[rank->worker_count++];
	const struct late_plan *plan = rank->plan;
	/* See is_trapped. And handles need memory. */
	if ((plan->trap && rank->me == plan->victim) || plan->starved)
		way = LATE_BLOCKING;
	*worker = (struct worker){.rank = rank, .role = role, .way = way, .peer = peer, .tag = tag};
	if (sem_init(&worker->told, 0, 0) != 0)
		give_up(rank, "sem_init");
	make_buffers(worker);
}

static void add_workers(struct rank *rank)
{
	const struct late_plan *plan = rank->plan;
	void *pack = NULL;
	if (plan->packed) {
		rank->pack_left = 2 * late_workers(plan, rank->me);
		if (ls_alloc(rank->group, block_bytes(plan) * (size_t)rank->pack_left, &pack) !=
		    LS_OK)
			give_up(rank, "ls_alloc");
		rank->pack = pack;
	}
	if (!late_messages_only(plan))
		add_worker(rank, COLLECTIVE, -1, 0, LATE_BLOCKING);
	for (int i = 0; i < plan->link_count; i++) {
		const struct late_link *link = &plan->links[i];
		if (link->target == rank->me)
			add_worker(rank, RECEIVER, link->source, i, link->receive);
		if (link->source == rank->me)
			add_worker(rank, SENDER, link->target, i, link->send);
	}
}

static void *abort_when_told(void *argument)
{
	struct rank *rank = argument;
	await_pipe(rank->pipes->abort);
	if (ls_group_abort(rank->group, "the play says so") != LS_OK)
		complain(rank, "ls_group_abort");
	return NULL;
}

static void start(struct rank *rank, pthread_t *thread, void *(*run)(void *), void *argument)
{
	if (pthread_create(thread, NULL, run, argument) != 0)
		give_up(rank, "pthread_create");
}

int late_rank(const struct late_plan *plan, int me, struct late_shared *shared,
	      const struct late_pipes *pipes)
{
	static struct rank rank; /* too large for a stack */
	char limit[16], name[64];
	rank = (struct rank){.plan = plan, .shared = shared, .pipes = pipes, .me = me};
	snprintf(limit, sizeof limit, "%u", plan->limit_ms[me]);
	snprintf(name, sizeof name, "unix:lockstep-late-%d-%llu", (int)getppid(),
		 (unsigned long long)plan->seed);
	setenv("LOCKSTEP_TIMEOUT_MS", limit, 1);
	setenv("LOCKSTEP_ALGORITHM", plan->algorithm, 1);
	setenv("LOCKSTEP_CMA", plan->read ? "always" : "off", 1);
	struct ls_group_options options = {
		.size = sizeof options, .rank = me, .world_size = plan->size, .rendezvous = name};
	struct ls_call_options patient = {.size = sizeof patient, .timeout_ms = LATE_LONG_MS};
	if (ls_group_open(&options, &rank.group) != LS_OK)
		give_up(&rank, "no group");
	catch_faults(&rank);
	add_workers(&rank);
	if (ls_barrier(rank.group, &patient) != LS_OK)
		give_up(&rank, "no barrier");
	pthread_t aborter;
	if (me == plan->aborter)
		start(&rank, &aborter, abort_when_told, &rank);
	tell(&rank, LATE_READY);
	/* With limits this short no rank may still be in the barrier. */
	while (!shared->begun && !shared->over)
		sched_yield();
	for (int i = 0; i < rank.worker_count; i++)
		start(&rank, &rank.workers[i].thread, work, &rank.workers[i]);
	if (plan->starved && setrlimit(RLIMIT_AS, &(struct rlimit){0, 0}) != 0)
		give_up(&rank, "setrlimit");
	for (int i = 0; i < rank.worker_count; i++)
		pthread_join(rank.workers[i].thread, NULL);
	if (me == plan->aborter)
		pthread_join(aborter, NULL);
	for (int i = 0; i < rank.worker_count; i++)
		drop_blocks(&rank.workers[i]);
	ls_group_close(rank.group);
	return rank.wrong ? 1 : 0;
}
