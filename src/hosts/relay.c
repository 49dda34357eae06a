/* SPDX-License-Identifier: BSD-3-Clause
 * From shared memory to the link: compares the words of each marked pair with what this rank has
 * sent, and sends what is new; a word only after the data that it announces. If the link has no
 * room, the mark stays. The link keeps back for a while what no rank waits for: see enum
 * hosts_keep. */
#include "hosts/hosts_private.h"

#include <string.h>

#include <lockstep/types.h>

#include "base/clock.h"

enum { LINGER_MS = 600 }; /* less than the time that a rank waits before it cuts off all peers */

_Static_assert(sizeof(struct mail_slot) <= LINK_SHORT_BYTES, "a slot is one note");
_Static_assert(sizeof(struct transport_report) <= LINK_SHORT_BYTES &&
		       offsetof(struct transport_report, text) ==
			       offsetof(struct transport_report, groups) +
				       sizeof(uint32_t) * TRANSPORT_REPORT_GROUPS,
	       "the end of a report is one note");

/* ---- to one member ---- */

static bool send_word(const struct hosts_path *path, uint64_t at, uint64_t value)
{
	return hosts_path_store(path, HOSTS_KEEP_NOT, at, value);
}

/* Sends `value`, which a word of mine had a moment ago. The word only grows. */
static bool send_mine(const struct hosts_path *path, enum hosts_keep keep,
		      const _Atomic uint64_t *word, uint64_t value, uint64_t *sent)
{
	if (value == *sent)
		return true;
	if (!hosts_path_store(path, keep, hosts_place_at_source(path, word), value))
		return false;
	*sent = value;
	return true;
}

static bool send_write(const struct hosts_path *path, enum hosts_keep keep, const void *bytes,
		       uint64_t count, uint64_t to, uint64_t word, uint64_t value)
{
	struct link_note note = {.words = {HOSTS_NOTE_WRITE, to, word, value}};
	return hosts_path_post(path, keep, &note, bytes, count, NULL);
}

/* Sends entries in the order of their numbers. Ranks on other hosts do not wait for phases. */
static bool send_entries(const struct hosts_path *path)
{
	struct transport_team *team = path->relay->team;
	for (;;) {
		uint64_t seq = path->relay->entered + 1, entered = transport_signal(seq, 0);
		const struct transport_entry *entry = transport_entry(team, team->rank, seq);
		if (!transport_signal_reached(
			    atomic_load_explicit(&entry->signal, memory_order_acquire), entered))
			return true;
		uint64_t bytes = sizeof(struct transport_entry) -
				 offsetof(struct transport_entry, signature);
		if (!send_write(path, HOSTS_KEEP_ENTRY, &entry->signature, bytes,
				hosts_place_at_source(path, &entry->signature),
				hosts_place_at_source(path, &entry->signal), entered))
			return false;
		path->relay->entered = seq;
	}
}

/* Says why the group has failed, once it has. */
static bool send_failure(const struct hosts_path *path)
{
	struct hosts_relay *relay = path->relay;
	const struct transport *transport = path->hosts->transport;
	const struct transport_area *head = transport_head_of(relay->team);
	uint64_t cause = atomic_load_explicit(&head->cause, memory_order_acquire);
	uint32_t teller = (uint32_t)cause - 1;
	if (!wait_has_failed(cause) || relay->has_told_failure ||
	    teller >= (uint32_t)transport->size)
		return true;
	const struct transport_report *report = transport_report(head, transport->size, (int)teller);
	struct link_note note = {.words = {HOSTS_NOTE_FAILED, cause >> 32, report->status,
					   (uint64_t)(int64_t)report->culprit, report->operation}};
	relay->has_told_failure = hosts_path_post(
		path, HOSTS_KEEP_NOT, &note, report->groups,
		sizeof report->groups + strnlen(report->text, sizeof report->text), NULL);
	return relay->has_told_failure;
}

/* ---- sends ---- */

/* Whether the payload is there: a stream may still have to copy it. */
static bool is_staged(const struct mail_rts *rts)
{
	uint64_t staged = atomic_load_explicit(&rts->staged, memory_order_acquire);
	return (int64_t)(staged - transport_mail_word(rts->generation, MAIL_CLAIMS)) >= 0;
}

/* Offers a long payload, unless its send was cancelled. Afterwards only the peer can cancel it. */
static bool send_long(const struct hosts_path *path, unsigned index)
{
	struct hosts_relay *relay = path->relay;
	struct mail_rts *rts = &relay->to->rts[index];
	struct hosts_transfer *transfer = &relay->sent[index];
	uint64_t pieces = transport_mail_pieces(rts->bytes);
	uint64_t open = transport_mail_word(rts->generation, 0);
	uint64_t gone = transport_mail_word(rts->generation, MAIL_MATCHED | pieces);
	if (!atomic_compare_exchange_strong(&rts->cursor, &open, gone) && open & MAIL_CLOSED)
		return send_write(path, HOSTS_KEEP_NOT, &rts->window,
				  offsetof(struct mail_rts, source_copied),
				  hosts_place_at_target(path, &rts->window),
				  hosts_place_at_target(path, &rts->cursor), open);
	const struct transport *transport = path->hosts->transport;
	struct link_note note = {.words = {HOSTS_NOTE_LONG, hosts_place_at_target(path, relay->to),
					   index, rts->generation}};
	const void *payload =
		memory_view_at(&transport->peers[transport->rank].arena, rts->window, rts->bytes);
	*transfer = (struct hosts_transfer){.relay = relay,
					    .generation = rts->generation,
					    .index = (uint8_t)index,
					    .kind = HOSTS_TRANSFER_SEND,
					    .is_under_way = true};
	if (!payload || !hosts_path_post(path, HOSTS_KEEP_NOT, &note, payload, rts->bytes,
					 &transfer->link_transfer)) {
		transfer->is_under_way = false;
		hosts_take_offer_back(path->hosts, rts);
		return false;
	}
	/* This rank has done its part: the peer can fetch the data. */
	atomic_store(&rts->source_copied, transport_mail_word(rts->generation, pieces));
	return true;
}

/* Announces a message whose payload is not there yet. */
static bool send_late(const struct hosts_path *path, unsigned index)
{
	struct hosts_relay *relay = path->relay;
	const struct mail_rts *rts = &relay->to->rts[index];
	struct link_note note = {.words = {HOSTS_NOTE_LATE, hosts_place_at_target(path, relay->to),
					   index, rts->generation, rts->bytes}};
	if (!hosts_path_post(path, HOSTS_KEEP_NOT, &note, NULL, 0, NULL))
		return false;
	relay->late_sent |= UINT64_C(1) << index;
	return true;
}

/* Offers the slot's payload, or announces the message: one without a byte cannot be offered. */
static bool send_rts(const struct hosts_path *path, unsigned index)
{
	const struct mail_rts *rts = &path->relay->to->rts[index];
	return is_staged(rts) && rts->bytes > 0 ? send_long(path, index) : send_late(path, index);
}

/* Says that a message without a byte is there. Afterwards nobody takes it back. */
static bool send_empty(const struct hosts_path *path, unsigned index)
{
	struct hosts_relay *relay = path->relay;
	struct mail_rts *rts = &relay->to->rts[index];
	struct link_note note = {.words = {HOSTS_NOTE_LONG, hosts_place_at_target(path, relay->to),
					   index, rts->generation}};
	uint64_t open = transport_mail_word(rts->generation, 0);
	if (!hosts_path_post(path, HOSTS_KEEP_NOT, &note, NULL, 0, NULL))
		return false;
	/* If this fails, the group has. */
	(void)atomic_compare_exchange_strong(&rts->cursor, &open, open | MAIL_MATCHED);
	return true;
}

/* Offers the payloads that streams have copied since their messages were announced. One whose send
 * was given up is never offered: the group has failed. */
static bool send_payloads(const struct hosts_path *path)
{
	struct hosts_relay *relay = path->relay;
	for (uint64_t left = relay->late_sent; left; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left);
		const struct mail_rts *rts = &relay->to->rts[i];
		bool given_up = atomic_load(&rts->cursor) & MAIL_CLOSED;
		if (!given_up && !is_staged(rts))
			continue;
		if (!given_up && !(rts->bytes > 0 ? send_long(path, i) : send_empty(path, i)))
			return false;
		relay->late_sent &= ~(left & -left);
	}
	return true;
}

/* Sends a slot, from `held` to the end of its payload. */
static bool send_slot(const struct hosts_path *path, struct mail_slot *slot, uint64_t position)
{
	struct {
		uint64_t held;
		struct mail_envelope envelope;
		unsigned char bytes[MAIL_TINY_BYTES + MAIL_INLINE_BYTES];
	} line = {.held = position, .envelope = slot->envelope};
	_Static_assert(offsetof(struct mail_slot, payload) - offsetof(struct mail_slot, held) ==
			       8 + sizeof(struct mail_envelope) + MAIL_TINY_BYTES,
		       "a slot's layout");
	uint64_t bytes = line.envelope.rts ? 0
					   : ls_dtype_bytes((ls_dtype)line.envelope.dtype) *
						     line.envelope.count;
	bool is_tiny = bytes <= MAIL_TINY_BYTES, is_in_cell = bytes > MAIL_INLINE_BYTES;
	uint64_t behind = is_tiny || is_in_cell ? 0 : (bytes + 7) / 8 * 8;
	/* The sender keeps a block; the receiver gets a copy. */
	line.envelope.flags &= (uint8_t)~MAIL_BLOCK;
	if (is_tiny)
		memcpy(line.bytes, slot->tiny, bytes);
	else
		memcpy(line.bytes + MAIL_TINY_BYTES, slot->payload, behind);
	return send_write(path, HOSTS_KEEP_NOT, &line,
			  8 + sizeof line.envelope + MAIL_TINY_BYTES + behind,
			  hosts_place_at_target(path, &slot->held),
			  hosts_place_at_target(path, &slot->sequence), position);
}

/* Sends the payload of a slot's cells, before the slot. This rank does not use these cells again
 * until the owner has taken the message. */
static bool send_cells(const struct hosts_path *path, const struct mail_envelope *envelope)
{
	const struct transport_team *team = path->relay->team;
	const struct mail_cells *mine = &transport_area_of(team, team->rank)->cells;
	unsigned cell = envelope->cell - 1u;
	uint64_t bytes = ls_dtype_bytes((ls_dtype)envelope->dtype) * envelope->count;
	if (!transport_mail_is_in_cell(envelope, bytes))
		return true;
	const unsigned char *from = mine->cells[cell / 2][cell % 2];
	struct link_note note = {.words = {HOSTS_NOTE_CELL, hosts_place_at_source(path, from)}};
	return hosts_path_post(path, HOSTS_KEEP_NOT, &note, from, (bytes + 7) / 8 * 8, NULL);
}

static bool send_messages(const struct hosts_path *path)
{
	struct hosts_relay *relay = path->relay;
	for (;;) {
		struct mail_slot *slot = &relay->to->slots[transport_mail_index(relay->next)];
		uint64_t sequence = atomic_load_explicit(&slot->sequence, memory_order_acquire);
		if ((int64_t)(sequence - relay->next) < 0)
			return true;
		if (atomic_load_explicit(&slot->held, memory_order_acquire) != relay->next) {
			if (!send_word(path, hosts_place_at_target(path, &slot->sequence),
				       relay->next))
				return false;
			relay->next++;
			continue;
		}
		unsigned rts = slot->envelope.rts;
		if (rts && relay->announced != relay->next && !send_rts(path, rts - 1))
			return false;
		relay->announced = relay->next;
		if (slot->envelope.cell && !send_cells(path, &slot->envelope))
			return false;
		if (!send_slot(path, slot, relay->next))
			return false;
		relay->next++;
	}
}

/* ---- receives ---- */

/* Sends which slots are free again, and then how many; then the RTS slots whose use has ended
 * without a transfer. */
static bool send_taken(const struct hosts_path *path)
{
	struct hosts_relay *relay = path->relay;
	struct mail_ring *ring = relay->from;
	uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_acquire);
	uint64_t returned = atomic_load_explicit(&ring->returned, memory_order_acquire);
	for (int i = 0; i < MAIL_SLOTS && taken != relay->taken; i++)
		if (!send_mine(path, HOSTS_KEEP_SLOT, &ring->freed[i],
			       atomic_load_explicit(&ring->freed[i], memory_order_acquire),
			       &relay->freed[i]))
			return false;
	if (!send_mine(path, HOSTS_KEEP_WORD, &ring->taken, taken, &relay->taken))
		return false;
	for (int i = 0; i < MAIL_SLOTS && returned != relay->returned; i++) {
		const struct hosts_transfer *transfer = &relay->received[i];
		uint64_t done = atomic_load_explicit(&ring->rts[i].done, memory_order_acquire);
		if (transfer->relay && done == transport_mail_word(transfer->generation, 0))
			relay->done[i] = done; /* the link tells its source */
		else if (!send_mine(path, HOSTS_KEEP_NOT, &ring->rts[i].done, done, &relay->done[i]))
			return false;
	}
	relay->returned = returned;
	return true;
}

/* ---- all that is new ---- */

/* Whether the peer may learn that this rank has closed the group: once it has all that this rank
 * has sent. Otherwise the peer might give up while the bytes of a message come, which on one host
 * it could still read. After a failure, or if the peer does not receive them, it may always learn
 * that. */
static bool may_send_closed(struct hosts_relay *relay)
{
	bool has_payloads = false;
	for (int i = 0; i < MAIL_SLOTS; i++)
		has_payloads = has_payloads || relay->sent[i].is_under_way;
	if (!has_payloads || wait_has_failed(atomic_load(&transport_head_of(relay->team)->cause)))
		return true;
	if (!relay->lingers_until_ns)
		relay->lingers_until_ns = clock_deadline_ns(LINGER_MS);
	return clock_now_ns() >= relay->lingers_until_ns;
}

/* False: the link had no memory for all. This function reads a word that announces others before
 * them, and sends it after them. */
static bool relay_to(struct hosts *hosts, struct transport_team *team, int peer)
{
	struct hosts_relay *relay = &team->relays[peer];
	struct transport *transport = hosts->transport;
	struct hosts_path path = {.hosts = hosts,
				  .relay = relay,
				  .link = hosts->link,
				  .peer = peer,
				  .mine = transport->segment,
				  .mirror = transport->peers[peer].segment};
	const struct transport_area *mine = transport_area_of(team, team->rank);
	if (!relay->to) /* the peer is not a member */
		return true;
	uint64_t opened = atomic_load_explicit(&mine->opened, memory_order_acquire);
	uint64_t left = atomic_load_explicit(&mine->times_closed, memory_order_acquire);
	uint64_t ended = atomic_load_explicit(&mine->ended, memory_order_acquire);
	uint64_t finished = atomic_load_explicit(&mine->finished, memory_order_acquire);
	if (!relay->opened && opened <= relay->times_closed) /* not announced yet */
		return true;
	/* Until the peer has made the group it could do nothing with the rest. */
	if (!send_mine(&path, HOSTS_KEEP_NOT, &mine->opened, opened, &relay->opened))
		return false;
	if (!relay->is_ready)
		return true;
	hosts_fetch_wanted(&path);
	if (atomic_load(&relay->channel.withdrawn))
		hosts_cancel_offered(hosts, peer, relay);
	/* After a failure peers wait until this rank has finished. */
	bool failed = wait_has_failed(atomic_load(&transport_head_of(team)->cause));
	enum hosts_keep keep = failed ? HOSTS_KEEP_NOT : HOSTS_KEEP_FINISHED;
	return send_failure(&path) && send_entries(&path) && hosts_channel_send(&path) &&
	       send_taken(&path) && send_messages(&path) && send_payloads(&path) &&
	       hosts_send_cancels(&path) &&
	       send_mine(&path, keep, &mine->finished, finished, &relay->finished) &&
	       hosts_send_end(&path, ended) &&
	       (left == relay->times_closed || may_send_closed(relay)) &&
	       send_mine(&path, HOSTS_KEEP_NOT, &mine->times_closed, left, &relay->times_closed);
}

void hosts_relay_team(struct hosts *hosts, unsigned area)
{
	struct transport_team *team = atomic_load(&hosts->teams[area]);
	bool any = false;
	for (int w = 0; w * 64 < hosts->transport->size; w++) {
		_Atomic uint64_t *unsent = &hosts->unsent[area][w];
		uint64_t kept = 0;
		if (!atomic_load_explicit(unsent, memory_order_relaxed))
			continue;
		uint64_t left = atomic_exchange(unsent, 0);
		for (; left && team; left &= left - 1)
			if (!relay_to(hosts, team, 64 * w + __builtin_ctzll(left)))
				kept |= left & -left;
		any |= kept != 0;
		atomic_fetch_or(unsent, kept);
	}
	if (any)
		atomic_fetch_or(&hosts->areas[area / 64], UINT64_C(1) << area % 64);
}
