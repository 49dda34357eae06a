/* SPDX-License-Identifier: BSD-3-Clause
 * A snapshot of all hosts. The rank that looks asks one rank of each other host, the delegate of
 * that host, which looks at all ranks there; twice, the second time after all have looked once
 * (diagnose.h says why that proves something).
 *
 *   the rank that looks              the delegate of each other host
 *   LOOK round            ------->   looks, and keeps what it sees
 *                         <-------   SEEN round
 *   after all: CONFIRM    ------->   looks again; sends what both looks show
 *                         <-------   a block, diagnose_pack
 *
 * A rank may be stopped. If it alone has not answered LOOK soon, the rank that looks asks another
 * rank of that host as well; the one that answers confirms. For commands (shown.h) the rank that
 * looks also asks for the traces of all ranks: COPY, and a block of copies.
 *
 * All this is done by watches. A watch that waits for answers gives answers, too. Words and blocks
 * come from the thread that makes progress on the link, which leaves them here. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/ranks.h"
#include "failure/entered.h"
#include "failure/failure_private.h"
#include "failure/remote_look.h"
#include "failure/traces.h"

enum {
	RETRY_MS = 5,
	UNANSWERED_LOOKS = 3, /* in a row, after which a host counts as unanswering */
	ASKED_MAX = 4, /* ranks of a host, one after the other, while the time for answers lasts */
};

/* ---- from the thread that makes progress on the link ---- */

static void note_asked(void *context, int rank, const uint64_t words[HOSTS_ASK_WORDS])
{
	struct world *world = context;
	struct failure_heard *heard = &world->watch.remote->heard[rank];
	_Atomic uint64_t *word = words[0] == FAILURE_LOOK      ? &heard->look
				 : words[0] == FAILURE_CONFIRM ? &heard->confirm
				 : words[0] == FAILURE_SEEN    ? &heard->seen
				 : words[0] == FAILURE_COPY    ? &heard->copy
							       : NULL;
	if (!word)
		return;
	atomic_store(word, words[1]);
	failure_watch_serve(&world->watch);
}

static void note_told(void *context, int rank, uint64_t round, void *block, uint64_t bytes)
{
	struct world *world = context;
	struct failure_heard *heard = &world->watch.remote->heard[rank];
	if (atomic_load(&heard->told) || round == 0) { /* the watch has not taken the last one */
		free(block);
		return;
	}
	heard->block = block;
	heard->bytes = bytes;
	atomic_store(&heard->told, round);
	failure_watch_serve(&world->watch);
}

void failure_remote_events(struct hosts_events *events)
{
	events->asked = note_asked;
	events->told = note_told;
}

/* ---- the watch: looking at this host ---- */

struct ranks failure_ranks_here(const struct world *world)
{
	struct ranks here = {{0}};
	for (int q = 0; q < world->size; q++)
		if (!world->transport.peers[q].mirror)
			ranks_add(&here, q);
	return here;
}

void failure_read_traffic(const struct world *world, struct diagnose_traffic *out)
{
	for (int q = 0; q < world->size; q++) {
		const struct transport_segment *segment = world->transport.peers[q].segment;
		if (world->transport.peers[q].mirror)
			continue;
		for (int r = 0; r < world->size; r++)
			out[q].arrived[r] = atomic_load(&transport_traffic(segment, r)->arrived);
		out[q].is_served = atomic_load(&segment->served) == atomic_load(&segment->marked);
		for (int r = 0; r < world->size; r++) {
			const struct transport_traffic *traffic = transport_traffic(segment, r);
			out[q].posted[r] = atomic_load(&traffic->posted);
			out[q].fetched[r] = atomic_load(&traffic->fetched);
			out[q].begun[r] = atomic_load(&traffic->begun);
			out[q].copied[r] = atomic_load(&traffic->copied);
			out[q].ahead[r] = atomic_load(&traffic->ahead);
			out[q].kept_back[r] = atomic_load(&traffic->kept_back);
			out[q].released[r] = atomic_load(&traffic->released);
			out[q].lost[r] = atomic_load(&traffic->lost) != 0;
		}
	}
}

/* Puts what both looks show into *second. */
static void confirm_look(const struct world *world, const struct diagnose_snapshot *first,
			 struct diagnose_snapshot *second)
{
	struct ranks here = failure_ranks_here(world);
	if (second && first)
		diagnose_confirm(second, first, &here);
}

/* ---- the watch: answers ---- */

static void answer_look(struct world *world, int rank, struct failure_heard *heard, uint64_t round)
{
	free(heard->first);
	heard->first = failure_collect(world, NULL);
	heard->first_round = round;
	if (heard->first)
		(void)hosts_ask(&world->transport, rank, (uint64_t[]){FAILURE_SEEN, round});
}

static void answer_confirm(struct world *world, int rank, struct failure_heard *heard,
			   uint64_t round)
{
	struct diagnose_traffic *traffic = calloc((size_t)world->size, sizeof *traffic);
	struct ranks here = failure_ranks_here(world);
	size_t bytes;
	if (!traffic || !heard->first || heard->first_round != round) {
		free(traffic);
		return;
	}
	failure_read_traffic(world, traffic);
	struct diagnose_snapshot *second = failure_collect(world, NULL);
	void *block = NULL;
	if (second) {
		confirm_look(world, heard->first, second);
		failure_add_sites(world, second);
		block = diagnose_pack(second, &here, traffic, &bytes);
	}
	if (block && !hosts_tell(&world->transport, rank, round, block, bytes))
		free(block);
	free(second);
	free(traffic);
	free(heard->first);
	heard->first = NULL;
}

static void answer_copy(struct world *world, int rank, uint64_t round)
{
	struct ranks here = failure_ranks_here(world);
	size_t bytes;
	void *block = failure_pack_traces(world, &here, &bytes);
	if (block && !hosts_tell(&world->transport, rank, round, block, bytes))
		free(block);
}

void failure_remote_answer(struct world *world)
{
	struct failure_remote *remote = world->watch.remote;
	for (int q = 0; remote && q < world->size; q++) {
		struct failure_heard *heard = &remote->heard[q];
		uint64_t round = atomic_exchange(&heard->look, 0);
		if (round)
			answer_look(world, q, heard, round);
		round = atomic_exchange(&heard->confirm, 0);
		if (round)
			answer_confirm(world, q, heard, round);
		round = atomic_exchange(&heard->copy, 0);
		if (round)
			answer_copy(world, q, round);
	}
}

/* ---- the watch: questions ---- */

static uint64_t host_bit(const struct world *world, int rank)
{
	return UINT64_C(1) << world->transport.peers[rank].host;
}

static uint64_t hosts_of(const struct world *world, const struct ranks *delegates)
{
	uint64_t hosts = 0;
	RANKS_EACH (q, delegates)
		hosts |= host_bit(world, q);
	return hosts;
}

/* Adds the first living one of these ranks on each other host that is not in *hosts. */
static void add_delegates(const struct world *world, bool silent, const struct ranks *ranks,
			  uint64_t *hosts, struct ranks *delegates)
{
	RANKS_EACH (q, ranks) {
		if (!world->transport.peers[q].mirror || atomic_load(&world->dead[q]) ||
		    *hosts & host_bit(world, q) ||
		    world->watch.remote->heard[q].is_unanswering != silent)
			continue;
		*hosts |= host_bit(world, q);
		ranks_add(delegates, q);
	}
}

/* One rank, not asked before, of each other host that has not answered; first not silent ones. */
static struct ranks find_delegates(const struct world *world, const struct ranks *asked,
				   const struct ranks *answered)
{
	struct ranks delegates = {{0}}, ranks = ranks_below(world->size);
	uint64_t hosts = hosts_of(world, answered);
	ranks_drop(&ranks, asked);
	add_delegates(world, false, &ranks, &hosts, &delegates);
	add_delegates(world, true, &ranks, &hosts, &delegates);
	return delegates;
}

static struct ranks find_first_delegates(const struct world *world)
{
	struct ranks none = {{0}};
	return find_delegates(world, &none, &none);
}

/* Sends the question. Returns the ranks to which the link has sent it: the link may have no
 * room. */
static struct ranks ask_all(struct world *world, const struct ranks *delegates,
			    enum failure_question what, uint64_t round)
{
	struct ranks asked = {{0}};
	RANKS_EACH (q, delegates)
		if (hosts_ask(&world->transport, q, (uint64_t[]){what, round}))
			ranks_add(&asked, q);
	return asked;
}

static bool has_answered(const struct failure_heard *heard, enum failure_question what,
			 uint64_t round)
{
	return atomic_load(what == FAILURE_LOOK ? &heard->seen : &heard->told) == round;
}

/* One rank of each host that has answered. */
static struct ranks find_answered(const struct world *world, const struct ranks *asked,
				  enum failure_question what, uint64_t round)
{
	struct ranks answered = {{0}};
	RANKS_EACH (q, asked)
		if (has_answered(&world->watch.remote->heard[q], what, round) &&
		    !(hosts_of(world, &answered) & host_bit(world, q)))
			ranks_add(&answered, q);
	return answered;
}

/* If one host alone has not answered, asks one more rank of it, if there is one. Several hosts that
 * have not answered are all slow, and more questions would make them slower. */
static void ask_others(struct world *world, enum failure_question what, uint64_t round,
		       const struct ranks *answered, struct ranks *asked)
{
	struct ranks others = find_delegates(world, asked, answered);
	uint64_t hosts = hosts_of(world, &others);
	if (ranks_count(&others) != 1)
		return;
	others = ask_all(world, &others, what, round);
	RANKS_EACH (q, asked)
		if (hosts & host_bit(world, q))
			world->watch.remote->heard[q].is_unanswering = true;
	ranks_join(asked, &others);
}

/* Notes which of the ranks that were asked first are silent. Ranks that were asked later had little
 * time. */
static void note_silent(struct failure_remote *remote, const struct ranks *first,
			const struct ranks *answered, enum failure_question what, uint64_t round)
{
	RANKS_EACH (q, first)
		remote->heard[q].is_unanswering = !has_answered(&remote->heard[q], what, round);
	RANKS_EACH (q, answered)
		remote->heard[q].is_unanswering = false;
}

/* Waits for an answer of each host of these ranks, and answers other hosts meanwhile. If an answer
 * does not come, asks another rank; but a confirmation must come from the rank that has looked.
 * Returns the ranks that have answered in time, one of each host. */
static struct ranks await_answers(struct world *world, const struct ranks *delegates,
				  enum failure_question what, uint64_t round)
{
	uint64_t limit_ms = what == FAILURE_COPY ? FAILURE_COPY_MS : FAILURE_ANSWER_MS;
	uint64_t deadline_ns = clock_deadline_ns(limit_ms);
	uint64_t part_ms = limit_ms / ASKED_MAX, next_ns = clock_deadline_ns(part_ms);
	uint64_t hosts = hosts_of(world, delegates);
	struct ranks asked = *delegates, answered = find_answered(world, &asked, what, round);
	while (hosts & ~hosts_of(world, &answered)) {
		uint64_t wakeups;
		if (what != FAILURE_CONFIRM && clock_now_ns() >= next_ns) {
			ask_others(world, what, round, &answered, &asked);
			next_ns = clock_deadline_ns(part_ms);
		}
		if (atomic_load(&world->watch.stop) || clock_now_ns() >= deadline_ns ||
		    !failure_watch_sleep(world, clock_deadline_ns(RETRY_MS), &wakeups))
			break;
		failure_remote_answer(world);
		answered = find_answered(world, &asked, what, round);
	}
	note_silent(world->watch.remote, delegates, &answered, what, round);
	return answered;
}

void failure_remote_forget_told(struct failure_remote *remote, int size)
{
	for (int q = 0; q < size; q++) {
		struct failure_heard *heard = &remote->heard[q];
		if (!atomic_load(&heard->told))
			continue;
		free(heard->block);
		atomic_store(&heard->told, 0);
	}
}

/* False: a block is no good, and neither is the snapshot now. */
static bool take_told(struct world *world, const struct ranks *delegates,
		      struct diagnose_snapshot *snapshot, struct diagnose_traffic *traffic)
{
	struct ranks here = failure_ranks_here(world);
	bool complete = true;
	RANKS_EACH (q, delegates) {
		struct failure_heard *heard = &world->watch.remote->heard[q];
		complete = complete &&
			   diagnose_unpack(snapshot, &here, heard->block, heard->bytes, traffic);
	}
	return complete;
}

/* Nothing is known of ranks whose hosts have not answered. So nothing is proved about them,
 * whatever is under way to or from them. */
static void check_traffic(const struct world *world, const struct ranks *answered,
			  struct diagnose_snapshot *snapshot, struct diagnose_traffic *traffic)
{
	uint16_t hosts[RANKS_WORLD_MAX];
	for (int q = 0; q < world->size; q++) {
		hosts[q] = world->transport.peers[q].host;
		for (int r = 0; r < world->size; r++)
			traffic[q].lost[r] |= !ranks_have(answered, q) || !ranks_have(answered, r);
	}
	diagnose_check_traffic(snapshot, hosts, traffic);
}

/* The ranks on the hosts of `delegates`, and on this host. */
static struct ranks ranks_of_hosts(const struct world *world, const struct ranks *delegates)
{
	struct ranks all = failure_ranks_here(world);
	for (int q = 0; q < world->size; q++)
		RANKS_EACH (s, delegates)
			if (world->transport.peers[q].host == world->transport.peers[s].host)
				ranks_add(&all, q);
	return all;
}

/* Makes both looks. The second leaves out hosts that did not answer the first one. *delegates: the
 * ranks to ask first; then those that have answered. */
static struct diagnose_snapshot *look_twice(struct world *world,
					    const struct diagnose_closing *closing,
					    struct ranks *delegates,
					    struct diagnose_traffic *traffic, bool whole)
{
	struct diagnose_snapshot *first = failure_collect(world, closing), *second = NULL;
	uint64_t round = ++world->watch.remote->round;
	uint64_t hosts = hosts_of(world, delegates);
	bool is_good = false;
	*delegates = ask_all(world, delegates, FAILURE_LOOK, round);
	*delegates = await_answers(world, delegates, FAILURE_LOOK, round);
	/* Makes room for the blocks that come. */
	failure_remote_forget_told(world->watch.remote, world->size);
	if (first && (!whole || hosts_of(world, delegates) == hosts)) {
		*delegates = ask_all(world, delegates, FAILURE_CONFIRM, round);
		failure_read_traffic(world, traffic);
		second = failure_collect(world, closing);
		confirm_look(world, first, second);
	}
	if (second) {
		*delegates = await_answers(world, delegates, FAILURE_CONFIRM, round);
		is_good = take_told(world, delegates, second, traffic);
	}
	free(first);
	if (!is_good)
		free(second);
	return is_good ? second : NULL;
}

struct diagnose_snapshot *failure_remote_collect_some(struct world *world,
						      const struct diagnose_closing *closing,
						      bool whole, struct ranks *answered)
{
	struct failure_remote *remote = world->watch.remote;
	struct diagnose_traffic *traffic = calloc((size_t)world->size, sizeof *traffic);
	struct ranks delegates = find_first_delegates(world);
	uint64_t hosts = hosts_of(world, &delegates);
	struct diagnose_snapshot *snapshot = NULL;
	failure_remote_forget_told(remote, world->size);
	if (traffic)
		snapshot = look_twice(world, closing, &delegates, traffic, whole);
	bool all = snapshot && hosts_of(world, &delegates) == hosts;
	*answered = ranks_of_hosts(world, &delegates);
	if (snapshot)
		check_traffic(world, answered, snapshot, traffic);
	remote->failed = all ? 0 : remote->failed + 1;
	failure_remote_forget_told(remote, world->size);
	free(traffic);
	if (snapshot && (all || !whole))
		return snapshot;
	free(snapshot);
	return NULL;
}

struct diagnose_snapshot *failure_remote_collect(struct world *world,
						 const struct diagnose_closing *closing)
{
	struct ranks answered;
	return failure_remote_collect_some(world, closing, true, &answered);
}

struct ranks failure_remote_copy(struct world *world,
				 void (*take)(void *context, const void *block, size_t bytes),
				 void *context)
{
	struct failure_remote *remote = world->watch.remote;
	struct ranks delegates = find_first_delegates(world);
	uint64_t round = ++remote->round;
	failure_remote_forget_told(remote, world->size);
	delegates = ask_all(world, &delegates, FAILURE_COPY, round);
	delegates = await_answers(world, &delegates, FAILURE_COPY, round);
	RANKS_EACH (q, &delegates)
		take(context, remote->heard[q].block, remote->heard[q].bytes);
	failure_remote_forget_told(remote, world->size);
	return ranks_of_hosts(world, &delegates);
}

bool failure_remote_may_try_again(const struct world *world, const struct ranks *answered)
{
	for (int q = 0; q < world->size; q++)
		if (!ranks_have(answered, q) && !atomic_load(&world->dead[q]) &&
		    !world->watch.remote->heard[q].is_unanswering)
			return true;
	return false;
}

bool failure_remote_is_unanswering(const struct failure_remote *remote)
{
	return remote && remote->failed >= UNANSWERED_LOOKS;
}
