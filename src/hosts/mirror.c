/* SPDX-License-Identifier: BSD-3-Clause
 * From the link to shared memory: mirrors of ranks on other hosts, and the events that write them,
 * or this rank's own segment. A peer may write the same as on one host: anything of its own areas,
 * and of mine only its inboxes. This file checks each place first. */
#include "hosts/hosts_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/messages.h"
#include "base/seqlock.h"

/* ---- places ---- */

/* The inbox of my area that the peer writes to; from now on it is in use. */
static struct transport_inbox *use_peer_inbox(struct transport_area *area,
					      const struct hosts_relay *relay)
{
	struct transport_inbox *inbox =
		(struct transport_inbox *)((uintptr_t)relay->from -
					   offsetof(struct transport_inbox, mail));
	int source = (int)(inbox - transport_inbox(area, 0));
	if (!transport_inbox_is_open(area, source))
		atomic_fetch_or(&area->inboxes[source / 64], ranks_bit(source));
	return inbox;
}

/* The relay of the group that the note is about, if both ranks are members and have made it. NULL:
 * the note is left over from an earlier group with this area. */
static const struct hosts_relay *find_relay(const struct hosts *hosts,
					    const struct hosts_mirror *mirror, int peer,
					    bool at_target, unsigned area)
{
	const struct transport_team *team = at_target ? atomic_load(&hosts->teams[area]) : NULL;
	const struct hosts_relay *relay = team        ? &team->relays[peer]
					  : at_target ? NULL
						      : mirror->relays[area];
	return relay && relay->to && relay->is_ready ? relay : NULL;
}

/* Whether the word shows that a rank has made or closed the group that has the area. */
static bool shows_life(bool at_target, uint64_t inside)
{
	return !at_target && (inside == offsetof(struct transport_area, opened) ||
			      inside == offsetof(struct transport_area, times_closed));
}

/* The address in this process of `bytes` at a place; NULL: the peer must not write there, or bytes
 * is 0. *inside: the offset of the place in its area. */
static void *find_place(const struct hosts *hosts, int peer, uint64_t place, uint64_t bytes,
			unsigned *area, uint64_t *inside)
{
	const struct transport *transport = hosts->transport;
	uint64_t index = place >> 33, head = sizeof(struct transport_area);
	bool at_target = place & HOSTS_OF_TARGET;
	const struct hosts_mirror *mirror = transport->peers[peer].mirror;
	*inside = place >> 1 & UINT32_MAX;
	if (!mirror || *inside % 8 || bytes == 0 || bytes % 8 || index >= TRANSPORT_AREAS ||
	    *inside > head + sizeof(struct transport_inbox) ||
	    bytes > head + sizeof(struct transport_inbox) - *inside)
		return NULL;
	*area = (unsigned)index;
	const struct hosts_relay *relay = find_relay(hosts, mirror, peer, at_target, *area);
	if (!relay && !shows_life(at_target, *inside))
		return NULL;
	if (!at_target)
		return (unsigned char *)transport_mirror_area(transport->peers[peer].segment, *area) +
		       *inside;
	/* A peer may write only its inbox in my segment. */
	if (*inside < head)
		return NULL;
	struct transport_area *mine = transport_area_at(transport->segment, transport->size, *area);
	return (unsigned char *)use_peer_inbox(mine, relay) + (*inside - head);
}

/* The RTS slot whose `done` is at an offset of an area, and the offset of its ring; -1: another
 * word is there. */
static int rts_of(uint64_t inside, uint64_t *box_at)
{
	if (inside < sizeof(struct transport_area))
		return -1;
	uint64_t at = inside - sizeof(struct transport_area);
	uint64_t first = offsetof(struct transport_inbox, mail) + offsetof(struct mail_ring, rts);
	*box_at = inside - at + offsetof(struct transport_inbox, mail);
	if (at < first || (at - first) % sizeof(struct mail_rts) != offsetof(struct mail_rts, done))
		return -1;
	return (int)((at - first) / sizeof(struct mail_rts));
}

/* ---- events ---- */

static void note_opened(struct hosts *hosts, int peer, unsigned area, uint64_t value)
{
	struct hosts_relay *relay = hosts->transport->peers[peer].mirror->relays[area];
	if (!relay || relay->is_ready || value < relay->generation)
		return;
	relay->is_ready = true;
	hosts_mark(hosts, relay->team->area, peer);
}

/* Whether the word returns an RTS slot whose payload the link has not ended yet: no end of a
 * transfer has an order with what its peer sends. Only that end says whether the message was
 * cancelled, so end_sent stores the word. */
static bool is_too_early(const struct hosts *hosts, int peer, uint64_t place, unsigned area,
			 uint64_t inside, uint64_t value)
{
	uint64_t box_at;
	int index = place & HOSTS_OF_TARGET ? -1 : rts_of(inside, &box_at);
	struct hosts_relay *relay = hosts->transport->peers[peer].mirror->relays[area];
	if (index < 0 || index >= MAIL_SLOTS || !relay || !relay->sent[index].is_under_way ||
	    value != transport_mail_word(relay->sent[index].generation, 0))
		return false;
	relay->sent[index].is_returned = true;
	return true;
}

static void put_word(struct hosts *hosts, int peer, uint64_t place, uint64_t value)
{
	uint64_t inside, box_at;
	unsigned area;
	_Atomic uint64_t *word = find_place(hosts, peer, place, 8, &area, &inside);
	/* This thread is the only writer. */
	if (!word || (int64_t)(value - atomic_load_explicit(word, memory_order_relaxed)) <= 0 ||
	    is_too_early(hosts, peer, place, area, inside, value))
		return;
	wait_store(word, value);
	if (!(place & HOSTS_OF_TARGET) && rts_of(inside, &box_at) >= 0) {
		struct mail_ring *ring = (struct mail_ring *)((uintptr_t)word - (inside - box_at));
		atomic_fetch_add(&ring->returned, 1);
	}
	struct transport_team *team =
		place & HOSTS_OF_TARGET ? atomic_load(&hosts->teams[area]) : NULL;
	if (team)
		hosts_channel_word(team, peer, word);
	if (!(place & HOSTS_OF_TARGET) && inside == offsetof(struct transport_area, opened))
		note_opened(hosts, peer, area, value);
	if (!(place & HOSTS_OF_TARGET) && inside == offsetof(struct transport_area, ended))
		hosts_end_arrived(hosts, peer, area);
	if (!(place & HOSTS_OF_TARGET) && inside == offsetof(struct transport_area, times_closed))
		atomic_fetch_add(&hosts->transport->segment->departures, 1);
	hosts_wake(hosts);
}

/* The relay of the ring of mine at this place, which only this peer writes; NULL: none. */
static struct hosts_relay *relay_of_box(const struct hosts *hosts, int peer, uint64_t place)
{
	uint64_t inside;
	unsigned area;
	const struct mail_ring *ring =
		place & HOSTS_OF_TARGET
			? find_place(hosts, peer, place, sizeof(struct mail_ring), &area, &inside)
			: NULL;
	struct transport_team *team = ring ? atomic_load(&hosts->teams[area]) : NULL;
	return team && team->relays[peer].from == ring ? &team->relays[peer] : NULL;
}

/* The slot that names the message arrives next. This rank does not read from the source: see
 * hosts_fetch_message. */
static void put_long(struct hosts *hosts, int peer, const struct link_message *message)
{
	const uint64_t *words = message->note.words;
	uint64_t index = words[2];
	struct hosts_relay *relay = relay_of_box(hosts, peer, words[1]);
	bool is_late = words[0] == HOSTS_NOTE_LATE;
	/* A source that uses a slot again has the payload of the last use back. */
	if (!relay || index >= MAIL_SLOTS || relay->received[index].is_under_way) {
		hosts_return_offer(hosts, peer, message);
		return;
	}
	bool follows = !is_late && relay->late_received >> index & 1;
	bool is_wanted = atomic_load(&relay->wanted) >> index & 1; /* so a use goes on */
	bool has_payload = message->handle != NULL;
	if (!follows && (is_wanted || has_payload == is_late)) {
		hosts_return_offer(hosts, peer, message);
		return;
	}
	if (follows) {
		hosts_fetch_offered(hosts, peer, relay, (unsigned)index, message);
	} else {
		uint64_t bit = UINT64_C(1) << index;
		hosts_return_offer(hosts, peer, &relay->offered[index]);
		relay->offered[index] = *message;
		relay->late_received =
			is_late ? relay->late_received | bit : relay->late_received & ~bit;
		hosts_fetch_announced(relay, (unsigned)index, is_late ? words[4] : message->bytes,
				      (uint32_t)words[3]);
	}
	if (atomic_load(&relay->channel.withdrawn))
		hosts_cancel_offered(hosts, peer, relay);
}

static void put_cancel(struct hosts *hosts, int peer, const uint64_t *words)
{
	struct hosts_relay *relay = relay_of_box(hosts, peer, words[1]);
	if (relay)
		hosts_cancel_arrived(hosts, peer, relay, words[2], (uint32_t)words[3]);
}

static void put_cell(struct hosts *hosts, int peer, const struct link_message *message)
{
	uint64_t place = message->note.words[1], inside;
	unsigned index;
	void *to = place & HOSTS_OF_TARGET || !message->payload
			   ? NULL
			   : find_place(hosts, peer, place, message->bytes, &index, &inside);
	if (!to || inside < offsetof(struct transport_area, cells) ||
	    inside + message->bytes > sizeof(struct transport_area))
		return;
	struct transport_area *area = (struct transport_area *)((uintptr_t)to - inside);
	struct hosts_relay *relay = hosts->transport->peers[peer].mirror->relays[index];
	if (hosts_mirror_ensure(hosts, relay, &relay->has_cells, &area->cells, sizeof area->cells))
		memcpy(to, message->payload, message->bytes);
}

static void put_channel(struct hosts *hosts, int peer, const struct link_message *message)
{
	uint64_t place = message->note.words[1], inside;
	unsigned area;
	struct transport_slot *slot =
		place & HOSTS_OF_TARGET
			? find_place(hosts, peer, place, sizeof *slot, &area, &inside)
			: NULL;
	struct transport_team *team = slot ? atomic_load(&hosts->teams[area]) : NULL;
	if (team)
		hosts_channel_arrived(team, peer, slot, message);
	else
		hosts_return_offer(hosts, peer, message);
}

/* The text comes from a peer, so this copies it once, and ends the copy with NUL. */
static void put_failure(struct hosts *hosts, const struct link_message *message)
{
	const uint64_t *words = message->note.words;
	struct hosts_failure failure = {.group = (uint32_t)words[1],
					.status = (uint32_t)words[2],
					.culprit = (int32_t)(int64_t)words[3],
					.operation = words[4]};
	if (!message->payload || message->bytes < sizeof failure.groups)
		return;
	uint64_t bytes = message->bytes - sizeof failure.groups;
	if (bytes >= sizeof failure.text)
		bytes = sizeof failure.text - 1;
	memcpy(failure.groups, message->payload, sizeof failure.groups);
	memcpy(failure.text, (const char *)message->payload + sizeof failure.groups, bytes);
	failure.text[bytes] = '\0';
	if (failure.culprit < -1 || failure.culprit >= hosts->transport->size)
		failure.culprit = -1;
	if (hosts->events.failed)
		hosts->events.failed(hosts->events.context, &failure);
}

static void put_message(struct hosts *hosts, int peer, const struct link_message *message)
{
	const uint64_t *words = message->note.words;
	uint64_t inside;
	unsigned area;
	if (words[0] == HOSTS_NOTE_LONG || words[0] == HOSTS_NOTE_LATE) {
		put_long(hosts, peer, message);
		return;
	}
	if (words[0] == HOSTS_NOTE_CHANNEL) {
		put_channel(hosts, peer, message);
		return;
	}
	if (words[0] == HOSTS_NOTE_FAILED) {
		put_failure(hosts, message);
		hosts_return_offer(hosts, peer, message);
		return;
	}
	if (words[0] == HOSTS_NOTE_CELL) {
		put_cell(hosts, peer, message);
		hosts_return_offer(hosts, peer, message);
		return;
	}
	if (words[0] == HOSTS_NOTE_CANCEL) {
		put_cancel(hosts, peer, words);
		hosts_return_offer(hosts, peer, message);
		return;
	}
	bool writes = words[0] == HOSTS_NOTE_WRITE && message->payload;
	void *to = writes ? find_place(hosts, peer, words[1], message->bytes, &area, &inside) : NULL;
	if (!to) {
		hosts_return_offer(hosts, peer, message);
		return;
	}
	seqlock_store(to, message->payload, message->bytes);
	put_word(hosts, peer, words[2], words[3]);
}

/* The peer will be cut off, so nothing that it sends counts any more. */
static bool is_cut(const struct hosts *hosts, int peer)
{
	const struct hosts_mirror *mirror = hosts->transport->peers[peer].mirror;
	return mirror && atomic_load_explicit(&mirror->cut, memory_order_relaxed);
}

/* Counts a message after it is stored. */
static void take_message(void *context, int peer, const struct link_message *message)
{
	struct hosts *hosts = context;
	if (hosts_groupless_arrived(hosts, peer, message))
		return;
	if (is_cut(hosts, peer) || hosts_is_forged(message))
		hosts_return_offer(hosts, peer, message);
	else
		put_message(hosts, peer, message);
	atomic_fetch_add(&transport_traffic(hosts->transport->segment, peer)->arrived, 1);
}

static void take_word(void *context, int peer, uint64_t place, uint64_t value)
{
	struct hosts *hosts = context;
	if (!is_cut(hosts, peer))
		put_word(hosts, peer, place, value);
	atomic_fetch_add(&transport_traffic(hosts->transport->segment, peer)->arrived, 1);
}

static void end_received(struct hosts_transfer *transfer)
{
	struct hosts_relay *relay = transfer->relay;
	struct mail_rts *rts = &relay->from->rts[transfer->index];
	if (transfer->link_transfer.status != LS_OK) {
		hosts_fetch_fail(relay, transfer->index);
		return;
	}
	wait_store(&rts->source_copied,
		   transport_mail_word(transfer->generation,
				       transport_mail_pieces(relay->target_bytes[transfer->index])));
}

/* No rank reads the send's buffer any more. LS_CANCELLED: this rank has asked for that, or the
 * group has ended on the other host. Other errors: the send remains incomplete until its group
 * fails. */
static void end_sent(struct hosts_transfer *transfer)
{
	struct hosts_relay *relay = transfer->relay;
	struct mail_rts *rts = &relay->to->rts[transfer->index];
	if (transfer->link_transfer.status == LS_CANCELLED) {
		atomic_store(&rts->cursor, transport_mail_word(transfer->generation, MAIL_CLOSED));
		/* Threads that wait for the receiver look again. */
		wait_store(&rts->matched, transport_mail_word(transfer->generation, 0));
	}
	wait_store(&rts->owner_copied,
		   transport_mail_word(transfer->generation, transport_mail_pieces(rts->bytes)));
	if (transfer->link_transfer.status == LS_OK ||
	    (transfer->link_transfer.status == LS_CANCELLED && transfer->is_returned))
		transport_mail_rts_done(relay->to, transfer->index, transfer->generation);
}

static void end_by_kind(struct hosts_transfer *transfer)
{
	bool was_mail = transfer->kind < HOSTS_TRANSFER_POST;
	transfer->is_under_way = transfer->is_under_way && !was_mail;
	if (!transfer->relay->to) { /* the group has ended */
		transfer->is_under_way = false;
		return;
	}
	switch ((enum hosts_transfer_kind)transfer->kind) {
	case HOSTS_TRANSFER_SEND:
		end_sent(transfer);
		break;
	case HOSTS_TRANSFER_RECEIVE:
		end_received(transfer);
		break;
	case HOSTS_TRANSFER_POST:
	case HOSTS_TRANSFER_FETCH:
		hosts_channel_ended(transfer);
		break;
	case HOSTS_TRANSFER_TELL:
	case HOSTS_TRANSFER_HEAR:
		break; /* of no group */
	}
}

/* Counts a transfer after its effect. */
static void end_transfer(void *context, struct link_transfer *link_transfer)
{
	struct hosts *hosts = context;
	struct hosts_transfer *transfer = (struct hosts_transfer *)link_transfer;
	if (transfer->kind >= HOSTS_TRANSFER_TELL) {
		hosts_tell_ended(hosts, transfer);
		return;
	}
	struct transport_traffic *traffic =
		transport_traffic(hosts->transport->segment, transfer->relay->peer);
	bool received =
		transfer->kind == HOSTS_TRANSFER_RECEIVE || transfer->kind == HOSTS_TRANSFER_FETCH;
	bool is_eager = link_transfer->is_eager;
	end_by_kind(transfer);
	atomic_fetch_add(received ? &traffic->fetched : &traffic->released, received || !is_eager);
	atomic_fetch_sub(&traffic->ahead, !received && is_eager);
	hosts_wake(hosts);
}

static void note_lost(void *context, int peer)
{
	struct hosts *hosts = context;
	struct hosts_mirror *mirror = hosts->transport->peers[peer].mirror;
	if (mirror)
		atomic_store(&mirror->lost, 1);
	hosts_parting_lost(hosts, peer);
}

bool hosts_is_lost(const struct transport *transport, int rank)
{
	const struct hosts_mirror *mirror = transport->peers[rank].mirror;
	return mirror && atomic_load(&mirror->lost);
}

/* ---- life ---- */

static const struct transport_hosts_ops hosts_ops = {.notify = hosts_notify,
						     .notify_remote = hosts_notify_remote,
						     .quiet = hosts_quiet,
						     .payload = hosts_payload};

ls_status hosts_open(struct transport *transport, struct link *link, const uint16_t *hosts_of,
		     const struct hosts_events *events)
{
	struct hosts *hosts = calloc(1, sizeof *hosts);
	if (!hosts) {
		MESSAGE_SAY(MESSAGE_NET_MEMORY, transport->size);
		return LS_OUT_OF_MEMORY;
	}
	*hosts = (struct hosts){.transport = transport, .link = link, .events = *events};
	link->events = (struct link_events){.context = hosts,
					    .arrived = take_message,
					    .word = take_word,
					    .done = end_transfer,
					    .lost = note_lost};
	if (!link_is_valid(link) || link->size != transport->size || link->rank != transport->rank) {
		free(hosts);
		return LS_INTERNAL;
	}
	for (int r = 0; r < transport->size; r++)
		transport->peers[r].host = hosts_of[r];
	hosts_pump_init(&hosts->pump, transport);
	transport->hosts = hosts;
	transport->hosts_ops = &hosts_ops;
	return LS_OK;
}

void hosts_close(struct transport *transport)
{
	struct hosts *hosts = transport->hosts;
	if (!hosts)
		return;
	for (int q = 0; q < transport->size; q++)
		if (transport->peers[q].mirror)
			hosts->link->ops->cut(hosts->link, q);
	for (int i = 0; i < TRANSPORT_AREAS; i++) {
		struct transport_team *team = atomic_load(&hosts->teams[i]);
		for (int q = 0; team && q < transport->size; q++)
			hosts_return_offers(hosts, q, &team->relays[q]);
	}
	transport->hosts = NULL;
	free(hosts);
}
