/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: an implementation of link_ops within one process. Each end belongs to one thread at a
 * time; different ends may belong to different threads. All is late by some calls of advance, also
 * the end of a transfer at its source; peers overtake each other as a seed draws, there is room for
 * few notes, and long payloads are copied piece by piece, so that a cut finds them under way. */
#ifndef LINK_LOOP_FIXTURE_H
#define LINK_LOOP_FIXTURE_H

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "link/loop_offers_fixture.h"

/* ---- sending ---- */

static inline ls_status loop_connect(struct link *link, bool *done)
{
	struct loop_end *me = link->state;
	struct loop *loop = me->loop;
	lock_peer_acquire(&loop->lock);
	me->connects = true;
	*done = true;
	for (int q = 0; q < loop->size; q++)
		*done = *done && loop->ends[q].connects;
	lock_peer_release(&loop->lock);
	return LS_OK;
}

static inline void loop_send(struct loop *loop, int from, int to) LOCK_REQUIRES(peer)
{
	if (loop->queues[from][to].kept)
		loop_poke(&loop->ends[to]);
	loop->queues[from][to].kept = 0;
}

/* A place in the queue to a peer; NULL: there is none. */
static inline struct loop_item *loop_place(struct loop *loop, int from, int to) LOCK_REQUIRES(peer)
{
	struct loop_queue *queue = &loop->queues[from][to];
	if (queue->count == loop->room) {
		loop_send(loop, from, to);
		return NULL;
	}
	struct loop_item *item = &queue->items[(queue->first + queue->count++) % LOOP_ROOM_MAX];
	queue->kept++;
	item->ready = loop->ends[to].tick + loop_draw(loop, LOOP_DELAY);
	return item;
}

static inline bool loop_post(struct link *link, int peer, const struct link_note *note,
			     const void *payload, uint64_t bytes, struct link_transfer *transfer)
{
	struct loop_end *me = link->state;
	struct loop *loop = me->loop;
	bool goes = true;
	if (!transfer && bytes > LINK_SHORT_BYTES)
		abort();
	lock_peer_acquire(&loop->lock);
	bool is_cut = loop_is_cut(loop, link->rank, peer);
	struct loop_item *item = is_cut ? NULL : loop_place(loop, link->rank, peer);
	if (item) {
		item->is_word = false;
		item->message = (struct link_message){.note = *note, .bytes = bytes};
		if (transfer) {
			struct loop_offer *offer =
				loop_offer(loop, link->rank, peer, payload, bytes, transfer);
			if (transfer->is_eager)
				loop_copy(loop, offer);
			offer->is_queued = true;
			item->message.handle = offer;
			item->message.is_eager = transfer->is_eager;
			item->message.payload = offer->copy;
			loop_send(loop, link->rank, peer);
		} else if (bytes) {
			memcpy(item->payload, payload, bytes);
		}
	} else if (is_cut && transfer) {
		struct loop_offer *offer =
			loop_offer(loop, link->rank, peer, payload, bytes, transfer);
		offer->source_ends = offer->is_broken = true;
		offer->source_status = LS_ABORTED;
		loop_poke(me);
	} else {
		goes = is_cut;
	}
	lock_peer_release(&loop->lock);
	return goes;
}

static inline bool loop_store(struct link *link, int peer, uint64_t index, uint64_t value)
{
	struct loop_end *me = link->state;
	struct loop *loop = me->loop;
	lock_peer_acquire(&loop->lock);
	bool is_cut = loop_is_cut(loop, link->rank, peer);
	struct loop_item *item = is_cut ? NULL : loop_place(loop, link->rank, peer);
	if (item) {
		item->is_word = true;
		item->index = index;
		item->value = value;
	}
	lock_peer_release(&loop->lock);
	return item || is_cut;
}

static inline void loop_push(struct link *link, int peer)
{
	struct loop *loop = ((struct loop_end *)link->state)->loop;
	lock_peer_acquire(&loop->lock);
	loop_send(loop, link->rank, peer);
	lock_peer_release(&loop->lock);
}

static inline void loop_fetch(struct link *link, int peer, const struct link_message *message,
			      void *to, struct link_transfer *transfer)
{
	struct loop_end *me = link->state;
	struct loop *loop = me->loop;
	struct loop_offer *offer = message->handle;
	lock_peer_acquire(&loop->lock);
	if (!offer || !offer->is_held || offer->source != peer || offer->target != link->rank)
		abort(); /* fetched twice, or of another peer */
	offer->is_held = false;
	offer->fetched = to ? transfer : NULL;
	offer->to = to;
	offer->is_fetching = to && !offer->is_broken;
	if (offer->is_broken && to) {
		offer->target_ends = true;
		offer->target_status = me->has_cut[peer] ? LS_ABORTED : LS_PEER_DIED;
	} else if (!to && offer->sent && !offer->copy) {
		offer->source_ends = true;
		offer->source_status = offer->is_broken ? LS_PEER_DIED : LS_CANCELLED;
		loop_poke(&loop->ends[peer]);
	}
	loop_poke(me);
	lock_peer_release(&loop->lock);
}

/* ---- arriving ---- */

/* One thing to be told, found under the lock and told without it. */
struct loop_event {
	enum { LOOP_NOTHING, LOOP_QUIET, LOOP_ITEM, LOOP_OVER, LOOP_LOST } what;
	int peer;
	struct link_transfer *transfer;
	struct loop_item item;
};

static inline bool loop_tell_over(struct link_transfer **of, ls_status status,
				  struct loop_event *out)
{
	out->what = LOOP_OVER;
	out->transfer = *of;
	out->transfer->status = status;
	*of = NULL;
	return true;
}

/* Goes on with one of a peer's payloads; true if there is something to tell. */
static inline bool loop_carry(struct loop *loop, int me, int peer, struct loop_event *out)
	LOCK_REQUIRES(peer)
{
	for (struct loop_offer *offer = loop->offers; offer; offer = offer->next) {
		bool is_source = offer->source == me && offer->target == peer && offer->sent;
		if (is_source && offer->source_ends && loop->ends[me].tick >= offer->ready)
			return loop_tell_over(&offer->sent, offer->source_status, out);
		if (offer->target != me || offer->source != peer)
			continue;
		if (offer->target_ends && offer->fetched)
			return loop_tell_over(&offer->fetched, offer->target_status, out);
		if (!offer->is_fetching || loop_draw(loop, 2))
			continue;
		uint64_t at = offer->copied, left = offer->bytes - at;
		memcpy(offer->to + at, offer->from + at, left < LOOP_PIECE ? left : LOOP_PIECE);
		offer->copied += left < LOOP_PIECE ? left : LOOP_PIECE;
		if (offer->copied == offer->bytes) {
			offer->is_fetching = false;
			offer->target_ends = true;
			if (!offer->copy)
				loop_end_source(loop, offer);
		}
		out->what = LOOP_QUIET;
		return true;
	}
	return false;
}

static inline bool loop_deliver(struct loop *loop, int me, int peer, struct loop_event *out)
	LOCK_REQUIRES(peer)
{
	struct loop_queue *queue = &loop->queues[peer][me];
	if (queue->count == queue->kept || queue->items[queue->first].ready > loop->ends[me].tick)
		return false;
	out->what = LOOP_ITEM;
	out->item = queue->items[queue->first];
	queue->first = (queue->first + 1) % LOOP_ROOM_MAX;
	queue->count--;
	struct loop_offer *offer = out->item.is_word ? NULL : out->item.message.handle;
	if (offer)
		offer->is_queued = !(offer->is_held = true);
	loop_poke(&loop->ends[peer]); /* there is room */
	return true;
}

static inline bool loop_find(struct loop *loop, int me, struct loop_event *out) LOCK_REQUIRES(peer)
{
	struct loop_end *end = &loop->ends[me];
	int first = (int)loop_draw(loop, (uint64_t)loop->size);
	for (int i = 0; i < loop->size; i++) {
		int peer = out->peer = (first + i) % loop->size;
		if (loop_carry(loop, me, peer, out) ||
		    (!end->has_cut[peer] && loop_deliver(loop, me, peer, out)))
			return true;
		if (loop->ends[peer].has_cut[me] && !end->has_cut[peer] && !end->is_lost[peer] &&
		    !loop->queues[peer][me].count) {
			end->is_lost[peer] = true;
			out->what = LOOP_LOST;
			return true;
		}
	}
	return false;
}

static inline void loop_tell(struct link *link, struct loop_event *event)
{
	const struct link_events *events = &link->events;
	struct loop_item *item = &event->item;
	switch (event->what) {
	case LOOP_ITEM:
		if (item->is_word) {
			events->word(events->context, event->peer, item->index, item->value);
			return;
		}
		if (!item->message.handle && item->message.bytes)
			item->message.payload = item->payload;
		events->arrived(events->context, event->peer, &item->message);
		return;
	case LOOP_OVER:
		events->done(events->context, event->transfer);
		return;
	case LOOP_LOST:
		events->lost(events->context, event->peer);
		return;
	default:
		return;
	}
}

static inline bool loop_advance(struct link *link)
{
	struct loop_end *me = link->state;
	struct loop *loop = me->loop;
	eventfd_t pokes;
	lock_peer_acquire(&loop->lock);
	me->tick++;
	me->is_armed = false;
	bool did = eventfd_read(me->fd, &pokes) == 0;
	for (int i = 0; i < 2 * loop->size; i++) {
		struct loop_event event = {.what = LOOP_NOTHING};
		bool found = loop_find(loop, link->rank, &event);
		loop_sweep(loop);
		if (!found)
			break;
		did = true;
		lock_peer_release(&loop->lock);
		loop_tell(link, &event);
		lock_peer_acquire(&loop->lock);
	}
	lock_peer_release(&loop->lock);
	return did;
}

static inline bool loop_arm(struct link *link, int *fd)
{
	struct loop_end *me = link->state;
	struct loop *loop = me->loop;
	bool quiet = true;
	lock_peer_acquire(&loop->lock);
	for (int q = 0; q < loop->size; q++) {
		const struct loop_queue *queue = &loop->queues[q][link->rank];
		bool lost = loop->ends[q].has_cut[link->rank] && !me->is_lost[q];
		quiet = quiet && (me->has_cut[q] || (queue->count == queue->kept && !lost));
	}
	for (const struct loop_offer *offer = loop->offers; offer; offer = offer->next)
		quiet = quiet &&
			!(offer->source == link->rank && offer->source_ends && offer->sent) &&
			!(offer->target == link->rank &&
			  (offer->is_fetching || (offer->target_ends && offer->fetched)));
	me->is_armed = quiet;
	*fd = me->fd;
	lock_peer_release(&loop->lock);
	return quiet;
}

/* ---- the end ---- */

/* What has not been told is not told any more. */
static inline void loop_drop(struct loop_queue *queue)
{
	for (queue->kept = 0; queue->count; queue->count--) {
		struct loop_item *item = &queue->items[queue->first];
		struct loop_offer *offer = item->is_word ? NULL : item->message.handle;
		if (offer)
			offer->is_queued = false;
		queue->first = (queue->first + 1) % LOOP_ROOM_MAX;
	}
}

static inline void loop_cut(struct link *link, int peer)
{
	struct loop_end *me = link->state;
	struct loop *loop = me->loop;
	struct link_transfer *transfer;
	lock_peer_acquire(&loop->lock);
	me->has_cut[peer] = true;
	loop_drop(&loop->queues[peer][link->rank]);
	loop_send(loop, link->rank, peer);
	loop_poke(&loop->ends[peer]);
	while ((transfer = loop_break(loop, link->rank, peer))) {
		lock_peer_release(&loop->lock);
		link->events.done(link->events.context, transfer);
		lock_peer_acquire(&loop->lock);
	}
	loop_sweep(loop);
	lock_peer_release(&loop->lock);
}

static inline bool loop_flush(struct link *link, int peer)
{
	loop_push(link, peer);
	return link->rank != peer; /* a queue outlives its ends */
}

static inline void loop_close(struct link *link)
{
	struct loop_end *me = link->state;
	close(me->fd);
	me->fd = -1;
}

static const struct link_ops loop_ops = {
	.name = "loop",
	.connect = loop_connect,
	.post = loop_post,
	.store = loop_store,
	.push = loop_push,
	.fetch = loop_fetch,
	.advance = loop_advance,
	.arm = loop_arm,
	.flush = loop_flush,
	.cut = loop_cut,
	.close = loop_close,
};

/* ---- all ends ---- */

static inline struct loop *loop_new(int size, uint64_t seed)
{
	struct loop *loop = calloc(1, sizeof *loop);
	if (!loop || size > LOOP_ENDS)
		abort();
	lock_peer_init(&loop->lock);
	lock_peer_acquire(&loop->lock);
	loop->size = size;
	loop->room = LOOP_ROOM;
	loop->seed = seed;
	for (int r = 0; r < size; r++) {
		struct loop_end *end = &loop->ends[r];
		int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		end->loop = loop;
		end->link = (struct link){&loop_ops, end, r, size, {0}};
		end->fd = fd;
		if (fd < 0)
			abort();
	}
	lock_peer_release(&loop->lock);
	return loop;
}

static inline struct link *loop_link(struct loop *loop, int rank) LOCK_UNCHECKED
{
	return &loop->ends[rank].link;
}

/* After close of all ends. False: a payload was neither fetched nor given back. */
static inline bool loop_free(struct loop *loop)
{
	lock_peer_acquire(&loop->lock);
	loop_sweep(loop);
	bool clean = !loop->offers;
	for (struct loop_offer *offer; (offer = loop->offers); loop_free_offer(offer))
		loop->offers = offer->next;
	lock_peer_release(&loop->lock);
	lock_peer_fini(&loop->lock);
	free(loop);
	return clean;
}

#endif
