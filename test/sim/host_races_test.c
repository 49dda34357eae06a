/* SPDX-License-Identifier: BSD-3-Clause
 * LOCKSTEP_CHECK=1 with ranks and memory of the host. A call that touches a buffer in use is
 * refused, with both call sites. Correct programs run. */
#include "races_fixture.h"

/* ---- buffers of the host ---- */

static void host_buffers(struct rank *rank)
{
	static int32_t a[COUNT], b[COUNT], c[COUNT];
	ls_request *op, *none;
	if (rank->rank > 0) {
		take_part(3, rank);
		return;
	}
	MUST(sum(rank, a, b, -1, &op) == LS_OK);
	/* An operation owns its result, and the data that it sends. */
	MUST(ls_send(rank->group, b + 10, 5, LS_INT32, 1, NULL) == LS_BAD_ARGUMENT);
	MUST(SAID("send", "reads the 20 bytes", "all-reduce #1", "may still write",
		  "host_races_test.c:"));
	MUST(ls_irecv(rank->group, a + COUNT - 1, 9, LS_INT32, 1, NULL, &none) == LS_BAD_ARGUMENT &&
	     !none);
	MUST(SAID("receive", "writes the 4 bytes", "may still read", "Wait for it first"));
	/* Two operations may read the same buffer. Any other buffer is free. */
	MUST(ls_isend(rank->group, a, 5, LS_INT32, 0, NULL, &none) == LS_OK);
	MUST(ls_recv(rank->group, c, 5, LS_INT32, 0, NULL) == LS_OK);
	end(none);
	/* Collectives of a group run one after the other. */
	allow(1);
	MUST(sum(rank, b, b, -1, NULL) == LS_OK);
	end(op);
	/* A call that a signal may interrupt, and that was not interrupted, is complete. */
	struct ls_call_options resumable = {.size = sizeof resumable, .request = &op, .resumable = 1};
	MUST(ls_allreduce(rank->group, b, b, COUNT, LS_INT32, LS_SUM, &resumable) == LS_OK && !op);
	MUST(ls_isend(rank->group, b, 5, LS_INT32, 0, NULL, &none) == LS_OK);
	MUST(ls_recv(rank->group, a, 5, LS_INT32, 0, NULL) == LS_OK);
	end(none);
}

/* A receive reuses the buffer of a long send that was not received yet. After a wait for the send
 * it may. */
static void messages(struct rank *rank)
{
	static int32_t a[LONG], b[LONG];
	ls_request *op, *none;
	int32_t value = 1, got = 0;
	if (rank->rank == 1) {
		await_step(1);
		MUST(ls_recv(rank->group, b, LONG, LS_INT32, 0, NULL) == LS_OK);
		MUST(ls_send(rank->group, &value, 1, LS_INT32, 0, NULL) == LS_OK);
	}
	if (rank->rank > 0)
		return;
	MUST(ls_isend(rank->group, a, LONG, LS_INT32, 1, NULL, &op) == LS_OK);
	MUST(ls_irecv(rank->group, a + LONG / 2, 1, LS_INT32, 1, NULL, &none) == LS_BAD_ARGUMENT);
	MUST(SAID("receive", "writes the 4 bytes", "send #1", "may still read"));
	/* Also with a label, and in a batch; the other parts of the batch continue. */
	struct ls_call_options named = {.size = sizeof named, .label = "train.py:12 (step)"};
	MUST(ls_recv(rank->group, a, 1, LS_INT32, 1, &named) == LS_BAD_ARGUMENT);
	MUST(SAID("called from train.py:12 (step)"));
	MUST(ls_batch_begin(rank->group) == LS_OK);
	MUST(ls_send(rank->group, &value, 1, LS_INT32, 0, NULL) == LS_OK);
	MUST(ls_recv(rank->group, a, 1, LS_INT32, 0, NULL) == LS_BAD_ARGUMENT);
	MUST(ls_recv(rank->group, &got, 1, LS_INT32, 0, NULL) == LS_OK);
	MUST(ls_batch_end(rank->group, NULL) == LS_OK && got == 1);
	allow(1);
	end(op);
	MUST(ls_recv(rank->group, a + LONG / 2, 1, LS_INT32, 1, NULL) == LS_OK);
	MUST(a[LONG / 2] == 1);
}

/* A block of the arena that an operation still uses cannot be freed. */
static void blocks_of_the_host(struct rank *rank)
{
	static int32_t result[COUNT];
	ls_request *op;
	void *block;
	if (rank->rank > 0) {
		take_part(1, rank);
		return;
	}
	MUST(ls_alloc(rank->group, BYTES, &block) == LS_OK);
	memset(block, 0, BYTES);
	MUST(sum(rank, block, result, -1, &op) == LS_OK);
	MUST(ls_free(rank->group, block) == LS_BAD_ARGUMENT);
	MUST(SAID("ls_free", "frees the block", "all-reduce #1", "may still read 4000 bytes"));
	allow(1);
	end(op);
	MUST(ls_free(rank->group, block) == LS_OK);
}

static ls_status sum_two(struct rank *rank, void *first, void *second)
{
	const struct ls_buffers both[2] = {{first, first, 1}, {second, second, COUNT}};
	return ls_allreduce_many(rank->group, both, 2, LS_INT32, LS_SUM, NULL);
}

/* Nor can it be handed over, whichever part of it a send names. If one of several collectives is
 * wrong, none begins. */
static void hand_over(struct rank *rank, int32_t *mine)
{
	ls_request *op;
	void *block;
	MUST(ls_alloc(rank->group, BYTES, &block) == LS_OK);
	memset(block, 0, BYTES);
	MUST(ls_irecv(rank->group, (char *)block + 8, 1, LS_INT32, 1, NULL, &op) == LS_OK);
	MUST(ls_send_block(rank->group, block, 1, LS_INT32, 1, NULL) == LS_BAD_ARGUMENT);
	MUST(SAID("ls_send_block", "hands over the block", "receive #1", "may still write 4 bytes"));
	MUST(sum_two(rank, mine, block) == LS_BAD_ARGUMENT);
	MUST(SAID("all-reduce", "receive #1"));
	allow(1);
	end(op);
	MUST(ls_send_block(rank->group, block, COUNT, LS_INT32, 1, NULL) == LS_OK);
}

/* Nor can the rank free it that has received it. */
static void take_over(struct rank *rank, int32_t *mine)
{
	ls_request *op;
	void *block;
	await_step(1);
	MUST(ls_send(rank->group, mine, 1, LS_INT32, 0, NULL) == LS_OK);
	MUST(ls_recv_block(rank->group, &block, COUNT, LS_INT32, 0, NULL) == LS_OK);
	MUST(ls_irecv(rank->group, (char *)block + 8, 1, LS_INT32, 1, NULL, &op) == LS_OK);
	MUST(ls_free(rank->group, block) == LS_BAD_ARGUMENT);
	MUST(SAID("ls_free", "frees the block", "receive", "may still write 4 bytes"));
	MUST(ls_send(rank->group, mine, 1, LS_INT32, 1, NULL) == LS_OK);
	end(op);
	MUST(ls_free(rank->group, block) == LS_OK);
}

static void blocks_that_are_sent(struct rank *rank)
{
	static int32_t all[RANKS][COUNT];
	int32_t *mine = all[rank->rank];
	if (rank->rank == 0)
		hand_over(rank, mine);
	else if (rank->rank == 1)
		take_over(rank, mine);
	MUST(sum_two(rank, mine, mine) == LS_OK);
}

/* ---- stores of the program ---- */

static ls_status send_in_batch(ls_group *group, const int32_t *out, ls_request **op)
{
	MUST(ls_batch_begin(group) == LS_OK);
	MUST(ls_send(group, out, LONG, LS_INT32, 1, NULL) == LS_OK);
	return ls_batch_end(group, op);
}

enum way { BY_ALLREDUCE, BY_ISEND, BY_BATCH, WAYS };

/* Rank 0 stores to what an operation is to send, before the operation is complete. changes: the
 * store changes something. */
static void store_too_early(struct rank *rank, ls_group *group, enum way way, bool changes)
{
	static int32_t out[LONG], in[RANKS][LONG], mine[RANKS][COUNT];
	ls_request *op = NULL;
	ls_status status = LS_OK;
	struct ls_failure failure = {.size = sizeof failure};
	struct ls_call_options options = {.size = sizeof options, .request = &op};
	if (rank->rank > 0)
		await_step(1);
	if (way == BY_ALLREDUCE)
		status = ls_allreduce(group, rank->rank == 0 ? out : mine[rank->rank],
				      in[rank->rank], COUNT, LS_INT32, LS_SUM, &options);
	else if (rank->rank == 0 && way == BY_ISEND)
		status = ls_isend(group, out, LONG, LS_INT32, 1, NULL, &op);
	else if (rank->rank == 0)
		status = send_in_batch(group, out, &op);
	else if (rank->rank == 1)
		status = ls_recv(group, in[1], LONG, LS_INT32, 0, NULL);
	MUST(status == LS_OK || (changes && status == LS_ABORTED));
	if (rank->rank == 0) {
		out[COUNT - 1] += changes;
		allow(1);
	}
	if (op)
		status = ls_wait(op, 0);
	ls_request_free(op);
	MUST(status == LS_OK || (changes && status == LS_ABORTED));
	MUST(rank->rank > 0 || (status == LS_ABORTED) == changes);
	MUST(ls_group_failure(group, &failure) == LS_OK);
	if (rank->rank > 0 || !changes)
		return;
	MUST(strstr(failure.text, "the program has changed what "));
	MUST(strstr(failure.text, way == BY_ALLREDUCE ? "all-reduce #" : "send #"));
	MUST(strstr(failure.text, "host_races_test.c:"));
}

static enum way store_way;
static bool changes_it;

static void store(struct rank *rank)
{
	ls_group *group; /* it fails, and the world does not */
	MUST(ls_group_split(rank->group, 0, rank->rank, &group) == LS_OK);
	store_too_early(rank, group, store_way, changes_it);
	MUST(ls_barrier(rank->group, NULL) == LS_OK);
	ls_group_close(group);
}

static void stores(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * WAYS; i++) {
		store_way = (enum way)(i / 2);
		changes_it = i % 2;
		check_job(store);
	}
}

/* After a failure buffers belong to the program again, also for use in another group. */
static void after_failure(struct rank *rank)
{
	static int32_t all[RANKS][LONG];
	int32_t *mine = all[rank->rank];
	ls_group *other;
	ls_request *op;
	MUST(ls_group_split(rank->group, 0, rank->rank, &other) == LS_OK);
	struct ls_call_options options = {.size = sizeof options, .request = &op};
	ls_status status = ls_allreduce(other, mine, mine, COUNT, LS_INT32, LS_SUM, &options);
	MUST(status == LS_OK || status == LS_ABORTED);
	if (rank->rank == 0)
		MUST(ls_group_abort(other, "the test wants it so") == LS_OK);
	if (op)
		status = ls_wait(op, 0);
	MUST(status == LS_OK || status == LS_ABORTED);
	ls_request_free(op);
	MUST(sum(rank, mine, mine, -1, NULL) == LS_OK);
	ls_group_close(other);
}

/* ---- the tests ---- */

static void on_the_host(void **state)
{
	(void)state;
	check_job(host_buffers);
	check_job(messages);
	check_job(blocks_of_the_host);
	check_job(blocks_that_are_sent);
}

static void failures(void **state)
{
	(void)state;
	check_job(after_failure);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_the_host),
		cmocka_unit_test(stores),
		cmocka_unit_test(failures),
	};
	if (setenv("LOCKSTEP_CHECK", "1", 1) != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
