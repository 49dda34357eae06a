/* SPDX-License-Identifier: BSD-3-Clause
 * The reference matcher: runs the programs of all ranks as far as they go without a choice, then
 * tries each message that a receive of any source may get. To choose as late as possible leaves no
 * outcome out: a message that could have been taken earlier is still there, and nothing else may
 * take it. */
#include <string.h>

#include "schedule.h"

enum { RANKS = SCHEDULE_RANKS, ACTIONS = SCHEDULE_ACTIONS, STATES = 256 };

struct state {
	/* What is over follows from these. */
	uint64_t posted[RANKS];   /* sends that have one of the `limit` places */
	uint64_t received[RANKS]; /* sends */
	uint64_t got[RANKS];      /* receives */
	uint8_t at[RANKS]; /* the action a rank is in: it and all before it have been called */
	/* What each receive has got decides nothing any more. */
	int8_t source[RANKS][ACTIONS];
	uint8_t sent[RANKS][ACTIONS];
};
enum { STATE_KEY = offsetof(struct state, source) };

struct judge {
	const struct schedule *schedule;
	struct schedule_verdict *verdict;
	bool ended, stuck, too_large;
	int collectives[RANKS];             /* how many a rank has */
	uint8_t collective[RANKS][ACTIONS]; /* which action its n-th one is */
	uint8_t number_of[RANKS][ACTIONS];  /* which one an action is */
	int seen_count;                     /* states in which there was a choice */
	unsigned char seen[STATES][STATE_KEY];
};

static uint64_t bit(int i)
{
	return UINT64_C(1) << i;
}

static uint8_t rank_bit(int rank)
{
	return (uint8_t)(1u << rank);
}

static const struct schedule_action *action_of(const struct judge *judge, int rank, int i)
{
	return &judge->schedule->programs[rank].actions[i];
}

static bool has_called(const struct judge *judge, const struct state *state, int rank, int i)
{
	return i < judge->schedule->programs[rank].count && i <= state->at[rank];
}

/* Ranks that have not called the collective that action `i` of `rank` is. */
static uint8_t missing(const struct judge *judge, const struct state *state, int rank, int i)
{
	int number = judge->number_of[rank][i];
	uint8_t ranks = 0;
	for (int q = 0; q < judge->schedule->ranks; q++)
		if (number >= judge->collectives[q] ||
		    !has_called(judge, state, q, judge->collective[q][number]))
			ranks |= rank_bit(q);
	return ranks;
}

static bool is_over(const struct judge *judge, const struct state *state, int rank, int i);

/* Of a set of actions those that are not over. */
static uint64_t open_of(const struct judge *judge, const struct state *state, int rank, uint64_t set)
{
	uint64_t open = 0;
	for (; set; set &= set - 1) {
		int i = __builtin_ctzll(set);
		if (!is_over(judge, state, rank, i))
			open |= bit(i);
	}
	return open;
}

static bool is_over(const struct judge *judge, const struct state *state, int rank, int i)
{
	const struct schedule_action *action = action_of(judge, rank, i);
	switch ((enum schedule_kind)action->kind) {
	case SCHEDULE_SEND:
		if (schedule_bytes(judge->schedule, action->peer, action->tag) <= SCHEDULE_BUFFERED)
			return state->posted[rank] & bit(i);
		return state->received[rank] & bit(i);
	case SCHEDULE_RECV:
		return state->got[rank] & bit(i);
	case SCHEDULE_COLLECTIVE:
		return missing(judge, state, rank, i) == 0;
	case SCHEDULE_WAIT_ANY:
		return open_of(judge, state, rank, action->of) != action->of;
	case SCHEDULE_WAIT:
	case SCHEDULE_BATCH_END:
		return open_of(judge, state, rank, action->of) == 0;
	case SCHEDULE_BATCH:
		break;
	}
	return true;
}

/* ---- what happens by itself ---- */

static bool advance(const struct judge *judge, struct state *state, int rank)
{
	uint8_t before = state->at[rank];
	while (state->at[rank] < judge->schedule->programs[rank].count &&
	       (!action_of(judge, rank, state->at[rank])->blocks ||
		is_over(judge, state, rank, state->at[rank])))
		state->at[rank]++;
	return state->at[rank] != before;
}

/* Sends take their places in the order of their calls, as long as there are some for that peer. */
static bool post(const struct judge *judge, struct state *state, int rank)
{
	int under_way[RANKS] = {0};
	bool changed = false;
	for (int i = 0; has_called(judge, state, rank, i); i++) {
		const struct schedule_action *action = action_of(judge, rank, i);
		if (action->kind != SCHEDULE_SEND || state->received[rank] & bit(i))
			continue;
		if (under_way[action->peer]++ < judge->schedule->limit) {
			changed |= !(state->posted[rank] & bit(i));
			state->posted[rank] |= bit(i);
		}
	}
	return changed;
}

static bool accepts(const struct schedule_action *recv, int source, int tag)
{
	return (recv->peer == SCHEDULE_ANY || recv->peer == source) &&
	       (recv->tag == SCHEDULE_ANY || recv->tag == tag);
}

static bool is_waiting(const struct judge *judge, const struct state *state, int rank, int i)
{
	return action_of(judge, rank, i)->kind == SCHEDULE_RECV && !(state->got[rank] & bit(i));
}

/* The message of `source` that receive `i` of `rank` may get: the oldest it accepts, if no receive
 * that was called before it does; -1 if there is none. */
static int candidate(const struct judge *judge, const struct state *state, int rank, int i,
		     int source)
{
	const struct schedule_action *recv = action_of(judge, rank, i);
	for (int k = 0; has_called(judge, state, source, k); k++) {
		const struct schedule_action *send = action_of(judge, source, k);
		if (send->kind != SCHEDULE_SEND || send->peer != rank ||
		    !(state->posted[source] & ~state->received[source] & bit(k)) ||
		    !accepts(recv, source, send->tag))
			continue;
		for (int j = 0; j < i; j++)
			if (is_waiting(judge, state, rank, j) &&
			    accepts(action_of(judge, rank, j), source, send->tag))
				return -1;
		return k;
	}
	return -1;
}

static void receive(struct state *state, int rank, int i, int source, int k)
{
	state->got[rank] |= bit(i);
	state->received[source] |= bit(k);
	state->source[rank][i] = (int8_t)source;
	state->sent[rank][i] = (uint8_t)k;
}

static bool receive_from_one(const struct judge *judge, struct state *state, int rank)
{
	bool changed = false;
	for (int i = 0; has_called(judge, state, rank, i); i++) {
		int source = action_of(judge, rank, i)->peer;
		if (!is_waiting(judge, state, rank, i) || source == SCHEDULE_ANY)
			continue;
		int k = candidate(judge, state, rank, i, source);
		if (k < 0)
			continue;
		receive(state, rank, i, source, k);
		changed = true;
	}
	return changed;
}

static void settle(const struct judge *judge, struct state *state)
{
	bool changed;
	do {
		changed = false;
		for (int r = 0; r < judge->schedule->ranks; r++) {
			changed |= advance(judge, state, r);
			changed |= post(judge, state, r);
			changed |= receive_from_one(judge, state, r);
		}
	} while (changed);
}

/* ---- where it ends ---- */

/* The ranks that action `i` needs. around: in a collective also ranks that it may report as missing
 * although they only wait as well. */
static uint8_t needs(const struct judge *judge, const struct state *state, int rank, int i,
		     bool around)
{
	const struct schedule_action *action = action_of(judge, rank, i);
	uint8_t all = (uint8_t)(rank_bit(judge->schedule->ranks) - 1), ranks = 0;
	if (is_over(judge, state, rank, i))
		return 0;
	switch ((enum schedule_kind)action->kind) {
	case SCHEDULE_SEND:
		return rank_bit(action->peer);
	case SCHEDULE_RECV:
		return action->peer == SCHEDULE_ANY ? all & (uint8_t)~rank_bit(rank)
						    : rank_bit(action->peer);
	case SCHEDULE_COLLECTIVE:
		return around ? all & (uint8_t)~rank_bit(rank) : missing(judge, state, rank, i);
	default:
		break;
	}
	for (uint64_t set = action->of; set; set &= set - 1)
		ranks |= needs(judge, state, rank, __builtin_ctzll(set), around);
	return ranks;
}

/* A receive may wait for a message that was sent long ago, but has no place because others that
 * this very rank does not receive have them all: then the sender waits for it, wherever else it
 * is. */
static void add_held_back(const struct judge *judge, const struct state *state, int rank, int i,
			  struct schedule_end *end)
{
	const struct schedule_action *action = action_of(judge, rank, i);
	if (action->kind != SCHEDULE_RECV) {
		for (uint64_t set = action->of; set; set &= set - 1)
			add_held_back(judge, state, rank, __builtin_ctzll(set), end);
		return;
	}
	for (int s = 0; s < judge->schedule->ranks && is_waiting(judge, state, rank, i); s++)
		for (int k = 0; has_called(judge, state, s, k); k++) {
			const struct schedule_action *send = action_of(judge, s, k);
			if (send->kind == SCHEDULE_SEND && send->peer == rank &&
			    !(state->posted[s] & bit(k)) && accepts(action, s, send->tag))
				end->waits[s] |= rank_bit(rank);
		}
}

static void describe(const struct judge *judge, const struct state *state, struct schedule_end *end)
{
	memset(end, 0, sizeof *end);
	memcpy(end->at, state->at, sizeof end->at);
	memcpy(end->source, state->source, sizeof end->source);
	memcpy(end->sent, state->sent, sizeof end->sent);
	for (int r = 0; r < judge->schedule->ranks; r++) {
		for (int i = 0; has_called(judge, state, r, i); i++) {
			if (is_over(judge, state, r, i))
				end->over[r] |= bit(i);
			end->touches[r] |= needs(judge, state, r, i, true);
		}
		if (end->at[r] == judge->schedule->programs[r].count)
			continue;
		end->waits[r] |= needs(judge, state, r, end->at[r], false);
		add_held_back(judge, state, r, end->at[r], end);
	}
}

static bool is_same_end(const struct schedule_end *a, const struct schedule_end *b)
{
	return memcmp(a->at, b->at, sizeof a->at) == 0 &&
	       memcmp(a->waits, b->waits, sizeof a->waits) == 0 &&
	       memcmp(a->touches, b->touches, sizeof a->touches) == 0 &&
	       memcmp(a->over, b->over, sizeof a->over) == 0;
}

static bool has_leftover(const struct judge *judge, const struct state *state)
{
	for (int r = 0; r < judge->schedule->ranks; r++)
		for (int i = 0; has_called(judge, state, r, i); i++)
			if (action_of(judge, r, i)->kind == SCHEDULE_SEND &&
			    !(state->received[r] & bit(i)))
				return true;
	return false;
}

static void add_end(struct judge *judge, const struct state *state)
{
	struct schedule_verdict *verdict = judge->verdict;
	struct schedule_end end;
	describe(judge, state, &end);
	bool whole = true;
	for (int r = 0; r < judge->schedule->ranks; r++)
		whole &= end.at[r] == judge->schedule->programs[r].count;
	judge->ended |= whole;
	judge->stuck |= !whole;
	verdict->leftover |= has_leftover(judge, state);
	for (int e = 0; e < verdict->end_count; e++)
		if (whole || is_same_end(&verdict->ends[e], &end))
			return;
	if (verdict->end_count == SCHEDULE_ENDS)
		judge->too_large = true;
	else
		verdict->ends[verdict->end_count++] = end;
}

/* ---- choices ---- */

/* The n-th way to go on; false if there are not this many. */
static bool choose(const struct judge *judge, struct state *state, int n)
{
	for (int r = 0; r < judge->schedule->ranks; r++)
		for (int i = 0; has_called(judge, state, r, i); i++) {
			if (!is_waiting(judge, state, r, i) ||
			    action_of(judge, r, i)->peer != SCHEDULE_ANY)
				continue;
			for (int s = 0; s < judge->schedule->ranks; s++) {
				int k = candidate(judge, state, r, i, s);
				if (k < 0 || n-- > 0)
					continue;
				receive(state, r, i, s, k);
				return true;
			}
		}
	return false;
}

static bool was_seen(struct judge *judge, const struct state *state)
{
	for (int i = 0; i < judge->seen_count; i++)
		if (memcmp(judge->seen[i], state, STATE_KEY) == 0)
			return true;
	if (judge->seen_count == STATES)
		judge->too_large = true;
	else
		memcpy(judge->seen[judge->seen_count++], state, STATE_KEY);
	return judge->too_large;
}

static void explore(struct judge *judge, struct state *state)
{
	settle(judge, state);
	struct state next = *state;
	if (!choose(judge, &next, 0)) {
		add_end(judge, state);
		return;
	}
	struct state other = *state;
	if (!choose(judge, &other, 1)) {
		explore(judge, &next);
		return;
	}
	judge->verdict->unique = false;
	if (was_seen(judge, state))
		return;
	for (int n = 0; !judge->too_large; n++) {
		next = *state;
		if (!choose(judge, &next, n))
			return;
		explore(judge, &next);
	}
}

void schedule_judge(const struct schedule *schedule, struct schedule_verdict *verdict)
{
	struct judge judge = {.schedule = schedule, .verdict = verdict};
	struct state state = {0};
	memset(verdict, 0, sizeof *verdict);
	memset(state.source, -1, sizeof state.source);
	verdict->unique = true;
	for (int r = 0; r < schedule->ranks; r++)
		for (int i = 0; i < schedule->programs[r].count; i++)
			if (schedule->programs[r].actions[i].kind == SCHEDULE_COLLECTIVE) {
				judge.number_of[r][i] = (uint8_t)judge.collectives[r];
				judge.collective[r][judge.collectives[r]++] = (uint8_t)i;
			}
	explore(&judge, &state);
	verdict->outcome = judge.too_large              ? SCHEDULE_TOO_LARGE
			   : judge.ended && judge.stuck ? SCHEDULE_DEPENDS
			   : judge.stuck                ? SCHEDULE_DEADLOCKS
							: SCHEDULE_ENDS_WELL;
}

bool schedule_is_cycle(const struct schedule_end *end, const struct schedule_hop *hops, int count)
{
	uint8_t ranks = 0, core, before;
	for (int i = 0; i < count; i++) {
		const struct schedule_hop *hop = &hops[i];
		if (hop->rank < 0 || hop->rank >= RANKS || hop->peer < 0 || hop->peer >= RANKS ||
		    ranks & rank_bit(hop->rank) || hop->peer != hops[(i + 1) % count].rank ||
		    !((end->waits[hop->rank] | end->touches[hop->rank]) & rank_bit(hop->peer)))
			return false;
		ranks |= rank_bit(hop->rank);
	}
	/* Among them is a cycle of such as cannot go on without each other. */
	core = ranks;
	do {
		before = core;
		for (int r = 0; r < RANKS; r++)
			if (!(end->waits[r] & core))
				core &= (uint8_t)~rank_bit(r);
	} while (core != before);
	return core != 0;
}
