/* SPDX-License-Identifier: BSD-3-Clause
 * The limit for memory that all ranks have mapped, as a runtime to be timed: collectives that read
 * and write peers' buffers directly, with nothing around them: no checks, no headers, no recorder,
 * no time limits, nobody who notices a dead peer. LIMIT_FILE names the file that is shared, on a
 * tmpfs; LIMIT_STORES=nontemporal stores to peers past the cache. RANK and WORLD_SIZE are the
 * launcher's. */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "runtime.h"

enum {
	RANKS_MAX = 64,
	LANES = 16,
	SLOT_BYTES = 4096,
	PAUSES = 20,
	LINES = 16, /* a rank's lines, which take turns */
	LINE_FLOATS = 12,
};
static const size_t shared_bytes = (size_t)65 << 30; /* sparse */
static const size_t buffers_at = (size_t)1 << 20;
/* Of buffers, a rank. No power of two: processors that guess the way of a cache from some bits of
 * an address would take the buffers of all ranks for one. */
static const size_t each_bytes = ((size_t)1 << 30) + 437 * 4096;

typedef float vector __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

/* What a rank calls, and its data, where both fit into a line of the cache: one transfer. */
struct line {
	_Alignas(64) _Atomic uint64_t number;
	uint32_t signature, count; /* compared, as a runtime has to */
	float payload[LINE_FLOATS];
};

struct slot {
	_Alignas(64) _Atomic uint64_t number;
	_Alignas(64) unsigned char payload[SLOT_BYTES];
};

struct shared {
	struct place {
		_Alignas(64) _Atomic uint64_t met; /* meetings reached: two ranks */
		_Alignas(64) double value;
		struct slot slots[2];
		struct line lines[LINES];
	} places[RANKS_MAX];
	_Alignas(64) _Atomic uint64_t arrivals; /* more than two ranks */
	_Alignas(64) _Atomic uint64_t meetings;
};

_Static_assert(sizeof(struct shared) <= 1 << 20, "ends before the buffers");

struct state {
	struct shared *shared;
	int rank, size;
	bool yield, nontemporal;
	uint64_t met, slots, lines;
	size_t used;
};

/* ---- waiting ---- */

static void await(const struct state *s, const _Atomic uint64_t *word, uint64_t value)
{
	for (int i = 0; atomic_load_explicit(word, memory_order_acquire) < value; i++) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#endif
		if (s->yield && i >= PAUSES)
			sched_yield();
	}
}

static void meet(struct state *s)
{
	struct shared *shared = s->shared;
	uint64_t met = ++s->met;
	if (s->size == 2) {
		atomic_store_explicit(&shared->places[s->rank].met, met, memory_order_release);
		await(s, &shared->places[1 - s->rank].met, met);
	} else if (atomic_fetch_add(&shared->arrivals, 1) + 1 == met * (uint64_t)s->size) {
		atomic_store_explicit(&shared->meetings, met, memory_order_release);
	} else {
		await(s, &shared->meetings, met);
	}
}

/* ---- moving data ---- */

/* Where rank q has what I have at `mine`: all allocate alike. */
static float *at(const struct state *s, int q, const float *mine)
{
	return (float *)((char *)(uintptr_t)mine + (q - s->rank) * (ptrdiff_t)each_bytes);
}

struct work {
	const float *sources[RANKS_MAX];
	float *targets[RANKS_MAX];
};

static inline __attribute__((always_inline)) void store(float *to, const vector *value,
							bool nontemporal)
{
#if defined(__AVX512F__)
	if (nontemporal) {
		_mm512_stream_ps(to, (__m512)*value);
		return;
	}
#endif
	(void)nontemporal;
	*(vector *)to = *value;
}

/* Elements [first, end) of all sources, in rank order, to all targets. Where the numbers are
 * constants the inner loops vanish, and pointers stay in registers. */
static inline __attribute__((always_inline)) void sum_any(const struct work *work, int sources,
							  int targets, size_t first, size_t end,
							  bool nontemporal)
{
	struct work here = *work; /* which no store can change */
	size_t i = first;
	for (; i + LANES <= end; i += LANES) {
		vector sum = *(const vector *)(here.sources[0] + i);
#pragma GCC unroll 8
		for (int q = 1; q < sources; q++)
			sum += *(const vector *)(here.sources[q] + i);
#pragma GCC unroll 8
		for (int q = 0; q < targets; q++)
			store(here.targets[q] + i, &sum, nontemporal);
	}
	for (; i < end; i++) {
		float sum = here.sources[0][i];
		for (int q = 1; q < sources; q++)
			sum += here.sources[q][i];
		for (int q = 0; q < targets; q++)
			here.targets[q][i] = sum;
	}
	if (nontemporal)
		atomic_thread_fence(memory_order_seq_cst);
}

static inline __attribute__((always_inline)) void sum_of(const struct work *work, int sources,
							 int targets, size_t first, size_t end,
							 bool nontemporal)
{
	if (nontemporal)
		sum_any(work, sources, targets, first, end, true);
	else
		sum_any(work, sources, targets, first, end, false);
}

/* To the first `targets` ranks: one of them, or all. */
static void sum(const struct state *s, const struct work *work, int targets, size_t first,
		size_t end)
{
	bool one = targets == 1;
	switch (s->size) {
	case 2:
		sum_of(work, 2, one ? 1 : 2, first, end, s->nontemporal);
		break;
	case 4:
		sum_of(work, 4, one ? 1 : 4, first, end, s->nontemporal);
		break;
	case 8:
		sum_of(work, 8, one ? 1 : 8, first, end, s->nontemporal);
		break;
	default:
		sum_of(work, s->size, targets, first, end, s->nontemporal);
	}
}

/* Mine of `size` slices, in whole cache lines. */
static void slice(const struct state *s, size_t count, size_t *first, size_t *end)
{
	size_t each = (count / (size_t)s->size + LANES - 1) / LANES * LANES;
	*first = each * (size_t)s->rank < count ? each * (size_t)s->rank : count;
	*end = s->rank == s->size - 1 || *first + each > count ? count : *first + each;
}

static void copy(float *to, const float *from, size_t count)
{
	memcpy(to, from, count * sizeof *to);
}

/* ---- operations whose data fits into a line ---- */

static bool from_root(enum bench_op op)
{
	return op == BENCH_BROADCAST || op == BENCH_SCATTER;
}

static bool to_root(enum bench_op op)
{
	return op == BENCH_REDUCE || op == BENCH_GATHER;
}

/* Elements that a rank has for others. */
static size_t outgoing(const struct state *s, enum bench_op op, size_t count)
{
	bool parts = op == BENCH_SCATTER || op == BENCH_REDUCE_SCATTER || op == BENCH_ALLTOALL;
	return parts ? count * (size_t)s->size : count;
}

static void publish_line(struct state *s, enum bench_op op, const float *data, size_t count)
{
	struct line *lines = s->shared->places[s->rank].lines, *mine = &lines[s->lines % LINES];
	mine->signature = (uint32_t)op + 1;
	mine->count = (uint32_t)count;
	for (size_t i = 0; i < count; i++)
		mine->payload[i] = data[i];
	atomic_store_explicit(&mine->number, s->lines, memory_order_release);
	__builtin_prefetch(&lines[(s->lines + 1) % LINES], 1);
}

/* The data of rank q, once it has called the same. */
static const float *await_line(const struct state *s, enum bench_op op, size_t count, int q)
{
	const struct line *line = &s->shared->places[q].lines[s->lines % LINES];
	await(s, &line->number, s->lines);
	if (line->signature != (uint32_t)op + 1 || line->count != count) {
		fprintf(stderr, "limit: rank %d calls something else\n", q);
		abort();
	}
	return line->payload;
}

static inline void take(const struct state *s, enum bench_op op, int q, const float *theirs,
			float *to, size_t count)
{
	size_t mine = (size_t)s->rank * count;
	switch (op) {
	case BENCH_ALLREDUCE:
	case BENCH_REDUCE:
	case BENCH_REDUCE_SCATTER:
		theirs += op == BENCH_REDUCE_SCATTER ? mine : 0;
		for (size_t i = 0; i < count; i++)
			to[i] = q == 0 ? theirs[i] : to[i] + theirs[i];
		break;
	case BENCH_BROADCAST:
		copy(to, theirs, count);
		break;
	case BENCH_SCATTER:
		copy(to, theirs + mine, count);
		break;
	case BENCH_ALLGATHER:
	case BENCH_GATHER:
		copy(to + (size_t)q * count, theirs, count);
		break;
	case BENCH_ALLTOALL:
		copy(to + (size_t)q * count, theirs + mine, count);
		break;
	default:
		break;
	}
}

/* Everybody publishes a line and reads all others', except that with a root some publish or read
 * nothing. All meet often enough that no line is overwritten which somebody still has to read. */
static void exchange_lines(struct state *s, enum bench_op op, const float *send, float *recv,
			   size_t count)
{
	size_t words = outgoing(s, op, count);
	bool root = s->rank == 0, meeting = ++s->lines % (LINES / 2) == 0;
	bool publishes = meeting || (from_root(op) ? root : to_root(op) ? !root : true);
	bool reads = from_root(op) ? !root : to_root(op) ? root : true;
	float sum[LINE_FLOATS];
	bool adds = op == BENCH_ALLREDUCE || op == BENCH_REDUCE || op == BENCH_REDUCE_SCATTER;
	if (publishes)
		publish_line(s, op, send, words);
	for (int q = 0; q < s->size; q++) {
		bool has = reads && (!from_root(op) || q == 0);
		const float *theirs = send;
		if (q != s->rank && (has || meeting))
			theirs = await_line(s, op, words, q);
		if (has)
			take(s, op, q, theirs, adds ? sum : recv, count);
	}
	if (reads && adds)
		copy(recv, sum, count);
	else if (op == BENCH_SCATTER && root)
		copy(recv, send, count);
}

/* ---- the operations ---- */

/* One synchronisation: two slots take turns, and nobody gets two operations ahead. */
static void reduce_slots(struct state *s, float *buffer, size_t count)
{
	uint64_t number = ++s->slots;
	struct work work;
	struct slot *mine = &s->shared->places[s->rank].slots[number % 2];
	memcpy(mine->payload, buffer, count * sizeof(float));
	atomic_store_explicit(&mine->number, number, memory_order_release);
	for (int q = 0; q < s->size; q++) {
		struct slot *slot = &s->shared->places[q].slots[number % 2];
		await(s, &slot->number, number);
		work.sources[q] = (float *)(void *)slot->payload;
	}
	work.targets[0] = buffer;
	sum(s, &work, 1, 0, count);
}

/* My slice of the sum to the first `targets` ranks; in place. */
static void reduce_direct(struct state *s, float *buffer, size_t count, int targets)
{
	struct work work;
	size_t first, end;
	for (int q = 0; q < s->size; q++) {
		work.sources[q] = at(s, q, buffer);
		work.targets[q] = at(s, q, buffer);
	}
	slice(s, count, &first, &end);
	meet(s);
	sum(s, &work, targets, first, end);
	meet(s);
}

static void reduce_scatter(struct state *s, float *send, float *recv, size_t count)
{
	size_t before = (size_t)s->rank * count;
	struct work work = {.targets = {recv}};
	for (int q = 0; q < s->size; q++)
		work.sources[q] = at(s, q, send) + before;
	meet(s);
	sum(s, &work, 1, 0, count);
	meet(s);
}

/* Two ranks share the work; more of them each fetch all of it. */
static void broadcast(struct state *s, float *buffer, size_t count)
{
	size_t half = count / 2;
	meet(s);
	if (s->size == 2 && s->rank == 0)
		copy(at(s, 1, buffer), buffer, half);
	else if (s->size == 2)
		copy(buffer + half, at(s, 0, buffer) + half, count - half);
	else if (s->rank != 0)
		copy(buffer, at(s, 0, buffer), count);
	meet(s);
}

/* Each rank moves its own part. */
static void exchange(struct state *s, enum bench_op op, float *send, float *recv, size_t count)
{
	size_t mine = (size_t)s->rank * count;
	meet(s);
	for (int i = 0; i < s->size; i++) {
		int q = (s->rank + i) % s->size;
		if (op == BENCH_ALLGATHER)
			copy(recv + (size_t)q * count, at(s, q, send), count);
		else if (op == BENCH_ALLTOALL)
			copy(recv + (size_t)q * count, at(s, q, send) + mine, count);
		else if (op == BENCH_GATHER && q == 0)
			copy(at(s, 0, recv) + mine, send, count);
		else if (op == BENCH_SCATTER && q == 0)
			copy(recv, at(s, 0, send) + mine, count);
	}
	meet(s);
}

static bool run(void *state, enum bench_op op, float *send, float *recv, size_t count)
{
	struct state *s = state;
	if (outgoing(s, op, count) <= LINE_FLOATS) {
		exchange_lines(s, op, send, recv, count);
		return true;
	}
	switch (op) {
	case BENCH_ALLREDUCE:
		/* Two meetings cost little unless the ranks share processors. */
		if (count * sizeof(float) <= (s->yield ? SLOT_BYTES : SLOT_BYTES / 16))
			reduce_slots(s, recv, count);
		else
			reduce_direct(s, recv, count, s->size);
		break;
	case BENCH_REDUCE:
		reduce_direct(s, recv, count, 1);
		break;
	case BENCH_BROADCAST:
		broadcast(s, send, count);
		break;
	case BENCH_ALLGATHER:
	case BENCH_GATHER:
	case BENCH_SCATTER:
	case BENCH_ALLTOALL:
		exchange(s, op, send, recv, count);
		break;
	case BENCH_REDUCE_SCATTER:
		reduce_scatter(s, send, recv, count);
		break;
	default:
		break;
	}
	return true;
}

static bool combine(void *state, enum bench_combine how, double *value)
{
	struct state *s = state;
	double all = 0;
	s->shared->places[s->rank].value = *value;
	meet(s);
	for (int q = 0; q < s->size; q++) {
		double one = s->shared->places[q].value;
		all = how == BENCH_SUM ? all + one : q == 0 || one > all ? one : all;
	}
	meet(s);
	*value = all;
	return true;
}

/* ---- what collectives.c wants ---- */

static int number(const char *name)
{
	const char *text = getenv(name);
	return text ? (int)strtol(text, NULL, 10) : -1;
}

int bench_rank(void)
{
	return number("RANK");
}

bool bench_open(struct bench_runtime *out, bool threads)
{
	const char *path = getenv("LIMIT_FILE"), *stores = getenv("LIMIT_STORES");
	struct state *s = calloc(1, sizeof *s);
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	(void)threads;
	if (!s || fd < 0 || ftruncate(fd, (off_t)shared_bytes) != 0) {
		perror("limit: LIMIT_FILE");
		return false;
	}
	s->shared =
		mmap(NULL, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	close(fd);
	s->rank = number("RANK");
	s->size = number("WORLD_SIZE");
	if (s->shared == MAP_FAILED || s->rank < 0 || s->size < 1 || s->size > RANKS_MAX) {
		fprintf(stderr, "limit: no memory, or no RANK and WORLD_SIZE from 1 to 64\n");
		return false;
	}
	s->yield = s->size > sysconf(_SC_NPROCESSORS_ONLN);
	s->nontemporal = stores && strcmp(stores, "nontemporal") == 0;
	meet(s);
	*out = (struct bench_runtime){s->rank, s->size, s, run, combine, NULL};
	return true;
}

void bench_close(struct bench_runtime *runtime)
{
	(void)runtime;
}

void *bench_allocate(struct bench_runtime *runtime, size_t bytes, bool plain)
{
	struct state *s = runtime->state;
	size_t start = s->used;
	(void)plain;
	if (bytes > each_bytes - start) {
		fprintf(stderr, "limit: more than %zu bytes of buffers\n", each_bytes);
		return NULL;
	}
	s->used = (start + bytes + 4095) / 4096 * 4096;
	return (char *)s->shared + buffers_at + (size_t)s->rank * each_bytes + start;
}

bool bench_begin(struct bench_runtime *runtime, float *buffer, size_t count)
{
	(void)runtime;
	(void)buffer;
	(void)count;
	fprintf(stderr, "limit: nothing runs beside the caller\n");
	return false;
}

bool bench_finish(struct bench_runtime *runtime)
{
	(void)runtime;
	return false;
}

size_t bench_trace_bytes(void)
{
	return 0;
}
