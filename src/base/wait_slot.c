/* SPDX-License-Identifier: BSD-3-Clause
 * Who sits on which slot of a wait table. A seat is what a thread knows of its slot: a list of them
 * hangs on each thread, freed by a key destructor when it ends. A wait table may be unmapped by
 * then, so seats hold no wait table but a roster: a small object on the heap, counted by its seats
 * and its waiter, which wait_close cuts off from the wait table. Wait tables are touched only under
 * the roster's lock, or by a call. */
#include "wait_slot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "messages.h"
#include "seqlock.h"

/* Invariant: references = (waiter not closed yet ? 1 : 0) + seats that point here. */
struct wait_roster {
	struct lock_trace lock;
	struct wait_table *_Atomic wait_table; /* written under the lock; NULL once closed */
	uint32_t references LOCK_GUARDED(trace);
};

struct seat {
	struct seat *next;
	struct wait_roster *roster; /* alive as long as the seat: so its address names one waiter */
	struct wait_slot *slot;     /* NULL: none was free, and the wait table counts this thread */
	uint32_t tid;
};

/* Most recently used first. */
static _Thread_local struct seat *seats;

/* Process-wide, as the system has it so: made once, never changed. */
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static int key_error;

/* At any time: slotless <= unpublished. */
static void count_slotless(struct wait_table *wait_table)
{
	atomic_fetch_add(&wait_table->unpublished, 1);
	atomic_fetch_add(&wait_table->slotless, 1);
}

static void uncount_slotless(struct wait_table *wait_table)
{
	atomic_fetch_sub(&wait_table->slotless, 1);
	atomic_fetch_sub(&wait_table->unpublished, 1);
}

static void roster_drop(struct wait_roster *roster)
{
	lock_trace_acquire(&roster->lock);
	bool last = --roster->references == 0;
	lock_trace_release(&roster->lock);
	if (last) {
		lock_trace_fini(&roster->lock);
		free(roster);
	}
}

/* So many pages of nobody's as `words` need; none if there are not enough. */
static uint64_t take_pages(struct wait_table *wait_table, uint32_t words)
{
	uint64_t taken = atomic_load(&wait_table->pages_taken), pages;
	if (words == 0 || words > WAIT_PAGE_MAX * WAIT_EDGE_MAX)
		return 0;
	do {
		uint64_t left = ~taken;
		pages = 0;
		for (uint32_t room = 0; room < words; room += WAIT_EDGE_MAX) {
			if (!left)
				return 0;
			pages |= left & -left;
			left &= left - 1;
		}
	} while (!atomic_compare_exchange_weak(&wait_table->pages_taken, &taken, taken | pages));
	return pages;
}

static void write_pages(struct wait_table *wait_table, const struct wait_slot_body *body,
			const struct wait_word *words)
{
	uint32_t left = body->further;
	for (uint64_t pages = body->pages; pages; pages &= pages - 1) {
		struct wait_edge *page = wait_table->pages[__builtin_ctzll(pages)];
		for (int i = 0; i < WAIT_EDGE_MAX && left > 0; i++, left--)
			seqlock_store(&page[i], &words++->edge, sizeof(page[i]));
	}
}

static void write_body(struct wait_table *wait_table, struct wait_slot *slot,
		       struct wait_slot_body *body, const struct wait_word *further)
{
	size_t bytes =
		offsetof(struct wait_slot_body, edges) + body->edge_count * sizeof(body->edges[0]);
	uint64_t had = slot->body.pages; /* nobody else writes it */
	seqlock_begin(&slot->epoch);
	/* Whoever takes one of these has seen that the epoch is odd, and so has whoever reads what
	 * he writes. */
	if (had)
		atomic_fetch_and(&wait_table->pages_taken, ~had);
	body->pages = take_pages(wait_table, body->further);
	seqlock_store(&slot->body, body, bytes);
	write_pages(wait_table, body, further);
	seqlock_end(&slot->epoch);
}

/* Puts what a thread does when it is not blocked, or that there is no thread. */
static void write_state(struct wait_table *wait_table, struct wait_slot *slot,
			enum wait_state state, uint32_t tid)
{
	struct wait_slot_body body;
	memset(&body, 0, offsetof(struct wait_slot_body, edges));
	body.state = state;
	body.tid = tid;
	write_body(wait_table, slot, &body, NULL);
}

static void free_slot(struct wait_table *wait_table, struct wait_slot *slot)
{
	write_state(wait_table, slot, WAIT_UNUSED, 0);
	atomic_store_explicit(&slot->taken, 0, memory_order_release);
}

/* NULL: none is free, or there is no wait table any more. */
static struct wait_slot *take_free(struct wait_table *wait_table) LOCK_REQUIRES(trace)
{
	for (int i = 0; wait_table && i < WAIT_SLOT_MAX; i++) {
		struct wait_slot *slot = &wait_table->slots[i];
		if (atomic_load_explicit(&slot->taken, memory_order_acquire))
			continue;
		atomic_store_explicit(&slot->taken, 1, memory_order_relaxed);
		return slot;
	}
	return NULL;
}

/* Gives the seat a free slot if there is one. */
static void take_slot(struct seat *seat) LOCK_REQUIRES(trace)
{
	struct wait_table *wait_table = seat->roster->wait_table;
	seat->slot = take_free(wait_table);
	if (seat->slot)
		write_state(wait_table, seat->slot, WAIT_OUTSIDE, seat->tid);
}

/* Undoes a seat that is in no list any more. After a fork a seat of the parent's thread is only
 * forgotten: the slot is the parent's, and the roster's lock may be held by a thread that is not
 * here. */
static void leave(struct seat *seat, uint32_t tid)
{
	struct wait_roster *roster = seat->roster;
	if (seat->tid == tid) {
		lock_trace_acquire(&roster->lock);
		struct wait_table *wait_table = roster->wait_table;
		if (wait_table && seat->slot)
			free_slot(wait_table, seat->slot);
		else if (wait_table)
			uncount_slotless(wait_table);
		lock_trace_release(&roster->lock);
		roster_drop(roster);
	}
	free(seat);
}

static void thread_ends(void *list)
{
	uint32_t tid = (uint32_t)gettid();
	struct seat *seat = list;
	/* Another destructor may call Lockstep after this one: it begins a new list. */
	seats = NULL;
	while (seat) {
		struct seat *next = seat->next;
		leave(seat, tid);
		seat = next;
	}
}

static void make_key(void)
{
	key_error = pthread_key_create(&key, thread_ends);
}

/* Takes the thread's seat for `roster` out of its list, and drops those that are of no more use:
 * of closed waiters, and of a parent before fork. NULL if it had none. */
static struct seat *unlink_seat(const struct wait_roster *roster, uint32_t tid)
{
	struct seat *found = NULL;
	struct seat **at = &seats;
	while (*at) {
		struct seat *seat = *at;
		bool mine = seat->tid == tid && seat->roster == roster;
		if (!mine && seat->tid == tid && seat->roster->wait_table) {
			at = &seat->next;
			continue;
		}
		*at = seat->next;
		if (mine)
			found = seat;
		else
			leave(seat, tid);
	}
	return found;
}

/* A new seat, in no list yet; NULL without memory. */
static struct seat *new_seat(struct wait_roster *roster, uint32_t tid)
{
	struct seat *seat = malloc(sizeof(*seat));
	if (!seat)
		return NULL;
	*seat = (struct seat){.roster = roster, .tid = tid};
	lock_trace_acquire(&roster->lock);
	roster->references++;
	take_slot(seat);
	if (!seat->slot)
		count_slotless(roster->wait_table);
	lock_trace_release(&roster->lock);
	return seat;
}

/* Puts the thread's seat for `roster` first in its list; NULL if it cannot have one. */
static struct seat *sit(struct wait_roster *roster)
{
	uint32_t tid = (uint32_t)gettid();
	struct seat *seat = unlink_seat(roster, tid);
	if (!seat)
		seat = new_seat(roster, tid);
	if (!seat)
		return NULL;
	seat->next = seats;
	seats = seat;
	if (pthread_setspecific(key, seats) == 0)
		return seat;
	/* Without the key nobody would give the slot back when the thread ends. */
	seats = seat->next;
	leave(seat, tid);
	return NULL;
}

/* The thread's seat at the waiter's wait table, now first in its list; NULL if it cannot have
 * one. */
static struct seat *find_seat(const struct waiter *waiter)
{
	struct seat *first = seats;
	struct wait_roster *roster = waiter->roster;
	if (__builtin_expect(first && first->roster == roster, 1))
		return first;
	if (!waiter->wait_table)
		return NULL;
	struct seat *seat = roster ? sit(roster) : NULL;
	/* Nobody takes this back: better no proof than a wrong one. */
	if (!seat)
		count_slotless(waiter->wait_table);
	return seat;
}

ls_status wait_open(struct waiter *waiter)
{
	waiter->roster = NULL;
	if (!waiter->wait_table)
		return LS_OK;
	pthread_once(&key_once, make_key);
	if (key_error) {
		MESSAGE_SAY(MESSAGE_WAIT_OPEN, strerror(key_error));
		return LS_SYSTEM;
	}
	struct wait_roster *roster = calloc(1, sizeof(*roster));
	if (!roster) {
		MESSAGE_SAY(MESSAGE_WAIT_OPEN, "out of memory");
		return LS_OUT_OF_MEMORY;
	}
	lock_trace_init(&roster->lock);
	lock_trace_acquire(&roster->lock);
	roster->wait_table = waiter->wait_table;
	roster->references = 1;
	lock_trace_release(&roster->lock);
	waiter->roster = roster;
	return LS_OK;
}

void wait_close(struct waiter *waiter)
{
	struct wait_roster *roster = waiter->roster;
	if (!roster)
		return;
	waiter->roster = NULL;
	lock_trace_acquire(&roster->lock);
	for (int i = 0; i < WAIT_SLOT_MAX; i++)
		if (atomic_load_explicit(&waiter->wait_table->slots[i].taken, memory_order_acquire))
			free_slot(waiter->wait_table, &waiter->wait_table->slots[i]);
	roster->wait_table = NULL;
	lock_trace_release(&roster->lock);
	roster_drop(roster);
}

void wait_thread_enter(struct waiter *waiter)
{
	find_seat(waiter);
}

void wait_thread_leave(struct waiter *waiter)
{
	if (!waiter->roster || !seats)
		return;
	uint32_t tid = (uint32_t)gettid();
	struct seat *seat = unlink_seat(waiter->roster, tid);
	if (seat)
		leave(seat, tid);
	/* Cannot fail when there was a seat: the key has a value. */
	pthread_setspecific(key, seats);
}

void wait_slot_publish(struct waiter *waiter, struct wait_slot_body *body,
		       const struct wait_word *further)
{
	struct seat *seat = find_seat(waiter);
	if (!seat)
		return;
	if (!seat->slot) {
		lock_trace_acquire(&seat->roster->lock);
		take_slot(seat);
		if (seat->slot)
			uncount_slotless(seat->roster->wait_table);
		lock_trace_release(&seat->roster->lock);
	}
	if (!seat->slot)
		return;
	body->tid = seat->tid;
	write_body(waiter->wait_table, seat->slot, body, further);
}

void wait_slot_clear(struct waiter *waiter)
{
	struct seat *seat = find_seat(waiter);
	if (seat && seat->slot)
		write_state(waiter->wait_table, seat->slot, WAIT_OUTSIDE, seat->tid);
}

/* ---- items ---- */

void wait_slot_publish_item(struct wait_item *item, struct wait_slot_body *body,
			    const struct wait_word *further)
{
	struct wait_roster *roster = item->waiter->roster;
	struct wait_table *wait_table = item->waiter->wait_table;
	if (!roster)
		return;
	if (!item->slot) {
		lock_trace_acquire(&roster->lock);
		item->slot = take_free(wait_table);
		lock_trace_release(&roster->lock);
	}
	if (!item->slot) {
		if (!item->counted)
			atomic_fetch_add(&wait_table->unpublished, 1);
		item->counted = true;
		return;
	}
	write_body(wait_table, item->slot, body, further);
	if (item->counted)
		atomic_fetch_sub(&wait_table->unpublished, 1);
	item->counted = false;
}

void wait_slot_clear_item(struct wait_item *item)
{
	struct wait_roster *roster = item->waiter ? item->waiter->roster : NULL;
	if (!roster)
		return;
	if (item->slot) {
		lock_trace_acquire(&roster->lock);
		free_slot(item->waiter->wait_table, item->slot);
		lock_trace_release(&roster->lock);
	} else if (item->counted) {
		atomic_fetch_sub(&item->waiter->wait_table->unpublished, 1);
	}
	item->slot = NULL;
	item->counted = false;
}
