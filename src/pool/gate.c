/* SPDX-License-Identifier: BSD-3-Clause
 * The counts of the gate, and the list of memory that is due to be given back. The protocol is in
 * gate.h. */
#include "pool/gate.h"

#include <stdlib.h>

#include "base/fork.h"

#define GATE_GIVING (UINT64_C(1) << 32)

/* The launches that the thread has open, and whether it is in a callback; those of a parent are not
 * a forked child's. */
static _Thread_local struct {
	int count;
	uint32_t fork_generation;
	bool in_callback;
} open_here;

void pool_gate_init(struct pool_gate *gate)
{
	*gate = (struct pool_gate){.state = 0};
	lock_gate_init(&gate->lock);
}

void pool_gate_fini(struct pool_gate *gate)
{
	struct pool_inflight_table *next = atomic_load(&gate->inflight.next);
	while (next) {
		struct pool_inflight_table *one = next;
		next = atomic_load(&one->next);
		free(one);
	}
	lock_gate_fini(&gate->lock);
}

/* ---- what is in flight ---- */

/* A place in the tables of a gate. */
struct cursor {
	struct pool_inflight_table *table;
	int at;
};

/* The next one; NULL: that was the last. */
static struct pool_inflight *next_inflight(struct cursor *cursor)
{
	if (cursor->at == POOL_INFLIGHT_TABLE)
		*cursor = (struct cursor){.table = atomic_load(&cursor->table->next)};
	return cursor->table ? &cursor->table->all[cursor->at++] : NULL;
}

/* One that no stream has is the driver's from now on. NULL: all have one. */
static struct pool_inflight *claim_inflight(struct pool_gate *gate, struct driver *driver)
{
	struct cursor cursor = {.table = &gate->inflight};
	for (struct pool_inflight *one; (one = next_inflight(&cursor));) {
		struct driver *none = NULL;
		if (atomic_compare_exchange_strong(&one->driver, &none, driver))
			return one;
	}
	return NULL;
}

static bool add_table(struct pool_gate *gate)
{
	struct pool_inflight_table *last = &gate->inflight, *next, *fresh = calloc(1, sizeof *fresh);
	if (!fresh)
		return false;
	lock_gate_acquire(&gate->lock);
	while ((next = atomic_load(&last->next)))
		last = next;
	atomic_store(&last->next, fresh);
	lock_gate_release(&gate->lock);
	return true;
}

struct pool_inflight *pool_inflight_open(struct pool_gate *gate, struct driver *driver)
{
	struct pool_inflight *found;
	while (!(found = claim_inflight(gate, driver)))
		if (!add_table(gate))
			return NULL;
	return found;
}

void pool_inflight_close(struct pool_inflight *inflight)
{
	/* A broken device stores nothing any more; the next owner of `inflight` goes on from
	 * here. */
	atomic_store(&inflight->done, atomic_load(&inflight->issued));
	atomic_store(&inflight->driver, NULL);
}

uint64_t pool_gate_issue(struct pool_inflight *inflight)
{
	return atomic_fetch_add(&inflight->issued, 1) + 1;
}

void pool_gate_retract(struct pool_inflight *inflight)
{
	atomic_fetch_sub(&inflight->issued, 1);
}

static bool is_in_flight(const struct pool_inflight *inflight)
{
	const struct driver *driver = atomic_load(&inflight->driver);
	return driver && atomic_load(&inflight->done) < atomic_load(&inflight->issued) &&
	       atomic_load(&driver->broken) == 0;
}

static bool any_in_flight(struct pool_gate *gate)
{
	struct cursor cursor = {.table = &gate->inflight};
	for (const struct pool_inflight *one; (one = next_inflight(&cursor));)
		if (is_in_flight(one))
			return true;
	return false;
}

/* ---- waiting for the gate ---- */

void pool_gate_wake(struct pool_gate *gate)
{
	lock_gate_acquire(&gate->lock);
	atomic_fetch_add(&gate->changes, 1);
	for (const struct pool_waiting *one = gate->waiting; one; one = one->next)
		wait_wake(one->bell);
	lock_gate_release(&gate->lock);
}

void pool_gate_wait_begin(struct pool_gate *gate, struct pool_waiting *waiting,
			  struct wait_bell *bell)
{
	waiting->bell = bell;
	lock_gate_acquire(&gate->lock);
	waiting->next = gate->waiting;
	gate->waiting = waiting;
	atomic_fetch_add(&gate->waiting_count, 1);
	lock_gate_release(&gate->lock);
}

void pool_gate_wait_end(struct pool_gate *gate, struct pool_waiting *waiting)
{
	lock_gate_acquire(&gate->lock);
	struct pool_waiting **at = &gate->waiting;
	while (*at != waiting)
		at = &(*at)->next;
	*at = waiting->next;
	atomic_fetch_sub(&gate->waiting_count, 1);
	lock_gate_release(&gate->lock);
}

static struct wait_word changes_word(const struct pool_gate *gate)
{
	return (struct wait_word){
		.word = &gate->changes,
		.edge = {.value = atomic_load(&gate->changes) + 1, .owner = -1, .peer = -1}};
}

static void add_word(struct wait_word *out, int max, int *count, const _Atomic uint64_t *word,
		     uint64_t value)
{
	if (*count < max)
		out[*count] = (struct wait_word){.word = word,
						 .edge = {.value = value, .owner = -1, .peer = -1}};
	++*count;
}

int pool_gate_words(struct pool_gate *gate, struct wait_word *out, int max)
{
	int count = 0;
	const struct driver *last = NULL; /* whose `broken` was added */
	add_word(out, max, &count, &gate->changes, atomic_load(&gate->changes) + 1);
	struct cursor cursor = {.table = &gate->inflight};
	for (const struct pool_inflight *inflight; (inflight = next_inflight(&cursor));) {
		const struct driver *driver = atomic_load(&inflight->driver);
		if (!is_in_flight(inflight))
			continue;
		add_word(out, max, &count, &inflight->done, atomic_load(&inflight->issued));
		if (driver && driver != last)
			add_word(out, max, &count, &driver->broken, 1);
		last = driver;
	}
	return count;
}

bool pool_gate_is_unheard(struct pool_gate *gate, const struct wait_bell *bell)
{
	struct cursor cursor = {.table = &gate->inflight};
	for (const struct pool_inflight *inflight; (inflight = next_inflight(&cursor));) {
		const struct driver *driver = atomic_load(&inflight->driver);
		if (driver && driver->bell != bell && is_in_flight(inflight))
			return true;
	}
	return false;
}

/* ---- launches ---- */

/* Returns when the give that is under way has ended. */
static ls_status await_give(struct pool_gate *gate, struct waiter *waiter, uint64_t deadline_ns)
{
	struct pool_waiting waiting;
	ls_status status = LS_OK;
	int peer;
	pool_gate_wait_begin(gate, &waiting, waiter->bell);
	struct wait_word word = changes_word(gate);
	struct wait_call call = {.words = &word,
				 .count = 1,
				 .deadline_ns = deadline_ns,
				 .foreign = "a launch (waiting for a free of the device)"};
	if (atomic_load(&gate->state) & GATE_GIVING)
		status = wait_words(waiter, &call, &peer);
	pool_gate_wait_end(gate, &waiting);
	return status;
}

static void enter_fork(void)
{
	if (fork_is_in(open_here.fork_generation))
		return;
	open_here.fork_generation = fork_generation();
	open_here.count = 0;
	open_here.in_callback = false;
}

void pool_gate_set_callback(bool is_in_callback)
{
	enter_fork();
	open_here.in_callback = is_in_callback;
}

bool pool_gate_is_in_callback(void)
{
	return open_here.in_callback && fork_is_in(open_here.fork_generation);
}

ls_status pool_gate_begin(struct pool_gate *gate, struct waiter *waiter, uint64_t deadline_ns)
{
	while (atomic_fetch_add(&gate->state, 1) & GATE_GIVING) {
		/* Another thread that wanted to begin a give has seen this launch for a moment. */
		atomic_fetch_sub(&gate->state, 1);
		pool_gate_tell(gate);
		ls_status status = await_give(gate, waiter, deadline_ns);
		if (status != LS_OK)
			return status;
	}
	enter_fork();
	open_here.count++;
	return LS_OK;
}

void pool_gate_end(struct pool_gate *gate)
{
	open_here.count--;
	atomic_fetch_sub(&gate->state, 1);
	pool_gate_tell(gate);
}

bool pool_gate_is_open_here(void)
{
	return open_here.count > 0 && fork_is_in(open_here.fork_generation);
}

/* ---- gives ---- */

static void end_giving(struct pool_gate *gate)
{
	atomic_fetch_sub(&gate->state, GATE_GIVING);
	pool_gate_tell(gate);
}

static bool begin_giving(struct pool_gate *gate)
{
	uint64_t none = 0;
	/* The first look spares the waiting threads, which end_giving would wake for nothing. */
	if (any_in_flight(gate) || !atomic_compare_exchange_strong(&gate->state, &none, GATE_GIVING))
		return false;
	if (!any_in_flight(gate))
		return true;
	end_giving(gate);
	return false;
}

static struct pool_due *take_first_due(struct pool_gate *gate)
{
	lock_gate_acquire(&gate->lock);
	struct pool_due *due = gate->first;
	if (due)
		gate->first = due->next;
	if (!gate->first)
		gate->last = NULL;
	lock_gate_release(&gate->lock);
	return due;
}

static void give_now(struct waiter *waiter, struct pool_due *due)
{
	struct driver *driver = due->driver;
	wait_foreign_call_begin(waiter, driver->ops->give_call);
	ls_status status = driver->ops->give(driver, &due->segment);
	wait_foreign_call_end(waiter);
	due->given(due, status);
}

static bool has_due(struct pool_gate *gate)
{
	lock_gate_acquire(&gate->lock);
	bool due = gate->first != NULL;
	lock_gate_release(&gate->lock);
	return due;
}

bool pool_gate_give_due(struct pool_gate *gate, struct waiter *waiter)
{
	bool any = false;
	while (has_due(gate) && begin_giving(gate)) {
		struct pool_due *due = take_first_due(gate);
		if (due)
			give_now(waiter, due);
		any |= due != NULL;
		end_giving(gate);
	}
	return any;
}

void pool_gate_give(struct pool_gate *gate, struct waiter *waiter, struct pool_due *due)
{
	if (!due->driver->ops->give_waits) {
		give_now(waiter, due);
		pool_gate_tell(gate);
		return;
	}
	due->next = NULL;
	lock_gate_acquire(&gate->lock);
	if (gate->last)
		gate->last->next = due;
	else
		gate->first = due;
	gate->last = due;
	lock_gate_release(&gate->lock);
	if (pool_gate_is_in_callback())
		pool_gate_tell(gate); /* a thread that waits may give it */
	else if (!pool_gate_is_open_here())
		pool_gate_give_due(gate, waiter);
}

void pool_gate_visit(struct pool_gate *gate, const void *owner,
		     void (*visit)(void *data, const struct pool_due *due), void *data)
{
	lock_gate_acquire(&gate->lock);
	for (const struct pool_due *due = gate->first; due; due = due->next)
		if (due->owner == owner)
			visit(data, due);
	lock_gate_release(&gate->lock);
}

struct pool_due *pool_gate_take_back(struct pool_gate *gate, const void *owner, size_t bytes,
				     size_t most)
{
	struct pool_due *found = NULL, *before = NULL, *last = NULL;
	lock_gate_acquire(&gate->lock);
	for (struct pool_due *due = gate->first; due; last = due, due = due->next) {
		size_t has = due->segment.bytes;
		if (due->owner != owner || has < bytes || has > most ||
		    (found && found->segment.bytes <= has))
			continue;
		found = due;
		before = last;
	}
	if (found) {
		*(before ? &before->next : &gate->first) = found->next;
		if (gate->last == found)
			gate->last = before;
	}
	lock_gate_release(&gate->lock);
	return found;
}
