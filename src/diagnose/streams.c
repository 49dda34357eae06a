/* SPDX-License-Identifier: BSD-3-Clause
 * What a thread waits for if it waits for a stream of a device. A device tells nobody what holds it
 * up. But a stream does its work in order, and an operation in front may wait for other ranks; then
 * so does everything behind it, in whatever group. So this follows the records from the operation
 * that the stream has not come to, to the first one in front that waits for ranks itself, and gives
 * the thread that one's words.
 *
 * This is sound: the records are read after the words, so an operation that they show as not
 * complete was not complete when its words had not come, and nothing behind it had been done. What
 * the program itself has put on the stream can make the stream wait longer, and never less.
 *
 * A thread that waits for room in a queue goes on when any of the streams of that queue has done
 * the first thing that it has there. Its own operation is put on the stream after that, so threads
 * that wait for that operation wait for the same. */
#include <string.h>

#include "base/seqlock.h"
#include "diagnose/facts.h"

/* ---- which operation ---- */

static const struct diagnose_record *find_running(const struct diagnose_rank *rank, uint64_t index)
{
	const struct diagnose_record *record = diagnose_record_at(rank, index);
	return record && record->record.state == TRACE_RUNNING ? record : NULL;
}

/* Collectives of a group run in the order of their numbers. */
static const struct diagnose_record *find_earlier(const struct diagnose_rank *rank,
						  const struct trace_record *op)
{
	const struct diagnose_record *first = NULL;
	for (uint32_t i = 0; diagnose_is_collective(op) && i < rank->record_count; i++) {
		const struct trace_record *other = &rank->records[i].record;
		if (other->group == op->group && other->seq < op->seq &&
		    other->state == TRACE_RUNNING && diagnose_is_collective(other) &&
		    (!first || other->seq < first->record.seq))
			first = &rank->records[i];
	}
	return first;
}

/* Whether the stream has to come to the operation before it can go on; false: it waits for its
 * peers. */
static bool awaits_stream(const struct trace_record *op)
{
	if (op->kind == TRACE_SEND)
		return !(op->stream & TRACE_REACHED);
	return op->stream & TRACE_ARRIVED ||
	       (diagnose_is_collective(op) && !(op->stream & TRACE_REACHED));
}

/* An operation that a stream has not passed. A send that has been copied is not in its way. */
static const struct diagnose_record *find_unpassed(const struct diagnose_rank *rank, uint64_t index)
{
	const struct diagnose_record *front = find_running(rank, index);
	bool passed = front && front->record.kind == TRACE_SEND && !awaits_stream(&front->record);
	return passed ? NULL : front;
}

/* What a stream has to do before it comes to the operation. Returns how many there are; 0: none is
 * known. */
static int find_fronts(const struct diagnose_rank *rank, const struct diagnose_record *op,
		       const struct diagnose_record *out[2])
{
	const struct trace_record *record = &op->record;
	int count = 0;
	if (record->state != TRACE_RUNNING || !(record->stream & TRACE_ON_STREAM) ||
	    (record->stream & TRACE_LET_GO) || !awaits_stream(record))
		return 0;
	if ((out[count] = find_unpassed(rank, record->behind)))
		count++;
	if ((out[count] = find_unpassed(rank, record->follows)))
		count++;
	return count;
}

const struct diagnose_record *diagnose_in_front(const struct diagnose_rank *rank,
						const struct diagnose_record *op)
{
	const struct diagnose_record *fronts[2] = {NULL};
	return find_fronts(rank, op, fronts) > 0 ? fronts[0] : NULL;
}

/* Operations that are still to be looked at, each once. */
struct to_look_at {
	const struct diagnose_record *ops[DIAGNOSE_RECORD_MAX];
	int count;
	uint64_t seen; /* bit i: record i of the rank */
};
_Static_assert(DIAGNOSE_RECORD_MAX <= 64, "one bit for each record");

static void look_at_later(struct to_look_at *left, const struct diagnose_rank *rank,
			  const struct diagnose_record *op)
{
	uint64_t bit = UINT64_C(1) << (op - rank->records);
	if (!(left->seen & bit))
		left->ops[left->count++] = op;
	left->seen |= bit;
}

/* The operation that has to go on before `op` can, and that waits for other ranks itself. NULL:
 * unknown, for instance because the device is at work. *seen: bit i, record i has been looked
 * at. */
static const struct diagnose_record *find_obstacle(const struct diagnose_rank *rank,
						   const struct diagnose_record *op, uint64_t *seen)
{
	const struct diagnose_record *earlier, *fronts[2];
	struct to_look_at left = {.count = 0};
	for (look_at_later(&left, rank, op); left.count > 0;) {
		op = left.ops[--left.count];
		*seen = left.seen;
		if ((earlier = find_earlier(rank, &op->record))) {
			look_at_later(&left, rank, earlier);
			continue;
		}
		if (!(op->record.stream & TRACE_ON_STREAM))
			return op;
		if (!(op->record.stream & TRACE_LET_GO) && !awaits_stream(&op->record))
			return op;
		for (int i = find_fronts(rank, op, fronts); i-- > 0;)
			look_at_later(&left, rank, fronts[i]);
	}
	return NULL;
}

/* ---- its words ---- */

struct words {
	struct wait_edge edges[WAIT_EDGE_MAX];
	uint32_t count;
	bool any;      /* one of them suffices */
	bool fails;    /* it may go on: one of them has come, or they are not all known */
	uint64_t seen; /* bit i: record i of the rank led to them */
};

static void add_word(struct words *words, const struct wait_edge *edge,
		     const struct diagnose_record *op)
{
	if (words->count == WAIT_EDGE_MAX) {
		words->fails = true;
		return;
	}
	struct wait_edge *added = &words->edges[words->count++];
	*added = *edge;
	added->record = (uint32_t)op->record.index;
	added->alternative = 0;
}

/* Whether the word tells that the stream has passed the operation: another sign that it has not,
 * and nothing that it needs. */
static bool is_its_stream(const struct wait_edge *edge, const struct trace_record *op)
{
	return edge->segment == WAIT_SEGMENT_DEVICE && edge->offset == op->index &&
	       op->stream & TRACE_ON_STREAM;
}

/* The words of this operation that a thread waits for. */
static void add_words_of(const struct diagnose_thread *thread, const struct diagnose_record *op,
			 struct words *words)
{
	const struct wait_slot_body *wait = &thread->wait;
	uint32_t low = (uint32_t)op->record.index;
	if (wait->state != WAIT_WORDS && wait->state != WAIT_ANY_WORD)
		return;
	for (uint32_t i = 0; i < wait->edge_count; i++) {
		const struct wait_edge *edge = &wait->edges[i];
		bool own = edge->record ? edge->record == low : wait->record == op->record.index;
		if (!own || edge->record == WAIT_RECORD_OTHERS || thread->behind >> i & 1 ||
		    is_its_stream(edge, &op->record))
			continue;
		if (thread->satisfied >> i & 1)
			words->fails |= wait->state == WAIT_ANY_WORD;
		else if (edge->peer >= 0)
			add_word(words, edge, op);
		words->any |= wait->state == WAIT_ANY_WORD;
	}
}

static void add_peer(const struct diagnose_snapshot *snapshot, const struct diagnose_record *op,
		     int peer, struct words *words)
{
	struct wait_edge edge = {.owner = -1, .peer = peer, .segment = WAIT_SEGMENT_NONE};
	words->fails |= peer >= snapshot->size;
	if (peer < snapshot->size && diagnose_is_remote(&snapshot->ranks[peer]))
		edge.segment = WAIT_SEGMENT_MIRROR; /* what it has sent may be under way */
	add_word(words, &edge, op);
}

/* A message that no thread shows as its own has one peer. A receive of any source that has no
 * message yet has all members that can still send one; what they have sent before shows in the
 * words for which the rank's threads wait for others, or has come. */
static void add_peers(const struct diagnose_snapshot *snapshot, const struct diagnose_record *op,
		      struct words *words)
{
	const struct trace_record *record = &op->record;
	const struct ranks *members = diagnose_members(snapshot, record->group);
	const struct ranks world = ranks_below(snapshot->size);
	if (words->count > 0 || !diagnose_is_p2p(record))
		return;
	if (record->peer >= 0) {
		add_peer(snapshot, op, record->peer, words);
		return;
	}
	if (!(record->wildcards & TRACE_ANY_SOURCE) ||
	    (!members && record->group != TRACE_GROUP_WORLD))
		return;
	words->any = true;
	RANKS_EACH (r, members ? members : &world)
		if (r >= snapshot->size || (!diagnose_is_gone(&snapshot->ranks[r]) &&
					    !diagnose_has_left(&snapshot->ranks[r], record->group))) {
			add_peer(snapshot, op, r, words);
			/* What several hosts have sent is not proved. */
			words->fails |=
				r < snapshot->size && diagnose_is_remote(&snapshot->ranks[r]);
		}
}

static void find_words(const struct diagnose_snapshot *snapshot, const struct diagnose_rank *rank,
		       uint64_t index, struct words *words)
{
	*words = (struct words){.fails = true};
	const struct diagnose_record *from = find_unpassed(rank, index);
	if (!from || !(from->record.stream & TRACE_ON_STREAM))
		return; /* also a send that the stream has passed since the words were read */
	const struct diagnose_record *op = find_obstacle(rank, from, &words->seen);
	if (!op)
		return;
	words->fails = false;
	for (uint32_t i = 0; i < rank->thread_count; i++)
		add_words_of(&rank->threads[i], op, words);
	add_peers(snapshot, op, words);
	words->fails |= words->count == 0;
}

/* ---- the threads ---- */

static void remove_edge(struct diagnose_thread *thread, uint32_t i)
{
	struct wait_slot_body *wait = &thread->wait;
	uint64_t below = (UINT64_C(1) << i) - 1;
	memmove(&wait->edges[i], &wait->edges[i + 1],
		(wait->edge_count - i - 1) * sizeof wait->edges[0]);
	wait->edge_count--;
	thread->satisfied = (thread->satisfied & below) | (thread->satisfied >> 1 & ~below);
	thread->behind = (thread->behind & below) | (thread->behind >> 1 & ~below);
}

/* A number that no word of the wait has; 0: none is left. */
static uint16_t free_alternative(const struct wait_slot_body *wait)
{
	uint64_t used = 0;
	for (uint32_t i = 0; i < wait->edge_count; i++)
		if (wait->edges[i].alternative >= 1 &&
		    wait->edges[i].alternative <= WAIT_ALTERNATIVE_MAX)
			used |= UINT64_C(1) << (wait->edges[i].alternative - 1);
	return used == UINT64_MAX ? 0 : (uint16_t)(1 + __builtin_ctzll(~used));
}

/* Gives the thread these words in place of edge i. False: it has no room for them. */
static bool replace_edge(struct diagnose_thread *thread, uint32_t i, const struct words *words)
{
	struct wait_slot_body *wait = &thread->wait;
	uint16_t alternative = wait->edges[i].alternative;
	bool all = !words->any && words->count > 1;
	if (words->any)
		alternative = 0;
	else if (all && !alternative)
		alternative = free_alternative(wait);
	if (wait->edge_count - 1 + words->count > WAIT_EDGE_MAX || (all && !alternative))
		return false;
	remove_edge(thread, i);
	for (uint32_t k = 0; k < words->count; k++) {
		uint32_t at = wait->edge_count++;
		wait->edges[at] = words->edges[k];
		wait->edges[at].alternative = alternative;
		thread->satisfied &= ~(UINT64_C(1) << at);
		thread->behind |= UINT64_C(1) << at;
	}
	return true;
}

/* Edge i is a word that a device stores for an operation of another thread. */
static void follow_others(struct diagnose_thread *thread, uint32_t i, const struct words *words)
{
	thread->others_unclear |= words->fails;
	if (words->fails)
		return;
	thread->wait.edges[i].segment = WAIT_SEGMENT_NONE;
	thread->satisfied &= ~(UINT64_C(1) << i);
	for (uint32_t k = 0; k < words->count; k++)
		ranks_add(&thread->others, words->edges[k].peer);
}

/* Whether one of these operations may fail, so that its stream goes on. */
static bool any_group_may_end(const struct diagnose_source *const *by_rank,
			      const struct diagnose_snapshot *snapshot,
			      const struct diagnose_rank *rank, uint64_t records)
{
	const struct trace_view *trace = by_rank[rank->rank]->trace;
	for (; records; records &= records - 1) {
		const struct diagnose_record *op = &rank->records[__builtin_ctzll(records)];
		if (diagnose_may_end(by_rank, snapshot, trace, op->record.group))
			return true;
	}
	return false;
}

static void follow(struct diagnose_thread *thread, uint32_t i, const struct words *words)
{
	if (thread->wait.edges[i].record == WAIT_RECORD_OTHERS)
		follow_others(thread, i, words);
	else if (!words->fails)
		(void)replace_edge(thread, i, words);
}

/* A word that a proof leaves out: it asks for all threads of the rank, so also for those that make
 * room. */
static bool is_left_out(const struct wait_edge *edge)
{
	return edge->segment == WAIT_SEGMENT_DEVICE &&
	       (edge->offset == WAIT_DEVICE_BROKEN || edge->offset == WAIT_DEVICE_ROOM);
}

/* Whether the thread has another word of its own. Without one it would not count as waiting. */
static bool has_other_words(const struct diagnose_thread *thread)
{
	for (uint32_t i = 0; i < thread->wait.edge_count; i++)
		if (thread->wait.edges[i].record != WAIT_RECORD_OTHERS &&
		    !is_left_out(&thread->wait.edges[i]))
			return true;
	return false;
}

/* Words that the device stores. Returns whether the thread waits for room in a queue. */
static bool follow_device(const struct diagnose_source *const *by_rank,
			  const struct diagnose_snapshot *snapshot, struct diagnose_rank *rank,
			  struct diagnose_thread *thread)
{
	bool launches = false, may_leave_out = has_other_words(thread);
	for (uint32_t i = thread->wait.edge_count; i-- > 0;) {
		const struct wait_edge edge = thread->wait.edges[i];
		struct words words;
		if (edge.segment != WAIT_SEGMENT_DEVICE)
			continue;
		launches |= edge.offset == WAIT_DEVICE_ROOM;
		if (is_left_out(&edge) && (may_leave_out || edge.record == WAIT_RECORD_OTHERS))
			remove_edge(thread, i);
		if (edge.offset & WAIT_DEVICE_PUT) /* also those two */
			continue;
		find_words(snapshot, rank, edge.offset, &words);
		words.fails |= any_group_may_end(by_rank, snapshot, rank, words.seen);
		if (!words.fails)
			follow(thread, i, &words);
	}
	return launches;
}

/* What the thread waits for that is to put the operation on its stream: room in the queue. Before
 * that the device stores no word of this operation. launchers: bit t, thread t waits for room. */
static void find_words_of_launch(const struct diagnose_rank *rank, uint64_t index,
				 uint32_t launchers, struct words *words)
{
	const struct diagnose_record *op = find_running(rank, index);
	*words = (struct words){.fails = true};
	if (!op || op->record.stream & TRACE_LAUNCHED)
		return;
	for (; launchers; launchers &= launchers - 1) {
		const struct diagnose_thread *thread = &rank->threads[__builtin_ctz(launchers)];
		const struct wait_slot_body *wait = &thread->wait;
		if (wait->record != index || wait->edge_count == 0)
			continue;
		*words = (struct words){.any = wait->edges[0].alternative == 0};
		for (uint32_t i = 0; i < wait->edge_count; i++) {
			words->edges[words->count++] = wait->edges[i];
			words->fails |= !(thread->behind >> i & 1) ||
					wait->edges[i].alternative != wait->edges[0].alternative;
		}
		return;
	}
}

void diagnose_follow_streams(const struct diagnose_source *const *by_rank,
			     struct diagnose_snapshot *snapshot, int r)
{
	struct diagnose_rank *rank = &snapshot->ranks[r];
	uint32_t launchers = 0;
	for (uint32_t t = 0; t < rank->thread_count; t++)
		if (follow_device(by_rank, snapshot, rank, &rank->threads[t]))
			launchers |= UINT32_C(1) << t;
	for (uint32_t t = 0; t < rank->thread_count; t++) {
		struct diagnose_thread *thread = &rank->threads[t];
		for (uint32_t i = thread->wait.edge_count; i-- > 0;) {
			const struct wait_edge *edge = &thread->wait.edges[i];
			struct words words;
			if (edge->segment != WAIT_SEGMENT_DEVICE)
				continue;
			find_words_of_launch(rank, edge->offset & ~WAIT_DEVICE_PUT, launchers,
					     &words);
			follow(thread, i, &words);
		}
	}
}

/* ---- for the judge ---- */

bool diagnose_awaits_device(const struct diagnose_thread *thread)
{
	const struct wait_slot_body *wait = &thread->wait;
	if (!thread->stable || (wait->state != WAIT_WORDS && wait->state != WAIT_ANY_WORD))
		return false;
	for (uint32_t i = 0; i < wait->edge_count; i++)
		if (wait->edges[i].segment == WAIT_SEGMENT_DEVICE &&
		    wait->edges[i].record != WAIT_RECORD_OTHERS)
			return true;
	return false;
}

uint32_t diagnose_group_in_front(const struct diagnose_rank *rank,
				 const struct diagnose_thread *thread, uint32_t i)
{
	const struct diagnose_record *op =
		thread->behind >> i & 1 ? diagnose_record_low(rank, thread->wait.edges[i].record)
					: NULL;
	return op ? op->record.group : 0;
}

bool diagnose_awaits_gone_behind(const struct diagnose_snapshot *snapshot,
				 const struct diagnose_rank *rank,
				 const struct diagnose_thread *thread)
{
	for (uint32_t i = 0; thread->behind && i < thread->wait.edge_count; i++) {
		const struct wait_edge *edge = &thread->wait.edges[i];
		const struct diagnose_record *op = diagnose_record_low(rank, edge->record);
		if (thread->behind >> i & 1 && edge->peer >= 0 && edge->peer < snapshot->size &&
		    (!op || diagnose_is_gone(&snapshot->ranks[edge->peer]) ||
		     diagnose_has_left(&snapshot->ranks[edge->peer], op->record.group)))
			return true;
	}
	return false;
}
