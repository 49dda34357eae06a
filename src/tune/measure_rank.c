/* SPDX-License-Identifier: BSD-3-Clause
 * A rank of `lockstep tune`: opens a group for each candidate, in turns, and times all collectives
 * on it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "base/settings.h"
#include "bench/bench.h"
#include "bench/lockstep.h"
#include "print/print.h"
#include "transport/transport.h"
#include "tune/tune.h"

enum { PATH_BYTES = 48 };
static const uint64_t buffer_max = UINT64_C(1) << 29; /* all parts of a gather together */
static const struct bench_effort effort = {.repeat_s = 0.004, .limit_s = 0.04, .repeats = 3};
struct tuner {
	const struct tune_request *request;
	struct settings_launch launch;
	struct tune_times times; /* of the round that is under way; then the medians */
	double *rounds;          /* [rounds][each]: the times of all rounds */
	size_t each;             /* how many times a round has */
	int openings;
};

/* The table of one candidate as a file of this process, so that opening a group reads it as any
 * other. */
static bool set_table(const struct tune_candidate *candidate, int *fd)
{
	char text[2 * PLAN_TABLE_TEXT_BYTES], path[PATH_BYTES];
	struct plan_table table = {.count = 0};

	for (int a = PLAN_INLINE; a <= PLAN_DIRECT; a++) {
		if (candidate->algorithm != PLAN_NONE && a != PLAN_INLINE)
			break;
		table.lines[table.count++] = (struct plan_table_line){
			.bytes_max = UINT64_MAX,
			.collective = PLAN_TABLE_ANY,
			.algorithm = candidate->algorithm != PLAN_NONE ? (uint8_t)candidate->algorithm
								       : (uint8_t)a,
			.stores = (uint8_t)candidate->stores,
			.ranks_min = 1,
			.ranks_max = RANKS_JOB_MAX,
			.chunk_bytes = candidate->chunk_bytes,
			.read_bytes = candidate->read_bytes,
		};
	}
	*fd = memfd_create("lockstep-tune", MFD_CLOEXEC);
	for (int i = 0; *fd >= 0 && i < table.count; i++) {
		plan_table_text(&table, i, text);
		print_append(text, sizeof text, "\n");
		size_t bytes = strlen(text);
		if (write(*fd, text, bytes) != (ssize_t)bytes)
			return false;
	}
	snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
	return *fd >= 0 && setenv("LOCKSTEP_TABLE", path, 1) == 0;
}

/* `lockstep run` serves one meeting. A rank here opens many groups, each at a place of its own. */
static ls_status open_group(struct tuner *tuner, ls_group **out)
{
	char place[128];
	struct ls_group_options group = {.size = sizeof group,
					 .rank = (int32_t)tuner->launch.rank,
					 .world_size = (int32_t)tuner->launch.world_size,
					 .rendezvous = place};

	snprintf(place, sizeof place, "%s-%d", tuner->launch.rendezvous, tuner->openings++);
	return ls_group_open(&group, out);
}

/* Bytes of the larger buffer for this payload; 0: more than is reasonable. */
static size_t buffer_bytes(enum bench_op op, uint64_t payload, int ranks)
{
	bool one_part = op == BENCH_ALLGATHER || op == BENCH_GATHER;
	uint64_t bytes = one_part ? payload * (uint64_t)ranks : payload;

	return bytes <= buffer_max ? bytes : 0;
}

static size_t largest_buffer(const struct tuner *tuner, int ranks)
{
	size_t bytes = 64;

	for (int op = 0; op < BENCH_COLLECTIVE_COUNT; op++)
		for (int i = 0; i < tuner->request->size_count; i++) {
			size_t wanted =
				buffer_bytes((enum bench_op)op, tuner->request->sizes[i], ranks);
			size_t here =
				bench_elements((enum bench_op)op, wanted, ranks) * sizeof(float);
			bytes = here > bytes ? here : bytes;
		}
	return (bytes + 63) / 64 * 64;
}

static bool time_points(struct tuner *tuner, ls_group *group, int candidate, float *buffers[2])
{
	struct bench_lockstep state;
	struct bench_runtime runtime = bench_lockstep(group, &state);
	const struct tune_request *request = tuner->request;

	for (int op = 0; op < BENCH_COLLECTIVE_COUNT; op++) {
		enum coll_id collective = (enum coll_id)op; /* numbered alike */
		for (int i = 0; i < (op == BENCH_BARRIER ? 1 : request->size_count); i++) {
			uint64_t payload = op == BENCH_BARRIER ? 0 : request->sizes[i];
			struct bench_case what = {
				.op = (enum bench_op)op,
				.bytes = buffer_bytes((enum bench_op)op, payload, runtime.size),
				.fresh = true,
				.send = buffers[0],
				.recv = buffers[1]};
			struct bench_time time;
			if (!tune_fits(candidate, collective, payload, TRANSPORT_INLINE_BYTES) ||
			    (payload > 0 && what.bytes == 0))
				continue;
			if (!bench_time(&runtime, &what, &effort, &time))
				return false;
			*tune_at(&tuner->times, candidate, collective, i) = time.seconds;
		}
	}
	return true;
}

static bool get_buffers(ls_group *group, bool plain, size_t bytes, float *out[2])
{
	for (int i = 0; i < 2; i++) {
		void *memory = NULL;
		if (!plain && ls_alloc(group, bytes, &memory) != LS_OK)
			return false;
		if (plain)
			memory = aligned_alloc(64, bytes);
		if (!memory) {
			MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "aligned_alloc of a buffer",
				    strerror(ENOMEM));
			return false;
		}
		out[i] = memory;
	}
	return true;
}

static bool try_candidate(struct tuner *tuner, int candidate)
{
	bool plain = tune_candidate(candidate)->plain;
	float *buffers[2] = {NULL, NULL};
	ls_group *group;
	int fd;

	if (!set_table(tune_candidate(candidate), &fd)) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "memfd_create", strerror(errno));
		return false;
	}
	ls_status status = open_group(tuner, &group);
	close(fd);
	if (status != LS_OK)
		return false;
	size_t bytes = largest_buffer(tuner, ls_group_size(group));
	bool good = get_buffers(group, plain, bytes, buffers) &&
		    time_points(tuner, group, candidate, buffers) &&
		    ls_barrier(group, NULL) == LS_OK;
	ls_group_close(group); /* also frees memory of ls_alloc */
	for (int i = 0; plain && i < 2; i++)
		free(buffers[i]);
	return good;
}

static void take_medians(struct tuner *tuner)
{
	double values[TUNE_ROUNDS_MAX];
	size_t rounds = tuner->request->rounds;

	for (size_t i = 0; i < tuner->each; i++) {
		for (size_t r = 0; r < rounds; r++)
			values[r] = tuner->rounds[r * tuner->each + i];
		tuner->times.seconds[i] = bench_median(values, (int)rounds);
	}
}

static bool measure_all(struct tuner *tuner)
{
	int candidates = tune_candidates();

	for (size_t r = 0; r < tuner->request->rounds; r++) {
		/* All ranks turn the order in the same way. */
		for (int k = 0; k < candidates; k++)
			if (!try_candidate(tuner, (k + (int)r * 5) % candidates))
				return false;
		memcpy(tuner->rounds + r * tuner->each, tuner->times.seconds,
		       tuner->each * sizeof(double));
	}
	take_medians(tuner);
	return true;
}

static void print_lines(const struct tuner *tuner)
{
	struct plan_table table = {.count = 0};
	char line[PLAN_TABLE_TEXT_BYTES];

	if (!tune_choose(&tuner->times, TRANSPORT_INLINE_BYTES, (int)tuner->request->ranks_min,
			 (int)tuner->request->ranks_max, &table))
		return;
	for (int i = 0; i < table.count; i++) {
		plan_table_text(&table, i, line);
		puts(line);
	}
}

bool tune_measure(const struct tune_request *request)
{
	struct tuner tuner = {.request = request};
	bool good = false;

	if (settings_read_launch(NULL, &tuner.launch) != LS_OK || !tuner.launch.rendezvous)
		return false;
	unsetenv("LOCKSTEP_ALGORITHM"); /* the setting would win over every table */
	bench_bind((int)tuner.launch.rank);
	tuner.each = (size_t)tune_candidates() * COLL_COUNT * TUNE_SIZES_MAX;
	tuner.times.size_count = request->size_count;
	memcpy(tuner.times.sizes, request->sizes, sizeof tuner.times.sizes);
	tuner.times.seconds = calloc(tuner.each, sizeof(double));
	tuner.rounds = calloc(tuner.each * request->rounds, sizeof(double));
	if (tuner.times.seconds && tuner.rounds)
		good = measure_all(&tuner);
	else
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "calloc", strerror(ENOMEM));
	if (good && tuner.launch.rank == 0)
		print_lines(&tuner);
	free(tuner.times.seconds);
	free(tuner.rounds);
	return good;
}
