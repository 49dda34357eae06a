/* SPDX-License-Identifier: BSD-3-Clause
 * Operations on known buffers; see operation.h. What belongs where is worked out here once for all
 * kinds, from a table that says how long their buffers are. */
#include "operation.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "values.h"

enum { GUARD = 192, GUARD_BYTE = 0xa5, BLOT_BYTE = 0xee };

/* How long a buffer is: nothing, one count, or a part for each rank. */
enum extent { NONE, ONE, ALL };

static const struct kind {
	const char *name;
	uint8_t give, get;
	bool reduces, rooted, root_gives, root_gets, lists, many;
} kinds[OPERATION_KINDS] = {
	[OPERATION_ALLREDUCE] = {"ls_allreduce", ONE, ONE, .reduces = true},
	[OPERATION_REDUCE] = {"ls_reduce", ONE, ONE, .reduces = true, .rooted = true,
			      .root_gets = true},
	[OPERATION_BROADCAST] = {"ls_broadcast", ONE, ONE, .rooted = true, .root_gives = true},
	[OPERATION_ALLGATHER] = {"ls_allgather", ONE, ALL, .reduces = false},
	[OPERATION_ALLGATHERV] = {"ls_allgatherv", ONE, ALL, .lists = true},
	[OPERATION_GATHER] = {"ls_gather", ONE, ALL, .rooted = true, .root_gets = true},
	[OPERATION_GATHERV] = {"ls_gatherv", ONE, ALL, .rooted = true, .root_gets = true,
			       .lists = true},
	[OPERATION_SCATTER] = {"ls_scatter", ALL, ONE, .rooted = true, .root_gives = true},
	[OPERATION_SCATTERV] = {"ls_scatterv", ALL, ONE, .rooted = true, .root_gives = true,
				.lists = true},
	[OPERATION_REDUCE_SCATTER] = {"ls_reduce_scatter", ALL, ONE, .reduces = true},
	[OPERATION_REDUCE_SCATTERV] = {"ls_reduce_scatterv", ALL, ONE, .reduces = true,
				       .lists = true},
	[OPERATION_ALLTOALL] = {"ls_alltoall", ALL, ALL, .reduces = false},
	[OPERATION_ALLTOALLV] = {"ls_alltoallv", ALL, ALL, .lists = true},
	[OPERATION_BARRIER] = {"ls_barrier", NONE, NONE, .reduces = false},
	[OPERATION_ALLREDUCE_MANY] = {"ls_allreduce_many", ONE, ONE, .reduces = true, .many = true},
	[OPERATION_BROADCAST_MANY] = {"ls_broadcast_many", ONE, ONE, .rooted = true,
				      .root_gives = true, .many = true},
	[OPERATION_ALLGATHER_MANY] = {"ls_allgather_many", ONE, ALL, .many = true},
	[OPERATION_REDUCE_SCATTER_MANY] = {"ls_reduce_scatter_many", ALL, ONE, .reduces = true,
					   .many = true},
	[OPERATION_EXCHANGE] = {"an exchange of messages", ONE, ONE, .rooted = true},
};

struct operation_facts operation_facts(enum operation_kind kind)
{
	const struct kind *of = &kinds[kind];
	return (struct operation_facts){of->name, of->reduces, of->rooted, of->lists, of->many};
}

/* ---- the calls ---- */

static int partner(int root, int me, int size)
{
	return (root + size - me) % size;
}

/* The lower one sends first. */
static ls_status exchange(const struct operation_call *c)
{
	int me = ls_group_rank(c->group), peer = partner(c->root, me, ls_group_size(c->group));
	ls_status status = LS_OK;
	if (me == peer)
		return LS_OK;
	if (me < peer)
		status = ls_send(c->group, c->send, c->count, c->dtype, peer, c->options);
	if (status == LS_OK)
		status = ls_recv(c->group, c->recv, c->count, c->dtype, peer, c->options);
	if (status == LS_OK && me > peer)
		status = ls_send(c->group, c->send, c->count, c->dtype, peer, c->options);
	return status;
}

ls_status operation_issue(const struct operation_call *c)
{
	switch (c->kind) {
	case OPERATION_ALLREDUCE:
		return ls_allreduce(c->group, c->send, c->recv, c->count, c->dtype, c->op,
				    c->options);
	case OPERATION_REDUCE:
		return ls_reduce(c->group, c->send, c->recv, c->count, c->dtype, c->op, c->root,
				 c->options);
	case OPERATION_BROADCAST:
		return ls_broadcast(c->group, c->send, c->recv, c->count, c->dtype, c->root,
				    c->options);
	case OPERATION_ALLGATHER:
		return ls_allgather(c->group, c->send, c->recv, c->count, c->dtype, c->options);
	case OPERATION_GATHER:
		return ls_gather(c->group, c->send, c->recv, c->count, c->dtype, c->root,
				 c->options);
	case OPERATION_SCATTER:
		return ls_scatter(c->group, c->send, c->recv, c->count, c->dtype, c->root,
				  c->options);
	case OPERATION_REDUCE_SCATTER:
		return ls_reduce_scatter(c->group, c->send, c->recv, c->count, c->dtype, c->op,
					 c->options);
	case OPERATION_ALLTOALL:
		return ls_alltoall(c->group, c->send, c->recv, c->count, c->dtype, c->options);
	case OPERATION_BARRIER:
		return ls_barrier(c->group, c->options);
	case OPERATION_ALLGATHERV:
		return ls_allgatherv(c->group, c->send, c->recv, c->counts, c->dtype, c->options);
	case OPERATION_GATHERV:
		return ls_gatherv(c->group, c->send, c->recv, c->counts, c->dtype, c->root,
				  c->options);
	case OPERATION_SCATTERV:
		return ls_scatterv(c->group, c->send, c->recv, c->counts, c->dtype, c->root,
				   c->options);
	case OPERATION_REDUCE_SCATTERV:
		return ls_reduce_scatterv(c->group, c->send, c->recv, c->counts, c->dtype, c->op,
					  c->options);
	case OPERATION_ALLTOALLV:
		return ls_alltoallv(c->group, c->send, c->counts, c->recv, c->recv_counts, c->dtype,
				    c->options);
	case OPERATION_ALLREDUCE_MANY:
		return ls_allreduce_many(c->group, c->buffers, c->buffer_count, c->dtype, c->op,
					 c->options);
	case OPERATION_BROADCAST_MANY:
		return ls_broadcast_many(c->group, c->buffers, c->buffer_count, c->dtype, c->root,
					 c->options);
	case OPERATION_ALLGATHER_MANY:
		return ls_allgather_many(c->group, c->buffers, c->buffer_count, c->dtype,
					 c->options);
	case OPERATION_REDUCE_SCATTER_MANY:
		return ls_reduce_scatter_many(c->group, c->buffers, c->buffer_count, c->dtype,
					      c->op, c->options);
	case OPERATION_EXCHANGE:
		return exchange(c);
	case OPERATION_KINDS:
		break;
	}
	return LS_BAD_ARGUMENT;
}

/* ---- how much belongs where ---- */

/* Elements that go from rank q to rank r, or are the part of r wherever they come from. */
static uint64_t part(const struct operation *op, int item, int q, int r)
{
	if (!kinds[op->kind].lists)
		return op->count[item];
	return op->counts[op->kind == OPERATION_ALLTOALLV ? q : 0][r];
}

/* Elements of what rank `me` gives before the part of rank r, and of what it gets. */
static uint64_t given_before(const struct operation *op, int item, int me, int r)
{
	uint64_t sum = 0;
	for (int i = 0; i < r; i++)
		sum += part(op, item, me, i);
	return sum;
}

/* In which every rank has something for every other. */
static bool is_alltoall(const struct operation *op)
{
	return op->kind == OPERATION_ALLTOALL || op->kind == OPERATION_ALLTOALLV;
}

static uint64_t got_before(const struct operation *op, int item, int me, int q)
{
	uint64_t sum = 0;
	for (int i = 0; i < q; i++)
		sum += is_alltoall(op) ? part(op, item, i, me) : part(op, item, 0, i);
	return sum;
}

static bool rests(const struct operation *op, int me, int size)
{
	return op->kind == OPERATION_EXCHANGE && partner(op->root, me, size) == me;
}

static uint64_t given(const struct operation *op, int item, int me, int size)
{
	const struct kind *kind = &kinds[op->kind];
	if (kind->give == NONE || (kind->root_gives && me != op->root) || rests(op, me, size))
		return 0;
	return kind->give == ONE ? part(op, item, 0, me) : given_before(op, item, me, size);
}

static uint64_t got(const struct operation *op, int item, int me, int size)
{
	const struct kind *kind = &kinds[op->kind];
	if (kind->get == NONE || (kind->root_gets && me != op->root) || rests(op, me, size))
		return 0;
	return kind->get == ONE ? part(op, item, 0, me) : got_before(op, item, me, size);
}

uint64_t operation_bytes(const struct operation *op, int rank, int size)
{
	uint64_t sum = 0;
	for (int i = 0; i < op->item_count; i++) {
		uint64_t give = given(op, i, rank, size), get = got(op, i, rank, size);
		sum += (give > get ? give : get) * ls_dtype_bytes(op->dtype);
	}
	return sum;
}

/* ---- buffers ---- */

static void buffer_open(struct operation_buffer *buffer, const struct operation *op, uint64_t count,
			bool plain)
{
	size_t element_bytes = ls_dtype_bytes(op->dtype),
	       shift = op->place.shift % 8 * element_bytes;
	buffer->bytes = count * element_bytes;
	buffer->room = buffer->bytes + shift + 2 * GUARD;
	buffer->plain = plain;
	buffer->memory = values_alloc(op->group, buffer->room, plain);
	buffer->at = buffer->memory + GUARD + shift;
	memset(buffer->memory, GUARD_BYTE, (size_t)(buffer->at - buffer->memory));
	memset(buffer->at, BLOT_BYTE, buffer->bytes);
	memset(buffer->at + buffer->bytes, GUARD_BYTE,
	       buffer->room - buffer->bytes - (size_t)(buffer->at - buffer->memory));
}

static void check_guard(const unsigned char *from, const unsigned char *to, const char *where)
{
	size_t bytes = (size_t)(to - from);
	CHECK_THAT(*from == GUARD_BYTE && memcmp(from, from + 1, bytes - 1) == 0,
		   "a byte %s the buffer was written to", where);
}

static void buffer_close(struct operation_buffer *buffer, const struct operation *op)
{
	if (!buffer->memory)
		return;
	check_guard(buffer->memory, buffer->at, "before");
	check_guard(buffer->at + buffer->bytes, buffer->memory + buffer->room, "behind");
	values_free(op->group, buffer->memory, buffer->plain);
	buffer->memory = NULL;
}

static unsigned seed_of(const struct operation *op, int item)
{
	return op->seed + (unsigned)item * 101;
}

/* What this rank passes for a buffer that it does not have: anything. */
static unsigned char *nowhere(const struct operation *op, unsigned char *other)
{
	if (op->place.in_place)
		return other;
	return op->place.shift % 2 ? NULL : (unsigned char *)(uintptr_t)8;
}

static bool may_be_in_place(const struct operation *op)
{
	return !is_alltoall(op) && op->kind != OPERATION_EXCHANGE;
}

static void item_open(struct operation *op, int i)
{
	struct operation_item *item = &op->items[i];
	int me = op->self->rank, size = op->self->size;
	uint64_t give = given(op, i, me, size), get = got(op, i, me, size);
	size_t element_bytes = ls_dtype_bytes(op->dtype);
	ls_reduce_op filled = kinds[op->kind].reduces ? op->op : LS_SUM;
	unsigned char *from = NULL, *to = NULL;
	*item = (struct operation_item){.in_place = op->place.in_place && may_be_in_place(op) &&
						    give > 0 && get > 0};
	if (item->in_place) {
		buffer_open(&item->outer, op, give > get ? give : get, op->place.plain_send);
		from = to = item->outer.at;
		if (kinds[op->kind].give == ALL)
			to += given_before(op, i, me, me) * element_bytes;
		if (kinds[op->kind].get == ALL)
			from += got_before(op, i, me, me) * element_bytes;
	} else {
		if (give > 0) {
			buffer_open(&item->send, op, give, op->place.plain_send);
			from = item->send.at;
		}
		if (get > 0) {
			buffer_open(&item->recv, op, get, op->place.plain_recv);
			to = item->recv.at;
		}
	}
	if (give > 0)
		values_fill(from, give, op->dtype, filled, me, seed_of(op, i));
	item->from = give > 0 ? from : nowhere(op, to);
	item->to = get > 0 ? to : nowhere(op, from);
	op->buffers[i] = (struct ls_buffers){item->from, item->to, op->count[i]};
}

void operation_open(struct operation *op, const struct runner_rank *self, ls_group *group)
{
	op->self = self;
	op->group = group;
	for (int i = 0; i < op->item_count; i++)
		item_open(op, i);
	for (int r = 0; r < self->size; r++) {
		op->send_counts[r] = part(op, 0, self->rank, r);
		op->recv_counts[r] = part(op, 0, r, self->rank);
	}
}

ls_status operation_begin(struct operation *op, const struct ls_call_options *options)
{
	struct ls_call_options all = {.size = sizeof all};
	if (options)
		all = *options;
	if (op->op == LS_PREMUL_SUM)
		all.factor = values_factor(op->self->rank);
	struct operation_call call = {.kind = op->kind,
				      .group = op->group,
				      .send = op->items[0].from,
				      .recv = op->items[0].to,
				      .count = op->count[0],
				      .counts = op->send_counts,
				      .recv_counts = op->recv_counts,
				      .buffers = op->buffers,
				      .buffer_count = op->item_count,
				      .dtype = op->dtype,
				      .op = op->op,
				      .root = op->root,
				      .options = &all};
	ls_status status = operation_issue(&call);
	memset(op->send_counts, 0x77, sizeof op->send_counts);
	memset(op->recv_counts, 0x77, sizeof op->recv_counts);
	return status;
}

/* ---- what must have come out ---- */

static void check_got(const struct operation *op, int i)
{
	const struct kind *kind = &kinds[op->kind];
	int me = op->self->rank, size = op->self->size;
	uint64_t get = got(op, i, me, size);
	const unsigned char *to = op->items[i].to;
	unsigned seed = seed_of(op, i);
	uint64_t first = kind->give == ALL ? given_before(op, i, 0, me) : 0;
	if (get == 0)
		return;
	if (kind->reduces) {
		values_check_reduced_part(to, first, get, op->dtype, op->op, size, seed);
	} else if (kind->get == ONE) {
		bool pairs = op->kind == OPERATION_EXCHANGE;
		values_check_filled(to, first, get, op->dtype, LS_SUM,
				    pairs ? partner(op->root, me, size) : op->root, seed);
	} else {
		for (int q = 0; q < size; q++) {
			uint64_t before = got_before(op, i, me, q);
			uint64_t count = got_before(op, i, me, q + 1) - before;
			first = is_alltoall(op) ? given_before(op, i, q, me) : 0;
			values_check_filled(to + before * ls_dtype_bytes(op->dtype), first, count,
					    op->dtype, LS_SUM, q, seed);
		}
	}
}

/* What this rank gave is as it was, but for what lies in place. */
static void check_given(const struct operation *op, int i)
{
	int me = op->self->rank, size = op->self->size;
	uint64_t give = given(op, i, me, size), get = got(op, i, me, size);
	ls_reduce_op filled = kinds[op->kind].reduces ? op->op : LS_SUM;
	const unsigned char *from = op->items[i].from;
	unsigned seed = seed_of(op, i);
	if (give == 0)
		return;
	if (!op->items[i].in_place) {
		values_check_filled(from, 0, give, op->dtype, filled, me, seed);
		return;
	}
	if (kinds[op->kind].give != ALL)
		return;
	uint64_t before = given_before(op, i, me, me), behind = before + get;
	values_check_filled(from, 0, before, op->dtype, filled, me, seed);
	values_check_filled(from + behind * ls_dtype_bytes(op->dtype), behind, give - behind,
			    op->dtype, filled, me, seed);
}

void operation_close(struct operation *op)
{
	for (int i = 0; i < op->item_count; i++) {
		struct operation_item *item = &op->items[i];
		check_got(op, i);
		check_given(op, i);
		buffer_close(&item->outer, op);
		buffer_close(&item->send, op);
		buffer_close(&item->recv, op);
	}
}

static void buffer_drop(struct operation_buffer *buffer, const struct operation *op)
{
	if (buffer->memory)
		values_free(op->group, buffer->memory, buffer->plain);
	buffer->memory = NULL;
}

void operation_drop(struct operation *op)
{
	for (int i = 0; i < op->item_count; i++) {
		buffer_drop(&op->items[i].outer, op);
		buffer_drop(&op->items[i].send, op);
		buffer_drop(&op->items[i].recv, op);
	}
}

/* ---- in words ---- */

static const char *name_of(ls_dtype dtype)
{
	static const char *const names[] = {
#define X(name, value, bytes, text) [value] = (text),
		LS_DTYPES(X)
#undef X
	};
	return names[dtype];
}

static const char *name_of_op(ls_reduce_op op)
{
	static const char *const names[] = {
#define X(name, value, text) [value] = (text),
		LS_REDUCE_OPS(X)
#undef X
	};
	return names[op];
}

static void add(char *text, size_t bytes, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void add(char *text, size_t bytes, const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(text + length, bytes - length, format, arguments);
	va_end(arguments);
}

void operation_text(const struct operation *op, int size, char *text, size_t bytes)
{
	const struct kind *kind = &kinds[op->kind];
	const struct operation_place *place = &op->place;
	bool in_place = place->in_place && may_be_in_place(op);
	snprintf(text, bytes, "%s", kind->name);
	if (kind->give == NONE)
		return;
	add(text, bytes, " of %s", name_of(op->dtype));
	if (kind->reduces)
		add(text, bytes, ", %s", name_of_op(op->op));
	if (kind->rooted)
		add(text, bytes, ", root %d", op->root);
	add(text, bytes, ", count");
	int rows = op->kind == OPERATION_ALLTOALLV ? size : 1;
	for (int i = 0; !kind->lists && i < op->item_count; i++)
		add(text, bytes, " %llu", (unsigned long long)op->count[i]);
	for (int i = 0; kind->lists && i < rows * size; i++)
		add(text, bytes, "%s%llu", i && i % size == 0 ? " / " : " ",
		    (unsigned long long)op->counts[i / size][i % size]);
	add(text, bytes, ", %s%s", place->plain_send ? "plain" : "mapped",
	    in_place            ? " in place"
	    : place->plain_recv ? " to plain"
				: " to mapped");
	add(text, bytes, ", shift %u", place->shift % 8);
}

void operation_run(struct operation *op, const struct runner_rank *self, ls_group *group)
{
	char text[OPERATION_TEXT];
	operation_text(op, self->size, text, sizeof text);
	runner_note(self, "%s", text);
	operation_open(op, self, group);
	OK(operation_begin(op, NULL));
	operation_close(op);
}
