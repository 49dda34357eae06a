/* SPDX-License-Identifier: BSD-3-Clause
 * The reaction to silent hosts: the agent reports them and tells the ranks of its host, in shared
 * memory; each rank fails its groups that need a host which is silent for too long. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/text.h"
#include "heartbeat/heartbeat_private.h"
#include "world/registry.h"

enum { ALONE_MS = 500 }; /* how much longer a host that hears nobody waits */
enum {
	WHEN_BYTES = 32,
	LIST_BYTES = 256,
	NEXT_BYTES = 160,
	WHY_BYTES = 160,
	NS_IN_TENTH = 100000000
};

/* ---- words ---- */

struct list {
	char text[LIST_BYTES];
	size_t used;
};

/* "ranks 0-3, 8" */
static struct list ranks_of_host(const struct heartbeat *heartbeat, int host)
{
	struct list list = {.used = 0};
	int count = 0, size = heartbeat->world->size;
	for (int q = 0; q < size; q++)
		count += heartbeat->host_of[q] == host;
	text_append(list.text, sizeof list.text, &list.used, "rank%s", count == 1 ? "" : "s");
	const char *before = " ";
	for (int q = 0; q < size; q++) {
		int begin = q;
		if (heartbeat->host_of[q] != host)
			continue;
		while (q + 1 < size && heartbeat->host_of[q + 1] == host)
			q++;
		text_append(list.text, sizeof list.text, &list.used, "%s%d", before, begin);
		if (q > begin)
			text_append(list.text, sizeof list.text, &list.used, "-%d", q);
		before = ", ";
	}
	return list;
}

/* "12:03:04.2", of a moment by CLOCK_MONOTONIC. */
static void write_when(uint64_t then_ns, uint64_t now_ns, char out[WHEN_BYTES])
{
	struct timespec wall = {0};
	struct tm local = {0};
	(void)clock_gettime(CLOCK_REALTIME, &wall);
	uint64_t tenths =
		((uint64_t)wall.tv_sec * 1000000000 + (uint64_t)wall.tv_nsec - (now_ns - then_ns)) /
		NS_IN_TENTH;
	time_t seconds = (time_t)(tenths / 10);
	if (!localtime_r(&seconds, &local) || strftime(out, WHEN_BYTES, "%H:%M:%S", &local) == 0)
		snprintf(out, WHEN_BYTES, "%" PRIu64, tenths / 10);
	size_t used = strlen(out);
	snprintf(out + used, WHEN_BYTES - used, ".%d", (int)(tenths % 10));
}

static double seconds_since(uint64_t then_ns, uint64_t now_ns)
{
	return now_ns > then_ns ? (double)(now_ns - then_ns) / 1e9 : 0;
}

static void write_next(const struct heartbeat *heartbeat, bool concerns, char out[NEXT_BYTES])
{
	if (concerns)
		snprintf(out, NEXT_BYTES,
			 "operations that need its ranks fail after %.1f s "
			 "(LOCKSTEP_UNREACHABLE_MS), unless it is heard before",
			 (double)heartbeat->world->settings.unreachable_ms / 1e3);
	else
		snprintf(out, NEXT_BYTES,
			 "groups with ranks on both fail after %.1f s "
			 "(LOCKSTEP_UNREACHABLE_MS)",
			 (double)heartbeat->world->settings.unreachable_ms / 1e3);
}

/* ---- what the agent says ---- */

static void say_silent(const struct heartbeat *heartbeat, const struct detector_verdict *verdict)
{
	uint64_t now_ns = clock_now_ns();
	struct list ranks = ranks_of_host(heartbeat, verdict->from);
	char when[WHEN_BYTES], next[NEXT_BYTES];
	write_when(verdict->since_ns, now_ns, when);
	write_next(heartbeat, true, next);
	MESSAGE_SAY(MESSAGE_HOST_SILENT, heartbeat->names[verdict->from], ranks.text, when,
		    seconds_since(verdict->since_ns, now_ns), next);
}

static void say_link(const struct heartbeat *heartbeat, const struct detector_verdict *verdict)
{
	uint64_t now_ns = clock_now_ns();
	const char *from = heartbeat->names[verdict->from], *to = heartbeat->names[verdict->to];
	struct list ranks = ranks_of_host(heartbeat, verdict->from);
	struct list others = ranks_of_host(heartbeat, verdict->to);
	char when[WHEN_BYTES], next[NEXT_BYTES], proof[LIST_BYTES];
	write_when(verdict->since_ns, now_ns, when);
	write_next(heartbeat, false, next);
	if (verdict->witness >= 0)
		snprintf(proof, sizeof proof, "host %s hears both",
			 heartbeat->names[verdict->witness]);
	else if (verdict->from == heartbeat->host)
		snprintf(proof, sizeof proof, "host %s is heard here, and says so", to);
	else
		snprintf(proof, sizeof proof, "both are heard here, and host %s says so", to);
	MESSAGE_SAY(MESSAGE_HOST_LINK, from, ranks.text, to, others.text, when,
		    seconds_since(verdict->since_ns, now_ns), proof, next);
}

/* Why the host was silent: a host that sends less than half of its heartbeats has not run. */
static void write_why(const struct detector_verdict *verdict, char out[WHY_BYTES])
{
	uint64_t due = verdict->unheard_ms / DETECTOR_BEAT_MS, sent = verdict->unheard_beats;
	*out = 0;
	if (due > 0 && sent < due / 2)
		snprintf(out, WHY_BYTES,
			 "; of %" PRIu64 " heartbeats that were due it sent %" PRIu64
			 ": it was stopped, or short of processors",
			 due, sent);
	else if (due > 0)
		snprintf(out, WHY_BYTES,
			 "; it sent %" PRIu64 " heartbeats meanwhile, which the network lost", sent);
}

static void say_heard(const struct heartbeat *heartbeat, const struct detector_verdict *verdict)
{
	int to = verdict->to < 0 ? heartbeat->host : verdict->to;
	struct list ranks = ranks_of_host(heartbeat, verdict->from),
		    others = ranks_of_host(heartbeat, to);
	char when[WHEN_BYTES], why[WHY_BYTES];
	write_when(verdict->since_ns, clock_now_ns(), when);
	write_why(verdict, why);
	MESSAGE_SAY(MESSAGE_HOST_HEARD, heartbeat->names[to], others.text,
		    heartbeat->names[verdict->from], ranks.text, when, why);
}

/* ---- what the agent tells the ranks ---- */

static void tell_ranks(struct heartbeat *heartbeat, int host)
{
	struct transport_remote_host *remote = &heartbeat->shared->hosts[host];
	struct detector_verdict verdict;
	if (!detector_is_unheard(&heartbeat->detector, host, &verdict)) {
		atomic_store(&remote->unheard_ns, 0);
		return;
	}
	atomic_store(&remote->how, verdict.kind == DETECTOR_SILENT ? HEARTBEAT_SILENT
				   : verdict.from == host          ? HEARTBEAT_LINK_FROM
								   : HEARTBEAT_LINK_TO);
	atomic_store(&remote->listened_ns, verdict.listened_ns);
	atomic_store(&remote->unheard_ns, verdict.since_ns);
}

static void say_verdict(const struct heartbeat *heartbeat, const struct detector_verdict *verdict)
{
	switch (verdict->kind) {
	case DETECTOR_SILENT:
		say_silent(heartbeat, verdict);
		return;
	case DETECTOR_LINK:
		say_link(heartbeat, verdict);
		return;
	case DETECTOR_HEARD:
		say_heard(heartbeat, verdict);
		return;
	case DETECTOR_NEVER:
		MESSAGE_SAY(MESSAGE_HOST_NEVER, heartbeat->names[verdict->from],
			    ranks_of_host(heartbeat, verdict->from).text);
	}
}

bool heartbeat_tell(struct heartbeat *heartbeat)
{
	struct detector_verdict verdict;
	if (atomic_load(&heartbeat->shared->lease) != heartbeat->lease)
		return false;
	for (int h = 0; h < heartbeat->hosts; h++)
		if (h != heartbeat->host)
			tell_ranks(heartbeat, h);
	while (detector_next(&heartbeat->detector, &verdict))
		say_verdict(heartbeat, &verdict);
	return true;
}

/* ---- what each rank does ---- */

bool heartbeat_has_ended(const struct heartbeat *heartbeat, int host)
{
	for (int q = 0; q < heartbeat->world->size; q++)
		if (heartbeat->host_of[q] == host && !atomic_load(&heartbeat->world->dead[q]))
			return false;
	return true;
}

static void write_reason(const struct heartbeat *heartbeat, int host, uint64_t now_ns,
			 struct hosts_failure *out)
{
	struct transport_remote_host *remote = &heartbeat->shared->hosts[host];
	uint64_t since_ns = atomic_load(&remote->unheard_ns), how = atomic_load(&remote->how);
	struct list ranks = ranks_of_host(heartbeat, host);
	const char *name = heartbeat->names[host], *here = heartbeat->names[heartbeat->host];
	char when[WHEN_BYTES];
	write_when(since_ns, now_ns, when);
	double seconds = seconds_since(since_ns, now_ns);
	if (how == HEARTBEAT_LINK_FROM)
		snprintf(out->text, sizeof out->text,
			 "host %s (%s) cannot be reached: host %s has heard nothing of it since "
			 "%s, for %.1f s, and another host hears both: the network between them is "
			 "broken (proved). Its ranks are not proved dead",
			 name, ranks.text, here, when, seconds);
	else if (how == HEARTBEAT_LINK_TO)
		snprintf(out->text, sizeof out->text,
			 "host %s (%s) cannot be reached: it says that it has heard nothing of "
			 "host %s since %s, for %.1f s: the network from here to there is broken "
			 "(proved). Its ranks live",
			 name, ranks.text, here, when, seconds);
	else
		snprintf(out->text, sizeof out->text,
			 "host %s (%s) has been silent since %s, for %.1f s: it has died, is frozen or is "
			 "cut off from host %s. Its ranks are not proved dead",
			 name, ranks.text, when, seconds, here);
	text_clean(out->text, true);
}

/* The groups of this rank that need one of the ranks. */
static int find_groups(struct heartbeat *heartbeat, const struct ranks *ranks,
		       uint32_t ids[TRANSPORT_AREAS])
{
	struct ls_group *groups[TRANSPORT_AREAS];
	int found = 0, count = world_hold_all(heartbeat->world, groups);
	for (int i = 0; i < count; i++) {
		bool needs = false;
		for (int q = 0; q < groups[i]->size; q++)
			needs |= ranks_have(ranks, groups[i]->team.members[q].world);
		if (needs && failure_status(groups[i]) == LS_OK)
			ids[found++] = groups[i]->id;
		world_release(groups[i]);
	}
	return found;
}

/* The groups that need these ranks of the host fail first, with LS_UNREACHABLE, so that no wait
 * ends with LS_PEER_DIED. */
static void give_up(struct heartbeat *heartbeat, int host, const struct ranks *ranks,
		    uint64_t now_ns)
{
	struct world *world = heartbeat->world;
	struct hosts_failure failure = {.status = LS_UNREACHABLE, .culprit = ranks_first(ranks)};
	uint32_t ids[TRANSPORT_AREAS];
	write_reason(heartbeat, host, now_ns, &failure);
	if (heartbeat->lease)
		message_report("LS-VERDICT", failure.text);
	int count = find_groups(heartbeat, ranks, ids);
	for (int i = 0; i < count; i += TRANSPORT_REPORT_GROUPS) {
		int some = count - i < TRANSPORT_REPORT_GROUPS ? count - i : TRANSPORT_REPORT_GROUPS;
		memset(failure.groups, 0, sizeof failure.groups);
		memcpy(failure.groups, &ids[i], (size_t)some * sizeof ids[0]);
		failure.group = ids[i];
		failure_raise_told(world, &failure);
	}
	RANKS_EACH (q, ranks) {
		failure_mark_dead(world, q);
		hosts_cut(&world->transport, q);
	}
}

/* The ranks of the host that have not ended or left; with `lost`, those that are lost. */
static struct ranks remaining(const struct heartbeat *heartbeat, int host, bool lost)
{
	const struct world *world = heartbeat->world;
	const struct transport_segment *segment = world->transport.segment;
	struct ranks ranks = {{0}};
	for (int q = 0; q < world->size; q++)
		if (heartbeat->host_of[q] == host && !atomic_load(&world->dead[q]) &&
		    (!lost || atomic_load(&transport_traffic(segment, q)->lost)))
			ranks_add(&ranks, q);
	return ranks;
}

/* A rank whose connection is lost behind a link that is proved to be broken may have ended because
 * of that link, as its groups have failed there. So the groups here fail for the link, too, and not
 * because the rank has died. If the host has been heard again meanwhile, the rank has ended. */
static void act_on_lost(struct heartbeat *heartbeat, int host, bool is_broken, uint64_t now_ns)
{
	struct world *world = heartbeat->world;
	bool has_changed = false;
	for (int q = 0; q < world->size; q++) {
		if (heartbeat->host_of[q] != host ||
		    atomic_load(&world->behind_broken_link[q]) == is_broken)
			continue;
		atomic_store(&world->behind_broken_link[q], is_broken);
		has_changed = true;
	}
	if (!is_broken && !has_changed)
		return;
	struct ranks lost = remaining(heartbeat, host, true);
	if (is_broken && ranks_any(&lost))
		give_up(heartbeat, host, &lost, now_ns);
	else
		RANKS_EACH (q, &lost)
			failure_mark_dead(world, q);
}

/* Whether this host hears nobody, so that it is likely to be deaf or cut off itself. If the other
 * hosts hear it, they can prove that, and its own verdicts about them are wrong. */
static bool hears_nobody(const struct heartbeat *heartbeat)
{
	for (int h = 0; h < heartbeat->hosts; h++)
		if (h != heartbeat->host && !atomic_load(&heartbeat->shared->hosts[h].unheard_ns))
			return false;
	return heartbeat->hosts > 2;
}

void heartbeat_act(struct heartbeat *heartbeat, uint64_t now_ns)
{
	uint64_t limit_ns = heartbeat->world->settings.unreachable_ms * 1000000;
	if (hears_nobody(heartbeat))
		limit_ns += ALONE_MS * UINT64_C(1000000);
	for (int h = 0; h < heartbeat->hosts; h++) {
		const struct transport_remote_host *remote = &heartbeat->shared->hosts[h];
		uint64_t unheard_ns = atomic_load(&remote->unheard_ns);
		act_on_lost(heartbeat, h,
			    unheard_ns && atomic_load(&remote->how) != HEARTBEAT_SILENT, now_ns);
		if (!unheard_ns || heartbeat->acted >> h & 1 || now_ns < unheard_ns ||
		    atomic_load(&remote->listened_ns) < limit_ns ||
		    heartbeat_has_ended(heartbeat, h))
			continue;
		heartbeat->acted |= UINT64_C(1) << h;
		struct ranks ranks = remaining(heartbeat, h, false);
		give_up(heartbeat, h, &ranks, now_ns);
	}
}

void heartbeat_act_no_more(struct heartbeat *heartbeat)
{
	for (int h = 0; h < heartbeat->hosts; h++)
		act_on_lost(heartbeat, h, false, 0);
}
