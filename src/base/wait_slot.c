/* SPDX-License-Identifier: BSD-3-Clause
 * Which thread has which slot of a wait table. Each thread has a list of registrations, one for
 * each of its slots, which a key destructor frees when the thread ends. A wait table may be
 * unmapped by then. So a registration refers to a registry: a small object on the heap, counted by
 * its registrations and its waiter, which wait_close cuts off from the wait table. Threads touch
 * wait tables only under the registry's lock, or in a call. */
#include "base/wait_slot.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/seqlock.h"

/* Invariant: references = (waiter not closed yet ? 1 : 0) + registrations that point here. */
struct wait_registry {
	struct lock_trace lock;
	struct wait_table *_Atomic wait_table; /* written under the lock; NULL once closed */
	uint32_t references LOCK_GUARDED(trace);
};

struct registration {
	struct registration *next;
	/* alive as long as the registration: so its address names one waiter */
	struct wait_registry *registry;
	struct wait_slot *slot; /* NULL: none was free, and the wait table counts this thread */
	uint32_t tid;
};

/* Most recently used first. */
static _Thread_local struct registration *registrations;
/* The registry of the first registration, or NULL. */
_Thread_local const struct wait_registry *wait_entered;

/* One for the process, because the system has keys for processes; made once, never changed. */
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

static void registry_drop(struct wait_registry *registry)
{
	lock_trace_acquire(&registry->lock);
	bool last = --registry->references == 0;
	lock_trace_release(&registry->lock);
	if (last) {
		lock_trace_fini(&registry->lock);
		free(registry);
	}
}

/* Takes as many free pages as `words` need; none if there are not enough. */
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
			seqlock_store(&page[i], &words++->edge, sizeof page[i]);
	}
}

static void write_body(struct wait_table *wait_table, struct wait_slot *slot,
		       struct wait_slot_body *body, const struct wait_word *further)
{
	size_t bytes =
		offsetof(struct wait_slot_body, edges) + body->edge_count * sizeof body->edges[0];
	uint64_t had = slot->body.pages; /* nobody else writes it */
	seqlock_begin(&slot->epoch);
	/* A thread that takes one of these pages has seen that the epoch is odd, and so has a
	 * reader of what that thread writes. */
	if (had)
		atomic_fetch_and(&wait_table->pages_taken, ~had);
	body->pages = take_pages(wait_table, body->further);
	seqlock_store(&slot->body, body, bytes);
	if (body->state == WAIT_FOREIGN)
		seqlock_store(slot->body.foreign, body->foreign, sizeof body->foreign);
	write_pages(wait_table, body, further);
	seqlock_end(&slot->epoch);
}

/* Writes what a thread does when it is not blocked, or that the slot has no thread. */
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
	atomic_store_explicit(&slot->taken, WAIT_TAKEN_NOT, memory_order_release);
}

/* NULL: none is free, or there is no wait table any more. */
static struct wait_slot *take_free_slot(struct wait_table *wait_table, enum wait_taken taken)
	LOCK_REQUIRES(trace)
{
	for (int i = 0; wait_table && i < WAIT_SLOT_MAX; i++) {
		struct wait_slot *slot = &wait_table->slots[i];
		if (atomic_load_explicit(&slot->taken, memory_order_acquire))
			continue;
		atomic_store_explicit(&slot->taken, taken, memory_order_relaxed);
		return slot;
	}
	return NULL;
}

/* Gives the registration a free slot if there is one. */
static void take_slot(struct registration *registration) LOCK_REQUIRES(trace)
{
	struct wait_table *wait_table = registration->registry->wait_table;
	registration->slot = take_free_slot(wait_table, WAIT_TAKEN_BY_THREAD);
	if (registration->slot)
		write_state(wait_table, registration->slot, WAIT_OUTSIDE, registration->tid);
}

/* Undoes a registration that is in no list any more. After a fork a registration of the parent's
 * thread is only forgotten: the slot is the parent's, and the registry's lock may be held by a
 * thread that is not here. */
static void drop_registration(struct registration *registration, uint32_t tid)
{
	struct wait_registry *registry = registration->registry;
	if (registration->tid == tid) {
		lock_trace_acquire(&registry->lock);
		struct wait_table *wait_table = registry->wait_table;
		if (wait_table && registration->slot)
			free_slot(wait_table, registration->slot);
		else if (wait_table)
			uncount_slotless(wait_table);
		lock_trace_release(&registry->lock);
		registry_drop(registry);
	}
	free(registration);
}

static void on_thread_end(void *list)
{
	uint32_t tid = (uint32_t)gettid();
	struct registration *registration = list;
	/* Another destructor may call Lockstep after this one: it begins a new list. */
	registrations = NULL;
	wait_entered = NULL;
	while (registration) {
		struct registration *next = registration->next;
		drop_registration(registration, tid);
		registration = next;
	}
}

static void make_key(void)
{
	key_error = pthread_key_create(&key, on_thread_end);
}

/* Takes the thread's registration for `registry` out of the thread's list, and drops registrations
 * that are of no more use: those of closed waiters, and of a parent before fork. NULL if the thread
 * had none. */
static struct registration *unlink_registration(const struct wait_registry *registry, uint32_t tid)
{
	struct registration *found = NULL;
	struct registration **at = &registrations;
	wait_entered = NULL;
	while (*at) {
		struct registration *registration = *at;
		bool mine = registration->tid == tid && registration->registry == registry;
		if (!mine && registration->tid == tid && registration->registry->wait_table) {
			at = &registration->next;
			continue;
		}
		*at = registration->next;
		if (mine)
			found = registration;
		else
			drop_registration(registration, tid);
	}
	return found;
}

/* A new registration, in no list yet; NULL without memory. */
static struct registration *new_registration(struct wait_registry *registry, uint32_t tid)
{
	struct registration *registration = malloc(sizeof *registration);
	if (!registration)
		return NULL;
	*registration = (struct registration){.registry = registry, .tid = tid};
	lock_trace_acquire(&registry->lock);
	registry->references++;
	take_slot(registration);
	if (!registration->slot)
		count_slotless(registry->wait_table);
	lock_trace_release(&registry->lock);
	return registration;
}

/* Puts the thread's registration for `registry` first in its list; NULL if it cannot have one. */
static struct registration *register_thread(struct wait_registry *registry)
{
	uint32_t tid = (uint32_t)gettid();
	struct registration *registration = unlink_registration(registry, tid);
	if (!registration)
		registration = new_registration(registry, tid);
	if (!registration)
		return NULL;
	registration->next = registrations;
	registrations = registration;
	if (pthread_setspecific(key, registrations) == 0)
		return registration;
	/* Without the key nobody would give the slot back when the thread ends. */
	registrations = registration->next;
	drop_registration(registration, tid);
	return NULL;
}

/* The thread's registration at the waiter's wait table, now first in its list; NULL if it cannot
 * have one. */
static struct registration *find_registration(const struct waiter *waiter)
{
	struct registration *first = registrations;
	struct wait_registry *registry = waiter->registry;
	if (__builtin_expect(first && first->registry == registry, 1))
		return first;
	if (!waiter->wait_table)
		return NULL;
	struct registration *registration = registry ? register_thread(registry) : NULL;
	/* Nobody takes this back: better no proof than a wrong one. */
	if (!registration)
		count_slotless(waiter->wait_table);
	return registration;
}

ls_status wait_open(struct waiter *waiter)
{
	waiter->registry = NULL;
	if (!waiter->wait_table)
		return LS_OK;
	pthread_once(&key_once, make_key);
	if (key_error) {
		MESSAGE_SAY(MESSAGE_WAIT_OPEN, strerror(key_error));
		return LS_SYSTEM;
	}
	struct wait_registry *registry = calloc(1, sizeof *registry);
	if (!registry) {
		MESSAGE_SAY(MESSAGE_WAIT_OPEN, "out of memory");
		return LS_OUT_OF_MEMORY;
	}
	lock_trace_init(&registry->lock);
	lock_trace_acquire(&registry->lock);
	registry->wait_table = waiter->wait_table;
	registry->references = 1;
	lock_trace_release(&registry->lock);
	waiter->registry = registry;
	return LS_OK;
}

void wait_close(struct waiter *waiter)
{
	struct wait_registry *registry = waiter->registry;
	if (!registry)
		return;
	waiter->registry = NULL;
	lock_trace_acquire(&registry->lock);
	for (int i = 0; i < WAIT_SLOT_MAX; i++)
		if (atomic_load_explicit(&waiter->wait_table->slots[i].taken, memory_order_acquire))
			free_slot(waiter->wait_table, &waiter->wait_table->slots[i]);
	registry->wait_table = NULL;
	lock_trace_release(&registry->lock);
	registry_drop(registry);
}

void wait_thread_enter_first(struct waiter *waiter)
{
	const struct registration *registration = find_registration(waiter);
	wait_entered = registration ? registration->registry : NULL;
}

void wait_thread_leave(struct waiter *waiter)
{
	if (!waiter->registry || !registrations)
		return;
	uint32_t tid = (uint32_t)gettid();
	struct registration *registration = unlink_registration(waiter->registry, tid);
	if (registration)
		drop_registration(registration, tid);
	/* Cannot fail when there was a registration: the key has a value. */
	pthread_setspecific(key, registrations);
}

void wait_slot_publish(struct waiter *waiter, struct wait_slot_body *body,
		       const struct wait_word *further)
{
	struct registration *registration = find_registration(waiter);
	if (!registration)
		return;
	if (!registration->slot) {
		lock_trace_acquire(&registration->registry->lock);
		take_slot(registration);
		if (registration->slot)
			uncount_slotless(registration->registry->wait_table);
		lock_trace_release(&registration->registry->lock);
	}
	if (!registration->slot)
		return;
	body->tid = registration->tid;
	write_body(waiter->wait_table, registration->slot, body, further);
}

void wait_slot_clear(struct waiter *waiter)
{
	struct registration *registration = find_registration(waiter);
	if (registration && registration->slot)
		write_state(waiter->wait_table, registration->slot, WAIT_OUTSIDE, registration->tid);
}

void wait_foreign_call_begin(struct waiter *waiter, const char *call)
{
	struct wait_slot_body body;
	lock_assert_none();
	if (!waiter)
		return;
	memset(&body, 0, offsetof(struct wait_slot_body, edges));
	body.state = WAIT_FOREIGN;
	body.since_ns = clock_now_ns();
	body.deadline_ns = CLOCK_NEVER;
	wait_name_foreign(&body, call);
	wait_slot_publish(waiter, &body, NULL);
}

void wait_foreign_call_end(struct waiter *waiter)
{
	if (waiter)
		wait_slot_clear(waiter);
}

/* ---- items ---- */

void wait_slot_publish_item(struct wait_item *item, struct wait_slot_body *body,
			    const struct wait_word *further)
{
	struct wait_registry *registry = item->waiter->registry;
	struct wait_table *wait_table = item->waiter->wait_table;
	if (!registry)
		return;
	if (!item->slot) {
		lock_trace_acquire(&registry->lock);
		item->slot = take_free_slot(wait_table, WAIT_TAKEN_BY_ITEM);
		lock_trace_release(&registry->lock);
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
	struct wait_registry *registry = item->waiter ? item->waiter->registry : NULL;
	if (!registry)
		return;
	if (item->slot) {
		lock_trace_acquire(&registry->lock);
		free_slot(item->waiter->wait_table, item->slot);
		lock_trace_release(&registry->lock);
	} else if (item->counted) {
		atomic_fetch_sub(&item->waiter->wait_table->unpublished, 1);
	}
	item->slot = NULL;
	item->counted = false;
}
