/* SPDX-License-Identifier: BSD-3-Clause
 * A snapshot of all hosts. The rank that looks asks one rank of each other host, which looks at all
 * ranks of its host; twice, the second time after all have looked once (diagnose.h says why that
 * proves something).
 *
 *   the rank that looks              one rank of each other host
 *   LOOK round            ------->   looks, and keeps what it sees
 *                         <-------   SEEN round
 *   after all: CONFIRM    ------->   looks again; sends what both looks show
 *                         <-------   a block, diagnose_pack
 *
 * All this is done by watches. A watch that waits for answers gives answers, too. Words and blocks
 * come from the thread that drives the link, which leaves them here. */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "entered.h"
#include "failure.h"

enum {
	ANSWER_MS = 300,
	REQUEST_MS = 2 * ANSWER_MS + 100,
	RETRY_MS = 5,
	SILENT_LOOKS = 3, /* in a row, after which a host counts as silent */
};
enum what { LOOK = 1, SEEN, CONFIRM };

/* What has come from one rank. */
struct heard {
	_Atomic uint64_t look, confirm; /* rounds that it asks for; 0: none */
	_Atomic uint64_t seen;          /* the round of mine that it has answered */
	_Atomic uint64_t told;          /* the round of `block`, which is there then */
	void *block;
	uint64_t bytes;
	bool is_silent; /* it did not answer when it was last asked */
	/* For the watch: what it has been shown. */
	struct diagnose_job *first;
	uint64_t first_round;
};

struct failure_far {
	uint64_t round;  /* of my looks */
	unsigned failed; /* looks in a row that were not answered by all */
	/* Looks that other threads of this rank want and have got: failure_far_request. */
	_Atomic uint64_t wanted, given;
	_Atomic uint32_t closing; /* the group that such a thread is about to close */
	struct diagnose_job *_Atomic job;
	struct heard heard[RANKS_HOST_MAX];
};

/* ---- from the thread that drives the link ---- */

static void note_asked(void *context, int rank, const uint64_t words[TRANSPORT_ASK_WORDS])
{
	struct world *world = context;
	struct heard *heard = &world->watch.far->heard[rank];
	_Atomic uint64_t *word = words[0] == LOOK      ? &heard->look
				 : words[0] == CONFIRM ? &heard->confirm
				 : words[0] == SEEN    ? &heard->seen
						       : NULL;
	if (!word)
		return;
	atomic_store(word, words[1]);
	failure_watch_wake(&world->watch);
}

static void note_told(void *context, int rank, uint64_t round, void *block, uint64_t bytes)
{
	struct world *world = context;
	struct heard *heard = &world->watch.far->heard[rank];
	if (atomic_load(&heard->told) || round == 0) { /* the watch has not taken the last one */
		free(block);
		return;
	}
	heard->block = block;
	heard->bytes = bytes;
	atomic_store(&heard->told, round);
	failure_watch_wake(&world->watch);
}

void failure_far_events(struct transport_hosts_events *events)
{
	events->asked = note_asked;
	events->told = note_told;
}

/* ---- the watch: looking at this host ---- */

static struct ranks ranks_of_host(const struct world *world)
{
	struct ranks here = {{0}};
	for (int q = 0; q < world->size; q++)
		if (!world->transport.peers[q].remote)
			ranks_add(&here, q);
	return here;
}

static void read_traffic(const struct world *world, struct diagnose_traffic *out)
{
	for (int q = 0; q < world->size; q++) {
		const struct transport_segment *segment = world->transport.peers[q].segment;
		if (world->transport.peers[q].remote)
			continue;
		out[q].is_served = atomic_load(&segment->served) == atomic_load(&segment->marked);
		for (int r = 0; r < world->size; r++) {
			const struct transport_traffic *traffic = &segment->traffic[r];
			out[q].arrived[r] = atomic_load(&traffic->arrived);
			out[q].posted[r] = atomic_load(&traffic->posted);
			out[q].fetched[r] = atomic_load(&traffic->fetched);
			out[q].begun[r] = atomic_load(&traffic->begun);
			out[q].released[r] = atomic_load(&traffic->released);
			out[q].lost[r] = atomic_load(&traffic->lost) != 0;
		}
	}
}

/* Puts what both looks show into *second. */
static void confirm(const struct world *world, const struct diagnose_job *first,
		    struct diagnose_job *second)
{
	struct ranks here = ranks_of_host(world);
	if (second && first)
		diagnose_confirm(second, first, &here);
}

/* ---- the watch: answers ---- */

static void answer_look(struct world *world, int rank, struct heard *heard, uint64_t round)
{
	free(heard->first);
	heard->first = failure_collect(world, NULL);
	heard->first_round = round;
	if (heard->first)
		(void)transport_ask(&world->transport, rank, (uint64_t[]){SEEN, round});
}

static void answer_confirm(struct world *world, int rank, struct heard *heard, uint64_t round)
{
	struct diagnose_traffic *traffic = calloc(RANKS_HOST_MAX, sizeof *traffic);
	struct ranks here = ranks_of_host(world);
	size_t bytes;
	if (!traffic || !heard->first || heard->first_round != round) {
		free(traffic);
		return;
	}
	read_traffic(world, traffic);
	struct diagnose_job *second = failure_collect(world, NULL);
	void *block = NULL;
	if (second) {
		confirm(world, heard->first, second);
		failure_add_sites(world, second);
		block = diagnose_pack(second, &here, traffic, &bytes);
	}
	if (block && !transport_tell(&world->transport, rank, round, block, bytes))
		free(block);
	free(second);
	free(traffic);
	free(heard->first);
	heard->first = NULL;
}

void failure_far_answer(struct world *world)
{
	struct failure_far *far = world->watch.far;
	for (int q = 0; far && q < world->size; q++) {
		struct heard *heard = &far->heard[q];
		uint64_t round = atomic_exchange(&heard->look, 0);
		if (round)
			answer_look(world, q, heard, round);
		round = atomic_exchange(&heard->confirm, 0);
		if (round)
			answer_confirm(world, q, heard, round);
	}
}

/* ---- the watch: questions ---- */

/* Adds the first living rank of each other host that is not in *hosts, by the first rank of the
 * host. */
static void add_speakers(const struct world *world, bool silent, uint64_t *hosts,
			 struct ranks *speakers)
{
	for (int q = 0; q < world->size; q++) {
		const struct transport_peer *peer = &world->transport.peers[q];
		if (!peer->remote || atomic_load(&world->dead[q]) || *hosts >> peer->host & 1 ||
		    world->watch.far->heard[q].is_silent != silent)
			continue;
		*hosts |= UINT64_C(1) << peer->host;
		ranks_add(speakers, q);
	}
}

/* One rank of each other host. A rank may be stopped: then another one is asked the next time. */
static struct ranks find_speakers(const struct world *world)
{
	struct ranks speakers = {{0}};
	uint64_t hosts = 0;
	add_speakers(world, false, &hosts, &speakers);
	add_speakers(world, true, &hosts, &speakers);
	return speakers;
}

static bool ask_all(struct world *world, const struct ranks *speakers, enum what what,
		    uint64_t round)
{
	RANKS_EACH (q, speakers)
		if (!transport_ask(&world->transport, q, (uint64_t[]){what, round}))
			return false;
	return true;
}

static bool have_answered(const struct failure_far *far, const struct ranks *speakers,
			  enum what what, uint64_t round)
{
	RANKS_EACH (q, speakers)
		if (atomic_load(what == LOOK ? &far->heard[q].seen : &far->heard[q].told) != round)
			return false;
	return true;
}

/* Notes who has not answered. */
static void note_silent(struct failure_far *far, const struct ranks *speakers, enum what what,
			uint64_t round)
{
	RANKS_EACH (q, speakers) {
		struct heard *heard = &far->heard[q];
		heard->is_silent = atomic_load(what == LOOK ? &heard->seen : &heard->told) != round;
	}
}

/* Waits for all answers, and gives some meanwhile. */
static bool await_answers(struct world *world, const struct ranks *speakers, enum what what,
			  uint64_t round)
{
	uint64_t deadline_ns = clock_deadline_ns(ANSWER_MS);
	struct pollfd fd = {.fd = world->watch.event_fd, .events = POLLIN};
	while (!have_answered(world->watch.far, speakers, what, round)) {
		uint64_t wakeups;
		if (atomic_load(&world->watch.stop) || clock_now_ns() >= deadline_ns) {
			note_silent(world->watch.far, speakers, what, round);
			return false;
		}
		ls_status status = wait_fds(NULL, &fd, 1, -1, clock_deadline_ns(RETRY_MS));
		if (status == LS_OK && read(fd.fd, &wakeups, sizeof wakeups) < 0)
			return false;
		failure_far_answer(world);
	}
	return true;
}

/* Frees what has been told, whatever round it is of. */
static void forget_told(struct failure_far *far, int size)
{
	for (int q = 0; q < size; q++) {
		struct heard *heard = &far->heard[q];
		if (!atomic_load(&heard->told))
			continue;
		free(heard->block);
		atomic_store(&heard->told, 0);
	}
}

static bool take_told(struct world *world, const struct ranks *speakers, struct diagnose_job *job,
		      struct diagnose_traffic *traffic)
{
	struct ranks here = ranks_of_host(world);
	bool complete = true;
	RANKS_EACH (q, speakers) {
		struct heard *heard = &world->watch.far->heard[q];
		complete = complete &&
			   diagnose_unpack(job, &here, heard->block, heard->bytes, traffic);
	}
	return complete;
}

static void fill_hosts(const struct world *world, uint16_t *hosts)
{
	for (int q = 0; q < world->size; q++)
		hosts[q] = world->transport.peers[q].host;
}

struct diagnose_job *failure_far_collect(struct world *world, const struct diagnose_closing *closing)
{
	struct failure_far *far = world->watch.far;
	struct diagnose_traffic *traffic = calloc(RANKS_HOST_MAX, sizeof *traffic);
	struct ranks speakers = find_speakers(world);
	uint16_t hosts[RANKS_HOST_MAX];
	struct diagnose_job *first = failure_collect(world, closing), *second = NULL;
	uint64_t round = ++far->round;
	forget_told(far, world->size);
	bool all = traffic && first && ask_all(world, &speakers, LOOK, round) &&
		   await_answers(world, &speakers, LOOK, round) &&
		   ask_all(world, &speakers, CONFIRM, round);
	if (all) {
		read_traffic(world, traffic);
		second = failure_collect(world, closing);
		confirm(world, first, second);
		all = second && await_answers(world, &speakers, CONFIRM, round) &&
		      take_told(world, &speakers, second, traffic);
	}
	if (all) {
		fill_hosts(world, hosts);
		diagnose_check_traffic(second, hosts, traffic);
	}
	far->failed = all ? 0 : far->failed + 1;
	forget_told(far, world->size);
	free(first);
	free(traffic);
	if (all)
		return second;
	free(second);
	return NULL;
}

/* ---- for other threads ---- */

struct diagnose_job *failure_far_request(struct ls_group *group)
{
	struct failure_far *far = group->world->watch.far;
	atomic_store(&far->closing, group->id);
	uint64_t number = atomic_fetch_add(&far->wanted, 1) + 1;
	struct wait_word word = {.word = &far->given,
				 .edge = {.value = number, .owner = -1, .peer = -1}};
	struct wait_call call = {
		.words = &word, .count = 1, .deadline_ns = clock_deadline_ns(REQUEST_MS)};
	int peer;
	failure_watch_wake(&group->world->watch);
	ls_status status = wait_words(&group->quiet, &call, &peer);
	(void)status; /* without it the caller makes do with its own host */
	return atomic_exchange(&far->job, NULL);
}

void failure_far_serve(struct world *world)
{
	struct failure_far *far = world->watch.far;
	uint64_t wanted = far ? atomic_load(&far->wanted) : 0;
	if (!far || atomic_load(&far->given) == wanted)
		return;
	uint32_t closing = atomic_load(&far->closing);
	free(atomic_exchange(&far->job,
			     failure_far_collect(world, &(struct diagnose_closing){1, &closing})));
	wait_store(&far->given, wanted);
	wait_wake(world->waiter.bell);
}

bool failure_far_is_silent(const struct failure_far *far)
{
	return far && far->failed >= SILENT_LOOKS;
}

/* ---- life ---- */

struct failure_far *failure_far_open(void)
{
	return calloc(1, sizeof(struct failure_far));
}

void failure_far_close(struct failure_far *far)
{
	if (!far)
		return;
	forget_told(far, RANKS_HOST_MAX);
	free(atomic_load(&far->job));
	for (int q = 0; q < RANKS_HOST_MAX; q++)
		free(far->heard[q].first);
	free(far);
}
