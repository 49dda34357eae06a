/* SPDX-License-Identifier: BSD-3-Clause
 * Two ranks, each with one stream or two, put operations there so that they wait for each other
 * only because a stream does its work in order. Run as `lockstep run -n 2 stream_order SCENE`. Each
 * rank checks what it is told, and exits with 0. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <lockstep/lockstep.h>
#include <lockstep/sim.h>

#include "base/must_fixture.h"

enum {
	LONG_MS = 60 * 1000, /* longer than the test may take: a proof must come before */
	SOON_MS = 1500,
};

struct self {
	ls_group *world, *first, *second;
	int rank;
	struct sim_stream *streams[2];
	_Atomic uint64_t ends_kernel;
	float in[4], out[4];
};

/* ---- operations ---- */

static ls_request *reduce(struct self *self, ls_group *group, int stream, uint32_t limit_ms)
{
	ls_request *op;
	struct ls_call_options options = {.size = sizeof options,
					  .stream = stream < 0 ? NULL : self->streams[stream],
					  .timeout_ms = limit_ms,
					  .request = &op};
	MUST(ls_allreduce(group, self->in, self->out, 1, LS_FLOAT32, LS_SUM, &options) == LS_OK);
	return op;
}

/* from: of a receive. */
static ls_request *message(struct self *self, bool sends, int from)
{
	ls_request *op;
	struct ls_call_options options = {
		.size = sizeof options, .stream = self->streams[0], .tag = 1, .request = &op};
	ls_status status =
		sends ? ls_send(self->world, self->in, 1, LS_FLOAT32, !self->rank, &options)
		      : ls_recv(self->world, self->out, 1, LS_FLOAT32, from, &options);
	MUST(status == LS_OK);
	return op;
}

static void ends(ls_request *op, ls_status expected)
{
	ls_status status = ls_wait(op, 0);
	if (status != expected)
		fprintf(stderr, "ls_wait: %s, expected %s\n", ls_status_name(status),
			ls_status_name(expected));
	MUST(status == expected);
	ls_request_free(op);
}

static void is_told(ls_group *group, const char *part)
{
	struct ls_failure failure = {.size = sizeof failure};
	MUST(ls_group_failure(group, &failure) == LS_OK);
	if (!strstr(failure.text, part))
		fprintf(stderr, "'%s' is not in: %s\n", part, failure.text);
	MUST(strstr(failure.text, part));
}

/* ---- scenes ---- */

/* The groups in the order of this rank, which is the other one's order reversed. */
static void own_order(struct self *self, ls_group *order[2])
{
	order[0] = self->rank ? self->second : self->first;
	order[1] = self->rank ? self->first : self->second;
}

static void opposite(struct self *self, int waits_for)
{
	ls_group *order[2];
	ls_request *ops[2];
	own_order(self, order);
	for (int i = 0; i < 2; i++)
		ops[i] = reduce(self, order[i], 0, 0);
	ends(ops[waits_for], LS_DEADLOCK);
	ends(ops[!waits_for], LS_DEADLOCK);
	is_told(order[waits_for], "ranks 0 and 1 wait for each other and can never go on");
	is_told(order[waits_for], "A stream does its work in order: on rank ");
}

static void groups(struct self *self)
{
	opposite(self, 0);
}

/* Each rank waits for the operation that its stream has not come to. */
static void behind(struct self *self)
{
	opposite(self, 1);
}

/* Neither rank waits in ls_wait at first: only the progress threads do. */
static void exchange(struct self *self, int from)
{
	ls_request *receive = message(self, false, from), *send = message(self, true, -1);
	ends(self->rank ? send : receive, LS_DEADLOCK);
	ends(self->rank ? receive : send, LS_DEADLOCK);
	is_told(self->world, "ranks 0 and 1 wait for each other and can never go on");
	is_told(self->world, "A stream does its work in order: on rank ");
}

static void messages(struct self *self)
{
	exchange(self, !self->rank);
}

/* Each receive has the message of the other rank, whose stream never comes to it. */
static void anyone(struct self *self)
{
	exchange(self, LS_ANY_SOURCE);
}

/* Rank 0 has no message, and rank 1 waits for rank 0 before it would send one. */
static void nobody(struct self *self)
{
	ls_request *receive = self->rank ? NULL : message(self, false, LS_ANY_SOURCE);
	ends(reduce(self, self->first, 0, 0), LS_DEADLOCK);
	if (receive)
		ends(receive, LS_DEADLOCK);
}

/* On rank 0 a second stream waits for the first one. */
static void followed(struct self *self)
{
	ls_group *order[2];
	ls_request *ops[2];
	own_order(self, order);
	ops[0] = reduce(self, order[0], 0, 0);
	if (self->rank == 0)
		MUST(ls_request_follow(ops[0], self->streams[1]) == LS_OK);
	ops[1] = reduce(self, order[1], self->rank == 0, 0);
	ends(ops[1], LS_DEADLOCK);
	ends(ops[0], LS_DEADLOCK);
	is_told(order[1], "ranks 0 and 1 wait for each other and can never go on");
}

/* The stream waits for an operation of another stream, which ends; not so what is in front of
 * both. */
static void joined(struct self *self)
{
	ls_group *order[2];
	ls_request *ops[2], *other;
	own_order(self, order);
	ops[0] = reduce(self, order[0], 0, 0);
	other = reduce(self, self->world, 1, 0);
	MUST(ls_request_follow(other, self->streams[0]) == LS_OK);
	ops[1] = reduce(self, order[1], 0, 0);
	ends(other, LS_OK);
	ends(ops[1], LS_DEADLOCK);
	ends(ops[0], LS_DEADLOCK);
}

/* On rank 0 the stream waits for a collective that comes after one that is on no stream. */
static void lane(struct self *self)
{
	ls_request *ops[3];
	int count = 0;
	if (self->rank == 0) {
		ops[count++] = reduce(self, self->first, -1, 0);
		ops[count++] = reduce(self, self->first, 0, 0);
	}
	ops[count++] = reduce(self, self->second, 0, 0);
	while (count > 0)
		ends(ops[--count], LS_DEADLOCK);
	if (self->rank == 1)
		is_told(self->second, "wait for each other and can never go on");
}

/* What is in front has a time limit of its own, so what is behind is only late. */
static void limited(struct self *self)
{
	ls_request *ops[2];
	ls_group *order[2];
	own_order(self, order);
	ops[0] = reduce(self, order[0], 0, order[0] == self->first ? SOON_MS : 0);
	ops[1] = reduce(self, order[1], 0, order[1] == self->first ? SOON_MS : 0);
	for (int i = 0; i < 2; i++)
		ends(ops[i], order[i] == self->first ? LS_TIMED_OUT : LS_OK);
}

static enum sim_step spin(struct sim *sim, void *argument)
{
	_Atomic uint64_t *ends = *(_Atomic uint64_t **)argument;
	(void)sim;
	return atomic_load(ends) ? SIM_STEP_DONE : SIM_STEP_SPINS;
}

/* Devices look again at kernels that spin whenever another one is done. */
static enum sim_step end_spin(struct sim *sim, void *argument)
{
	(void)sim;
	atomic_store(*(_Atomic uint64_t **)argument, 1);
	return SIM_STEP_DONE;
}

/* Ends the kernel when rank 0 says so. */
static void *end_kernel(void *argument)
{
	static const struct sim_kernel ends_spin = {"end", end_spin};
	struct self *self = argument;
	_Atomic uint64_t *at = &self->ends_kernel;
	float word;
	MUST(ls_recv(self->second, &word, 1, LS_FLOAT32, 0, NULL) == LS_OK);
	MUST(sim_launch(self->streams[1], &ends_spin, &at, sizeof at) == SIM_OK);
	return NULL;
}

/* A kernel of the program is in front, and nothing is known of it. */
static void kernel(struct self *self)
{
	static const struct sim_kernel spins = {"spin", spin};
	_Atomic uint64_t *argument = &self->ends_kernel;
	pthread_t thread;
	if (self->rank == 1) {
		MUST(sim_launch(self->streams[0], &spins, &argument, sizeof argument) == SIM_OK);
		MUST(pthread_create(&thread, NULL, end_kernel, self) == 0);
	}
	ends(reduce(self, self->world, 0, SOON_MS), LS_TIMED_OUT);
	if (self->rank == 0)
		MUST(ls_send(self->second, self->in, 1, LS_FLOAT32, 1, NULL) == LS_OK);
	else
		pthread_join(thread, NULL);
	is_told(self->world, "rank 1 is elsewhere (busy in all-reduce #");
	is_told(self->world, ", to which its stream has not come yet");
}

/* The queue has no room for one operation, so the calls wait themselves until it is done. */
static void narrow(struct self *self)
{
	ls_group *order[2];
	own_order(self, order);
	ends(reduce(self, order[0], 0, 0), LS_DEADLOCK);
	is_told(order[0], "ranks 0 and 1 wait for each other and can never go on");
}

/* The call itself waits until there is room in the queue, which two operations of the first group
 * fill. stream: where the second of them is. */
static void fill(struct self *self, int stream)
{
	ls_group *order[2];
	ls_request *ops[2], *late = NULL;
	struct ls_call_options options = {
		.size = sizeof options, .stream = self->streams[stream], .request = &late};
	own_order(self, order);
	ops[0] = reduce(self, order[0], 0, 0);
	ops[1] = reduce(self, order[0], stream, 0);
	/* When the first group fails there is room, perhaps before this call is told that its own
	 * group has failed, too. */
	ls_status status =
		ls_allreduce(order[1], self->in, self->out, 1, LS_FLOAT32, LS_SUM, &options);
	if (status == LS_OK)
		ends(late, LS_DEADLOCK);
	else
		MUST(status == LS_DEADLOCK && !late);
	is_told(order[1], "ranks 0 and 1 wait for each other and can never go on");
	ends(ops[0], LS_DEADLOCK);
	ends(ops[1], LS_DEADLOCK);
}

static void full(struct self *self)
{
	fill(self, 0);
}

/* Two streams have one queue, and what comes next is of another stream than the first one. */
static void shared(struct self *self)
{
	fill(self, 1);
}

/* The device of rank 1 is busy with a kernel, which holds up the queue. */
static void busy(struct self *self)
{
	static const struct sim_kernel spins = {"spin", spin}, ends_spin = {"end", end_spin};
	_Atomic uint64_t *argument = &self->ends_kernel;
	struct ls_call_options options = {
		.size = sizeof options, .stream = self->streams[0], .timeout_ms = SOON_MS};
	ls_request *ops[2];
	if (self->rank == 1)
		MUST(sim_launch(self->streams[0], &spins, &argument, sizeof argument) == SIM_OK);
	for (int i = 0; i < 2; i++)
		ops[i] = reduce(self, self->first, self->rank - 1, 0);
	if (self->rank == 0) {
		ends(reduce(self, self->second, -1, 2 * SOON_MS), LS_TIMED_OUT);
	} else {
		MUST(ls_allreduce(self->second, self->in, self->out, 1, LS_FLOAT32, LS_SUM,
				  &options) == LS_TIMED_OUT);
		MUST(sim_launch(self->streams[1], &ends_spin, &argument, sizeof argument) == SIM_OK);
	}
	is_told(self->second, "rank 1 is elsewhere (");
	is_told(self->second, ", for which the queue of its stream had no room");
	for (int i = 0; i < 2; i++)
		ends(ops[i], LS_OK);
}

static void *receive(void *argument)
{
	struct self *self = argument;
	ls_status status = ls_recv(self->world, self->out, 1, LS_FLOAT32, !self->rank, NULL);
	MUST(status == LS_DEADLOCK);
	return NULL;
}

/* The main thread joins another one. The device's threads sleep, and wake neither. */
static void joins(struct self *self)
{
	pthread_t thread;
	MUST(pthread_create(&thread, NULL, receive, self) == 0);
	pthread_join(thread, NULL);
	is_told(self->world, "ranks 0 and 1 wait for each other and can never go on");
}

/* ---- */

static const struct {
	const char *name;
	void (*play)(struct self *self);
	const char *device;
} scenes[] = {{"groups", groups, "sim:0"},
	      {"behind", behind, "sim:0"},
	      {"messages", messages, "sim:0"},
	      {"anyone", anyone, "sim:0"},
	      {"nobody", nobody, "sim:0"},
	      {"joins", joins, "sim:0"},
	      {"followed", followed, "sim:0"},
	      {"lane", lane, "sim:0"},
	      {"limited", limited, "sim:0"},
	      {"kernel", kernel, "sim:0"},
	      {"joined", joined, "sim:0"},
	      {"narrow", narrow, "sim:0,queues=1,depth=4"},
	      {"full", full, "sim:0,queues=1,depth=16"},
	      {"shared", shared, "sim:0,queues=1,depth=16"},
	      {"busy", busy, "sim:0,queues=2,depth=16"}};
enum { SCENES = sizeof scenes / sizeof scenes[0] };

int main(int argc, char **argv)
{
	struct self self = {0};
	struct ls_group_options options = {.size = sizeof options, .timeout_ms = LONG_MS};
	int scene = 0;
	while (argc == 2 && scene < SCENES && strcmp(argv[1], scenes[scene].name) != 0)
		scene++;
	MUST(argc == 2 && scene < SCENES);
	options.device = scenes[scene].device;
	MUST(ls_group_open(&options, &self.world) == LS_OK);
	self.rank = ls_group_rank(self.world);
	MUST(ls_group_split(self.world, 0, self.rank, &self.first) == LS_OK);
	MUST(ls_group_split(self.world, 0, self.rank, &self.second) == LS_OK);
	for (int i = 0; i < 2; i++)
		MUST(sim_stream_open(lockstep_sim(), 0, &self.streams[i]) == SIM_OK);
	scenes[scene].play(&self);
	for (int i = 0; i < 2; i++) {
		MUST(ls_device_forget(self.world, self.streams[i]) == LS_OK);
		MUST(sim_stream_close(self.streams[i]) == SIM_OK);
	}
	ls_group_close(self.second);
	ls_group_close(self.first);
	ls_group_close(self.world);
	return 0;
}
