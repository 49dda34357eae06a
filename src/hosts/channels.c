/* SPDX-License-Identifier: BSD-3-Clause
 * Messages of collectives between hosts. The source posts into its mirror of the owner, and the
 * owner matches in its own segment, as on one host; the link brings one message after another.
 *
 *   source                                            owner
 *   slot, posted ---- note with up to 4 KiB ------->  slot, posted
 *                     longer: offered                 hosts_collect: fetches it to its place
 *                     up to 64 KiB: eager             hosts_collect: copies it
 *   slot free, taken <------ freed of that slot ----  transport_channel_take
 *
 * A slot is free at the source only when the owner has taken its message and the link has released
 * its payload; then the source itself counts it in `taken`, for which its threads wait. */
#include "hosts/hosts_private.h"

_Static_assert((int)LINK_SHORT_BYTES == (int)TRANSPORT_PAGE_BYTES &&
		       (int)TRANSPORT_CHANNEL_SLOTS <= (int)TRANSPORT_INLINE_PAGES,
	       "a page of the mirror for each slot, as entries from other hosts have no payload");

static struct hosts_channel *remote_of(const struct transport_team *team, int member)
{
	return &team->relays[team->members[member].world].channel;
}

void hosts_channel_set(struct transport_team *team, int member, struct hosts_relay *relay)
{
	struct hosts_channel *channel = &relay->channel;
	channel->to = transport_channel(team, member, team->rank);
	channel->from = transport_channel(team, team->rank, member);
	channel->pages = transport_area_of(team, member)->payloads;
	channel->sent = channel->refused = channel->taken = 0;
	if (atomic_load(&channel->to->sent)) /* else the inbox may have no memory yet */
		atomic_store(&channel->to->sent, 0);
	memset(channel->arrived, 0, sizeof channel->arrived);
	memset(channel->told, 0, sizeof channel->told);
	atomic_store(&channel->withdrawn, 0);
	atomic_store(&channel->fetching, HOSTS_FETCH_NONE);
}

/* ---- the link's use of payloads ---- */

static void add_one(_Atomic uint64_t *word)
{
	wait_store(word, atomic_load_explicit(word, memory_order_relaxed) + 1);
}

/* From here on the link may read the payload of a message. False: the link must not, because this
 * rank has withdrawn the message. The thread that withdraws stores `withdrawn` and then reads
 * `begun`. This thread stores `begun` and then reads `withdrawn`. So at least one of the two
 * threads sees the other's store. */
static bool begin_post(struct hosts_channel *channel)
{
	atomic_store(&channel->to->begun, atomic_load(&channel->to->begun) + 1);
	return !atomic_load(&channel->withdrawn);
}

static void end_post(const struct hosts *hosts, struct hosts_channel *channel)
{
	add_one(&channel->to->ended);
	if (atomic_load(&channel->withdrawn))
		hosts_wake(hosts);
}

void hosts_withdraw(struct transport_team *team)
{
	for (int q = 0; q < team->size; q++) {
		if (transport_is_here(team, q))
			continue;
		atomic_store(&remote_of(team, q)->withdrawn, 1);
		transport_notify(team, q);
	}
}

bool hosts_quiet(struct transport_team *team, int peer, struct wait_word *blocked)
{
	struct transport_channel *channel = transport_channel(team, peer, team->rank);
	uint64_t ended = atomic_load(&channel->ended);
	uint64_t begun = atomic_load(&channel->begun);
	if (ended >= begun)
		return true;
	transport_wait_word(team, peer, &channel->ended, begun, peer, blocked);
	return false;
}

/* ---- the source ---- */

static unsigned slot_at(const struct transport_channel *channel, uint64_t position)
{
	for (unsigned i = 0; i < TRANSPORT_CHANNEL_SLOTS; i++) {
		unsigned index = (unsigned)((position - 1 + i) % TRANSPORT_CHANNEL_SLOTS);
		if (atomic_load_explicit(&channel->slots[index].state, memory_order_acquire) ==
		    position)
			return index;
	}
	return TRANSPORT_CHANNEL_SLOTS;
}

/* Posts a message whose payload is in the arena. */
static bool post_window(const struct hosts_path *path, const struct link_note *note, unsigned index)
{
	struct hosts_channel *channel = &path->relay->channel;
	struct transport *transport = path->hosts->transport;
	const struct transport_packed *packed = &channel->to->slots[index].packed;
	bool is_short = packed->bytes <= LINK_SHORT_BYTES, posted = false;
	struct hosts_transfer *transfer = &channel->posts[index];
	bool reads = begin_post(channel);
	const void *payload = reads ? memory_view_at(&transport->peers[transport->rank].arena,
						     packed->window, packed->bytes)
				    : NULL;
	*transfer = (struct hosts_transfer){.relay = path->relay,
					    .index = (uint8_t)index,
					    .kind = HOSTS_TRANSFER_POST,
					    .is_under_way = !is_short};
	/* Messages of collectives are not cancelled, so a payload may be sent before it is
	 * fetched. */
	transfer->link_transfer.is_eager = !is_short && packed->bytes <= LINK_EAGER_BYTES;
	if (transfer->link_transfer.is_eager)
		atomic_fetch_add(&transport_traffic(path->mine, path->peer)->ahead, 1);
	if (payload)
		posted = hosts_path_post(path, HOSTS_KEEP_NOT, note, payload, packed->bytes,
					 is_short ? NULL : &transfer->link_transfer);
	if (!posted) {
		transfer->is_under_way = false;
		if (transfer->link_transfer.is_eager)
			atomic_fetch_sub(&transport_traffic(path->mine, path->peer)->ahead, 1);
	}
	if (posted && transfer->link_transfer.is_eager)
		hosts_pump_recheck(&path->hosts->pump);
	if (!posted || is_short)
		end_post(path->hosts, channel);
	return posted;
}

static bool post_messages(const struct hosts_path *path)
{
	struct hosts_channel *channel = &path->relay->channel;
	while (channel->sent < atomic_load_explicit(&channel->to->posted, memory_order_acquire) &&
	       !atomic_load(&channel->withdrawn)) {
		unsigned index = slot_at(channel->to, channel->sent + 1);
		if (index == TRANSPORT_CHANNEL_SLOTS)
			return true;
		const struct transport_slot *slot = &channel->to->slots[index];
		const struct transport_packed *packed = &slot->packed;
		struct link_note note = {.words = {HOSTS_NOTE_CHANNEL,
						   hosts_place_at_target(path, slot), packed->seq,
						   packed->count, channel->sent + 1}};
		bool posted = packed->bytes > TRANSPORT_MESSAGE_INLINE_BYTES
				      ? post_window(path, &note, index)
				      : hosts_path_post(path, HOSTS_KEEP_NOT, &note, slot->payload,
							packed->bytes, NULL);
		if (!posted)
			return atomic_load(&channel->withdrawn);
		wait_store(&channel->to->sent, ++channel->sent);
		hosts_wake(path->hosts);
	}
	return true;
}

/* Call once the owner has taken the message, and the link has released its payload. */
static void free_slot(struct transport_channel *to, unsigned index)
{
	/* In this order: a thread that the count wakes must find the slot free. */
	atomic_store_explicit(&to->slots[index].state, 0, memory_order_release);
	add_one(&to->taken);
}

static bool is_taken(const struct hosts_channel *channel, unsigned index)
{
	uint64_t state =
		atomic_load_explicit(&channel->to->slots[index].state, memory_order_relaxed);
	uint64_t freed =
		atomic_load_explicit(&channel->from->slots[index].freed, memory_order_relaxed);
	/* A slot is sent before the owner can take its message. */
	return state > 0 && state <= channel->sent && state == freed;
}

void hosts_channel_word(struct transport_team *team, int peer, const _Atomic uint64_t *word)
{
	struct hosts_channel *channel = &team->relays[peer].channel;
	if (!channel->from)
		return;
	uintptr_t at = (uintptr_t)word - (uintptr_t)channel->from->slots;
	if (at >= sizeof channel->from->slots ||
	    at % sizeof channel->from->slots[0] != offsetof(struct transport_slot, freed))
		return;
	unsigned index = (unsigned)(at / sizeof channel->from->slots[0]);
	if (is_taken(channel, index) && !channel->posts[index].is_under_way)
		free_slot(channel->to, index);
}

/* ---- the owner ---- */

static bool is_expected(const struct hosts_channel *channel, const struct transport_slot *slot,
			const struct link_message *message)
{
	if (!channel->from)
		return false;
	uintptr_t at = (uintptr_t)slot - (uintptr_t)channel->from->slots;
	bool whole = message->bytes <= LINK_SHORT_BYTES;
	return at < sizeof channel->from->slots && at % sizeof *slot == 0 &&
	       atomic_load(&slot->state) == 0 &&
	       message->note.words[4] == atomic_load(&channel->from->posted) + 1 &&
	       (message->bytes == 0 || (whole ? message->payload != NULL : message->handle != NULL));
}

static bool has_pages(struct hosts *hosts, struct hosts_relay *relay)
{
	return hosts_mirror_ensure(hosts, relay, &relay->has_pages, relay->channel.pages,
				   sizeof *relay->channel.pages * TRANSPORT_INLINE_PAGES);
}

void hosts_channel_arrived(struct transport_team *team, int peer, struct transport_slot *slot,
			   const struct link_message *message)
{
	struct hosts_channel *channel = &team->relays[peer].channel;
	struct hosts *hosts = team->transport->hosts;
	const uint64_t *words = message->note.words;
	bool uses_page = message->bytes > TRANSPORT_MESSAGE_INLINE_BYTES &&
			 message->bytes <= LINK_SHORT_BYTES;
	if (!is_expected(channel, slot, message) || atomic_load(&channel->withdrawn) ||
	    (uses_page && !has_pages(hosts, &team->relays[peer]))) {
		hosts_return_offer(hosts, peer, message);
		return;
	}
	unsigned index = (unsigned)(slot - channel->from->slots);
	slot->packed = (struct transport_packed){
		.seq = words[2], .count = words[3], .bytes = message->bytes};
	if (message->bytes > LINK_SHORT_BYTES) {
		hosts_return_offer(hosts, peer, &channel->offered[index]);
		channel->offered[index] = *message;
	} else if (message->bytes > TRANSPORT_MESSAGE_INLINE_BYTES)
		memcpy(channel->pages[index], message->payload, message->bytes);
	else if (message->bytes > 0)
		memcpy(slot->payload, message->payload, message->bytes);
	channel->arrived[index] = words[4];
	atomic_store_explicit(&slot->state, words[4], memory_order_release);
	wait_store(&channel->from->posted, words[4]);
	hosts_wake(hosts);
}

const void *hosts_payload(const struct transport_team *team, int peer,
			  const struct transport_message *message)
{
	return message->bytes <= LINK_SHORT_BYTES ? remote_of(team, peer)->pages[message->index]
						  : NULL;
}

/* Copies a payload if the link keeps it here. False: the payload is to be fetched, or this rank has
 * withdrawn. Once it has, the thread that makes progress on the link returns what is offered: that
 * thread reads `withdrawn` and then `copying`; this one stores `copying` and then reads
 * `withdrawn`. The peer can write the length in the slot, but not the length that the link has
 * counted. */
static bool copy_eager(struct transport_team *team, int peer, unsigned index, void *to,
		       uint64_t bytes, ls_status *status)
{
	struct hosts_channel *channel = remote_of(team, peer);
	const struct link_message *offered = &channel->offered[index];
	atomic_store(&channel->copying, 1);
	bool is_eager = !atomic_load(&channel->withdrawn) && offered->is_eager;
	if (is_eager)
		*status = offered->bytes == bytes ? LS_OK : LS_INTERNAL;
	if (is_eager && *status == LS_OK)
		memcpy(to, offered->payload, bytes);
	atomic_store(&channel->copying, 0);
	if (atomic_load(&channel->withdrawn))
		transport_notify(team, peer);
	return is_eager;
}

bool hosts_collect(struct transport_team *team, int peer, const struct transport_message *message,
		   void *to, ls_status *status, struct wait_word *blocked)
{
	struct hosts_channel *channel = remote_of(team, peer);
	if (copy_eager(team, peer, message->index, to, message->bytes, status))
		return true;
	/* Read before the state: see hosts_channel_ended. */
	uint64_t seen = atomic_load_explicit(&channel->from->ended, memory_order_acquire);
	enum hosts_fetch_state fetching = (enum hosts_fetch_state)atomic_load(&channel->fetching);
	if (fetching == HOSTS_FETCH_OVER) {
		*status = channel->fetch.link_transfer.status;
		atomic_store(&channel->fetching, HOSTS_FETCH_NONE);
		return true;
	}
	if (fetching == HOSTS_FETCH_NONE && atomic_load(&channel->withdrawn)) {
		*status = LS_ABORTED;
		return true;
	}
	if (fetching == HOSTS_FETCH_NONE) {
		channel->wanted = message->index;
		channel->target = to;
		channel->target_bytes = message->bytes;
		atomic_store(&channel->fetching, HOSTS_FETCH_WANTED);
		transport_notify(team, peer);
	}
	transport_wait_word(team, team->rank, &channel->from->ended, seen + 1, peer, blocked);
	return false;
}

static void end_fetch(const struct hosts *hosts, struct hosts_channel *channel)
{
	channel->fetch.is_under_way = false;
	atomic_store(&channel->fetching, HOSTS_FETCH_OVER);
	add_one(&channel->from->ended);
	hosts_wake(hosts);
}

static void fetch_wanted(const struct hosts_path *path)
{
	struct hosts_channel *channel = &path->relay->channel;
	if (atomic_load(&channel->fetching) != HOSTS_FETCH_WANTED || channel->fetch.is_under_way)
		return;
	struct link_message message = channel->offered[channel->wanted];
	channel->fetch = (struct hosts_transfer){.relay = path->relay,
						 .index = (uint8_t)channel->wanted,
						 .kind = HOSTS_TRANSFER_FETCH,
						 .is_under_way = true};
	if (!message.handle) { /* it was returned, because this rank has withdrawn */
		channel->fetch.link_transfer.status = LS_ABORTED;
		end_fetch(path->hosts, channel);
		return;
	}
	if (message.bytes != channel->target_bytes) { /* it goes back once it is taken */
		channel->fetch.link_transfer.status = LS_INTERNAL;
		end_fetch(path->hosts, channel);
		return;
	}
	channel->offered[channel->wanted].handle = NULL;
	hosts_path_fetch(path, &message, channel->target, &channel->fetch.link_transfer);
}

static void return_offer(const struct hosts_path *path, unsigned index)
{
	struct link_message *message = &path->relay->channel.offered[index];
	hosts_return_offer(path->hosts, path->peer, message);
	*message = (struct link_message){0};
}

/* Tells the source which slots it can use again. */
static bool send_freed(const struct hosts_path *path)
{
	struct hosts_channel *channel = &path->relay->channel;
	uint64_t taken = atomic_load_explicit(&channel->from->taken, memory_order_acquire);
	uint64_t refused = atomic_load_explicit(&channel->from->refused, memory_order_acquire);
	if (refused != channel->refused &&
	    !hosts_path_store(path, HOSTS_KEEP_NOT,
			      hosts_place_at_source(path, &channel->from->refused), refused))
		return false;
	channel->refused = refused;
	for (unsigned i = 0; i < TRANSPORT_CHANNEL_SLOTS && taken != channel->taken; i++) {
		if (channel->told[i] == channel->arrived[i] ||
		    atomic_load_explicit(&channel->from->slots[i].state, memory_order_acquire))
			continue;
		return_offer(path, i); /* taken, but not fetched */
		if (!hosts_path_store(path, HOSTS_KEEP_SLOT,
				      hosts_place_at_target(path, &channel->to->slots[i].freed),
				      channel->arrived[i]))
			return false;
		channel->told[i] = channel->arrived[i];
	}
	channel->taken = taken;
	return true;
}

/* ---- source and owner ---- */

bool hosts_channel_send(const struct hosts_path *path)
{
	const struct hosts_channel *channel = &path->relay->channel;
	fetch_wanted(path);
	bool withdrawn = atomic_load(&channel->withdrawn) && !atomic_load(&channel->copying);
	for (unsigned i = 0; i < TRANSPORT_CHANNEL_SLOTS && withdrawn; i++)
		return_offer(path, i);
	return send_freed(path) && post_messages(path);
}

void hosts_channel_ended(struct hosts_transfer *transfer)
{
	struct hosts_channel *channel = &transfer->relay->channel;
	struct hosts *hosts = transfer->relay->team->transport->hosts;
	if (transfer->kind == HOSTS_TRANSFER_FETCH) {
		end_fetch(hosts, channel);
		return;
	}
	transfer->is_under_way = false;
	add_one(&channel->to->ended);
	if (is_taken(channel, transfer->index))
		free_slot(channel->to, transfer->index);
	hosts_wake(hosts);
}
