/* SPDX-License-Identifier: BSD-3-Clause
 * Messages within collectives between two ranks. The protocol is described before struct
 * transport_channel. Nothing here blocks: a call that cannot proceed returns the word to wait for.
 * The source relies on its own cursor alone for what it has posted. The owner copies once what a
 * source has written, and uses the copy. */
#include "transport/segment.h"

#include "base/seqlock.h"

_Static_assert(sizeof(struct transport_packed) % 8 == 0, "is copied as words");
_Static_assert(TRANSPORT_CHANNEL_SLOTS <= 32, "one bit each in transport_cursor.claimed");
_Static_assert(offsetof(struct transport_slot, payload) % 64 == 0, "payloads are aligned");

/* ---- the source ---- */

/* A ticket has the position of a message and the index of its slot. */
static uint64_t ticket_of(uint64_t position, unsigned index)
{
	return position * TRANSPORT_CHANNEL_SLOTS + index;
}

/* Index of a free slot; TRANSPORT_CHANNEL_SLOTS if there is none. The search begins at the slot
 * that is free next as long as messages are taken in order. */
static unsigned find_free(struct transport_channel *channel, uint64_t posted)
{
	for (unsigned i = 0; i < TRANSPORT_CHANNEL_SLOTS; i++) {
		unsigned index = (unsigned)((posted + i) % TRANSPORT_CHANNEL_SLOTS);
		if (!atomic_load_explicit(&channel->slots[index].state, memory_order_acquire))
			return index;
	}
	return TRANSPORT_CHANNEL_SLOTS;
}

static void fill_slot(struct transport_slot *slot, const struct transport_envelope *envelope,
		      const void *payload, uint64_t window)
{
	slot->packed = (struct transport_packed){
		.seq = envelope->seq,
		.count = envelope->count,
		.bytes = envelope->bytes,
		.window = window,
	};
	if (envelope->bytes != 0 && envelope->bytes <= TRANSPORT_MESSAGE_INLINE_BYTES)
		memcpy(slot->payload, payload, envelope->bytes);
}

bool transport_channel_post(struct transport_team *team, int peer,
			    const struct transport_envelope *envelope, const void *payload,
			    uint64_t window, uint64_t *ticket, struct wait_word *blocked)
{
	struct transport_channel_state *state = &team->channels[peer];
	struct transport_channel *channel = transport_channel(team, peer, team->rank);
	lock_peer_acquire(&state->lock);
	struct transport_cursor *cursor = &state->cursor;
	/* Read before the slots: a slot that is freed from now on changes the awaited word. */
	uint64_t seen = atomic_load_explicit(&channel->taken, memory_order_acquire);
	unsigned index = find_free(channel, cursor->posted);
	if (index == TRANSPORT_CHANNEL_SLOTS) {
		lock_peer_release(&state->lock);
		*ticket = 0;
		transport_wait_word(team, peer, &channel->taken, seen + 1, peer, blocked);
		return false;
	}
	uint64_t position = ++cursor->posted;
	fill_slot(&channel->slots[index], envelope, payload, window);
	atomic_store_explicit(&channel->slots[index].state, position, memory_order_release);
	wait_store(&channel->posted, position);
	lock_peer_release(&state->lock);
	*ticket = ticket_of(position, index);
	transport_notify(team, peer);
	return true;
}

/* Whether the link no longer needs this message to another host, nor any earlier one. */
static bool is_released(struct transport_team *team, int peer, uint64_t position,
			struct wait_word *blocked)
{
	const struct transport_channel *channel = transport_channel(team, peer, team->rank);
	if (atomic_load(&channel->sent) >= position)
		return team->transport->hosts_ops->quiet(team, peer, blocked);
	transport_wait_word(team, peer, &channel->sent, position, peer, blocked);
	return false;
}

bool transport_channel_taken(struct transport_team *team, int peer, uint64_t ticket,
			     ls_status *refused, struct wait_word *blocked)
{
	struct transport_channel *channel = transport_channel(team, peer, team->rank);
	struct transport_slot *slot = &channel->slots[ticket % TRANSPORT_CHANNEL_SLOTS];
	uint64_t position = ticket / TRANSPORT_CHANNEL_SLOTS;
	*refused = LS_OK;
	uint64_t seen = atomic_load_explicit(&channel->taken, memory_order_acquire);
	if (atomic_load_explicit(&slot->state, memory_order_acquire) == position) {
		if (transport_is_here(team, peer)) {
			transport_wait_word(team, peer, &channel->taken, seen + 1, peer, blocked);
			return false;
		}
		if (!is_released(team, peer, position, blocked))
			return false;
	}
	uint64_t status = atomic_load_explicit(&channel->refused, memory_order_acquire);
	*refused = transport_is_status(status) ? (ls_status)status : LS_INTERNAL;
	return true;
}

bool transport_channel_quiet(struct transport_team *team, int peer, struct wait_word *blocked)
{
	struct transport_channel *channel = transport_channel(team, peer, team->rank);
	if (!transport_is_here(team, peer))
		return team->transport->hosts_ops->quiet(team, peer, blocked);
	/* In this order: otherwise a message that is claimed and taken between the two loads would
	 * hide another one that is still being read. Model: test/model/withdraw.pml. */
	uint64_t taken = atomic_load(&channel->taken);
	uint64_t matched = atomic_load(&channel->matched);
	if ((int64_t)(taken - matched) >= 0)
		return true;
	transport_wait_word(team, peer, &channel->taken, matched, peer, blocked);
	return false;
}

/* ---- the owner ---- */

/* Copies the content of a slot once; false if the slot is free. */
static bool read_slot(const struct transport_slot *slot, unsigned index,
		      struct transport_message *out)
{
	struct transport_packed packed;
	uint64_t position = atomic_load_explicit(&slot->state, memory_order_acquire);
	if (position == 0)
		return false;
	seqlock_load(&packed, &slot->packed, sizeof packed);
	*out = (struct transport_message){
		.position = position,
		.seq = packed.seq,
		.count = packed.count,
		.bytes = packed.bytes,
		.window = packed.window,
		.index = index,
		.slot = slot,
	};
	return true;
}

/* The oldest unclaimed message with this number; false if there is none. Only messages up to
 * position `seen` count, because all of these are there: the loop may find a later one without the
 * one before it, which went to a slot that the loop had already looked at. Of the messages up to
 * `seen`, seen - matched are unclaimed. As long as messages come in order, the first slot that the
 * loop looks at holds the oldest of these. */
static bool find_oldest(const struct transport_channel *channel, uint64_t seq, uint64_t seen,
			const struct transport_cursor *cursor, struct transport_message *out)
{
	bool found = false;
	uint64_t left = seen - cursor->matched;
	for (unsigned i = 0; i < TRANSPORT_CHANNEL_SLOTS && left > 0; i++) {
		struct transport_message message;
		unsigned index = (unsigned)((cursor->matched + i) % TRANSPORT_CHANNEL_SLOTS);
		if (cursor->claimed >> index & 1u ||
		    !read_slot(&channel->slots[index], index, &message) || message.position > seen)
			continue;
		left--;
		if (message.seq != seq || (found && message.position > out->position))
			continue;
		*out = message;
		found = true;
	}
	return found;
}

struct transport_message *transport_channel_match(struct transport_team *team, int peer,
						  uint64_t seq, struct wait_word *blocked)
{
	struct transport_channel_state *state = &team->channels[peer];
	struct transport_channel *channel = transport_channel(team, team->rank, peer);
	struct transport_message found, *message = NULL;
	lock_peer_acquire(&state->lock);
	struct transport_cursor *cursor = &state->cursor;
	uint64_t seen = atomic_load_explicit(&channel->posted, memory_order_acquire);
	if (find_oldest(channel, seq, seen, cursor, &found)) {
		cursor->claimed |= 1u << found.index;
		wait_store(&channel->matched, ++cursor->matched);
		message = &cursor->messages[found.index];
		*message = found;
	}
	lock_peer_release(&state->lock);
	if (!message)
		transport_wait_word(team, team->rank, &channel->posted, seen + 1, peer, blocked);
	return message;
}

const void *transport_channel_payload(struct transport_team *team, int peer,
				      const struct transport_message *message)
{
	if (message->bytes <= TRANSPORT_MESSAGE_INLINE_BYTES)
		return message->slot->payload;
	if (!transport_is_here(team, peer))
		return team->transport->hosts_ops->payload(team, peer, message);
	return memory_view_at(&team->members[peer].peer->arena, message->window, message->bytes);
}

void transport_channel_take(struct transport_team *team, int peer,
			    struct transport_message *message, ls_status refused)
{
	struct transport_channel_state *state = &team->channels[peer];
	struct transport_channel *channel = transport_channel(team, team->rank, peer);
	lock_peer_acquire(&state->lock);
	struct transport_cursor *cursor = &state->cursor;
	if (refused != LS_OK) {
		uint64_t none = LS_OK;
		atomic_compare_exchange_strong(&channel->refused, &none, refused);
	}
	/* Before the count: a thread that the count wakes must find the slot free. */
	atomic_store_explicit(&channel->slots[message->index].state, 0, memory_order_release);
	cursor->claimed &= ~(1u << message->index);
	wait_store(&channel->taken, ++cursor->taken);
	lock_peer_release(&state->lock);
	transport_notify(team, peer);
}

/* ---- checks ---- */

static bool channel_is_valid(const struct transport_channel *channel,
			     const struct transport_cursor *cursor)
{
	uint64_t full = 0;
	for (unsigned i = 0; i < TRANSPORT_CHANNEL_SLOTS; i++) {
		uint64_t state = atomic_load(&channel->slots[i].state);
		full += state != 0;
		if (state > atomic_load(&channel->posted))
			return false;
		if (cursor->claimed >> i & 1u && cursor->messages[i].index != i)
			return false;
	}
	return atomic_load(&channel->taken) == cursor->taken &&
	       atomic_load(&channel->matched) ==
		       cursor->taken + (unsigned)__builtin_popcount(cursor->claimed) &&
	       atomic_load(&channel->posted) == cursor->taken + full;
}

bool transport_is_valid(struct transport_team *team)
{
	bool valid = true;
	for (int i = 0; i < team->size; i++) {
		struct transport_channel_state *state = &team->channels[i];
		lock_peer_acquire(&state->lock);
		const struct transport_channel *channel = transport_channel(team, team->rank, i);
		valid = valid && channel_is_valid(channel, &state->cursor);
		lock_peer_release(&state->lock);
	}
	return valid;
}
