/* SPDX-License-Identifier: BSD-3-Clause
 * One thread at a time makes progress on the link. A thread that publishes marks what may be new,
 * and makes progress if no other thread does. The thread that makes progress sends what is marked
 * (relay.c), and lets the link deliver what has arrived (mirror.c). Model: test/model/pump.pml. */
#include "hosts/hosts_private.h"

/* hosts.progress. HELD: a thread makes progress on the link. AGAIN: another thread has left
 * something to that thread, which checks once more before it stops. PUSH, set with AGAIN: that
 * thread also pushes what the link keeps back, because nobody looks again afterwards; with
 * PUSH_LONG: what it may keep long, too. CALLED, set with AGAIN: the pump sleeps until that thread
 * has stopped, which wakes it. */
enum { HELD = 1, AGAIN = 2, PUSH = 4, CALLED = 8, PUSH_LONG = 16 };

static bool is_any_marked(const struct hosts *hosts)
{
	uint64_t any = 0;
	for (unsigned w = 0; w < HOSTS_AREA_WORDS; w++)
		any |= atomic_load(&hosts->areas[w]);
	return any != 0;
}

/* Pushes to the peers whose bits are set in `peers`, word w of a set of ranks. */
static void push_to(struct hosts *hosts, int w, uint64_t peers)
{
	if (peers) {
		atomic_fetch_and(&hosts->kept_back[w], ~peers);
		atomic_fetch_and(&hosts->kept_long[w], ~peers);
	}
	for (; peers; peers &= peers - 1) {
		int peer = 64 * w + __builtin_ctzll(peers);
		hosts->link->ops->push(hosts->link, peer);
		atomic_store(&transport_traffic(hosts->transport->segment, peer)->kept_back, 0);
	}
}

static void push_due(struct hosts *hosts)
{
	for (int w = 0; w < RANKS_WORLD_WORDS; w++) {
		push_to(hosts, w, hosts->due[w]);
		hosts->due[w] = 0;
	}
}

static bool keeps_any(const struct hosts *hosts, bool long_ones)
{
	uint64_t any = 0;
	for (int w = 0; w < RANKS_WORLD_WORDS; w++) {
		any |= atomic_load(&hosts->kept_back[w]);
		any |= long_ones ? atomic_load(&hosts->kept_long[w]) : 0;
	}
	return any != 0;
}

static void push_all(struct hosts *hosts, bool long_ones)
{
	for (int w = 0; w < RANKS_WORLD_WORDS; w++) {
		push_to(hosts, w, atomic_load(&hosts->kept_back[w]));
		push_to(hosts, w, long_ones ? atomic_load(&hosts->kept_long[w]) : 0);
	}
}

static void relay_all(struct hosts *hosts)
{
	struct transport *transport = hosts->transport;
	uint64_t marked = atomic_load(&transport->segment->marked);
	for (int q = 0; q < transport->size; q++) {
		struct hosts_mirror *mirror = transport->peers[q].mirror;
		if (mirror && atomic_load_explicit(&mirror->cut, memory_order_relaxed) &&
		    atomic_exchange(&mirror->cut, 0)) {
			hosts->link->ops->cut(hosts->link, q);
			hosts_parting_lost(hosts, q); /* the link does not say so */
		}
	}
	for (unsigned w = 0; w < HOSTS_AREA_WORDS; w++) {
		if (!atomic_load_explicit(&hosts->areas[w], memory_order_relaxed))
			continue;
		for (uint64_t left = atomic_exchange(&hosts->areas[w], 0); left; left &= left - 1)
			hosts_relay_team(hosts, w * 64 + (unsigned)__builtin_ctzll(left));
	}
	hosts_parting_send(hosts);
	push_due(hosts);
	if (atomic_load_explicit(&transport->segment->served, memory_order_relaxed) != marked &&
	    !is_any_marked(hosts))
		atomic_store(&transport->segment->served, marked);
}

/* Serves what other threads have left to this one. */
static void serve_others(struct hosts *hosts)
{
	uint32_t asked = atomic_fetch_and(&hosts->progress, ~(uint32_t)AGAIN);
	relay_all(hosts);
	if (asked & PUSH)
		push_all(hosts, asked & PUSH_LONG);
}

/* False: this thread has to serve others first. */
static bool stop_progress(struct hosts *hosts)
{
	uint32_t held = atomic_load(&hosts->progress);
	if (held & AGAIN || !atomic_compare_exchange_strong(&hosts->progress, &held, 0))
		return false;
	if (held & CALLED)
		hosts_pump_wake(&hosts->pump);
	return true;
}

/* `asks`: AGAIN, or AGAIN | PUSH. False: there was nothing to do; or another thread makes progress,
 * and will check once more before it stops. */
static bool make_progress(struct hosts *hosts, uint32_t asks, bool advances)
{
	bool did = false;
	if (atomic_fetch_or(&hosts->progress, HELD | asks) & HELD)
		return false;
	do {
		if (advances && hosts->link->ops->advance(hosts->link))
			did = true;
		serve_others(hosts);
	} while (!stop_progress(hosts));
	return did;
}

/* Call after progress by any thread but the pump: this thread may have served others that do not
 * look again. */
static void push_or_leave(struct hosts *hosts)
{
	bool is_alone = !atomic_load(&hosts->pump.runs);
	if (keeps_any(hosts, is_alone) && !hosts_pump_pushes(&hosts->pump))
		make_progress(hosts, AGAIN | PUSH | (is_alone ? PUSH_LONG : 0), false);
}

/* Polls: only looks, and making and closing a group come here. The other thread never blocks, so
 * this mostly lasts some microseconds, less than to be woken by it. */
void hosts_progress_begin(struct hosts *hosts)
{
	while (atomic_fetch_or(&hosts->progress, HELD) & HELD)
		wait_moment(&hosts->progress);
}

void hosts_progress_end(struct hosts *hosts)
{
	push_due(hosts);
	while (!stop_progress(hosts))
		serve_others(hosts);
	push_or_leave(hosts);
}

void hosts_notify(const struct transport_team *team, int rank)
{
	struct hosts *hosts = team->transport->hosts;
	hosts_mark(hosts, team->area, team->members[rank].world);
	make_progress(hosts, AGAIN, false);
	push_or_leave(hosts);
}

void hosts_notify_remote(const struct transport_team *team)
{
	struct hosts *hosts = team->transport->hosts;
	for (int q = 0; q < team->size; q++)
		if (!transport_is_here(team, q))
			hosts_mark(hosts, team->area, team->members[q].world);
	make_progress(hosts, AGAIN, false);
	push_or_leave(hosts);
}

bool hosts_advance_without_push(struct transport *transport)
{
	return make_progress(transport->hosts, AGAIN, true);
}

bool hosts_advance(struct transport *transport)
{
	if (!transport->hosts)
		return false;
	bool did = hosts_advance_without_push(transport);
	push_or_leave(transport->hosts);
	return did;
}

void hosts_push(struct transport *transport)
{
	make_progress(transport->hosts, AGAIN | PUSH | PUSH_LONG, false);
}

void hosts_push_short(struct hosts *hosts)
{
	make_progress(hosts, AGAIN | PUSH, false);
}

/* True: this thread makes progress from now on. False: another one does, and has been told. */
static bool hold_or_call(struct hosts *hosts)
{
	uint32_t held = atomic_load(&hosts->progress), then;
	do
		then = held | AGAIN | (held & HELD ? CALLED : HELD);
	while (!atomic_compare_exchange_weak(&hosts->progress, &held, then));
	return !(held & HELD);
}

enum hosts_armed hosts_arm(struct transport *transport, int *fd)
{
	struct hosts *hosts = transport->hosts;
	if (!hold_or_call(hosts))
		return HOSTS_IN_USE;
	serve_others(hosts);
	push_all(hosts, false);
	bool armed = hosts->link->ops->arm(hosts->link, fd);
	/* At once: nobody repeats what another thread wants pushed. */
	while (!stop_progress(hosts)) {
		serve_others(hosts);
		armed = false;
	}
	return armed ? HOSTS_ARMED : HOSTS_NOT_ARMED;
}

void hosts_cut(struct transport *transport, int rank)
{
	atomic_store(&transport->peers[rank].mirror->cut, 1);
	make_progress(transport->hosts, AGAIN, false);
	push_or_leave(transport->hosts);
}
