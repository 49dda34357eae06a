/* SPDX-License-Identifier: BSD-3-Clause
 * How programs on streams are drawn, begin, end, and are judged. */
#include <stdlib.h>
#include <string.h>

#include "sim_driver.h"
#include "stream_program_private.h"

/* ---- what is drawn ---- */

int size_of(const struct stream_program *program, int group)
{
	return group == 1 ? 2 : program->ranks;
}

/* Group 1 has the last rank and the first one, in this order. */
int place_in(const struct stream_program *program, int group, int rank)
{
	if (group != 1)
		return rank;
	return rank == 0 ? 1 : rank == program->ranks - 1 ? 0 : -1;
}

int in_count(const struct stream_program *program, const struct step *step, int place)
{
	bool gives = step->kind == ONE_WAY ? place == step->root : step->kind != BARRIER;
	return gives ? step->count * (step->kind == ALLTOALL ? size_of(program, step->group) : 1)
		     : 0;
}

int out_count(const struct stream_program *program, const struct step *step, int place)
{
	int size = size_of(program, step->group);
	switch (step->kind) {
	case BARRIER:
		return 0;
	case REDUCE:
		return place == step->root ? step->count : 0;
	case ONE_WAY:
		return place == (step->root + 1) % size ? step->count : 0;
	case ALLGATHER:
	case ALLTOALL:
		return step->count * size;
	default:
		return step->count;
	}
}

int32_t value_of(int place, int thread, int step, int i)
{
	return (place + 1) * 1000003 + (thread * STEPS + step + 1) * 10007 + i * 7;
}

int32_t expected_at(const struct stream_program *program, int thread, int number, int place, int i)
{
	const struct step *step = &program->steps[thread][number];
	int size = size_of(program, step->group);
	int32_t sum = 0;
	switch (step->kind) {
	case BROADCAST:
	case ONE_WAY:
		return value_of(step->root, thread, number, i);
	case SHIFT:
		return value_of((place + size - 1) % size, thread, number, i);
	case ALLGATHER:
		return value_of(i / step->count, thread, number, i % step->count);
	case ALLTOALL:
		return value_of(i / step->count, thread, number,
				place * step->count + i % step->count);
	default:
		for (int q = 0; q < size; q++)
			sum += value_of(q, thread, number, i);
		return sum;
	}
}

static int draw_count(uint64_t *random)
{
	static const int counts[] = {1, 1, 7, 300, 300, 6000, 50000};
	int which = (int)draw_of(random, 1 + sizeof counts / sizeof *counts);
	return which == 0 ? (int)draw_of(random, 3) : counts[which - 1];
}

static void draw_messages(const struct stream_program *program, struct step *step)
{
	/* An ordered send is on no stream. */
	if (step->kind < SHIFT)
		step->form = step->form == BATCH ? NO_HANDLE : step->form;
	else if (program->serial)
		step->stream = ON_HOST;
	if (step->kind >= SHIFT && step->stream == ON_HOST)
		step->form = HANDLE;
	if (step->kind != ALLREDUCE && step->where == IN_PLACE)
		step->where = DEVICE_MEMORY;
	/* Without a stream, only blocking calls take memory of a device. */
	if (step->stream == ON_HOST && (step->form != NO_HANDLE || step->kind == BARRIER))
		step->where = HOST_MEMORY;
}

static void draw_step(const struct stream_program *program, uint64_t *random, int thread,
		      struct step *step)
{
	int first = thread == 0 ? 0 : FIRST_STREAMS;
	int streams = thread == 0 ? FIRST_STREAMS : SECOND_STREAMS;
	*step = (struct step){.kind = (enum kind)draw_of(random, KINDS),
			      .form = (enum form)draw_of(random, FORMS),
			      .where = (enum where)draw_of(random, PLACES),
			      .group = thread == 0 ? (int)draw_of(random, 2) : 2,
			      .stream = first + (int)draw_of(random, (uint64_t)streams),
			      .follows = ON_HOST,
			      .count = draw_count(random),
			      .frees_late = draw_of(random, 3) == 0};
	step->root = (int)draw_of(random, (uint64_t)size_of(program, step->group));
	if (draw_of(random, 4) == 0 || (thread == 1 && !program->is_apart))
		step->stream = ON_HOST;
	if (thread == 1 && !program->is_apart)
		step->kind = SHIFT;
	draw_messages(program, step);
	bool has_handle = step->form == HANDLE || step->form == LATER;
	if (step->stream != ON_HOST && step->kind < SHIFT && has_handle && draw_of(random, 2))
		step->follows = first + (int)draw_of(random, (uint64_t)streams);
	step->tag = thread;
}

static bool may_be_in_launch(const struct step *step)
{
	return step->stream != ON_HOST && step->form != HANDLE && step->form != BATCH;
}

/* Some operations that no thread waits for form a batch. */
static void draw_launches(uint64_t *random, struct step *steps, int count)
{
	for (int i = 0; i < count;) {
		int end = i, most = (int)draw_of(random, 4);
		while (end < count && end - i < most && may_be_in_launch(&steps[end]))
			end++;
		if (end > i) {
			steps[i].begins = true;
			steps[end - 1].ends = true;
		}
		i = end > i ? end : i + 1;
	}
}

static void draw_devices(struct stream_program *program, uint64_t *random)
{
	program->shares = program->fault != STREAM_PROGRAM_KILLED && draw_of(random, 3) == 0;
	program->is_apart = program->threads == 2 && draw_of(random, 2);
	bool free_of_others = program->is_apart || program->shares;
	program->queues = program->is_apart ? SIM_QUEUES : 1 + (int)draw_of(random, SIM_QUEUES);
	program->depth = free_of_others ? SIM_DEPTH : 1 + (int)draw_of(random, 2 * 8);
	program->launch_waits = !free_of_others && draw_of(random, 8) == 0;
	program->free_mode = (int)draw_of(random, 3);
	program->small = draw_of(random, 4) == 0;
}

/* Whether a launch has begun before this step, and ends later. */
static bool is_inside(const struct step *steps, int at)
{
	bool inside = false;
	for (int i = 0; i < at; i++)
		inside = (inside || steps[i].begins) && !steps[i].ends;
	return inside;
}

struct stream_program *stream_program_draw(uint64_t seed, bool kills)
{
	struct stream_program *program = calloc(1, sizeof *program);
	uint64_t random = seed;
	if (!program)
		return NULL;
	program->seed = seed;
	program->ranks = 2 + (int)draw_of(&random, STREAM_PROGRAM_RANKS - 1);
	program->threads = 1 + (int)draw_of(&random, STREAM_PROGRAM_THREADS);
	if (draw_of(&random, 3) == 0)
		program->fault = (enum stream_program_fault)(
			1 + draw_of(&random, STREAM_PROGRAM_FAULTS - (kills ? 1 : 2)));
	program->culprit = (int)draw_of(&random, (uint64_t)program->ranks);
	/* Sends of a second thread would wait for those of the first one, and that one, in shared
	 * hardware queues, for the second one. */
	program->serial = program->threads == 1 && draw_of(&random, 4) == 0;
	program->blocking = draw_of(&random, 8) == 0;
	program->barrier = draw_of(&random, 2);
	program->forgets = draw_of(&random, 2);
	draw_devices(program, &random);
	/* A second thread may wait for an operation behind others on the rank that leaves, or for
	 * memory that these hold. Then nothing is proved, because a wait for memory shows no
	 * rank. */
	if (program->fault == STREAM_PROGRAM_LEAVES && (!program->is_apart || program->small))
		program->threads = 1;
	for (int thread = 0; thread < program->threads; thread++) {
		program->counts[thread] = 1 + (int)draw_of(&random, thread == 0 ? STEPS : STEPS / 2);
		for (int i = 0; i < program->counts[thread]; i++)
			draw_step(program, &random, thread, &program->steps[thread][i]);
		draw_launches(&random, program->steps[thread], program->counts[thread]);
	}
	uint64_t range = program->fault == STREAM_PROGRAM_CALL ? 150 : (uint64_t)program->counts[0];
	program->at = (int)draw_of(&random, range);
	while (program->fault != STREAM_PROGRAM_CALL && program->at > 0 &&
	       is_inside(program->steps[0], program->at))
		program->at--;
	program->checks = draw_of(&random, 2);
	snprintf(program->settings, sizeof program->settings,
		 "LOCKSTEP_BLOCKING=%d LOCKSTEP_P2P=%s LOCKSTEP_TIMEOUT_MS=%d LOCKSTEP_CHECK=%d",
		 program->blocking, program->serial ? "serial" : "auto", 60000, program->checks);
	return program;
}

int stream_program_ranks(const struct stream_program *program)
{
	return program->ranks;
}

enum stream_program_fault stream_program_fault(const struct stream_program *program, int *culprit)
{
	*culprit = program->culprit;
	return program->fault;
}

const char *stream_program_settings(const struct stream_program *program)
{
	return program->settings;
}

/* Opening the streams, that of the device and those of the program, comes before the call that
 * fails. */
void stream_program_device(const struct stream_program *program, int rank, char *out, size_t bytes)
{
	static const char *const frees[] = {"waits", "at_once", "drawn"};
	int length =
		snprintf(out, bytes, "sim:%d,seed=%d,devices=%d,queues=%d,depth=%d,free=%s%s",
			 program->shares ? rank : 0, (int)(program->seed % 100000) + rank,
			 program->shares ? program->ranks : 1, program->queues, program->depth,
			 frees[program->free_mode], program->launch_waits ? ",launch=waits" : "");
	if (program->small)
		length += snprintf(out + length, bytes - (size_t)length, ",bytes=%d", 5 << 20);
	if (program->shares)
		length += snprintf(out + length, bytes - (size_t)length, ",process=1");
	if (program->fault == STREAM_PROGRAM_CALL && (program->shares || rank == program->culprit))
		snprintf(out + length, bytes - (size_t)length, ",fail_at=%d",
			 program->at + 1 + (1 + STREAMS) * (program->shares ? program->ranks : 1));
}

/* ---- its life ---- */

void wrong(struct rank_state *state, const char *what, int step, int value)
{
	if (!state->why[0])
		snprintf(state->why, sizeof state->why, "step %d: %s (%d)", step, what, value);
}

static bool split(struct stream_program *program, int rank)
{
	struct rank_state *state = &program->all[rank];
	ls_group *world = state->groups[0];
	bool is_some = place_in(program, 1, rank) >= 0;
	ls_status status = ls_group_split(world, is_some ? 0 : -1, -rank, &state->groups[1]);
	if (status != (is_some ? LS_OK : LS_NOT_MEMBER))
		return false;
	return ls_group_split(world, 0, rank, &state->groups[2]) == LS_OK;
}

void stream_program_begin(struct stream_program *program, int rank, ls_group *world)
{
	struct rank_state *state = &program->all[rank];
	state->groups[0] = world;
	state->sim = lockstep_sim();
	state->bell_at = &state->bell;
	bool fine = sim_tell_failure(state->sim, &state->failed, 1, &state->bell_at);
	for (int i = 0; fine && i < STREAMS; i++)
		fine = sim_stream_open(state->sim, program->shares ? rank : 0,
				       &state->streams[i]) == SIM_OK;
	if (!fine || !split(program, rank)) {
		fprintf(stderr, "a program on streams cannot begin, rank %d: %s\n", rank,
			fine ? "no groups" : "no streams");
		stream_program_show(program, stderr);
		abort();
	}
	for (int thread = 0; thread < program->threads; thread++)
		for (int i = 0; i < program->counts[thread]; i++) {
			const struct step *step = &program->steps[thread][i];
			struct note *note = &state->notes[thread][i];
			int place = place_in(program, step->group, rank);
			size_t most = (size_t)step->count * STREAM_PROGRAM_RANKS + 1;
			note->in = calloc(most, sizeof *note->in);
			note->out = calloc(most, sizeof *note->out);
			for (int j = 0; place >= 0 && j < in_count(program, step, place); j++)
				note->in[j] = value_of(place, thread, i, j);
		}
}

static void check_stats(struct stream_program *program, struct rank_state *state)
{
	struct ls_device_stats stats = {.size = sizeof stats};
	if (ls_device_stats(state->groups[0], &stats) != LS_OK)
		return;
	if (stats.live + stats.cached + stats.pending + stats.put_off != stats.reserved)
		wrong(state, "the statistics do not add up", -1, (int)stats.reserved);
	if (stats.live_blocks != 0 && program->fault == STREAM_PROGRAM_WELL)
		wrong(state, "blocks that are live", -1, (int)stats.live_blocks);
}

/* A send without a handle is complete at the latest when the stream of its receiver is. */
static bool needs_barrier(const struct stream_program *program)
{
	bool needs = program->barrier || program->fault != STREAM_PROGRAM_WELL;
	for (int thread = 0; thread < program->threads; thread++)
		for (int i = 0; i < program->counts[thread]; i++)
			needs |= program->steps[thread][i].kind >= SHIFT;
	return needs;
}

/* The other streams stay open. */
static void close_streams(struct stream_program *program, struct rank_state *state)
{
	for (int i = 0; program->forgets && i < STREAMS; i++) {
		if (!await_stream(state, i))
			continue;
		if (ls_device_forget(state->groups[0], state->streams[i]) != LS_OK)
			wrong(state, "a stream cannot be forgotten", -1, i);
		enum sim_error error = sim_stream_close(state->streams[i]);
		if (error != SIM_OK && program->fault == STREAM_PROGRAM_WELL)
			wrong(state, "a stream cannot be closed", -1, (int)error);
	}
}

void stream_program_end(struct stream_program *program, int rank)
{
	struct rank_state *state = &program->all[rank];
	for (int thread = 0; thread < program->threads; thread++)
		end_handles(program, rank, thread);
	if (state->failed_in[0] || state->failed_in[1])
		give_up(program, rank, 0);
	if (!state->stopped) {
		bool done = true;
		for (int i = 0; i < STREAMS; i++)
			done &= await_stream(state, i);
		if (!done)
			give_up(program, rank, 0);
		state->last = true;
		ls_status status =
			needs_barrier(program) ? ls_barrier(state->groups[0], NULL) : LS_OK;
		if (status != LS_OK)
			give_up(program, rank, 0);
		check_stats(program, state);
	}
	for (int i = GROUPS - 1; i > 0; i--)
		if (state->groups[i])
			ls_group_close(state->groups[i]);
	if (!state->stopped)
		close_streams(program, state);
	/* With a driver whose calls wait for their own work, no call may have waited for a word,
	 * whatever the program has enqueued. */
	if (program->launch_waits && sim_held_calls(state->sim) > 0)
		wrong(state, "a call of the driver has waited for a word", -1,
		      (int)sim_held_calls(state->sim));
	sim_tell_no_more(state->sim, &state->failed);
	ls_group_close(state->groups[0]);
	state->ended = true;
	stream_program_progress();
}

/* ---- the judgement ---- */

static bool has_failed(const struct rank_state *state)
{
	return state->failed_in[0] || state->failed_in[1];
}

static bool judge_data(struct stream_program *program, int rank, int thread, char *why, size_t bytes)
{
	for (int k = 0; k < program->counts[thread]; k++) {
		const struct step *step = &program->steps[thread][k];
		const struct note *note = &program->all[rank].notes[thread][k];
		int place = place_in(program, step->group, rank);
		for (int i = 0; place >= 0 && i < out_count(program, step, place); i++) {
			int32_t expected = expected_at(program, thread, k, place, i);
			if (note->out[i] == expected)
				continue;
			snprintf(why, bytes, "rank %d, thread %d, step %d, element %d: %d, not %d",
				 rank, thread, k, i, note->out[i], expected);
			return false;
		}
		if (place >= 0 && atomic_load(&note->callbacks) != note->expected_callbacks) {
			snprintf(why, bytes, "rank %d, step %d: %d callbacks, not %d", rank, k,
				 atomic_load(&note->callbacks), note->expected_callbacks);
			return false;
		}
	}
	return true;
}

/* Whether all messages say that there is no memory. */
static bool is_silent(const char *said)
{
	for (const char *line = said; *line;) {
		size_t length = strcspn(line, "\n");
		if (!memmem(line, length, "LS-DEVICE-EXHAUSTED", strlen("LS-DEVICE-EXHAUSTED")))
			return false;
		line += length + (line[length] == '\n');
	}
	return true;
}

/* Whether a rank may have been killed so late that the others do not notice. */
static bool may_be_late(const struct stream_program *program)
{
	return program->fault == STREAM_PROGRAM_KILLED && program->all[program->culprit].last;
}

bool stream_program_judge(struct stream_program *program, const char *said, char *why, size_t bytes)
{
	bool any = program->fault != STREAM_PROGRAM_WELL && program->fault != STREAM_PROGRAM_CALL;
	for (int r = 0; r < program->ranks; r++)
		any |= has_failed(&program->all[r]);
	for (int r = 0; r < program->ranks; r++) {
		const struct rank_state *state = &program->all[r];
		bool killed = program->fault == STREAM_PROGRAM_KILLED && r == program->culprit;
		if (state->why[0] || (!state->ended && !killed)) {
			snprintf(why, bytes, "rank %d: %s", r,
				 state->why[0] ? state->why : "it has not ended");
			return false;
		}
		/* Which rank a failed call belongs to: one that has seen it. */
		if (any && !may_be_late(program) && !killed && !state->stopped &&
		    !has_failed(state)) {
			snprintf(why, bytes, "rank %d got no error", r);
			return false;
		}
		for (int thread = 0; !any && thread < program->threads; thread++)
			if (!judge_data(program, r, thread, why, bytes))
				return false;
	}
	if (program->fault != STREAM_PROGRAM_WELL)
		return true;
	if (any || !is_silent(said) || lockstep_sim_has_left()) {
		snprintf(why, bytes, "%s: %s",
			 any                       ? "a healthy program has failed"
			 : lockstep_sim_has_left() ? "memory of a device was not given back"
						   : "something was said",
			 said);
		return false;
	}
	return true;
}

void stream_program_show(const struct stream_program *program, FILE *file)
{
	static const char *const kinds[] = {"allreduce", "broadcast", "reduce", "allgather",
					    "alltoall",  "barrier",   "shift",  "one way"};
	static const char *const forms[] = {"", " handle", " later", " callback", " batch"};
	static const char *const wheres[] = {"device", "host", "in place"};
	static const char *const faults[] = {"well", "aborts", "leaves",
					     "call", "device", "killed"};
	char device[TEXT_BYTES];
	stream_program_device(program, 0, device, sizeof device);
	fprintf(file, "%d ranks, %s, %s, apart %d, barrier %d; %s, rank %d, at %d\n",
		program->ranks, device, program->settings, program->is_apart, program->barrier,
		faults[program->fault], program->culprit, program->at);
	for (int thread = 0; thread < program->threads; thread++)
		for (int i = 0; i < program->counts[thread]; i++) {
			const struct step *step = &program->steps[thread][i];
			fprintf(file,
				"thread %d step %d: %s%s%s of %d, root %d, group %d, stream %d, "
				"then %d, %s memory%s\n",
				thread, i, step->begins ? "{ " : "", kinds[step->kind],
				forms[step->form], step->count, step->root, step->group,
				step->stream, step->follows, wheres[step->where],
				step->ends ? " }" : "");
		}
}

void stream_program_free(struct stream_program *program)
{
	for (int r = 0; program && r < program->ranks; r++)
		for (int thread = 0; thread < STREAM_PROGRAM_THREADS; thread++)
			for (int i = 0; i < STEPS; i++) {
				free(program->all[r].notes[thread][i].in);
				free(program->all[r].notes[thread][i].out);
			}
	free(program);
}
