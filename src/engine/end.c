/* SPDX-License-Identifier: BSD-3-Clause
 * The last collectives of a group. A rank that reads a peer's entry finds a difference. But a rank
 * that only contributes data reads no entry, and after the last collective no rank reads any. So a
 * rank that closes a group publishes how many collectives it ran, with a hash of them, and reads
 * which ones the others have entered. A rank that later enters a collective, or closes the group,
 * reads what those ranks have published.
 *
 *   closes:  ended = …, members_ended of q += 1   look at ended and newest entries of q    left
 *   enters:  entry                                look at my members_ended, then at ended of q
 *   arrives, from another host:
 *            ended of q, my members_ended += 1    look at my ended and my newest entries
 *
 * All sequentially consistent, so of any two members the later one sees the other. Between hosts
 * entries, `ended` and `times_closed` arrive in the order in which they were sent. So the same
 * holds of an arrival and of what this rank itself does, and it is enough that one of the two ends
 * arrives: hosts/parting.c. A rank leaves only after it has read the others, and an area is
 * reset only after all have left; so all that is read belongs to this group. Nothing blocks.
 * Models: test/model/ending.pml, and remote_ending.pml between hosts. */
#include "engine/end.h"
#include "engine/engine_private.h"

void engine_end_publish(struct engine *engine, uint64_t seq)
{
	const struct transport_team *team = engine->team;
	struct transport_area *mine = transport_area_of(team, team->rank);
	atomic_store(&mine->history, engine->history);
	atomic_store(&mine->ended, seq + 1);
	for (int q = 0; q < team->size; q++)
		if (q != team->rank)
			atomic_fetch_add(&transport_area_of(team, q)->members_ended, 1);
}

/* The entry of collective `seq` of member `rank`; NULL: the member has not entered it, or the slot
 * holds another entry. */
static const struct transport_entry *find_entry(const struct engine *engine, int rank, uint64_t seq)
{
	const struct transport_entry *entry = transport_entry(engine->team, rank, seq);
	uint64_t signal = atomic_load(&entry->signal);
	return seq > 0 && transport_signal_is_of(signal, seq) ? entry : NULL;
}

static bool same_entry(const struct transport_entry *a, const struct transport_entry *b)
{
	return a->signature == b->signature && a->count == b->count && a->history == b->history;
}

/* Member `one` has closed the group after `seq` collectives with this history, and `other` has
 * entered one more: compares the histories before that one. */
static void compare_one_more(const struct engine *engine, int one, uint64_t seq, uint64_t history,
			     int other, struct engine_difference *out)
{
	const struct transport_entry *more = find_entry(engine, other, seq + 1);
	bool alike = !more || more->history == history;
	*out = (struct engine_difference){.status = alike ? LS_PEER_LEFT : LS_MISMATCH,
					  .one = one,
					  .other = other,
					  .seq = alike ? seq + 1 : seq};
}

/* I have closed the group after `seq` collectives with this history. A peer that is still inside
 * compares by itself what it enters from now on. So only its newest collective counts, if that is
 * my last one or the one behind it; the peer cannot have entered a later one. */
static bool differs_outside(const struct engine *engine, uint64_t seq, uint64_t my_history,
			    int peer, struct engine_difference *out)
{
	int me = engine->team->rank;
	const struct transport_area *area = transport_area_of(engine->team, peer);
	uint64_t ended = atomic_load(&area->ended), history = atomic_load(&area->history);
	bool alike = true;
	if (ended && ended - 1 < seq) {
		compare_one_more(engine, peer, ended - 1, history, me, out);
		return true;
	}
	if (ended ? ended - 1 > seq : find_entry(engine, peer, seq + 1) != NULL) {
		compare_one_more(engine, me, seq, my_history, peer, out);
		return true;
	}
	if (ended) {
		alike = history == my_history;
	} else {
		const struct transport_entry *last = find_entry(engine, peer, seq);
		const struct transport_entry *mine = last ? find_entry(engine, me, seq) : NULL;
		alike = !mine || same_entry(mine, last);
	}
	if (!alike)
		*out = (struct engine_difference){
			.status = LS_MISMATCH, .one = me, .other = peer, .seq = seq};
	return !alike;
}

bool engine_end_compare(const struct engine *engine, uint64_t seq, const struct ranks *gone,
			struct engine_difference *out)
{
	bool found = false;
	for (int q = 0; q < engine->team->size; q++) {
		struct engine_difference other;
		bool asked = !ranks_among(gone, q) ||
			     atomic_load(&transport_area_of(engine->team, q)->ended);
		if (q == engine->team->rank || !asked ||
		    !differs_outside(engine, seq, engine->history, q, &other))
			continue;
		/* A different call is reported before a missing one, which may follow from it. */
		if (!found || (out->status == LS_PEER_LEFT && other.status == LS_MISMATCH))
			*out = other;
		found = true;
	}
	return found;
}

/* I am in the group. I compare by myself what I enter from now on. My entries are not overwritten
 * before a peer that has left would enter more. */
static bool differs_inside(const struct engine *engine, int peer, uint64_t ended,
			   struct engine_difference *out)
{
	const struct transport_area *area = transport_area_of(engine->team, peer);
	int me = engine->team->rank;
	uint64_t seq = ended - 1;
	if (find_entry(engine, me, seq + 1)) {
		compare_one_more(engine, peer, seq, atomic_load(&area->history), me, out);
		return true;
	}
	const struct transport_entry *mine = find_entry(engine, me, seq);
	const struct transport_entry *last = mine ? find_entry(engine, peer, seq) : NULL;
	if (!last || same_entry(mine, last))
		return false;
	*out = (struct engine_difference){
		.status = LS_MISMATCH, .one = me, .other = peer, .seq = seq};
	return true;
}

bool engine_end_arrived(const struct engine *engine, int peer, struct engine_difference *out)
{
	const struct transport_area *area = transport_area_of(engine->team, engine->team->rank);
	uint64_t theirs = atomic_load(&transport_area_of(engine->team, peer)->ended);
	uint64_t mine = atomic_load(&area->ended);
	if (!theirs)
		return false;
	return mine ? differs_outside(engine, mine - 1, atomic_load(&area->history), peer, out)
		    : differs_inside(engine, peer, theirs, out);
}

enum op_progress engine_end_check(struct engine *engine, struct op *op)
{
	const struct transport_team *team = engine->team;
	op->word_count = 0;
	for (int q = 0; q < team->size; q++) {
		uint64_t ended =
			q == team->rank ? 0 : atomic_load(&transport_area_of(team, q)->ended);
		if (ended && ended - 1 < op->seq)
			return op_fail(op, LS_PEER_LEFT, q);
		if (ended && engine_step_check(engine, op, q) == OP_FAILED)
			return OP_FAILED;
	}
	return OP_DONE;
}
