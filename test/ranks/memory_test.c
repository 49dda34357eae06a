/* SPDX-License-Identifier: BSD-3-Clause
 * Where buffers lie: shared memory that the program registers, and plain memory that the system
 * does not let peers read. Results are the same everywhere; only the copies differ. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "operation.h"
#include "tests.h"
#include "values.h"

enum { BYTES = 1 << 20, SECRET_BYTES = 2 << 20, COUNT = 100000 };

static unsigned char *map_memfd(int *fd, size_t bytes)
{
	*fd = memfd_create("registered", MFD_CLOEXEC);
	CHECK(*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

static struct ls_memory_stats stats_of(ls_group *group)
{
	struct ls_memory_stats stats = {.size = sizeof stats};
	OK(ls_memory_stats(group, &stats));
	return stats;
}

static uint64_t blocks_taken(ls_group *group)
{
	struct ls_memory_stats stats = stats_of(group);
	return stats.hits + stats.misses;
}

static void sum_in(ls_group *group, void *memory)
{
	int32_t *buffer = memory;
	int rank = ls_group_rank(group), size = ls_group_size(group);
	for (int i = 0; i < COUNT; i++)
		buffer[i] = i % 1000 + rank;
	OK(ls_allreduce(group, buffer, buffer, COUNT, LS_INT32, LS_SUM, NULL));
	for (int i = 0; i < COUNT; i++)
		CHECK(buffer[i] == size * (i % 1000) + size * (size - 1) / 2);
}

/* What is under way goes on, and a rank that deregisters does not disturb the others. */
static void deregister_meanwhile(ls_group *group, void *memory)
{
	int32_t *buffer = memory;
	int rank = ls_group_rank(group), size = ls_group_size(group);
	ls_request *op;
	struct ls_call_options options = {.size = sizeof options, .request = &op};
	for (int i = 0; i < COUNT; i++)
		buffer[i] = rank + 1;
	OK(ls_allreduce(group, buffer, buffer, COUNT, LS_INT32, LS_SUM, &options));
	OK(ls_deregister(group, memory));
	OK(ls_wait(op, 0));
	ls_request_free(op);
	for (int i = 0; i < COUNT; i++)
		CHECK(buffer[i] == size * (size + 1) / 2);
}

/* Run with LOCKSTEP_CMA=off, so that what is not registered is copied. */
void register_shared_memory(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int fd;
	unsigned char *memory = map_memfd(&fd, BYTES);
	uint64_t taken = blocks_taken(group);
	sum_in(group, memory);
	CHECK(blocks_taken(group) > taken);

	OK(ls_register(group, memory, BYTES, fd, 0, NULL));
	OK(ls_register(group, memory, BYTES, fd, 0, NULL));
	struct ls_memory_stats stats = stats_of(group);
	CHECK(stats.registered == 1 && stats.registered_bytes == BYTES);
	CHECK(stats.registered_again == 1);
	CHECK(close(fd) == 0);
	taken = blocks_taken(group);
	sum_in(group, memory);
	sum_in(group, memory + BYTES - COUNT * sizeof(int32_t));
	CHECK(blocks_taken(group) == taken);
	/* A message from it is long, and read where it is. */
	int to = (self->rank + 1) % self->size, from = (self->rank + self->size - 1) % self->size;
	unsigned char *got = malloc(BYTES);
	CHECK(got);
	memset(memory, 'a' + self->rank, BYTES);
	struct ls_call_options options = {.size = sizeof options};
	if (self->rank % 2 == 0)
		OK(ls_send(group, memory, BYTES, LS_UINT8, to, &options));
	OK(ls_recv(group, got, BYTES, LS_UINT8, from, &options));
	if (self->rank % 2)
		OK(ls_send(group, memory, BYTES, LS_UINT8, to, &options));
	CHECK(got[0] == 'a' + from && got[BYTES - 1] == 'a' + from);
	CHECK(blocks_taken(group) == taken);
	free(got);

	deregister_meanwhile(group, memory);
	GIVES(LS_BAD_ARGUMENT, ls_deregister(group, memory));
	CHECK(stats_of(group).registered == 0);
	taken = blocks_taken(group);
	sum_in(group, memory);
	CHECK(blocks_taken(group) > taken);
	ls_group_close(group);
	munmap(memory, BYTES);
}

/* A long message to oneself, begun in either order. */
static void to_oneself(ls_group *group, unsigned char *from, unsigned char *to, bool asks_first)
{
	int self = ls_group_rank(group);
	unsigned char mark = (unsigned char)(from[0] + 1);
	ls_request *op;
	struct ls_call_options options = {.size = sizeof options, .request = &op};
	memset(from, mark, COUNT);
	memset(to, mark + 1, COUNT);
	if (asks_first) {
		OK(ls_recv(group, to, COUNT, LS_UINT8, self, &options));
		OK(ls_send(group, from, COUNT, LS_UINT8, self, NULL));
	} else {
		OK(ls_send(group, from, COUNT, LS_UINT8, self, &options));
		OK(ls_recv(group, to, COUNT, LS_UINT8, self, NULL));
	}
	OK(ls_wait(op, 0));
	ls_request_free(op);
	for (int i = 0; i < COUNT; i++)
		CHECK(from[i] == mark && to[i] == mark);
}

/* From each sort of memory to each. */
void registered_memory_to_oneself(struct runner_rank *self)
{
	enum { PLAIN, BLOCK, REGISTERED, SORTS };
	ls_group *group = runner_open(self);
	unsigned char *memory[SORTS][2];
	int fd;
	memory[REGISTERED][0] = map_memfd(&fd, BYTES);
	memory[REGISTERED][1] = memory[REGISTERED][0] + BYTES / 2;
	OK(ls_register(group, memory[REGISTERED][0], BYTES, fd, 0, NULL));
	for (int i = 0; i < 2; i++) {
		void *block;
		OK(ls_alloc(group, COUNT, &block));
		memory[BLOCK][i] = block;
		memory[PLAIN][i] = calloc(1, COUNT);
		CHECK(memory[PLAIN][i]);
	}
	for (int way = 0; way < 2 * SORTS * SORTS; way++)
		to_oneself(group, memory[way / 2 / SORTS][0], memory[way / 2 % SORTS][1], way % 2);
	sum_in(group, memory[REGISTERED][0]);
	/* It is handed over to oneself as to anybody else. */
	struct ls_call_options options = {.size = sizeof options};
	void *got;
	memset(memory[BLOCK][0], 'b', COUNT);
	OK(ls_send_block(group, memory[BLOCK][0], COUNT, LS_UINT8, self->rank, &options));
	OK(ls_recv_block(group, &got, COUNT, LS_UINT8, self->rank, &options));
	CHECK(((unsigned char *)got)[0] == 'b' && ((unsigned char *)got)[COUNT - 1] == 'b');
	OK(ls_free(group, got));
	OK(ls_free(group, memory[BLOCK][1]));
	for (int i = 0; i < 2; i++)
		free(memory[PLAIN][i]);
	OK(ls_deregister(group, memory[REGISTERED][0]));
	to_oneself(group, memory[REGISTERED][0], memory[REGISTERED][1], true);
	ls_group_close(group);
	CHECK(munmap(memory[REGISTERED][0], BYTES) == 0 && close(fd) == 0);
}

/* A rank without memory to register takes part; if one rank passes wrong arguments, no rank
 * registers anything, and nothing else happens. */
void register_together_or_not(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int fd;
	unsigned char *memory = map_memfd(&fd, BYTES);
	bool odd = self->rank == self->size - 1;
	OK(ls_register(group, memory, odd ? 0 : BYTES, fd, 0, NULL));
	CHECK(stats_of(group).registered == (odd ? 0 : 1));
	sum_in(group, memory);
	OK(ls_register(group, memory, BYTES, fd, 0, NULL));
	CHECK(stats_of(group).registered == 1);
	CHECK(stats_of(group).registered_again == (odd ? 0 : 1));

	unsigned char *other = map_memfd(&fd, BYTES);
	GIVES(LS_BAD_ARGUMENT, ls_register(group, other, BYTES, odd ? -1 : fd, 0, NULL));
	CHECK(stats_of(group).registered == 1);
	sum_in(group, other);
	OK(ls_register(group, other, BYTES, fd, 0, NULL));
	CHECK(stats_of(group).registered == 2);
	CHECK(stats_of(group).registrable == (odd ? 62 : 61)); /* a refusal, too, takes a place */
	sum_in(group, other);
	ls_group_close(group);
}

/* ---- registered memory that is gone ---- */

/* What a program does that frees its shared memory and forgets ls_deregister: now other memory is
 * there. */
static void replace(unsigned char *memory, int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	CHECK(mmap(memory, BYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == memory);
}

/* To the next rank, from the one before, in `memory` both. */
static void pass_on(ls_group *group, unsigned char *memory)
{
	int rank = ls_group_rank(group), size = ls_group_size(group);
	int to = (rank + 1) % size, from = (rank + size - 1) % size;
	size_t half = BYTES / 2;
	ls_request *receive;
	struct ls_call_options options = {.size = sizeof options, .request = &receive};
	memset(memory, 'a' + rank, half);
	memset(memory + half, 0, half);
	OK(ls_recv(group, memory + half, half, LS_UINT8, from, &options));
	OK(ls_send(group, memory, half, LS_UINT8, to, NULL));
	OK(ls_wait(receive, 0));
	ls_request_free(receive);
	for (size_t i = 0; i < half; i++)
		CHECK(memory[i] == 'a' + rank && memory[half + i] == 'a' + from);
}

/* On all ranks or on one, found by a collective or by a message: the data are right, and the
 * registration has ended where its memory has. */
void registered_memory_is_gone(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	for (int turn = 0; turn < 6; turn++) {
		int fd;
		unsigned char *memory = map_memfd(&fd, BYTES);
		bool gone = turn < 2 || self->rank == turn % self->size;
		OK(ls_register(group, memory, BYTES, fd, 0, NULL));
		sum_in(group, memory);
		pass_on(group, memory);
		CHECK(stats_of(group).registered == 1);
		if (gone)
			replace(memory, -1);
		for (int use = 0; use < 4; use++)
			if ((turn + use) % 2)
				sum_in(group, memory);
			else
				pass_on(group, memory);
		CHECK(stats_of(group).registered == !gone);
		OK(ls_deregister(group, memory));
		GIVES(LS_BAD_ARGUMENT, ls_deregister(group, memory));
		OK(ls_barrier(group, NULL));
		CHECK(munmap(memory, BYTES) == 0 && close(fd) == 0);
	}
	ls_group_close(group);
}

/* Run with LOCKSTEP_CMA=off. Other shared memory where some was: it is what peers reach. */
void register_over_memory_that_is_gone(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int fds[2];
	unsigned char *memory = map_memfd(&fds[0], BYTES);
	CHECK(munmap(map_memfd(&fds[1], BYTES), BYTES) == 0);
	uint64_t taken = blocks_taken(group);
	for (int i = 0; i < 4; i++) {
		if (i > 0)
			replace(memory, fds[i % 2]);
		OK(ls_register(group, memory, BYTES, fds[i % 2], 0, NULL));
		if (i < 3)
			sum_in(group, memory);
	}
	CHECK(blocks_taken(group) == taken);
	OK(ls_deregister(group, memory));
	CHECK(stats_of(group).registered == 0);
	sum_in(group, memory);
	CHECK(blocks_taken(group) > taken);
	ls_group_close(group);
}

/* ---- plain memory that cannot be read ---- */

/* From now on process_vm_readv fails with `error` in this process, as under a container's
 * filter. */
static void refuse_reading(int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void run_plain(const struct runner_rank *self, ls_group *group, int first, int last)
{
	static const uint64_t counts[] = {1, 5000, COUNT};
	for (int kind = first; kind <= last; kind++)
		for (unsigned c = 0; c < 3; c++) {
			struct operation op = {.kind = (enum operation_kind)kind,
					       .dtype = LS_FLOAT32,
					       .op = LS_SUM,
					       .root = self->size - 1,
					       .seed = 10 * (unsigned)kind + c,
					       .item_count = 1,
					       .count = {counts[c]},
					       .place = {.plain_send = true, .plain_recv = true}};
			for (int q = 0; q < self->size; q++)
				for (int r = 0; r < self->size; r++)
					op.counts[q][r] = counts[c];
			operation_run(&op, self, group);
		}
}

/* An all-reduce takes blocks of the arena exactly if a peer cannot read this rank. Run with
 * LOCKSTEP_CMA=always. */
static void run_refused(const struct runner_rank *self, int error, bool all)
{
	if (error && (all || self->rank == 0))
		refuse_reading(error);
	ls_group *group = runner_open(self);
	OK(ls_barrier(group, NULL)); /* all have tried */
	uint64_t taken = blocks_taken(group);
	run_plain(self, group, OPERATION_ALLREDUCE, OPERATION_ALLREDUCE);
	bool copied = blocks_taken(group) > taken;
	CHECK(copied == (error != 0 && (all || self->rank != 0)));
	run_plain(self, group, OPERATION_REDUCE, OPERATION_ALLTOALLV);
	OK(ls_barrier(group, NULL));
	ls_group_close(group);
}

void plain_memory_is_read(struct runner_rank *self)
{
	run_refused(self, 0, true);
}

void plain_memory_refused_eperm(struct runner_rank *self)
{
	run_refused(self, EPERM, true);
}

void plain_memory_refused_enosys(struct runner_rank *self)
{
	run_refused(self, ENOSYS, true);
}

void plain_memory_refused_to_one(struct runner_rank *self)
{
	run_refused(self, EPERM, false);
}

/* Memory that the system reads for no other process, as it is of some devices' drivers, in place of
 * other memory; NULL: this system has none. */
static int32_t *secret_memory(int32_t *place)
{
	int fd = (int)syscall(SYS_memfd_secret, 0);
	if (fd < 0)
		return NULL;
	CHECK(ftruncate(fd, SECRET_BYTES) == 0);
	CHECK(mmap(place, SECRET_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	      place);
	close(fd);
	return place;
}

static void exchange(const struct runner_rank *self, ls_group *group, int32_t *memory, int32_t *got)
{
	uint64_t part = SECRET_BYTES / sizeof(int32_t) / (unsigned)self->size;
	for (int q = 0; q < self->size; q++)
		memory[(uint64_t)q * part] = 10 * self->rank + q;
	OK(ls_alltoall(group, memory, got, part, LS_INT32, NULL));
	for (int q = 0; q < self->size; q++)
		CHECK(got[(uint64_t)q * part] == 10 * q + self->rank);
}

/* It is copied, though memory that can be read would be read in place, as that was which was there
 * before. */
void memory_that_no_peer_reads(struct runner_rank *self)
{
	static const uint64_t counts[] = {8 << 10, 20 << 10, BYTES / sizeof(int32_t)};
	ls_group *group = runner_open(self);
	int32_t *got = calloc(1, SECRET_BYTES);
	int32_t *place = mmap(NULL, SECRET_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(got && place != MAP_FAILED);
	exchange(self, group, place, got);
	int32_t *secret = secret_memory(place);
	if (secret)
		exchange(self, group, secret, got);
	for (unsigned i = 0; secret && i < sizeof counts / sizeof *counts; i++) {
		uint64_t count = counts[i], last = count - 1;
		ls_request *op;
		secret[0] = secret[last] = 100 * self->rank + (int)i;
		if (self->rank == 0) {
			OK(ls_send(group, secret, count, LS_INT32, 1, NULL));
			OK(ls_isend(group, secret, count, LS_INT32, 1, NULL, &op));
			OK(ls_wait(op, 0));
			ls_request_free(op);
		} else if (self->rank == 1) {
			OK(ls_recv(group, got, count, LS_INT32, 0, NULL));
			CHECK(got[0] == (int)i && got[last] == (int)i);
			OK(ls_recv(group, secret, count, LS_INT32, 0, NULL));
			CHECK(secret[0] == (int)i && secret[last] == (int)i);
		}
		secret[0] = secret[last] = 100 * self->rank + (int)i;
		OK(ls_broadcast(group, secret, secret, count, LS_INT32, 0, NULL));
		CHECK(secret[0] == (int)i && secret[last] == (int)i);
	}
	runner_meet(self);
	ls_group_close(group);
	free(got);
}

/* Longer than two fragments, and not by a whole line; each rank's memory is of another sort, and
 * changes from call to call. */
static void run_fragments(const struct runner_rank *self)
{
	enum { LONG = (1 << 20) + 1000 * 4 };
	ls_group *group = runner_open(self);
	for (int kind = OPERATION_ALLREDUCE; kind <= OPERATION_ALLTOALLV; kind++)
		for (unsigned turn = 0; turn < 4; turn++) {
			unsigned sort = turn == 0 ? 3 : turn + (unsigned)self->rank;
			struct operation_facts facts = operation_facts((enum operation_kind)kind);
			struct operation op = {.kind = (enum operation_kind)kind,
					       .dtype = LS_FLOAT32,
					       .op = LS_SUM,
					       .root = facts.rooted ? (int)turn % self->size : 0,
					       .seed = 10 * (unsigned)kind + turn,
					       .item_count = 1,
					       .count = {LONG / sizeof(float)},
					       .place = {.plain_send = sort & 1,
							 .plain_recv = sort >> 1 & 1,
							 .in_place = turn % 2,
							 .shift = turn}};
			for (int q = 0; q < self->size; q++)
				for (int r = 0; r < self->size; r++)
					op.counts[q][r] = op.count[0] / (unsigned)(1 + q + r);
			operation_run(&op, self, group);
		}
	ls_group_close(group);
}

void plain_memory_in_fragments(struct runner_rank *self)
{
	run_fragments(self);
}

/* Some ranks' plain memory can be read, and so is; the others copy. */
void plain_memory_read_and_in_fragments(struct runner_rank *self)
{
	if (self->rank == 0)
		refuse_reading(EPERM);
	run_fragments(self);
}

/* A rank dies while others read its plain buffers: whatever they are at, they name it. */
void plain_memory_of_a_dead_rank(struct runner_rank *self)
{
	enum { OPS = 8, ELEMENTS = 1 << 19 };
	ls_group *group = runner_open(self);
	float *buffer[OPS];
	ls_request *ops[OPS];
	ls_status status = LS_OK, last = LS_OK;
	int begun = 0;
	for (; begun < OPS && status == LS_OK; begun++) {
		buffer[begun] = calloc(ELEMENTS, sizeof(float));
		struct ls_call_options options = {.size = sizeof options, .request = &ops[begun]};
		CHECK(buffer[begun]);
		status = ls_allreduce(group, buffer[begun], buffer[begun], ELEMENTS, LS_FLOAT32,
				      LS_SUM, &options);
		CHECK(status == LS_OK || (status == LS_PEER_DIED && !ops[begun]));
	}
	if (self->rank == 1) {
		OK(ls_wait(ops[0], 0));
		raise(SIGKILL);
	}
	for (int i = 0; i < begun; i++) {
		if (ops[i])
			status = ls_wait(ops[i], 0);
		CHECK(status == LS_OK ? last == LS_OK : status == LS_PEER_DIED);
		last = status;
		ls_request_free(ops[i]);
	}
	if (status == LS_OK)
		GIVES(LS_PEER_DIED, ls_barrier(group, NULL));
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK(failure.status == LS_PEER_DIED && failure.rank == 1);
	CHECK_THAT(strstr(failure.text, "killed by SIGKILL"), "the report is: %s", failure.text);
	for (int i = 0; i < begun; i++)
		free(buffer[i]);
	ls_group_close(group);
}
