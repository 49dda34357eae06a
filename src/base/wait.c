/* SPDX-License-Identifier: BSD-3-Clause
 * The wait for words. Every loop here is bounded, or looks at the caller's condition, the group's
 * failure, the peers and the deadline, so none can hang. First a wait spins or yields, unseen; then
 * it publishes itself and sleeps by the protocol in wait.h. */
#include "base/wait.h"

#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/own_fd.h"
#include "base/wait_private.h"
#include "base/wait_slot.h"

/* A wait for ranks of this host looks at the link once in so many rounds. */
enum { LINK_RARELY = 8 };

bool wait_satisfied(const struct wait_call *call)
{
	for (int i = 0; i < call->count; i++) {
		bool there = wait_word_is_there(&call->words[i]);
		if (there == call->any)
			return there;
	}
	return !call->any;
}

/* LS_OK while the peer is there. `dead` is read first: a peer that left and then ended has left. */
static ls_status peer_state(const struct waiter *waiter, const struct wait_word *word)
{
	int peer = word->edge.peer;
	if (peer < 0 || peer >= waiter->peer_count)
		return LS_OK;
	const struct wait_peer *state = &(word->peers ? word->peers : waiter->peers)[peer];
	bool dead = wait_peer_is_dead(state);
	bool left = wait_peer_has_left(state);
	return left ? LS_PEER_LEFT : dead ? LS_PEER_DIED : LS_OK;
}

/* The bit of a word's alternative. 0: the word suffices alone. */
static uint64_t alternative_bit(const struct wait_edge *edge)
{
	return edge->alternative ? UINT64_C(1) << (edge->alternative - 1) % WAIT_ALTERNATIVE_MAX : 0;
}

/* LS_OK while the peers that are still needed are there; with `any` one suffices. After a peer is
 * found to be gone its word is read once more: a peer that stored it before it left has done its
 * part, even if other peers are still awaited. */
static ls_status missing_peer(const struct waiter *waiter, const struct wait_call *call, int *peer)
{
	ls_status worst = LS_OK;
	uint64_t alternatives = 0, ruled_out = 0;
	for (int i = 0; i < call->count; i++) {
		const struct wait_word *word = &call->words[i];
		if (word->edge.record == WAIT_RECORD_OTHERS || wait_word_is_there(word))
			continue;
		ls_status state = peer_state(waiter, word);
		if (state != LS_OK && wait_word_is_there(word))
			continue;
		uint64_t alternative = call->any ? alternative_bit(&word->edge) : 0;
		if (call->any && state == LS_OK && !alternative) {
			*peer = -1;
			return LS_OK;
		}
		alternatives |= alternative;
		ruled_out |= state == LS_OK ? 0 : alternative;
		if (state == LS_PEER_DIED && worst != LS_PEER_DIED) {
			worst = state;
			*peer = word->edge.peer;
		} else if (state == LS_PEER_LEFT && worst == LS_OK) {
			worst = state;
			*peer = word->edge.peer;
		}
	}
	if (alternatives & ~ruled_out) {
		*peer = -1;
		return LS_OK;
	}
	return worst;
}

/* Whether the wait has ended, apart from its time limit, and with which status. The condition is
 * tested once more at the end: a peer that stored the word and then failed, left or died has done
 * its part. */
bool wait_is_over(const struct waiter *waiter, const struct wait_call *call, ls_status *status,
		  int *peer)
{
	*peer = -1;
	*status = LS_OK;
	if (wait_satisfied(call))
		return true;
	if (waiter->cause &&
	    wait_has_failed(atomic_load_explicit(waiter->cause, memory_order_seq_cst)))
		*status = LS_ABORTED;
	else
		*status = missing_peer(waiter, call, peer);
	if (*status == LS_OK)
		return false;
	if (wait_satisfied(call)) {
		*status = LS_OK;
		*peer = -1;
	}
	return true;
}

bool wait_briefly(const struct waiter *waiter, const struct wait_call *call)
{
	bool spins = !waiter->yield && waiter->spin_ns > 0;
	for (unsigned i = 1; !wait_satisfied(call); i++) {
		if (!spins || i == WAIT_SPIN_BATCH)
			return false;
		wait_relax();
	}
	return true;
}

bool wait_word_poll(const struct waiter *waiter, const _Atomic uint64_t *word, uint64_t value)
{
	enum { YIELDS = 2 }; /* nobody sees meanwhile what the thread waits for */
	unsigned polls = waiter->yield ? YIELDS : WAIT_SPIN_BATCH - 1;
	for (unsigned i = 0; i < polls && waiter->spin_ns > 0; i++) {
		if (waiter->yield)
			sched_yield();
		else
			wait_relax();
		if ((int64_t)(atomic_load_explicit(word, memory_order_acquire) - value) >= 0)
			return true;
	}
	return false;
}

/* Whether a word comes through the link. If not, its writer needs the processor more than the link
 * does, so the link is looked at only now and then. */
static bool awaits_link(const struct wait_call *call)
{
	bool awaits = false;
	for (int i = 0; i < call->count && !awaits; i++)
		awaits = call->words[i].edge.segment == WAIT_SEGMENT_MIRROR;
	return awaits;
}

/* Spins or yields for spin_ns; true if that was enough. The clock is first read after a batch, so a
 * wait that ends at once costs only a few loads. *since_ns: about when the wait began. */
static bool spin_for_words(const struct waiter *waiter, const struct wait_call *call,
			   uint64_t *since_ns, ls_status *status, int *peer)
{
	bool gives_way = waiter->yield, remote = waiter->pump && awaits_link(call);
	*since_ns = 0;
	*peer = -1;
	for (unsigned i = 1;; i++) {
		if (wait_satisfied(call)) {
			*status = LS_OK;
			return true;
		}
		/* A yield can take as long as other threads' time slices, so each one is timed:
		 * nobody sees what a thread waits for until it stops yielding. */
		if (gives_way || i % WAIT_SPIN_BATCH == 0 || waiter->spin_ns == 0) {
			if (wait_is_over(waiter, call, status, peer))
				return true;
			uint64_t now = clock_now_ns();
			if (*since_ns == 0)
				*since_ns = now;
			if (now - *since_ns >= waiter->spin_ns || now >= call->deadline_ns)
				return false;
			gives_way = waiter->yield || now - *since_ns >= WAIT_SPIN_ALONE_NS;
		}
		if (remote || i % LINK_RARELY == 0)
			wait_pump_advance(waiter->pump);
		if (gives_way)
			sched_yield();
		else
			wait_relax();
	}
}

/* The write may fail: if the eventfd is full the watch is awake. Without an eventfd there is no
 * watch. */
void wait_wake_watch(struct waiter *waiter)
{
	static const uint64_t one = 1;
	int fd = __atomic_load_n(&waiter->look_fd, __ATOMIC_RELAXED);
	if (fd >= 0 && own_fd_is_event(fd)) {
		ssize_t ignored = write(fd, &one, sizeof one);
		(void)ignored;
	} else if (fd >= 0 && __atomic_exchange_n(&waiter->look_fd, -1, __ATOMIC_RELAXED) >= 0) {
		MESSAGE_SAY(MESSAGE_WAIT_BLIND);
	}
}

uint64_t wait_after(uint64_t ns, uint64_t wait_ns)
{
	return wait_ns == 0 || wait_ns > CLOCK_NEVER - ns ? CLOCK_NEVER : ns + wait_ns;
}

/* A resumed wait asks for a look when it would have done so without the interruption. */
uint64_t wait_next_look(const struct waiter *waiter, const struct wait_call *call, uint64_t now_ns)
{
	uint64_t look_ns = waiter->look_ns;
	uint64_t elapsed_ns =
		call->since_ns && call->since_ns < now_ns ? now_ns - call->since_ns : 0;
	return wait_after(now_ns, look_ns ? look_ns - elapsed_ns % look_ns : 0);
}

/* The waiter's side of the doorbell. The numbers are the steps that doorbell.pml models. */
static ls_status sleep_until_over(struct waiter *waiter, const struct wait_call *call,
				  uint64_t since_ns, int *peer)
{
	struct wait_sleeper sleeper;
	uint64_t look_ns = wait_next_look(waiter, call, since_ns);
	bool interrupted = false;
	ls_status status;
	wait_pump_hand_over(waiter->pump);
	if (waiter->asleep)
		atomic_fetch_add_explicit(waiter->asleep, 1, memory_order_seq_cst);
	wait_bell_enter(&sleeper, waiter->bell); /* 1 */
	for (;;) {
		/* The clock first: then what arrived before the deadline counts. */
		uint64_t now = clock_now_ns();
		wait_bell_add(&sleeper, call, now);
		wait_bell_listen(&sleeper);                    /* 2 */
		if (wait_is_over(waiter, call, &status, peer)) /* 3 */
			break;
		if (interrupted || now >= call->deadline_ns) {
			status = interrupted ? LS_INTERRUPTED : LS_TIMED_OUT;
			break;
		}
		if (now >= look_ns) {
			wait_wake_watch(waiter);
			look_ns = wait_after(now, waiter->look_ns);
		}
		uint64_t until_ns = look_ns < call->deadline_ns ? look_ns : call->deadline_ns;
		if (!wait_bell_sleep(&sleeper, until_ns, &interrupted)) { /* 4 */
			status = LS_SYSTEM;
			break;
		}
	}
	wait_bell_leave(&sleeper);
	if (waiter->asleep)
		atomic_fetch_sub_explicit(waiter->asleep, 1, memory_order_seq_cst);
	return status;
}

/* Returns the words that body->edges has no room for. */
const struct wait_word *wait_fill_body(const struct wait_call *call, uint64_t since_ns,
				       struct wait_slot_body *body)
{
	memset(body, 0, offsetof(struct wait_slot_body, edges));
	body->state = call->foreign ? WAIT_FOREIGN : call->any ? WAIT_ANY_WORD : WAIT_WORDS;
	body->has_own_limit = call->has_own_limit;
	body->group = call->group;
	body->record = call->record;
	body->since_ns = since_ns;
	body->deadline_ns = call->deadline_ns;
	if (call->foreign) {
		wait_name_foreign(body, call->foreign);
		return NULL;
	}
	for (int i = 0; i < call->count && i < WAIT_EDGE_MAX; i++)
		body->edges[body->edge_count++] = call->words[i].edge;
	body->further = call->partial ? UINT32_MAX : (uint32_t)call->count - body->edge_count;
	return call->words + body->edge_count;
}

static void show_call(struct waiter *waiter, const struct wait_call *call, uint64_t since_ns)
{
	struct wait_slot_body body;
	const struct wait_word *further = wait_fill_body(call, since_ns, &body);
	wait_slot_publish(waiter, &body, further);
}

void wait_show(struct waiter *waiter, const struct wait_call *call)
{
	show_call(waiter, call, clock_now_ns());
}

void wait_hide(struct waiter *waiter)
{
	wait_slot_clear(waiter);
}

ls_status wait_words(struct waiter *waiter, const struct wait_call *call, int *peer)
{
	lock_assert_none();
	*peer = -1;
	ls_status status;
	uint64_t since_ns;
	if (spin_for_words(waiter, call, &since_ns, &status, peer))
		return status;
	show_call(waiter, call, call->since_ns ? call->since_ns : since_ns);
	status = sleep_until_over(waiter, call, since_ns, peer);
	if (status != LS_TIMED_OUT || !call->remains_shown)
		wait_slot_clear(waiter);
	return status;
}

bool wait_check(const struct waiter *waiter, const struct wait_call *call, ls_status *status,
		int *peer)
{
	/* The clock first: then what arrived before the deadline counts. */
	bool late = call->deadline_ns != CLOCK_NEVER && clock_now_ns() >= call->deadline_ns;
	if (wait_is_over(waiter, call, status, peer))
		return true;
	*status = LS_TIMED_OUT;
	return late;
}

void wait_join(pthread_t thread)
{
	lock_assert_none();
	int error = pthread_join(thread, NULL);
	if (error)
		MESSAGE_SAY(MESSAGE_WAIT_SYSTEM, "pthread_join", strerror(error));
}
