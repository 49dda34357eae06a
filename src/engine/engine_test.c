/* SPDX-License-Identifier: BSD-3-Clause
 * Every kind of collective with every algorithm it has, against a reference: uniform counts and a
 * count for each rank, every root, plain and mapped memory, in place; and that nothing else is
 * written. */
#include "engine/engine_fixture.h"

#include "base/capture.h"

enum { COUNT_MAX = 4100, BUFFER_BYTES = COUNT_MAX * TEST_RANKS * 8 + 64, BLOT = 0xee };

/* Nothing; less than a line; just in and just not in a slot; with uneven blocks. */
static const uint64_t counts[] = {
	0, 1, 3, TRANSPORT_INLINE_BYTES / 8, TRANSPORT_INLINE_BYTES / 8 + 1, COUNT_MAX};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* Races are there at any size that takes each path of the plans. Data of every size are checked
 * without the thread sanitizer, under which all sizes take minutes. */
#ifdef __SANITIZE_THREAD__
#define TEST_SIZES 2, 3, 8
#define TEST_SIZES_IN_FRAGMENTS 3, 4
#else
#define TEST_SIZES 1, 2, 3, 4, 5, 7, 8
#define TEST_SIZES_IN_FRAGMENTS 2, 3, 4, 7
#endif

struct form {
	enum trace_kind kind;
	ls_dtype dtype;
	ls_reduce_op reduce;
	int root;
	uint64_t count;
	bool in_place, plain_send, plain_recv;
	unsigned seed;
};

/* What the ranks of this operation have, worked out without the engine. */
struct layout {
	uint64_t parts[TEST_RANKS][TEST_RANKS]; /* elements that q has for r in INPUT */
	uint64_t give, get;                     /* elements of my buffers */
	uint64_t part, before;                  /* mine, and where it begins */
};

/* For functions that touch what no other thread has. The thread sanitizer would look at every
 * element; memcpy and memcmp show it all accesses to what peers may touch. */
#define UNSHARED __attribute__((no_sanitize("thread")))
static _Thread_local unsigned char before[BUFFER_BYTES], after[BUFFER_BYTES];

static bool is_list(enum trace_kind kind)
{
	return trace_kind_facts(kind).per_rank;
}

UNSHARED static double value_at(int rank, uint64_t i, unsigned seed)
{
	return (double)((i * 7 + (uint64_t)rank * 5 + i / 64 + seed) % 11);
}

UNSHARED static void fill_before(uint64_t count, ls_dtype dtype, int rank, unsigned seed)
{
	for (uint64_t i = 0; i < count; i++) {
		double value = value_at(rank, i, seed);
		if (dtype == LS_INT8)
			((int8_t *)before)[i] = (int8_t)value;
		else if (dtype == LS_INT32)
			((int32_t *)(void *)before)[i] = (int32_t)value;
		else
			((double *)(void *)before)[i] = value;
	}
}

UNSHARED static double get(const void *buffer, uint64_t i, ls_dtype dtype)
{
	if (dtype == LS_INT8)
		return ((const int8_t *)buffer)[i];
	if (dtype == LS_INT32)
		return ((const int32_t *)buffer)[i];
	return ((const double *)buffer)[i];
}

static uint64_t part_of(const struct form *form, int from, int to)
{
	unsigned way = 0;
	if (!is_list(form->kind))
		return form->count;
	if (form->kind == TRACE_ALLTOALLV)
		way = (unsigned)from * 3;
	return (way + (unsigned)to * 5 + form->seed) % 4 * form->count / 3;
}

static struct layout layout_of(const struct unit *unit, const struct form *form)
{
	struct layout out = {0};
	uint64_t all = 0, theirs = 0;
	bool root = unit->rank == form->root;
	for (int q = 0; q < unit->size; q++)
		for (int r = 0; r < unit->size; r++)
			out.parts[q][r] = part_of(form, q, r);
	for (int r = 0; r < unit->size; r++) {
		out.before += r < unit->rank ? out.parts[unit->rank][r] : 0;
		all += out.parts[unit->rank][r];
		theirs += out.parts[r][unit->rank];
	}
	out.part = out.parts[unit->rank][unit->rank];
	switch (form->kind) {
	case TRACE_ALLREDUCE:
		out.give = out.get = form->count;
		break;
	case TRACE_REDUCE:
		out.give = form->count;
		out.get = root ? form->count : 0;
		break;
	case TRACE_BROADCAST:
		out.give = root ? form->count : 0;
		out.get = form->count;
		break;
	case TRACE_ALLGATHER:
	case TRACE_ALLGATHERV:
		out.give = out.part;
		out.get = all;
		break;
	case TRACE_GATHER:
	case TRACE_GATHERV:
		out.give = out.part;
		out.get = root ? all : 0;
		break;
	case TRACE_SCATTER:
	case TRACE_SCATTERV:
		out.give = root ? all : 0;
		out.get = out.part;
		break;
	case TRACE_REDUCE_SCATTER:
	case TRACE_REDUCE_SCATTERV:
		out.give = all;
		out.get = out.part;
		break;
	default:
		out.give = all;
		out.get = theirs;
		break;
	}
	return out;
}

/* All ranks' element i, combined. */
UNSHARED static double combined(const struct unit *unit, const struct form *form, uint64_t i)
{
	double result = 0;
	for (int r = 0; r < unit->size; r++) {
		double value = value_at(r, i, form->seed);
		if (form->reduce == LS_MAX)
			result = r == 0 || value > result ? value : result;
		else
			result += form->reduce == LS_PREMUL_SUM ? value * (r + 1) : value;
	}
	return form->reduce == LS_AVERAGE ? result / unit->size : result;
}

UNSHARED static double expected(const struct unit *unit, const struct form *form,
				const struct layout *layout, uint64_t i)
{
	uint64_t begin = 0, at = 0;
	switch (form->kind) {
	case TRACE_ALLREDUCE:
	case TRACE_REDUCE:
		return combined(unit, form, i);
	case TRACE_BROADCAST:
		return value_at(form->root, i, form->seed);
	case TRACE_SCATTER:
	case TRACE_SCATTERV:
		return value_at(form->root, layout->before + i, form->seed);
	case TRACE_REDUCE_SCATTER:
	case TRACE_REDUCE_SCATTERV:
		return combined(unit, form, layout->before + i);
	default:
		break;
	}
	bool exchange = form->kind == TRACE_ALLTOALL || form->kind == TRACE_ALLTOALLV;
	int q = 0;
	while (i - begin >= layout->parts[q][exchange ? unit->rank : q])
		begin += layout->parts[q][exchange ? unit->rank : q], q++;
	for (int r = 0; exchange && r < unit->rank; r++)
		at += layout->parts[q][r];
	return value_at(q, at + i - begin, form->seed);
}

struct memory_of {
	unsigned char *plain[2], *mapped[2];
};

static struct memory_of take(struct unit *unit)
{
	struct memory_of out;
	for (int i = 0; i < 2; i++) {
		void *block;
		out.plain[i] = aligned_alloc(64, BUFFER_BYTES);
		MUST(out.plain[i]);
		MUST(memory_alloc(&unit->link->memory, BUFFER_BYTES, &block) == LS_OK);
		out.mapped[i] = block;
	}
	return out;
}

static void give_back(struct unit *unit, struct memory_of *memory)
{
	for (int i = 0; i < 2; i++) {
		free(memory->plain[i]);
		MUST(memory_free(&unit->link->memory, memory->mapped[i], NULL) == LS_OK);
	}
}

UNSHARED static void check_after(const struct unit *unit, const struct form *form,
				 const struct layout *layout)
{
	for (uint64_t i = 0; i < layout->get; i++) {
		double want = expected(unit, form, layout, i), is = get(after, i, form->dtype);
		if (is == want)
			continue;
		fprintf(stderr,
			"rank %d of %d: %s, algorithm %d, root %d, count %llu, dtype %d, op %d%s%s%s: "
			"element %llu is %g, not %g\n",
			unit->rank, unit->size, trace_kind_name(form->kind), unit->engine->wanted,
			form->root, (unsigned long long)form->count, form->dtype, form->reduce,
			form->in_place ? ", in place" : "", form->plain_send ? ", plain send" : "",
			form->plain_recv ? ", plain recv" : "", (unsigned long long)i, is, want);
		abort();
	}
}

/* Of what I gave only the result may have been written over. */
static void check_given(const unsigned char *send, size_t bytes, const unsigned char *result,
			size_t result_bytes)
{
	size_t begin = result > send ? (size_t)(result - send) : 0;
	begin = begin < bytes ? begin : bytes;
	size_t end = result + result_bytes > send ? (size_t)(result + result_bytes - send) : 0;
	end = end < begin ? begin : end < bytes ? end : bytes;
	MUST(memcmp(send, before, begin) == 0);
	MUST(memcmp(send + end, before + end, bytes - end) == 0);
}

static struct buffer buffer_of(const void *address, uint64_t bytes)
{
	return buffer_host(bytes ? address : NULL, bytes);
}

/* One call; all bytes that are not the result must be as before. */
static void run_form(struct unit *unit, const struct memory_of *memory, const struct form *form)
{
	struct layout layout = layout_of(unit, form);
	size_t element_bytes = form->dtype == LS_INT8 ? 1 : form->dtype == LS_INT32 ? 4 : 8;
	unsigned char *send = form->plain_send ? memory->plain[0] : memory->mapped[0];
	unsigned char *recv = form->plain_recv ? memory->plain[1] : memory->mapped[1];
	uint64_t lists[2][TEST_RANKS];
	if (form->in_place) { /* the shorter one is a part of the longer one */
		recv = send;
		if (layout.give > layout.get && layout.get)
			recv += layout.before * element_bytes;
		if (layout.get > layout.give && layout.give)
			send += layout.before * element_bytes;
	}
	memset(recv, BLOT, layout.get * element_bytes + 8);
	memset(send + layout.give * element_bytes, BLOT, 8);
	fill_before(layout.give, form->dtype, unit->rank, form->seed);
	memcpy(send, before, layout.give * element_bytes);
	for (int r = 0; r < unit->size; r++) {
		lists[0][r] = layout.parts[unit->rank][r];
		lists[1][r] = layout.parts[r][unit->rank];
	}
	struct op op = {.call = {.kind = form->kind,
				 .dtype = form->dtype,
				 .reduce = form->reduce,
				 .peer = form->root,
				 .send = buffer_of(send, layout.give * element_bytes),
				 .recv = buffer_of(recv, layout.get * element_bytes),
				 .count = form->count,
				 .factor = unit->rank + 1}};
	if (form->kind == TRACE_REDUCE && form->in_place)
		op.call.recv = buffer_of(
			recv,
			layout.give *
				element_bytes); /* as callers do who pass the same on all ranks */
	if (is_list(form->kind)) {
		op.call.counts = lists[0];
		op.call.recv_counts = form->kind == TRACE_ALLTOALLV ? lists[1] : NULL;
		op.call.count = 0;
		for (int r = 0; r < unit->size; r++)
			op.call.count += lists[0][r];
	}
	MUST(unit_call(unit, &op) == LS_OK);
	memcpy(after, recv, layout.get * element_bytes);
	check_after(unit, form, &layout);
	MUST(layout.get == 0 || recv[layout.get * element_bytes] == BLOT ||
	     layout.get < layout.give);
	if (form->in_place && layout.get)
		check_given(send, layout.give * element_bytes, recv, layout.get * element_bytes);
	else
		check_given(send, layout.give * element_bytes, send, 0);
}

static void run_kind(struct unit *unit, const struct memory_of *memory, enum trace_kind kind,
		     unsigned *seed)
{
	static const ls_dtype dtypes[] = {LS_INT32, LS_FLOAT64, LS_INT8};
	static const ls_reduce_op ops[] = {LS_SUM, LS_AVERAGE, LS_MAX, LS_PREMUL_SUM};
	struct trace_kind_facts facts = trace_kind_facts(kind);
	for (unsigned c = 0; c < COUNTS; c++)
		for (unsigned place = 0; place < 8; place++) {
			++*seed;
			struct form form = {.kind = kind,
					    .dtype = dtypes[*seed % 3],
					    .root = -1,
					    .count = counts[c],
					    .in_place = place & 1,
					    .plain_send = place & 2,
					    .plain_recv = place & 4,
					    .seed = *seed};
			if (facts.rooted)
				form.root = (int)(*seed / 3 % (unsigned)unit->size);
			if (facts.reduces)
				form.reduce = ops[*seed / 2 % 4];
			/* Ranks may differ in where their memory is. */
			if (*seed % 5 == 0 && unit->rank % 2)
				form.plain_send = !form.plain_send;
			if (*seed % 7 == 0 && unit->rank % 2)
				form.in_place = !form.in_place;
			if (kind == TRACE_ALLTOALL || kind == TRACE_ALLTOALLV)
				form.in_place = false;
			if (form.reduce == LS_AVERAGE || form.reduce == LS_PREMUL_SUM)
				form.dtype = LS_FLOAT64;
			run_form(unit, memory, &form);
		}
}

static void run_everything(struct unit *unit)
{
	struct memory_of memory = take(unit);
	unsigned seed = (unsigned)unit->size * 1000;
	for (unsigned algorithm = PLAN_NONE; algorithm < PLAN_ALGORITHM_COUNT; algorithm++) {
		unit->engine->wanted = (enum plan_algorithm)algorithm;
		memset(unit->engine->memos, 0, sizeof unit->engine->memos);
		for (unsigned kind = TRACE_NONE + 1; kind < TRACE_BARRIER; kind++)
			run_kind(unit, &memory, (enum trace_kind)kind, &seed);
	}
	struct op barrier = {.call = {.kind = TRACE_BARRIER, .dtype = LS_UINT8, .peer = -1}};
	MUST(unit_call(unit, &barrier) == LS_OK);
	give_back(unit, &memory);
	MUST(memory_is_valid(&unit->link->memory));
	struct memory_stats stats;
	memory_stats(&unit->link->memory, &stats);
	MUST(stats.live == 0); /* every staging block was given back */
}

static void everything(void **state)
{
	(void)state;
	const struct settings settings = {0};
	static const int sizes[] = {TEST_SIZES};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct fixture *fixture = fixture_open(sizes[i], &settings);
		fixture_run(fixture, run_everything);
		fixture_close(fixture);
	}
}

/* A call that differs from the one before in a single thing. */
static void run_changes(struct unit *unit)
{
	const struct form changes[] = {
		{.dtype = LS_INT8, .count = 100},
		{.reduce = LS_MAX, .dtype = LS_INT32, .count = 100},
		{.root = unit->size - 1, .dtype = LS_INT32, .count = 100},
		{.dtype = LS_INT32, .count = 101},
		{.dtype = LS_INT32, .count = COUNT_MAX},
		{.in_place = true, .dtype = LS_INT32, .count = 100},
		{.in_place = true, .dtype = LS_INT32, .count = COUNT_MAX},
		{.plain_send = true, .plain_recv = true, .dtype = LS_INT32, .count = COUNT_MAX},
		{.dtype = LS_INT32, .count = 0},
	};
	struct memory_of memory = take(unit);
	for (unsigned kind = TRACE_NONE + 1; kind < TRACE_BARRIER; kind++)
		for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
			struct trace_kind_facts facts = trace_kind_facts(kind);
			struct form usual = {.dtype = LS_INT32,
					     .count = changes[i].count > 101 ? COUNT_MAX : 100};
			struct form other = changes[i];
			usual.kind = other.kind = (enum trace_kind)kind;
			usual.root = facts.rooted ? 0 : -1;
			other.root = facts.rooted ? other.root : -1;
			other.in_place =
				other.in_place && kind != TRACE_ALLTOALL && kind != TRACE_ALLTOALLV;
			other.reduce = facts.reduces ? other.reduce : 0;
			run_form(unit, &memory, &usual);
			run_form(unit, &memory, &other);
			run_form(unit, &memory, &other);
			run_form(unit, &memory, &usual);
		}
	give_back(unit, &memory);
}

/* More plans than are kept; and then the last call of each kind once more. */
static void run_many_plans(struct unit *unit)
{
	struct memory_of memory = take(unit);
	for (int turn = 0; turn < 2; turn++)
		for (unsigned kind = TRACE_NONE + 1; kind < TRACE_BARRIER; kind++)
			for (int i = 0; i < 4 * unit->size; i++) {
				int call = turn ? 4 * unit->size - 1 - i : i;
				bool exchange = kind == TRACE_ALLTOALL || kind == TRACE_ALLTOALLV;
				struct form form = {.kind = (enum trace_kind)kind,
						    .dtype = LS_INT32,
						    .root = -1,
						    .count = call & 1 ? COUNT_MAX : 100,
						    .in_place = call & 2 && !exchange};
				if (trace_kind_facts(kind).rooted)
					form.root = call / 4;
				run_form(unit, &memory, &form);
			}
	give_back(unit, &memory);
}

static void repeated_and_changed(void **state)
{
	(void)state;
	const struct settings settings = {0};
	struct fixture *fixture = fixture_open(3, &settings);
	fixture_run(fixture, run_changes);
	fixture_close(fixture);
	fixture = fixture_open(TEST_RANKS, &settings);
	fixture_run(fixture, run_many_plans);
	fixture_close(fixture);
}

/* So small that there are dozens of them; and whether plain memory is copied or read is up to each
 * rank. */
static void run_in_fragments(struct unit *unit)
{
	static const enum setting_cma settings[] = {SETTING_CMA_OFF, SETTING_CMA_ALWAYS};
	unit->engine->fragment_bytes = 1000;
	run_everything(unit);
	unit->engine->cma = settings[unit->rank % 2];
	run_everything(unit);
}

static void everything_in_fragments(void **state)
{
	(void)state;
	const struct settings settings = {0};
	static const int sizes[] = {TEST_SIZES_IN_FRAGMENTS};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct fixture *fixture = fixture_open(sizes[i], &settings);
		fixture_run(fixture, run_in_fragments);
		fixture_close(fixture);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything),
		cmocka_unit_test(everything_in_fragments),
		cmocka_unit_test(repeated_and_changed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
