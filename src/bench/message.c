/* SPDX-License-Identifier: BSD-3-Clause
 * One round of messages, or of a group that is opened and closed, for measure.c to check and time.
 * Includes nothing of Lockstep: see bench.h. Messages go from rank 0 to rank 1; other ranks do
 * nothing. */
#include "bench/bench.h"

enum { SENDER, RECEIVER, TAG_BITS = 15, TAGS = 1 << TAG_BITS };

int bench_round_source(const struct bench_runtime *runtime, enum bench_op op)
{
	if (!bench_needs_two(op))
		return -1;
	if (runtime->rank == RECEIVER)
		return SENDER;
	return op == BENCH_PING_PONG && runtime->rank == SENDER ? RECEIVER : -1;
}

static bool ping_pong(const struct bench_runtime *runtime, const struct bench_case *what,
		      size_t count)
{
	const struct bench_messages *messages = runtime->messages;
	void *state = runtime->state;
	int peer = SENDER + RECEIVER - runtime->rank;

	if (runtime->rank == SENDER)
		return messages->send(state, what->send, count, peer, 0) &&
		       messages->recv(state, what->recv, count, peer, 0);
	return messages->recv(state, what->recv, count, peer, 0) &&
	       messages->send(state, what->send, count, peer, 0);
}

static bool run_window(const struct bench_runtime *runtime, const struct bench_case *what,
		       size_t count)
{
	const struct bench_messages *messages = runtime->messages;
	void *state = runtime->state;
	int size = bench_round_messages(what->op, what->bytes);

	if (runtime->rank == SENDER) {
		for (int i = 0; i < size; i++)
			if (!messages->isend(state, i, what->send, count, RECEIVER, 0))
				return false;
		return messages->finish(state, size) &&
		       messages->recv(state, what->recv, 1, RECEIVER, 0);
	}
	for (int i = 0; i < size; i++)
		if (!messages->irecv(state, i, what->recv, count, SENDER, 0))
			return false;
	return messages->finish(state, size) && messages->send(state, what->send, 1, SENDER, 0);
}

/* Another tag for each of TAGS receives, in no order: every step can be undone, so no two receives
 * get the same tag. */
static int tag_of(int i)
{
	unsigned tag = (unsigned)i * 0x5bd1 + 0x3a7;

	tag %= TAGS;
	tag ^= tag >> 7;
	tag = tag * 0x2c1b % TAGS;
	return (int)(tag ^ tag >> 8);
}

/* A stride of about `count` / golden ratio that visits every number below `count`. So messages are
 * sent in another order than receives were posted, and match receives all over the list. */
static int stride_of(int count)
{
	for (int stride = (int)(0.618 * count);; stride++) {
		int a = count, b = stride;
		while (b > 0) {
			int rest = a % b;
			a = b;
			b = rest;
		}
		if (a == 1)
			return stride % count;
	}
}

/* All receives are posted before the first message is sent. */
static bool run_match(const struct bench_runtime *runtime, const struct bench_case *what)
{
	const struct bench_messages *messages = runtime->messages;
	const size_t elements = BENCH_SMALL_BYTES / sizeof(float);
	void *state = runtime->state;
	int count = bench_round_messages(what->op, what->bytes);

	if (runtime->rank == RECEIVER) {
		for (int i = 0; i < count; i++)
			if (!messages->irecv(state, i, what->recv + (size_t)i * elements, elements,
					     SENDER, tag_of(i)))
				return false;
		return messages->send(state, what->send, 1, SENDER, 0) &&
		       messages->finish(state, count);
	}
	if (!messages->recv(state, what->recv, 1, RECEIVER, 0))
		return false;
	for (int i = 0, at = 0, stride = stride_of(count); i < count; i++) {
		if (!messages->isend(state, i, what->send + (size_t)at * elements, elements,
				     RECEIVER, tag_of(at)))
			return false;
		at += stride;
		at -= at >= count ? count : 0;
	}
	return messages->finish(state, count);
}

bool bench_round(const struct bench_runtime *runtime, const struct bench_case *what)
{
	size_t count = bench_count(what->op, what->bytes, runtime->size);

	if (what->op == BENCH_GROUP)
		return runtime->messages->regroup(runtime->state);
	if (runtime->rank > RECEIVER)
		return true;
	if (what->op == BENCH_PING_PONG)
		return ping_pong(runtime, what, count);
	return what->op == BENCH_MATCH ? run_match(runtime, what) : run_window(runtime, what, count);
}
