/* SPDX-License-Identifier: BSD-3-Clause
 * How the ranks of a list make a group by messages, if all of them have passed the same list; and
 * how the calls end if not. Each rank may try as often as it likes. The protocol is described
 * below; model: test/model/meet.pml. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/ranks.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "p2p/p2p.h"
#include "group/group_private.h"
#include "group/from_members.h"
#include "group/group.h"

/* Each call has a card: a serial, a list and an offer. Every note contains the card of its sender's
 * call, and stays with the sender (group_isend): it is received while that call is in progress, or
 * cancelled. So no message is left behind. Each rank has at most one note under way to each other
 * rank.
 *
 *   I enter                         I send my card to all ranks of my list.
 *   A new card arrives              It replaces that rank's last card, and what I have confirmed is
 *                                   void.
 *   I have a card of each rank      I send a confirmation of the set of these serials to all.
 *   All have confirmed my set       LS_OK
 *   A card with another list comes  LS_INCONSISTENT. I cancel my notes, and send my card to that
 *                                   rank once more, as a refusal. I withdraw my offer, and receive
 *                                   what was sent to me meanwhile.
 *
 * A rank that refuses waits until the other rank has received the refusal, unless that rank has
 * withdrawn its offer, because then it knows already. The refusing rank sends, then checks whether
 * the other has withdrawn; the other rank withdraws, then checks for messages. So at least one of
 * them notices. Messages that are received at the end are discarded. One of them may be a card of
 * the sender's next call; the sender sends that card again with its confirmation.
 *
 * Invariant: once all members have confirmed a set, all of them get LS_OK with it. It suffices to
 * show that no member that has confirmed the set is the first to get LS_INCONSISTENT. Suppose that
 * X is such a member. X has a card of each member, with X's own list. The other list has come from
 * a member Y, in a later call than that in the set. So that earlier call of Y has ended.
 *   - With LS_INCONSISTENT: Y was before X, so X was not the first.
 *   - With LS_OK: Y had confirmed the set, and X ignores Y after it has received that.
 * This omits that a set may follow another one with some of the same cards; the model checks all
 * cases. */
struct note {
	struct group_card card;
	uint64_t confirmed; /* a hash of the set, 0: none */
	bool refuses;       /* the sender has got LS_INCONSISTENT, and needs no refusal */
};

/* A stopped rank neither receives nor withdraws. Nor does a rank that has confirmed a set with an
 * earlier call of mine, until other members of that set send something new. */
enum {
	REFUSE_AT_MOST_MS = 1000,
	LEAST_MS = 2 * REFUSE_AT_MOST_MS, /* of a refusal, if the group's time limit is shorter */
	TURN_MS = 5, /* how long a wait for too many operations waits for some of them */
};

/* Another rank of the list. */
struct peer {
	int rank;
	uint32_t serial;            /* of the card that I hold; 0: I hold none */
	uint64_t confirmed;         /* the set that this rank has confirmed; 0: none */
	ls_request *send, *receive; /* NULL: none */
	struct note in;
};

struct table {
	struct group_meeting *meeting;
	struct ls_call_options options; /* of the messages */
	int count;
	uint64_t confirmed; /* the set that I have confirmed, whose cards I hold; 0: none */
	struct note note;   /* what I send; not changed while a send of it is under way */
	struct peer *peers; /* [count] */
};

/* ---- one note ---- */

static ls_status send_note(struct table *table, struct peer *peer)
{
	return group_isend(table->meeting->parent, &table->note, sizeof table->note, peer->rank,
			   &table->options, &peer->send);
}

static ls_status send_notes(struct table *table)
{
	ls_status status = LS_OK;
	for (int i = 0; i < table->count && status == LS_OK; i++)
		status = send_note(table, &table->peers[i]);
	return status;
}

static ls_status cancel_all(struct table *table)
{
	ls_status status = LS_CANCELLED;
	for (int i = 0; i < table->count && (status == LS_OK || status == LS_CANCELLED); i++)
		status = group_op_cancel(&table->peers[i].send);
	return status == LS_CANCELLED ? LS_OK : status;
}

static ls_status listen_to(struct table *table, struct peer *peer)
{
	if (peer->receive)
		return LS_OK;
	return ls_irecv(table->meeting->parent, &peer->in, sizeof peer->in, LS_UINT8, peer->rank,
			&table->options, &peer->receive);
}

/* Takes the note that has arrived in peer->in. */
static ls_status take_note(struct table *table, struct peer *peer)
{
	struct group_meeting *meeting = table->meeting;
	const struct note *note = &peer->in;
	if (note->card.serial != peer->serial)
		table->confirmed = 0;
	peer->serial = note->card.serial;
	peer->confirmed = note->confirmed;
	meeting->offers[peer->rank] = note->card.offer;
	if (note->card.offer.what == meeting->mine.offer.what)
		return LS_OK;
	meeting->differs = peer->rank;
	meeting->other = note->card;
	return LS_INCONSISTENT;
}

/* ---- the notes of all ranks ---- */

/* Receives all notes that have arrived, except those of ranks that have confirmed my set: they may
 * get LS_OK, and what they send next is not for this call. */
static ls_status receive_notes(struct table *table)
{
	ls_status status = LS_OK;
	for (int i = 0; i < table->count && status == LS_OK; i++) {
		struct peer *peer = &table->peers[i];
		while (status == LS_OK &&
		       (!table->confirmed || peer->confirmed != table->confirmed)) {
			status = listen_to(table, peer);
			if (status != LS_OK || !progress_op_is_complete(peer->receive))
				break;
			status = group_op_finish(&peer->receive);
			if (status == LS_OK)
				status = take_note(table, peer);
		}
	}
	return status;
}

/* The hash of the set of all cards; 0: not all are there. */
static uint64_t hash_of(const struct table *table)
{
	const struct group_meeting *meeting = table->meeting;
	const struct group_list *list = &meeting->mine.list;
	uint64_t serials[RANKS_WORLD_MAX];
	for (int i = 0, s = 0; i < list->count; i++) {
		bool me = meeting->ranks[i] == meeting->parent->rank;
		serials[i] = me ? meeting->mine.serial : table->peers[s++].serial;
		if (!serials[i])
			return 0;
	}
	return engine_shape(serials, list->count) | 1;
}

/* Stops listening to ranks that have confirmed the set, before they can have my confirmation.
 * LS_PENDING: one of them has just sent something else. */
static ls_status stop_listening(struct table *table, uint64_t set)
{
	for (int i = 0; i < table->count; i++) {
		struct peer *peer = &table->peers[i];
		if (peer->confirmed != set)
			continue;
		ls_status status = group_op_cancel(&peer->receive);
		if (status == LS_OK)
			status = take_note(table, peer);
		if (status != LS_CANCELLED)
			return status == LS_OK ? LS_PENDING : status;
	}
	return LS_OK;
}

static ls_status confirm_set(struct table *table, uint64_t set)
{
	ls_status status = stop_listening(table, set);
	if (status != LS_OK)
		return status == LS_PENDING ? LS_OK : status;
	status = cancel_all(table);
	table->note.confirmed = table->confirmed = set;
	return status == LS_OK ? send_notes(table) : status;
}

static bool is_agreed(const struct table *table)
{
	for (int i = 0; i < table->count; i++)
		if (table->peers[i].confirmed != table->confirmed)
			return false;
	return table->confirmed != 0;
}

/* Waits until one of the operations is complete. A wait takes P2P_ANY_MAX operations at most, so
 * this waits for that many at a time. */
static ls_status wait_any_of(ls_request *const *ops, int count)
{
	ls_status status = LS_PENDING;
	int index;
	if (count <= P2P_ANY_MAX)
		return ls_wait_any(ops, count, 0, &index);
	for (int first = 0; status == LS_PENDING; first = (first + P2P_ANY_MAX) % count) {
		int some = count - first < P2P_ANY_MAX ? count - first : P2P_ANY_MAX;
		status = ls_wait_any(ops + first, some, TURN_MS, &index);
	}
	return status;
}

/* Waits until a rank that is behind sends something. If one of these ranks cannot send any more,
 * waits for that rank alone, so that the wait fails. */
static ls_status wait_for_some(struct table *table)
{
	struct ranks room;
	const struct ranks *gone = world_gone(table->meeting->parent, &room);
	ls_request *behind[RANKS_WORLD_MAX];
	int count = 0;
	for (int i = 0; i < table->count; i++) {
		struct peer *peer = &table->peers[i];
		if (table->confirmed ? peer->confirmed == table->confirmed : peer->serial != 0)
			continue;
		if (ranks_among(gone, peer->rank)) {
			behind[0] = peer->receive;
			count = 1;
			break;
		}
		behind[count++] = peer->receive;
	}
	ls_status status = wait_any_of(behind, count);
	return status == LS_PENDING ? LS_OK : status;
}

static ls_status agree_on_set(struct table *table)
{
	ls_status status = send_notes(table);
	while (status == LS_OK) {
		status = receive_notes(table);
		if (status != LS_OK)
			break;
		uint64_t set = table->confirmed ? 0 : hash_of(table);
		if (set)
			status = confirm_set(table, set);
		else if (is_agreed(table))
			break;
		else
			status = wait_for_some(table);
	}
	/* Each rank needs my confirmation, and waits for it. */
	for (int i = 0; i < table->count && status == LS_OK; i++)
		if (table->peers[i].send)
			status = group_op_finish(&table->peers[i].send);
	return status;
}

/* ---- LS_INCONSISTENT ---- */

/* Whether the rank has withdrawn its offer. False also if this rank cannot know that. */
static bool has_withdrawn(const struct table *table, const struct peer *peer)
{
	const struct ls_group *parent = table->meeting->parent;
	const struct group_offer *offer = &table->meeting->other.offer;
	if (offer->area == 0 || offer->area >= TRANSPORT_AREAS)
		return false;
	const struct transport_area *area = transport_peer_area(
		&parent->world->transport, parent->team.members[peer->rank].peer, offer->area);
	return atomic_load(&area->times_closed) != offer->left;
}

/* Sends the refusal. A long wait for it is no reason to fail. */
static ls_status send_refusal(struct table *table, struct peer *peer)
{
	if (peer->in.refuses)
		return LS_OK;
	table->note.refuses = true;
	/* Without a processor this call may end the wait much later than it is to. It also waits
	 * for what it cancels: as long as the rank is stopped, if that is on another host. */
	uint32_t limit_ms = table->meeting->parent->timeout_ms;
	table->options.timeout_ms = limit_ms < LEAST_MS ? LEAST_MS : limit_ms;
	ls_status status = send_note(table, peer);
	/* At once: the rank may leave the parent, and a send to a member that has left fails as
	 * soon as a thread waits for it. */
	if (status == LS_OK && has_withdrawn(table, peer))
		status = group_op_cancel(&peer->send);
	return status == LS_CANCELLED ? LS_OK : status;
}

static ls_status wait_until_refused(struct peer *peer)
{
	uint64_t deadline_ns = clock_deadline_ns(REFUSE_AT_MOST_MS);
	ls_status status = LS_PENDING;
	while (status == LS_PENDING && clock_now_ns() < deadline_ns)
		status = ls_wait(peer->send, REFUSE_AT_MOST_MS);
	return status == LS_PENDING ? LS_OK : status;
}

/* Receives what other ranks have sent meanwhile, because they may wait for that. */
static void receive_rest(struct table *table)
{
	for (int i = 0; i < table->count; i++) {
		struct peer *peer = &table->peers[i];
		(void)group_op_cancel(&peer->receive);
		if (listen_to(table, peer) == LS_OK)
			(void)group_op_cancel(&peer->receive);
	}
}

static ls_status end_inconsistent(struct table *table)
{
	struct peer *other = table->peers;
	while (other->rank != table->meeting->differs)
		other++;
	ls_status status = cancel_all(table);
	if (status == LS_OK)
		status = send_refusal(table, other);
	if (table->meeting->offered)
		group_withdraw(table->meeting->offered);
	receive_rest(table);
	if (status == LS_OK && other->send)
		status = wait_until_refused(other);
	/* A wait of this call may have failed the parent, because a member has left without this
	 * rank's note. The other list may have arrived while that was reported. */
	if (status == LS_OK)
		status = failure_status(table->meeting->parent);
	return status == LS_OK ? LS_INCONSISTENT : status;
}

/* ---- the call ---- */

/* False without memory. */
static bool init_table(struct table *table, struct group_meeting *meeting)
{
	const struct group_list *list = &meeting->mine.list;
	memset(table, 0, sizeof *table);
	table->peers = calloc((size_t)list->count, sizeof *table->peers);
	if (!table->peers)
		return false;
	table->meeting = meeting;
	table->options = *meeting->options;
	table->note.card = meeting->mine;
	for (int i = 0; i < list->count; i++)
		if (meeting->ranks[i] != meeting->parent->rank)
			table->peers[table->count++] = (struct peer){.rank = meeting->ranks[i]};
	meeting->offers[meeting->parent->rank] = meeting->mine.offer;
	return true;
}

ls_status group_meet(struct group_meeting *meeting)
{
	struct table table;
	if (!init_table(&table, meeting)) {
		MESSAGE_SAY(MESSAGE_GROUP_MEMORY, "ls_group_from_members",
			    (size_t)meeting->mine.list.count * sizeof *table.peers);
		return LS_OUT_OF_MEMORY;
	}
	ls_status status = agree_on_set(&table);
	if (status == LS_INCONSISTENT)
		status = end_inconsistent(&table);
	for (int i = 0; i < table.count; i++) {
		(void)group_op_cancel(&table.peers[i].send);
		(void)group_op_cancel(&table.peers[i].receive);
	}
	free(table.peers);
	return status;
}
