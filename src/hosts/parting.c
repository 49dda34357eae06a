/* SPDX-License-Identifier: BSD-3-Clause
 * How ranks on different hosts part, so that of any two members of a group one learns what both
 * have called in it (engine/end.c). A rank that closes a group sends its end after its entries. The
 * other rank compares when that end arrives, and later compares its own collectives with that end.
 * So it is enough that one of the two ends arrives while its target lives. A rank that has closed
 * its last group sends LEAVES behind all its ends. Its process exits when it has from each other
 * rank
 *
 *   HEARD   which that rank sends when it has LEAVES, so it has all ends of this one; or
 *   LEAVES  so this rank has all ends of that one; or the end of the connection.
 *
 * The thread that makes progress on the link sends HEARD, whatever the program does. Model:
 * test/model/remote_ending.pml. */
#include "hosts/hosts_private.h"

/* ---- one group ---- */

/* The note carries the history, which does not grow and so is no word of its own. */
bool hosts_send_end(const struct hosts_path *path, uint64_t ended)
{
	struct hosts_relay *relay = path->relay;
	const struct transport_area *mine = transport_area_of(relay->team, relay->team->rank);
	uint64_t history = atomic_load(&mine->history);
	struct link_note note = {.words = {HOSTS_NOTE_WRITE,
					   hosts_place_at_source(path, &mine->history),
					   hosts_place_at_source(path, &mine->ended), ended}};
	if (ended == relay->ended)
		return true;
	if (!hosts_path_post(path, HOSTS_KEEP_NOT, &note, &history, sizeof history, NULL))
		return false;
	relay->ended = ended;
	return true;
}

void hosts_end_arrived(struct hosts *hosts, int peer, unsigned area)
{
	struct transport_team *team = hosts->transport->peers[peer].mirror->relays[area]->team;
	/* As the member itself does on one host. */
	atomic_fetch_add(&transport_area_of(team, team->rank)->members_ended, 1);
	if (hosts->events.ended)
		hosts->events.ended(hosts->events.context, team, peer);
}

/* ---- all groups ---- */

/* Whether the link has taken all that this rank had to send of its groups. A rank sends a member
 * nothing about a group that the member has not made yet. */
static bool has_said_all(const struct hosts *hosts, int peer)
{
	for (int i = 0; i < TRANSPORT_AREAS; i++) {
		const struct transport_team *team = atomic_load(&hosts->teams[i]);
		const struct hosts_relay *relay = team ? &team->relays[peer] : NULL;
		if (relay && relay->to &&
		    (!relay->is_ready || atomic_load(&hosts->unsent[i][peer / 64]) & ranks_bit(peer)))
			return false;
	}
	return true;
}

static bool send_note(struct hosts *hosts, int peer, enum hosts_note what)
{
	struct link_note note = {.words = {what}};
	bool posted = hosts->link->ops->post(hosts->link, peer, &note, NULL, 0, NULL);
	if (posted)
		hosts->due[peer / 64] |= ranks_bit(peer);
	return posted;
}

void hosts_parting_send(struct hosts *hosts)
{
	bool leaves = atomic_load_explicit(&hosts->leaves, memory_order_acquire);
	if (!leaves && !hosts->owes_heard)
		return;
	hosts->owes_heard = false;
	for (int q = 0; q < hosts->transport->size; q++) {
		struct hosts_mirror *mirror = hosts->transport->peers[q].mirror;
		if (!mirror)
			continue;
		if (leaves && !mirror->has_sent_leaves && has_said_all(hosts, q))
			mirror->has_sent_leaves = send_note(hosts, q, HOSTS_NOTE_LEAVES);
		if (mirror->owes_heard &&
		    (mirror->has_sent_leaves || send_note(hosts, q, HOSTS_NOTE_HEARD)))
			mirror->owes_heard = false;
		hosts->owes_heard |= mirror->owes_heard;
	}
}

static void note_parted(struct hosts *hosts, struct hosts_mirror *mirror)
{
	if (mirror->has_parted)
		return;
	mirror->has_parted = true;
	wait_store(&hosts->parted, atomic_load(&hosts->parted) + 1);
	hosts_wake(hosts);
}

void hosts_parting_lost(struct hosts *hosts, int peer)
{
	struct hosts_mirror *mirror = hosts->transport->peers[peer].mirror;
	atomic_store(&transport_traffic(hosts->transport->segment, peer)->lost, 1);
	if (mirror && hosts->events.lost)
		hosts->events.lost(hosts->events.context, peer);
	if (mirror)
		note_parted(hosts, mirror);
	hosts_wake(hosts);
}

void hosts_parting_arrived(struct hosts *hosts, int peer, bool leaves)
{
	struct hosts_mirror *mirror = hosts->transport->peers[peer].mirror;
	if (!mirror)
		return;
	if (leaves)
		mirror->owes_heard = hosts->owes_heard = true;
	note_parted(hosts, mirror);
}
