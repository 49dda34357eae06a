/* SPDX-License-Identifier: BSD-3-Clause
 * Snapshots of several hosts, made one. What makes them a proof: diagnose.h. */
#include "diagnose/facts.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* ---- two looks of one host ---- */

static const struct diagnose_thread *find_slot(const struct diagnose_rank *rank, uint32_t slot)
{
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (rank->threads[i].slot == slot)
			return &rank->threads[i];
	return NULL;
}

void diagnose_confirm(struct diagnose_snapshot *second, const struct diagnose_snapshot *first,
		      const struct ranks *here)
{
	RANKS_EACH (r, here) {
		const struct diagnose_rank *before = &first->ranks[r];
		struct diagnose_rank *rank = &second->ranks[r];
		rank->incomplete |= before->incomplete || before->thread_count != rank->thread_count;
		rank->awake |= before->awake || !rank->sleep || rank->sleep != before->sleep;
		rank->idle |= before->idle;
		rank->calls_back |= before->calls_back;
		for (uint32_t i = 0; i < rank->thread_count; i++) {
			struct diagnose_thread *thread = &rank->threads[i];
			const struct diagnose_thread *same = find_slot(before, thread->slot);
			if (!same || !same->stable || same->epoch != thread->epoch)
				thread->stable = thread->asleep = false;
			else
				thread->asleep = thread->asleep && same->asleep;
		}
	}
}

/* ---- the block ---- */

#define PACK_MAGIC UINT64_C(0x314b4341504c) /* "LPACK1" */

/* Followed by the sets of groups that are used, then for each rank its head, groups, threads,
 * records, and its traffic. All hosts of a job have the same version of Lockstep. */
struct pack {
	uint64_t magic, job, now_ns;
	int32_t size;
	uint32_t rank_count, set_count, zero;
};
enum { RANK_HEAD = offsetof(struct diagnose_rank, groups) };

static size_t rank_bytes(const struct diagnose_rank *rank)
{
	return RANK_HEAD + rank->group_count * sizeof rank->groups[0] +
	       rank->thread_count * sizeof rank->threads[0] +
	       rank->record_count * sizeof rank->records[0] + sizeof(struct diagnose_traffic);
}

static unsigned char *put_bytes(unsigned char *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
	return to + bytes;
}

static unsigned char *put_rank(unsigned char *to, const struct diagnose_rank *rank,
			       const struct diagnose_traffic *traffic)
{
	to = put_bytes(to, rank, RANK_HEAD);
	to = put_bytes(to, rank->groups, rank->group_count * sizeof rank->groups[0]);
	to = put_bytes(to, rank->threads, rank->thread_count * sizeof rank->threads[0]);
	to = put_bytes(to, rank->records, rank->record_count * sizeof rank->records[0]);
	return put_bytes(to, traffic, sizeof *traffic);
}

void *diagnose_pack(const struct diagnose_snapshot *snapshot, const struct ranks *here,
		    const struct diagnose_traffic *traffic, size_t *bytes)
{
	const struct diagnose_set *sets = diagnose_sets(snapshot);
	struct pack pack = {.magic = PACK_MAGIC,
			    .job = snapshot->job,
			    .now_ns = snapshot->now_ns,
			    .size = snapshot->size,
			    .rank_count = (uint32_t)ranks_count(here)};
	*bytes = sizeof pack;
	for (int i = 0; i < diagnose_set_max(snapshot->size); i++)
		pack.set_count += sets[i].group != 0;
	*bytes += pack.set_count * sizeof *sets;
	RANKS_EACH (r, here)
		*bytes += rank_bytes(&snapshot->ranks[r]);
	unsigned char *block = malloc(*bytes), *to = block;
	if (!block)
		return NULL;
	to = put_bytes(to, &pack, sizeof pack);
	for (int i = 0; i < diagnose_set_max(snapshot->size); i++)
		if (sets[i].group)
			to = put_bytes(to, &sets[i], sizeof sets[i]);
	RANKS_EACH (r, here)
		to = put_rank(to, &snapshot->ranks[r], &traffic[r]);
	return block;
}

/* What is left of a block. */
struct reader {
	const unsigned char *at;
	size_t left;
};

static bool get_bytes(struct reader *reader, void *out, size_t bytes)
{
	if (reader->left < bytes)
		return false;
	memcpy(out, reader->at, bytes);
	reader->at += bytes;
	reader->left -= bytes;
	return true;
}

static void shift_time(uint64_t *ns, uint64_t by)
{
	if (*ns && *ns != CLOCK_NEVER)
		*ns += by;
}

static void shift_rank(struct diagnose_rank *rank, uint64_t by)
{
	shift_time(&rank->start_ns, by);
	shift_time(&rank->left_ns, by);
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		shift_time(&rank->threads[i].wait.since_ns, by);
		shift_time(&rank->threads[i].wait.deadline_ns, by);
	}
	for (uint32_t i = 0; i < rank->record_count; i++) {
		shift_time(&rank->records[i].begin_ns, by);
		shift_time(&rank->records[i].end_ns, by);
	}
}

/* Reads one rank to its place. */
static bool get_rank(struct reader *reader, struct diagnose_snapshot *snapshot,
		     const struct ranks *here, uint64_t by, struct diagnose_traffic *traffic)
{
	struct diagnose_rank head;
	if (!get_bytes(reader, &head, RANK_HEAD) || head.rank < 0 || head.rank >= snapshot->size ||
	    ranks_have(here, head.rank) || snapshot->ranks[head.rank].known ||
	    head.group_count > DIAGNOSE_GROUP_MAX || head.thread_count > WAIT_SLOT_MAX ||
	    head.record_count > DIAGNOSE_RECORD_MAX)
		return false;
	struct diagnose_rank *rank = &snapshot->ranks[head.rank];
	memcpy(rank, &head, RANK_HEAD);
	if (!get_bytes(reader, rank->groups, rank->group_count * sizeof rank->groups[0]) ||
	    !get_bytes(reader, rank->threads, rank->thread_count * sizeof rank->threads[0]) ||
	    !get_bytes(reader, rank->records, rank->record_count * sizeof rank->records[0]) ||
	    !get_bytes(reader, &traffic[head.rank], sizeof traffic[0]))
		return false;
	shift_rank(rank, by);
	return true;
}

bool diagnose_unpack(struct diagnose_snapshot *snapshot, const struct ranks *here,
		     const void *block, size_t bytes, struct diagnose_traffic *traffic)
{
	struct reader reader = {.at = block, .left = bytes};
	struct pack pack;
	if (!get_bytes(&reader, &pack, sizeof pack) || pack.magic != PACK_MAGIC ||
	    pack.size != snapshot->size || pack.job != snapshot->job)
		return false;
	if (!snapshot->now_ns)
		snapshot->now_ns = pack.now_ns;
	for (uint32_t i = 0; i < pack.set_count; i++) {
		struct diagnose_set set;
		struct ranks all = ranks_below(snapshot->size);
		if (!get_bytes(&reader, &set, sizeof set) || !ranks_are_in(&set.members, &all))
			return false;
		if (set.group)
			diagnose_add_members(snapshot, set.group, &set.members);
	}
	for (uint32_t i = 0; i < pack.rank_count; i++)
		if (!get_rank(&reader, snapshot, here, snapshot->now_ns - pack.now_ns, traffic))
			return false;
	return reader.left == 0 &&
	       diagnose_snapshot_is_valid(snapshot, diagnose_snapshot_bytes(snapshot->size));
}

/* ---- what is under way ---- */

/* Whether a word of rank w that rank r may wait for is under way. What goes the other way changes
 * nothing for r: a rank that is stopped takes nothing, and still is what others wait for. */
static bool has_words(const struct diagnose_traffic *traffic, int w, int r)
{
	return !traffic[w].is_served || traffic[w].posted[r] != traffic[r].arrived[w];
}

/* Whether rank w is stopped, and keeps back all that has not arrived at rank r: none of it comes
 * before w goes on. */
static bool is_kept_by_stopped(const struct diagnose_snapshot *snapshot,
			       const struct diagnose_traffic *traffic, int w, int r)
{
	return snapshot->ranks[w].process == DIAGNOSE_PROCESS_STOPPED && traffic[w].is_served &&
	       traffic[w].posted[r] - traffic[w].kept_back[r] == traffic[r].arrived[w];
}

/* Whether a payload of rank w is under way, whose end both ranks learn by themselves. */
static bool has_payload(const struct diagnose_traffic *traffic, int w, int r)
{
	return traffic[r].begun[w] != traffic[r].fetched[w] || traffic[w].ahead[r] != 0 ||
	       traffic[r].fetched[w] - traffic[r].copied[w] != traffic[w].released[r];
}

/* Any word that this rank awaits from rank w, which is on another host, may be about to arrive,
 * also if w has ended and this rank has not noticed yet. A word of no certain rank proves nothing
 * in any case. */
static void set_unclear(struct diagnose_rank *rank, int w)
{
	rank->incomplete = true;
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		struct diagnose_thread *thread = &rank->threads[i];
		for (uint32_t k = 0; k < thread->wait.edge_count; k++) {
			const struct wait_edge *edge = &thread->wait.edges[k];
			if (edge->segment == WAIT_SEGMENT_MIRROR &&
			    (edge->owner == w || edge->peer == w))
				thread->satisfied |= UINT64_C(1) << k;
		}
	}
}

void diagnose_check_traffic(struct diagnose_snapshot *snapshot, const uint16_t *hosts,
			    const struct diagnose_traffic *traffic)
{
	for (int r = 0; r < snapshot->size; r++)
		for (int w = 0; w < snapshot->size; w++) {
			if (hosts[w] == hosts[r] || traffic[r].lost[w])
				continue;
			bool words = has_words(traffic, w, r);
			if (has_payload(traffic, w, r) || has_payload(traffic, r, w) ||
			    (words && !is_kept_by_stopped(snapshot, traffic, w, r)))
				set_unclear(&snapshot->ranks[r], w);
			else if (words)
				snapshot->ranks[r].incomplete = true;
		}
}
