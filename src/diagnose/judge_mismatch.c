/* SPDX-License-Identifier: BSD-3-Clause
 * Different operations at one position. Each rank numbers the collectives of a group by itself, so
 * two ranks whose number k differ will never agree again: a proof that needs no clock. The larger
 * part is taken to be right; without one nobody is blamed. */
#include "diagnose/facts.h"

/* What two ranks at one position disagree about. Fields that an operation does not have do not
 * count, nor a root that cannot be told any more. */
static uint32_t differing_fields(const struct trace_record *a, const struct trace_record *b)
{
	struct trace_kind_facts facts = trace_kind_facts(a->kind);
	uint32_t fields = 0;
	if (a->kind != b->kind)
		return DIAGNOSE_KIND;
	if (!facts.typed)
		return 0;
	if (!facts.own_counts && (a->count != b->count || (facts.per_rank && a->shape != b->shape)))
		fields |= DIAGNOSE_COUNT;
	if (a->dtype != b->dtype)
		fields |= DIAGNOSE_DTYPE;
	if (facts.reduces && a->reduce_op != b->reduce_op)
		fields |= DIAGNOSE_REDUCE;
	if (facts.rooted && a->peer >= 0 && b->peer >= 0 && a->peer != b->peer)
		fields |= DIAGNOSE_ROOT;
	return fields;
}

/* Whether the record is of a group that this rank has closed while the job goes on, and that nobody
 * asks about. The members may have closed it long ago, and then what differed has been told. */
static bool is_history(const struct diagnose_rank *rank, const struct trace_record *record,
		       uint32_t only)
{
	if (only != 0 || record->group == TRACE_GROUP_WORLD)
		return false;
	const struct diagnose_group *group = diagnose_group_of(rank, record->group);
	return !group || (group->state == TRACE_GROUP_CLOSED && !rank->left);
}

/* NULL: rank r has no such record that counts. */
static const struct diagnose_record *at_position(const struct diagnose_snapshot *snapshot, int r,
						 uint32_t group, uint64_t seq, uint32_t only)
{
	const struct diagnose_rank *rank = &snapshot->ranks[r];
	const struct diagnose_record *record = diagnose_collective_at(rank, group, seq);
	return record && !is_history(rank, &record->record, only) ? record : NULL;
}

/* Whether the next rank above r that has collective (group, seq) called another one. Looking from
 * each rank to the next finds every position where any two differ. */
static bool next_differs(const struct diagnose_snapshot *snapshot, int r,
			 const struct trace_record *record, uint32_t only)
{
	const struct ranks *members = diagnose_members(snapshot, record->group);
	for (int q = r + 1; q < snapshot->size; q++) {
		if (members && !ranks_have(members, q))
			continue;
		const struct diagnose_record *other =
			at_position(snapshot, q, record->group, record->seq, only);
		if (other)
			return differing_fields(record, &other->record) != 0;
	}
	return false;
}

static bool find_position(const struct diagnose_snapshot *snapshot, uint32_t only, uint32_t *group,
			  uint64_t *seq)
{
	bool found = false;
	for (int r = 0; r < snapshot->size; r++) {
		const struct diagnose_rank *rank = &snapshot->ranks[r];
		for (uint32_t i = 0; i < rank->record_count; i++) {
			const struct trace_record *record = &rank->records[i].record;
			if (!diagnose_is_collective(record) ||
			    (only != 0 && record->group != only) || is_history(rank, record, only))
				continue;
			if (found && (record->seq > *seq ||
				      (record->seq == *seq && record->group >= *group)))
				continue;
			if (next_differs(snapshot, r, record, only)) {
				*group = record->group;
				*seq = record->seq;
				found = true;
			}
		}
	}
	return found;
}

/* The index of the one class that is larger than every other, -1: none, or all stand alone. */
static int largest_class(const struct diagnose_mismatch *mismatch)
{
	int largest = -1, most = 1;
	for (int i = 0; i < mismatch->class_count; i++) {
		int count = ranks_count(&mismatch->classes[i].ranks);
		if (count > most) {
			most = count;
			largest = i;
		} else if (count == most) {
			largest = -1;
		}
	}
	return largest;
}

bool diagnose_find_mismatch(const struct diagnose_snapshot *snapshot, uint32_t group,
			    struct diagnose_mismatch *out)
{
	*out = (struct diagnose_mismatch){.majority = -1};
	if (!find_position(snapshot, group, &out->group, &out->seq))
		return false;
	for (int r = 0; r < snapshot->size; r++) {
		const struct diagnose_record *record =
			at_position(snapshot, r, out->group, out->seq, group);
		int i = 0;
		if (!record)
			continue;
		while (i < out->class_count &&
		       differing_fields(&out->classes[i].example->record, &record->record))
			i++;
		if (i == DIAGNOSE_CLASS_MAX)
			i--;
		else if (i == out->class_count)
			out->classes[out->class_count++].example = record;
		ranks_add(&out->classes[i].ranks, r);
	}
	for (int i = 0; i < out->class_count; i++)
		for (int j = 0; j < i; j++)
			out->fields |= differing_fields(&out->classes[i].example->record,
							&out->classes[j].example->record);
	out->majority = largest_class(out);
	return true;
}

/* The record's number comes from a peer: it may name nothing any more, or something else. */
const struct diagnose_record *diagnose_find_send(const struct diagnose_snapshot *snapshot,
						 const struct diagnose_verdict *verdict)
{
	const struct diagnose_matched *matched = &verdict->matched;
	if (verdict->from < 0 || verdict->from >= snapshot->size)
		return NULL;
	const struct diagnose_record *send =
		diagnose_record_at(&snapshot->ranks[verdict->from], matched->record);
	if (!send || send->record.kind != TRACE_SEND || send->record.group != verdict->group ||
	    send->record.peer != verdict->to || send->record.tag != matched->tag ||
	    send->record.count != verdict->sent || send->record.dtype != matched->sent_dtype)
		return NULL;
	return send;
}

const struct diagnose_record *diagnose_find_receive(const struct diagnose_snapshot *snapshot,
						    const struct diagnose_verdict *verdict)
{
	if (verdict->to < 0 || verdict->to >= snapshot->size || verdict->to != verdict->witness)
		return NULL;
	return diagnose_record_at(&snapshot->ranks[verdict->to], verdict->record);
}
