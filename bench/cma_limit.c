/* SPDX-License-Identifier: BSD-3-Clause
 * The limit for buffers that peers cannot map: the best all-reduce (float32, sum, in place) that
 * reads plain memory with process_vm_readv, with nothing around it. cma_limit [-n RANKS] [--fresh]
 * [BYTES…] prints "variant bytes microseconds": the slowest rank's median, after a check of the
 * result. Rank r sums slice r; the others fetch it. hot, --fresh: as in allreduce.c. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 64, REPEATS = 9, VARIANTS_MAX = 32, SIZES_MAX = 32 };
static const double budget_s = 0.03; /* of one repeat */
static const uint64_t all = UINT64_MAX;

/* halves: sum my slice, all meet, fetch the others' slices.
 * pipe:   after each piece that I have summed, fetch the piece before from each other rank.
 * swap:   two ranks; both read everything and add it themselves, once the other has read theirs. */
enum shape { HALVES, PIPE, SWAP };

struct variant {
	enum shape shape;
	uint64_t piece; /* read into my own memory and added in one go; `all`: a whole slice */
	uint64_t fetch; /* halves: read into the result in one call */
};

static const struct variant variants[] = {
	{HALVES, 32 << 10, all},
	{HALVES, 64 << 10, all},
	{HALVES, 64 << 10, 64 << 10},
	{HALVES, 128 << 10, all},
	{HALVES, 128 << 10, 128 << 10},
	{HALVES, 256 << 10, all},
	{HALVES, 256 << 10, 256 << 10},
	{HALVES, 512 << 10, all},
	{HALVES, 1 << 20, all},
	{HALVES, 1 << 20, 1 << 20},
	{HALVES, all, all},
	{PIPE, 32 << 10, 0},
	{PIPE, 64 << 10, 0},
	{PIPE, 128 << 10, 0},
	{PIPE, 256 << 10, 0},
	{PIPE, 512 << 10, 0},
	{PIPE, 1 << 20, 0},
	{SWAP, 64 << 10, 0},
	{SWAP, 128 << 10, 0},
	{SWAP, 256 << 10, 0},
	{SWAP, 1 << 20, 0},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

/* What one rank tells the others; each word has one writer and only grows. */
struct place {
	_Alignas(128) _Atomic uint64_t met;   /* meetings reached */
	_Alignas(128) _Atomic uint64_t steps; /* pieces done, over all operations */
	pid_t pid;
	float *buffer;
	double seconds;
};

struct bench {
	struct place *places; /* shared */
	int rank, size;
	bool fresh, yield;
	float *mine, *bounce;
	uint64_t met, steps;
};

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *what)
{
	fprintf(stderr, "cma_limit: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* ---- adding ---- */

static inline __attribute__((always_inline)) void add_any(float *restrict to,
							  const float *restrict from, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		to[i] += from[i];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_avx2(float *to, const float *from, uint64_t count)
{
	add_any(to, from, count);
}
#endif

static void add(float *to, const float *from, uint64_t count)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2")) {
		add_avx2(to, from, count);
		return;
	}
#endif
	add_any(to, from, count);
}

/* ---- the ranks ---- */

static void await(const struct bench *b, const _Atomic uint64_t *word, uint64_t value)
{
	while (atomic_load_explicit(word, memory_order_acquire) < value)
		if (b->yield)
			sched_yield();
}

static void meet(struct bench *b)
{
	atomic_store_explicit(&b->places[b->rank].met, ++b->met, memory_order_release);
	for (int q = 0; q < b->size; q++)
		await(b, &b->places[q].met, b->met);
}

static void did_step(struct bench *b)
{
	atomic_store_explicit(&b->places[b->rank].steps, ++b->steps, memory_order_release);
}

/* Floats [first, first + count) of rank q's buffer. */
static void fetch(const struct bench *b, int q, uint64_t first, uint64_t count, float *to)
{
	uint64_t done = 0, bytes = count * sizeof(float);
	while (done < bytes) {
		struct iovec into = {(char *)to + done, bytes - done};
		struct iovec from = {(char *)(b->places[q].buffer + first) + done, bytes - done};
		ssize_t got = process_vm_readv(b->places[q].pid, &into, 1, &from, 1, 0);
		if (got <= 0)
			fail("process_vm_readv");
		done += (uint64_t)got;
	}
}

/* Where slice q of `count` floats begins; whole cache lines. */
static uint64_t slice(const struct bench *b, int q, uint64_t count)
{
	uint64_t each = (count / (unsigned)b->size + 15) / 16 * 16;
	uint64_t first = each * (unsigned)q;
	return q == b->size || first > count ? count : first;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void sum(struct bench *b, uint64_t first, uint64_t count)
{
	for (int q = 0; q < b->size; q++) {
		if (q == b->rank)
			continue;
		fetch(b, q, first, count, b->bounce);
		add(b->mine + first, b->bounce, count);
	}
}

static void run_halves(struct bench *b, uint64_t count, uint64_t piece, uint64_t each)
{
	uint64_t end = slice(b, b->rank + 1, count);
	for (uint64_t at = slice(b, b->rank, count); at < end; at += lesser(piece, end - at))
		sum(b, at, lesser(piece, end - at));
	did_step(b);
	for (int i = 1; i < b->size; i++) {
		int q = (b->rank + i) % b->size;
		end = slice(b, q + 1, count);
		await(b, &b->places[q].steps, b->steps);
		for (uint64_t at = slice(b, q, count); at < end; at += lesser(each, end - at))
			fetch(b, q, at, lesser(each, end - at), b->mine + at);
	}
	meet(b);
}

/* Piece `k` of slice q: its floats, 0 past the end. */
static uint64_t piece_of(const struct bench *b, int q, uint64_t count, uint64_t piece, uint64_t k,
			 uint64_t *first)
{
	uint64_t end = slice(b, q + 1, count);
	*first = slice(b, q, count) + k * piece;
	return *first < end ? lesser(piece, end - *first) : 0;
}

static void run_pipe(struct bench *b, uint64_t count, uint64_t piece)
{
	uint64_t start = b->steps, first;
	uint64_t pieces = (slice(b, 1, count) + piece - 1) / piece; /* slice 0 is the longest */
	for (uint64_t k = 0; k <= pieces; k++) {
		uint64_t here = piece_of(b, b->rank, count, piece, k, &first);
		if (here)
			sum(b, first, here);
		did_step(b);
		for (int i = 1; k > 0 && i < b->size; i++) {
			int q = (b->rank + i) % b->size;
			here = piece_of(b, q, count, piece, k - 1, &first);
			await(b, &b->places[q].steps, start + k);
			if (here)
				fetch(b, q, first, here, b->mine + first);
		}
	}
	meet(b);
}

static void run_swap(struct bench *b, uint64_t count, uint64_t piece)
{
	int other = 1 - b->rank;
	uint64_t before = 0, had = 0; /* the piece that the other may not have read yet */
	for (uint64_t at = 0, k = 0; at < count || had; k++) {
		uint64_t here = lesser(piece, count - at);
		fetch(b, other, at, here, b->bounce + k % 2 * piece);
		did_step(b);
		if (had) {
			await(b, &b->places[other].steps, b->steps - 1);
			add(b->mine + before, b->bounce + (k + 1) % 2 * piece, had);
		}
		before = at;
		had = here;
		at += here;
	}
	meet(b);
}

static void reduce(struct bench *b, const struct variant *v, uint64_t count)
{
	uint64_t piece = v->piece == all ? count : v->piece / sizeof(float);
	if (v->shape == HALVES)
		run_halves(b, count, piece, v->fetch == all ? count : v->fetch / sizeof(float));
	else if (v->shape == PIPE)
		run_pipe(b, count, piece);
	else
		run_swap(b, count, piece);
}

/* ---- measuring ---- */

static void check(struct bench *b, const struct variant *v, uint64_t count)
{
	int ranks = b->size * (b->size + 1) / 2;
	for (uint64_t i = 0; i < count; i++)
		b->mine[i] = (float)((b->rank + 1) * (int)(i % 97));
	meet(b);
	reduce(b, v, count);
	for (uint64_t i = 0; i < count; i++)
		if (b->mine[i] != (float)(ranks * (int)(i % 97))) {
			fprintf(stderr, "cma_limit: wrong result at %llu\n", (unsigned long long)i);
			_exit(1);
		}
	memset(b->mine, 0, count * sizeof(float));
	meet(b);
}

/* Seconds per operation: the slowest rank's. */
static double measure(struct bench *b, const struct variant *v, uint64_t count, long rounds)
{
	double total = 0;
	meet(b);
	double start = now_s();
	for (long i = 0; i < rounds; i++) {
		if (b->fresh) {
			for (uint64_t k = 0; k < count; k++)
				b->mine[k] = (float)b->rank;
			meet(b);
			start = now_s();
		}
		reduce(b, v, count);
		if (b->fresh)
			total += now_s() - start;
	}
	if (!b->fresh)
		total = now_s() - start;
	b->places[b->rank].seconds = total / (double)rounds;
	meet(b);
	double slowest = 0;
	for (int q = 0; q < b->size; q++)
		slowest = b->places[q].seconds > slowest ? b->places[q].seconds : slowest;
	meet(b);
	return slowest;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void print(const struct variant *v, uint64_t bytes, double seconds)
{
	static const char *const names[] = {"halves", "pipe", "swap"};
	char piece[32] = "all", each[32] = "";
	if (v->piece != all)
		snprintf(piece, sizeof piece, "%lluK", (unsigned long long)v->piece >> 10);
	if (v->shape == HALVES && v->fetch == all)
		snprintf(each, sizeof each, "/all");
	else if (v->shape == HALVES)
		snprintf(each, sizeof each, "/%lluK", (unsigned long long)v->fetch >> 10);
	printf("%s/%s%s %llu %.3f\n", names[v->shape], piece, each, (unsigned long long)bytes,
	       seconds * 1e6);
}

/* A variant whose pieces are longer than a slice is another one once more. */
static bool is_worth(const struct bench *b, const struct variant *v, uint64_t bytes)
{
	uint64_t part = v->shape == SWAP ? bytes : bytes / (unsigned)b->size;
	if (v->shape == SWAP && b->size != 2)
		return false;
	return v->piece == all || v->piece < part;
}

/* The variants take turns, so that what disturbs the machine disturbs all. */
static void run_size(struct bench *b, uint64_t bytes)
{
	uint64_t count = bytes / sizeof(float);
	static double times[VARIANTS][REPEATS];
	long rounds[VARIANTS];
	for (int v = 0; v < VARIANTS; v++) {
		if (!is_worth(b, &variants[v], bytes))
			continue;
		check(b, &variants[v], count);
		rounds[v] = (long)(budget_s / measure(b, &variants[v], count, 3));
		rounds[v] = rounds[v] < 3 ? 3 : rounds[v];
	}
	for (int i = 0; i < REPEATS; i++)
		for (int v = 0; v < VARIANTS; v++)
			if (is_worth(b, &variants[v], bytes))
				times[v][i] = measure(b, &variants[v], count, rounds[v]);
	for (int v = 0; v < VARIANTS && b->rank == 0; v++) {
		if (!is_worth(b, &variants[v], bytes))
			continue;
		qsort(times[v], REPEATS, sizeof times[v][0], compare);
		print(&variants[v], bytes, times[v][REPEATS / 2]);
	}
	fflush(stdout);
}

static void run_rank(struct bench *b, const uint64_t *sizes, int size_count)
{
	uint64_t largest = 0;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((unsigned)(b->rank % sysconf(_SC_NPROCESSORS_ONLN)), &set);
	if (sched_setaffinity(0, sizeof set, &set))
		fail("sched_setaffinity");
	/* Under Yama other processes may read me if they descend from the process that I name. */
	(void)prctl(PR_SET_PTRACER, (unsigned long)getppid(), 0, 0, 0);
	for (int i = 0; i < size_count; i++)
		largest = sizes[i] > largest ? sizes[i] : largest;
	b->mine = malloc(largest);
	b->bounce = malloc(largest + (2 << 20));
	if (!b->mine || !b->bounce)
		fail("malloc");
	memset(b->bounce, 0, largest + (2 << 20));
	b->places[b->rank].pid = getpid();
	b->places[b->rank].buffer = b->mine;
	meet(b);
	for (int i = 0; i < size_count; i++)
		run_size(b, sizes[i]);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct bench b = {.size = 2};
	uint64_t sizes[SIZES_MAX] = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
	int size_count = 6, given = 0;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--fresh") == 0)
			b.fresh = true;
		else if (strcmp(argv[i], "-n") == 0 && i + 1 < argc)
			b.size = (int)strtol(argv[++i], NULL, 10);
		else if (given < SIZES_MAX)
			sizes[given++] = strtoull(argv[i], NULL, 10);
	}
	if (given)
		size_count = given;
	for (int i = 0; i < size_count; i++)
		if (sizes[i] < 64 || sizes[i] % sizeof(float))
			return fprintf(stderr,
				       "cma_limit: a size is a multiple of 4, at least 64\n"),
			       2;
	if (b.size < 2 || b.size > RANKS_MAX)
		return fprintf(stderr, "cma_limit: -n is 2 to %d\n", RANKS_MAX), 2;
	b.yield = b.size > sysconf(_SC_NPROCESSORS_ONLN);
	b.places = mmap(NULL, RANKS_MAX * sizeof *b.places, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b.places == MAP_FAILED)
		fail("mmap");
	pid_t children[RANKS_MAX];
	for (b.rank = 0; b.rank < b.size; b.rank++) {
		children[b.rank] = fork();
		if (children[b.rank] < 0)
			fail("fork");
		if (children[b.rank] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
			run_rank(&b, sizes, size_count);
		}
	}
	for (int left = b.size, status; left > 0; left--)
		if (wait(&status) < 0 || status != 0)
			return 1; /* which takes the others along */
	return 0;
}
