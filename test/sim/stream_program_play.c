/* SPDX-License-Identifier: BSD-3-Clause
 * What the threads of a program on streams do. */
#include <string.h>

#include "base/clock.h"
#include "stream_program_private.h"

/* One thread of a rank. */
struct player {
	struct stream_program *program;
	struct rank_state *state;
	int rank, thread;
};

/* ---- waiting ---- */

bool await_stream(struct rank_state *state, int stream)
{
	struct waiter waiter = {.bell = &state->bell, .look_fd = -1};
	uint64_t number = ++state->numbers[stream];
	struct wait_word words[] = {
		{.word = &state->stored[stream], .edge = {.value = number, .owner = -1, .peer = -1}},
		{.word = &state->failed, .edge = {.value = 1, .owner = -1, .peer = -1}}};
	struct wait_call call = {.words = words, .count = 2, .any = true, .deadline_ns = CLOCK_NEVER};
	int peer;
	/* In some programs one call fails. */
	enum sim_error error = SIM_FAILED;
	for (int tries = 0; error != SIM_OK && tries < 2; tries++)
		error = sim_store(state->streams[stream], &state->stored[stream], number,
				  &state->bell);
	if (error != SIM_OK)
		return false;
	ls_status status = wait_words(&waiter, &call, &peer);
	return status == LS_OK && atomic_load(&state->failed) == 0;
}

void give_up(struct stream_program *program, int rank, int thread)
{
	struct rank_state *state = &program->all[rank];
	state->failed_in[thread] = true;
	for (int i = 0; i < GROUPS; i++)
		if (state->groups[i] &&
		    ls_group_abort(state->groups[i], "its program gives up") == LS_BAD_ARGUMENT)
			wrong(state, "a group cannot be aborted", -1, i);
	if (program->fault == STREAM_PROGRAM_WELL)
		wrong(state, "a call has failed", -1, thread);
}

/* Whether the status is LS_OK. No fault makes a call wrong. */
static bool is_ok(const struct player *me, int step, const char *call, ls_status status)
{
	if (status == LS_BAD_ARGUMENT ||
	    (status != LS_OK && me->program->fault == STREAM_PROGRAM_WELL))
		wrong(me->state, call, step, (int)status);
	return status == LS_OK;
}

static bool await_handle(struct player *me, int step, ls_request **op)
{
	int index = 0;
	ls_status status = LS_PENDING;
	if (!*op)
		return true;
	if (step % 3 == 1)
		status = ls_test(*op);
	if (status == LS_PENDING)
		status = step % 3 == 2 ? ls_wait_any((ls_request *const *)op, 1, 0, &index)
				       : ls_wait(*op, 0);
	ls_request_free(*op);
	*op = NULL;
	stream_program_progress();
	return is_ok(me, step, "a wait", status);
}

/* Ranks that leave do not wait. */
void end_handles(struct stream_program *program, int rank, int thread)
{
	struct rank_state *state = &program->all[rank];
	struct player me = {program, state, rank, thread};
	for (int i = 0; i < program->counts[thread]; i++) {
		struct note *note = &state->notes[thread][i];
		for (int j = 0; j < 2; j++) {
			if (state->stopped) {
				ls_request_free(note->ops[j]);
				note->ops[j] = NULL;
			} else if (!await_handle(&me, i, &note->ops[j])) {
				give_up(program, rank, thread);
			}
		}
		ls_status freed[] = {ls_device_free(state->groups[0], note->send),
				     ls_device_free(state->groups[0], note->recv)};
		if (freed[0] != LS_OK || freed[1] != LS_OK)
			give_up(program, rank, thread);
		note->send = note->recv = NULL;
	}
}

/* ---- memory ---- */

/* Memory of the device for this many elements; memory of the host, if the device has none left.
 * False: an error. */
static bool allocate(struct player *me, int step, int count, int stream, void *host, void **block,
		     void **address)
{
	ls_status status = ls_device_alloc(me->state->groups[0], (size_t)count * sizeof(int32_t),
					   me->state->streams[stream], block);
	*address = *block ? *block : host;
	return status == LS_OUT_OF_MEMORY || is_ok(me, step, "ls_device_alloc", status);
}

struct copying {
	void *to;
	const void *from;
	size_t bytes;
};

static enum sim_step run_copying(struct sim *sim, void *argument)
{
	const struct copying *copying = argument;
	memcpy(sim_where(sim, copying->to), sim_where(sim, copying->from), copying->bytes);
	return SIM_STEP_DONE;
}
static const struct sim_kernel copies = {"copies", run_copying};

/* For odd counts a kernel fills it: LOCKSTEP_CHECK=1 sees both ways. */
static bool copy(struct player *me, int stream, void *to, const void *from, int count)
{
	struct copying copying = {to, from, (size_t)count * sizeof(int32_t)};
	const struct sim_use uses[] = {{from, copying.bytes, false}, {to, copying.bytes, true}};
	struct sim_stream *on = me->state->streams[stream];
	enum sim_error error = SIM_OK;
	if (count % 2)
		error = sim_launch_using(on, &copies, &copying, sizeof copying, uses, 2);
	else if (count > 0)
		error = sim_copy(on, to, from, copying.bytes);
	if (error != SIM_OK && me->program->fault == STREAM_PROGRAM_WELL)
		wrong(me->state, "a copy", -1, (int)error);
	return error == SIM_OK;
}

static bool free_block(struct player *me, int step, void **block)
{
	ls_status status = ls_device_free(me->state->groups[0], *block);
	*block = NULL;
	return is_ok(me, step, "ls_device_free", status);
}

/* A block that only this thread uses, first on one of its streams, then on another. */
static bool use_memory(struct player *me, int step, uint64_t *random)
{
	enum { MARKS = 16 };
	struct rank_state *state = me->state;
	int32_t marks[MARKS], seen[MARKS] = {0};
	int first = FIRST_STREAMS, second = FIRST_STREAMS + 1;
	size_t bytes = sizeof marks + draw_of(random, 4) * (1 << 19);
	void *block;
	ls_status status = ls_device_alloc(state->groups[0], bytes, state->streams[first], &block);
	if (status == LS_OUT_OF_MEMORY)
		return true;
	if (!is_ok(me, step, "ls_device_alloc", status))
		return false;
	for (int i = 0; i < MARKS; i++)
		marks[i] = step * MARKS + i;
	bool fine = copy(me, first, block, marks, MARKS) && await_stream(state, first);
	if (fine)
		fine = is_ok(me, step, "ls_device_record",
			     ls_device_record(state->groups[0], block, state->streams[second]));
	fine = fine && copy(me, second, seen, block, MARKS);
	fine &= free_block(me, step, &block);
	if (draw_of(random, 2))
		fine &= is_ok(me, step, "ls_device_trim", ls_device_trim(state->groups[0], 0));
	/* Also after a failure, because the device touches `marks`. */
	bool done = await_stream(state, first);
	done = await_stream(state, second) && done;
	if (fine && done && memcmp(seen, marks, sizeof marks) != 0)
		wrong(state, "memory that others have written to", step, seen[0]);
	return fine && done;
}

/* ---- steps ---- */

static void called_back(void *data, ls_status status)
{
	struct note *note = data;
	if (status == LS_OK)
		atomic_fetch_add(&note->callbacks, 1);
}

static struct ls_call_options options_of(struct player *me, const struct step *step,
					 struct note *note)
{
	struct ls_call_options options = {.size = sizeof options, .tag = step->tag};
	if (step->stream != ON_HOST)
		options.stream = me->state->streams[step->stream];
	if (step->form == CALLBACK) {
		options.callback = called_back;
		options.callback_data = note;
	}
	return options;
}

static ls_status collective(struct player *me, const struct step *step, struct note *note,
			    const void *send, void *recv)
{
	ls_group *group = me->state->groups[step->group];
	uint64_t count = (uint64_t)step->count;
	struct ls_call_options options = options_of(me, step, note);
	/* On the host a callback alone would not show that the operation is complete. */
	if (step->form == HANDLE || step->form == LATER ||
	    (step->form == CALLBACK && step->stream == ON_HOST))
		options.request = &note->ops[0];
	note->expected_callbacks = step->form == CALLBACK;
	switch (step->kind) {
	case BROADCAST:
		return ls_broadcast(group, send, recv, count, LS_INT32, step->root, &options);
	case REDUCE:
		return ls_reduce(group, send, recv, count, LS_INT32, LS_SUM, step->root, &options);
	case ALLGATHER:
		return ls_allgather(group, send, recv, count, LS_INT32, &options);
	case ALLTOALL:
		return ls_alltoall(group, send, recv, count, LS_INT32, &options);
	case BARRIER:
		return ls_barrier(group, &options);
	default:
		return ls_allreduce(group, send, recv, count, LS_INT32, LS_SUM, &options);
	}
}

static bool sends(const struct step *step, int place)
{
	return step->kind == SHIFT || place == step->root;
}

static bool receives(const struct stream_program *program, const struct step *step, int place)
{
	return step->kind == SHIFT || place == (step->root + 1) % size_of(program, step->group);
}

/* With handles the receive of a message on the host blocks, so that no rank waits for a later step
 * of another one. */
static ls_status exchange(struct player *me, const struct step *step, struct note *note,
			  const void *send, void *recv)
{
	ls_group *group = me->state->groups[step->group];
	int size = size_of(me->program, step->group),
	    place = place_in(me->program, step->group, me->rank);
	int to = (place + 1) % size, from = (place + size - 1) % size;
	bool has_handle = step->form == HANDLE || step->form == LATER;
	struct ls_call_options options = options_of(me, step, note);
	uint64_t count = (uint64_t)step->count;
	ls_status status = LS_OK;
	note->expected_callbacks =
		step->form != CALLBACK ? 0 : sends(step, place) + receives(me->program, step, place);
	if (step->form == BATCH)
		status = ls_batch_begin(group);
	bool batch = step->form == BATCH && status == LS_OK;
	if (status == LS_OK && sends(step, place))
		status = has_handle ? ls_isend(group, send, count, LS_INT32, to, &options,
					       &note->ops[0])
				    : ls_send(group, send, count, LS_INT32, to, &options);
	if (status == LS_OK && receives(me->program, step, place))
		status = has_handle && step->stream != ON_HOST
				 ? ls_irecv(group, recv, count, LS_INT32, from, &options,
					    &note->ops[1])
				 : ls_recv(group, recv, count, LS_INT32, from, &options);
	if (batch) {
		ls_status ended = ls_batch_end(group, &note->ops[0]);
		status = status == LS_OK ? ended : status;
	}
	return status;
}

/* The data of this rank is in memory of the device, and the result comes back from there. */
static bool on_device(struct player *me, int number, const struct step *step, struct note *note,
		      int in, int out)
{
	struct rank_state *state = me->state;
	int first = me->thread == 0 ? 0 : FIRST_STREAMS;
	int stream = step->stream == ON_HOST ? first : step->stream;
	int reader = step->follows == ON_HOST ? stream : step->follows;
	void *send = note->in, *recv = note->out;
	bool in_place = step->where == IN_PLACE;
	if (!allocate(me, number, out, stream, note->out, &note->recv, &recv) ||
	    (!in_place && !allocate(me, number, in, stream, note->in, &note->send, &send)))
		return false;
	if (in_place)
		send = recv;
	if (send != note->in && !copy(me, stream, send, note->in, in))
		return false;
	/* A call without a stream needs its data at once, and so does one on memory of the host. */
	if (step->stream == ON_HOST && !await_stream(state, stream))
		return false;
	if (step->stream != ON_HOST && in_place && recv == note->out &&
	    !(await_stream(state, stream)))
		return false;
	ls_status status = step->kind < SHIFT ? collective(me, step, note, send, recv)
					      : exchange(me, step, note, send, recv);
	if (!is_ok(me, number, "an operation", status))
		return false;
	if (step->follows != ON_HOST &&
	    !is_ok(me, number, "ls_request_follow",
		   ls_request_follow(note->ops[0], state->streams[reader])))
		return false;
	if (note->recv && reader != stream &&
	    !is_ok(me, number, "ls_device_record",
		   ls_device_record(state->groups[0], note->recv, state->streams[reader])))
		return false;
	if (note->recv && !copy(me, reader, note->out, note->recv, out))
		return false;
	return step->frees_late ||
	       (free_block(me, number, &note->send) && free_block(me, number, &note->recv));
}

static bool play_step(struct player *me, int number)
{
	const struct step *step = &me->program->steps[me->thread][number];
	struct note *note = &me->state->notes[me->thread][number];
	int place = place_in(me->program, step->group, me->rank);
	if (place < 0)
		return true;
	int in = in_count(me->program, step, place), out = out_count(me->program, step, place);
	bool fine;
	if (step->where == HOST_MEMORY) {
		ls_status status = step->kind < SHIFT
					   ? collective(me, step, note, note->in, note->out)
					   : exchange(me, step, note, note->in, note->out);
		fine = is_ok(me, number, "an operation", status);
		if (fine && step->follows != ON_HOST)
			fine = is_ok(
				me, number, "ls_request_follow",
				ls_request_follow(note->ops[0], me->state->streams[step->follows]));
	} else {
		fine = on_device(me, number, step, note, in, out);
	}
	if (fine && step->form == HANDLE)
		fine = await_handle(me, number, &note->ops[0]) &&
		       await_handle(me, number, &note->ops[1]);
	note->called = fine;
	stream_program_progress();
	return fine;
}

/* ---- faults ---- */

static enum sim_step fail(struct sim *sim, void *argument)
{
	(void)sim;
	(void)argument;
	return SIM_STEP_FAILED;
}
static const struct sim_kernel fails = {"fails", fail};

/* False: the thread does no further step. */
static bool strikes(struct player *me, int number)
{
	const struct stream_program *program = me->program;
	enum sim_error error;
	if (me->thread != 0 || me->rank != program->culprit || number != program->at)
		return true;
	switch (program->fault) {
	case STREAM_PROGRAM_ABORTS:
		give_up(me->program, me->rank, me->thread);
		return false;
	case STREAM_PROGRAM_LEAVES:
		me->state->stopped = true;
		return false;
	case STREAM_PROGRAM_DEVICE:
		error = sim_launch(me->state->streams[0], &fails, NULL, 0);
		return error == SIM_OK;
	default:
		return true;
	}
}

void stream_program_run(struct stream_program *program, int rank, int thread)
{
	struct player me = {program, &program->all[rank], rank, thread};
	uint64_t random = program->seed + (uint64_t)rank;
	bool fine = true, in_launch = false;
	for (int i = 0; fine && i < program->counts[thread]; i++) {
		const struct step *step = &program->steps[thread][i];
		if (!in_launch && !strikes(&me, i))
			break;
		if (step->begins) {
			fine = is_ok(&me, i, "ls_launch_begin",
				     ls_launch_begin(me.state->groups, 1));
			in_launch = fine;
		}
		fine = fine && play_step(&me, i);
		if (fine && thread == 1 && !program->is_apart)
			fine = use_memory(&me, i, &random);
		if (in_launch && (step->ends || !fine)) {
			ls_status status = ls_launch_end();
			if (fine)
				fine = is_ok(&me, i, "ls_launch_end", status);
			in_launch = false;
		}
	}
	if (!fine)
		give_up(program, rank, thread);
}
