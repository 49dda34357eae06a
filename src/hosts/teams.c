/* SPDX-License-Identifier: BSD-3-Clause
 * Groups with members on other hosts: which areas a group has, from when until when. One group
 * after another uses an area, on each host at other times. What keeps the groups apart:
 *
 *   this rank                                   a member on another host
 *   has made the group: opened = n + 1 ------>  sends nothing to this rank before that
 *   sends nothing before that      <----------  has made the group: opened
 *   ... messages ...
 *   closes it: times_closed = n + 1  -------->  the last that this rank says of it
 *
 * A rank resets its area once all members have closed the group, and its mirrors of the members'
 * areas when the next group is made. What comes before `opened` is left over from an earlier group,
 * and the rank drops it. Model: test/model/remote_team.pml. */
#include "hosts/hosts_private.h"

#include <stdlib.h>
#include <string.h>

/* Resets the mirror of the area of member `member`, as the member resets the area. */
static void reset_mirror(const struct transport_team *team, int member)
{
	struct transport_area *area = transport_area_of(team, member);
	struct transport_inbox *inbox = transport_inbox_of(team, member, team->rank);
	atomic_store(&area->finished, 0);
	atomic_store(&area->ended, 0);
	atomic_store(&area->history, 0);
	for (int i = 0; i < TRANSPORT_ENTRIES; i++)
		atomic_store(&area->entries[i].signal, 0);
	uint64_t open = 0; /* in whichever group */
	for (int w = 0; w < RANKS_WORLD_WORDS; w++)
		open |= atomic_load(&area->inboxes[w]);
	if (!open)
		return;
	transport_channel_reset(&inbox->channel);
	transport_mail_reset(&inbox->mail);
}

/* Detaches also a previous group with this area that was not closed with hosts_team_close here:
 * all its members have left it. */
static void end_relay(struct hosts *hosts, int peer, struct hosts_relay *relay)
{
	hosts_return_offers(hosts, peer, relay);
	hosts->transport->peers[peer].mirror->relays[relay->area] = NULL;
	relay->to = NULL;
}

/* closed: how often the member has closed a group with that area. */
static void set_relay(struct transport_team *team, int q, uint16_t area, uint64_t closed)
{
	const struct transport_member *member = &team->members[q];
	struct hosts_relay *relay = &team->relays[member->world];
	struct hosts_mirror *mirror = member->peer->mirror;
	uint64_t generation = closed + 1;
	if (mirror->relays[area])
		end_relay(team->transport->hosts, member->world, mirror->relays[area]);
	reset_mirror(team, q);
	/* The peer may have taken an offer back, and no note says so. */
	if (atomic_load(&member->area->times_closed) < closed)
		atomic_store(&member->area->times_closed, closed);
	relay->team = team;
	relay->peer = member->world;
	relay->area = area;
	relay->generation = generation;
	relay->is_ready = atomic_load(&member->area->opened) >= generation;
	relay->to = transport_mail(team, q, team->rank);
	relay->from = transport_mail(team, team->rank, q);
	relay->entered = relay->ended = relay->finished = relay->announced = 0;
	relay->times_closed = atomic_load(&transport_area_of(team, team->rank)->times_closed);
	relay->opened = relay->taken = relay->returned = 0;
	relay->has_told_failure = relay->has_cells = relay->has_pages = false;
	relay->late_sent = relay->late_received = 0;
	atomic_store(&relay->wanted, 0);
	atomic_store(&relay->cancels, 0);
	relay->lingers_until_ns = 0;
	relay->next = 1;
	memset(relay->freed, 0, sizeof relay->freed);
	memset(relay->done, 0, sizeof relay->done);
	memset(relay->received, 0, sizeof relay->received); /* generations start again, too */
	hosts_channel_set(team, q, relay);
	mirror->relays[area] = relay;
	hosts_mark(team->transport->hosts, team->area, member->world);
}

static void store_opened(const struct transport_team *team)
{
	struct transport_area *mine = transport_area_of(team, team->rank);
	atomic_store(&mine->opened, atomic_load(&mine->times_closed) + 1);
}

void hosts_team_open(struct transport_team *team, unsigned area, const uint16_t *areas,
		     const uint64_t *closed)
{
	struct hosts *hosts = team->transport->hosts;
	if (!hosts || team->host_count == 1)
		return;
	hosts_progress_begin(hosts);
	team->area = (uint16_t)area;
	for (int q = 0; q < team->size; q++)
		if (team->members[q].peer->mirror)
			set_relay(team, q, areas ? areas[q] : 0, closed ? closed[q] : 0);
	atomic_store(&hosts->teams[area], team);
	if (!areas)
		store_opened(team);
	hosts_progress_end(hosts);
}

void hosts_team_announce(struct transport_team *team)
{
	if (!team->transport->hosts || team->host_count == 1)
		return;
	store_opened(team);
	transport_notify_all(team);
}

/* Whether the link still uses buffers of the group, or still has to send that this rank has closed
 * it. */
static bool is_used(const struct hosts_relay *relay)
{
	const struct transport_team *team = relay->team;
	bool used = relay->channel.fetch.is_under_way ||
		    (relay->to &&
		     relay->times_closed !=
			     atomic_load(&transport_area_of(team, team->rank)->times_closed));
	for (int i = 0; i < TRANSPORT_CHANNEL_SLOTS; i++)
		used = used || relay->channel.posts[i].is_under_way;
	for (int i = 0; i < MAIL_SLOTS; i++)
		used = used || relay->sent[i].is_under_way || relay->received[i].is_under_way;
	return used;
}

static void forget_team(struct hosts *hosts, struct transport_team *team)
{
	for (int q = 0; q < hosts->transport->size; q++) {
		struct hosts_relay *relay = &team->relays[q];
		if (relay->to)
			end_relay(hosts, q, relay);
	}
	atomic_store(&hosts->teams[team->area], NULL);
}

bool hosts_team_close(struct transport_team *team)
{
	struct hosts *hosts = team->transport->hosts;
	bool used = false;
	if (!hosts || !team->relays || atomic_load(&hosts->teams[team->area]) != team)
		return true;
	hosts_progress_begin(hosts);
	for (int q = 0; q < team->transport->size; q++)
		used = used || (team->relays[q].team && is_used(&team->relays[q]));
	if (!used)
		forget_team(hosts, team);
	hosts_progress_end(hosts);
	return !used;
}

ls_status hosts_team_init(struct transport_team *team)
{
	const struct transport *transport = team->transport;
	if (!transport->hosts)
		return LS_OK;
	team->relays = calloc((size_t)transport->size, sizeof *team->relays);
	return team->relays ? LS_OK : LS_OUT_OF_MEMORY;
}

void hosts_team_fini(struct transport_team *team)
{
	if (team->relays)
		(void)hosts_team_close(team);
	free(team->relays);
	team->relays = NULL;
}
