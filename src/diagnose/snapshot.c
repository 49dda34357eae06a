/* SPDX-License-Identifier: BSD-3-Clause
 * The memory of a snapshot: made, cleared, checked; and the members of groups in it. */
#include "diagnose/facts.h"

#include <stdlib.h>
#include <string.h>

int diagnose_set_max(int size)
{
	return 128 + 2 * size;
}

static size_t sets_at(int size)
{
	return sizeof(struct diagnose_snapshot) + (size_t)size * sizeof(struct diagnose_rank);
}

size_t diagnose_snapshot_bytes(int size)
{
	if (size < 0 || size > RANKS_JOB_MAX)
		return 0;
	return sets_at(size) + (size_t)diagnose_set_max(size) * sizeof(struct diagnose_set);
}

struct diagnose_snapshot *diagnose_snapshot_new(int size)
{
	size_t bytes = diagnose_snapshot_bytes(size);
	struct diagnose_snapshot *snapshot = bytes ? calloc(1, bytes) : NULL;
	if (snapshot)
		snapshot->size = size;
	return snapshot;
}

void diagnose_snapshot_clear(struct diagnose_snapshot *snapshot, int size)
{
	size_t sets = sets_at(size);
	memset(snapshot, 0, offsetof(struct diagnose_snapshot, ranks));
	for (int r = 0; r < size; r++)
		memset(&snapshot->ranks[r], 0, offsetof(struct diagnose_rank, groups));
	memset((char *)snapshot + sets, 0, diagnose_snapshot_bytes(size) - sets);
	snapshot->size = size;
}

/* A byte that is neither 0 nor 1 must not be read as a bool. */
static bool is_flag(const bool *flag)
{
	unsigned char byte;
	memcpy(&byte, flag, 1);
	return byte <= 1;
}

static bool rank_is_valid(const struct diagnose_rank *rank, int r)
{
	uint32_t process;
	memcpy(&process, &rank->process, sizeof process);
	if (!is_flag(&rank->known) || !is_flag(&rank->incomplete) || !is_flag(&rank->awake) ||
	    !is_flag(&rank->idle) || !is_flag(&rank->has_callbacks) || !is_flag(&rank->calls_back) ||
	    !is_flag(&rank->serial) || !is_flag(&rank->awaits_mutex) || !is_flag(&rank->left) ||
	    process > DIAGNOSE_PROCESS_DEAD || rank->rank != r ||
	    rank->group_count > DIAGNOSE_GROUP_MAX || rank->thread_count > WAIT_SLOT_MAX ||
	    rank->record_count > DIAGNOSE_RECORD_MAX || !memchr(rank->host, 0, sizeof rank->host) ||
	    !memchr(rank->program, 0, sizeof rank->program) ||
	    !memchr(rank->python, 0, sizeof rank->python))
		return false;
	for (uint32_t i = 0; i < rank->thread_count; i++)
		if (!is_flag(&rank->threads[i].stable) || !is_flag(&rank->threads[i].asleep) ||
		    rank->threads[i].wait.edge_count > WAIT_EDGE_MAX ||
		    !memchr(rank->threads[i].wait.foreign, 0, WAIT_FOREIGN_BYTES))
			return false;
	for (uint32_t i = 0; i < rank->record_count; i++)
		if (!memchr(rank->records[i].site, 0, sizeof rank->records[i].site))
			return false;
	return true;
}

bool diagnose_snapshot_is_valid(const struct diagnose_snapshot *snapshot, size_t bytes)
{
	if (bytes < sizeof *snapshot || snapshot->size < 0 || snapshot->size > RANKS_JOB_MAX ||
	    bytes != diagnose_snapshot_bytes(snapshot->size))
		return false;
	if (snapshot->message_count < 0 || snapshot->message_count > DIAGNOSE_MESSAGE_MAX)
		return false;
	for (int i = 0; i < snapshot->message_count; i++)
		if (!memchr(snapshot->messages[i].site, 0, sizeof snapshot->messages[i].site))
			return false;
	for (int r = 0; r < snapshot->size; r++)
		if (!rank_is_valid(&snapshot->ranks[r], r))
			return false;
	return true;
}

/* ---- groups ---- */

const struct diagnose_set *diagnose_sets(const struct diagnose_snapshot *snapshot)
{
	return (const struct diagnose_set *)((uintptr_t)snapshot + sets_at(snapshot->size));
}

/* The place of a group, or the free place where the group belongs; NULL: other groups have all
 * places. */
static struct diagnose_set *find_set(const struct diagnose_snapshot *snapshot, uint32_t id)
{
	struct diagnose_set *sets =
		(struct diagnose_set *)((uintptr_t)snapshot + sets_at(snapshot->size));
	uint32_t max = (uint32_t)diagnose_set_max(snapshot->size);
	uint32_t first = id * UINT32_C(0x9e3779b1) % max;
	for (uint32_t i = 0; i < max; i++) {
		struct diagnose_set *set = &sets[(first + i) % max];
		if (set->group == id || set->group == 0)
			return set;
	}
	return NULL;
}

void diagnose_add_members(struct diagnose_snapshot *snapshot, uint32_t id,
			  const struct ranks *members)
{
	struct diagnose_set *set =
		id == 0 || id == TRACE_GROUP_WORLD ? NULL : find_set(snapshot, id);
	if (!set || set->group == id)
		return;
	set->group = id;
	set->members = *members;
	snapshot->set_count++;
}

const struct ranks *diagnose_members(const struct diagnose_snapshot *snapshot, uint32_t id)
{
	const struct diagnose_set *set =
		id == 0 || id == TRACE_GROUP_WORLD ? NULL : find_set(snapshot, id);
	return set && set->group == id ? &set->members : NULL;
}
