/* SPDX-License-Identifier: BSD-3-Clause
 * The first line of a mismatch: who called what, with the minority first, or all neutrally. */
#include "diagnose/facts.h"

#include <inttypes.h>
#include <string.h>

enum { CLASS_MAX = 4 }; /* classes told in the first line */

/* "count 999 and dtype float64"; without names "999 and float64". For counts per rank it writes
 * their sum, "other counts per rank (999 in all)" and "1000 in all", which may be the same. Writes
 * only fields that differ and that the operation has. False if nothing was written. */
static bool write_values(struct diagnose_writer *writer, uint32_t fields, bool names,
			 const struct trace_record *op)
{
	const char *and = "";
	struct trace_kind_facts facts = trace_kind_facts(op->kind);
	if (!facts.typed)
		return false;
	if (fields & DIAGNOSE_COUNT) {
		if (!facts.per_rank)
			diagnose_write(writer, "%s%" PRIu64, names ? "count " : "", op->count);
		else if (names)
			diagnose_write(writer, "other counts per rank (%" PRIu64 " in all)",
				       op->count);
		else
			diagnose_write(writer, "%" PRIu64 " in all", op->count);
		and = " and ";
	}
	if (fields & DIAGNOSE_DTYPE) {
		diagnose_write(writer, "%s%s%s", and, names ? "dtype " : "",
			       trace_dtype_name(op->dtype));
		and = " and ";
	}
	if (fields & DIAGNOSE_REDUCE && facts.reduces) {
		diagnose_write(writer, "%s%s%s", and, names ? "reduce op " : "",
			       trace_reduce_name(op->reduce_op));
		and = " and ";
	}
	if (fields & DIAGNOSE_ROOT && facts.rooted) {
		diagnose_write(writer, "%s%s%d", and, names ? "root " : "", op->peer);
		and = " and ";
	}
	return *and != 0;
}

/* Call sites of the classes, one each; the majority's last and without a rank. */
static void write_sites(struct diagnose_writer *writer, const struct diagnose_mismatch *mismatch,
			int majority)
{
	const char *first = mismatch->classes[0].example->site;
	const char *between = ", called from ";
	bool same = true;
	for (int i = 1; i < mismatch->class_count; i++)
		same &= !strcmp(first, mismatch->classes[i].example->site);
	if (same) {
		diagnose_write_site(writer, mismatch->classes[0].example);
		return;
	}
	for (int i = 0; i < mismatch->class_count && i < CLASS_MAX; i++) {
		const struct diagnose_class *class = &mismatch->classes[i];
		if (i == majority || !class->example->site[0])
			continue;
		diagnose_write(writer, "%s", between);
		diagnose_write_foreign(writer, class->example->site);
		diagnose_write(writer, " (rank %d)", ranks_first(&class->ranks));
		between = " and ";
	}
	if (majority >= 0 && mismatch->classes[majority].example->site[0]) {
		diagnose_write(writer, "%s", between);
		diagnose_write_foreign(writer, mismatch->classes[majority].example->site);
	}
}

/* "rank 1 called all-reduce #12 with count 999 where ranks 0, 2 and 3 have 1000" */
static void write_minority(struct diagnose_writer *writer, const struct diagnose_mismatch *mismatch)
{
	const struct diagnose_class *most = &mismatch->classes[mismatch->majority];
	const struct diagnose_class *few = &mismatch->classes[1 - mismatch->majority];
	const struct trace_record *op = &few->example->record;
	diagnose_write_ranks(writer, &few->ranks);
	diagnose_write(writer, " called %s #%" PRIu64, trace_kind_name(op->kind), op->seq);
	diagnose_write_group(writer, op->group);
	if (!(mismatch->fields & DIAGNOSE_KIND)) {
		diagnose_write(writer, " with ");
		write_values(writer, mismatch->fields, true, op);
	}
	diagnose_write(writer, " where ");
	diagnose_write_ranks(writer, &most->ranks);
	if (mismatch->fields & DIAGNOSE_KIND) {
		diagnose_write(writer, " called %s #%" PRIu64,
			       trace_kind_name(most->example->record.kind), op->seq);
	} else {
		diagnose_write(writer, ranks_count(&most->ranks) == 1 ? " has " : " have ");
		write_values(writer, mismatch->fields, false, &most->example->record);
	}
}

static const char *plural_of(uint32_t fields, uint32_t kind)
{
	switch (fields) {
	case DIAGNOSE_COUNT:
		return trace_kind_facts(kind).per_rank ? "counts per rank" : "counts";
	case DIAGNOSE_DTYPE:
		return "dtypes";
	case DIAGNOSE_REDUCE:
		return "reduce ops";
	case DIAGNOSE_ROOT:
		return "roots";
	default:
		return "arguments";
	}
}

/* "ranks 0 and 1 called all-reduce #12 with different counts: rank 0 has 1000, rank 1 has 999" */
static void write_neutrally(struct diagnose_writer *writer, const struct diagnose_mismatch *mismatch)
{
	const struct trace_record *first = &mismatch->classes[0].example->record;
	bool kinds = mismatch->fields & DIAGNOSE_KIND;
	struct ranks all = {{0}};
	for (int i = 0; i < mismatch->class_count; i++)
		ranks_join(&all, &mismatch->classes[i].ranks);
	diagnose_write_ranks(writer, &all);
	diagnose_write(writer, " called %s",
		       kinds ? "different operations as" : trace_kind_name(first->kind));
	diagnose_write(writer, " #%" PRIu64, mismatch->seq);
	diagnose_write_group(writer, first->group);
	if (!kinds)
		diagnose_write(writer, " with different %s",
			       plural_of(mismatch->fields, first->kind));
	for (int i = 0; i < mismatch->class_count && i < CLASS_MAX; i++) {
		const struct diagnose_class *class = &mismatch->classes[i];
		const struct trace_record *op = &class->example->record;
		bool one = ranks_count(&class->ranks) == 1;
		diagnose_write(writer, i ? ", " : ": ");
		diagnose_write_ranks(writer, &class->ranks);
		if (kinds) {
			diagnose_write(writer, " %s", trace_kind_name(op->kind));
			if (mismatch->fields == DIAGNOSE_KIND || !trace_kind_facts(op->kind).typed)
				continue;
			diagnose_write(writer, " of %" PRIu64 " %s", op->count,
				       trace_dtype_name(op->dtype));
			continue;
		}
		diagnose_write(writer, one ? " has " : " have ");
		write_values(writer, mismatch->fields, false, op);
	}
	if (mismatch->class_count > CLASS_MAX)
		diagnose_write(writer, ", and others");
}

/* Where the two calls came from, as far as they are on record. */
static void write_pair_sites(struct diagnose_writer *writer,
			     const struct diagnose_snapshot *snapshot,
			     const struct diagnose_verdict *verdict)
{
	const struct diagnose_record *send = diagnose_find_send(snapshot, verdict);
	const struct diagnose_record *recv = diagnose_find_receive(snapshot, verdict);
	if (send && recv) {
		struct diagnose_mismatch sites = {
			.class_count = 2,
			.classes = {{ranks_of(verdict->from), send}, {ranks_of(verdict->to), recv}},
		};
		write_sites(writer, &sites, -1);
		return;
	}
	const struct diagnose_record *one = send ? send : recv;
	if (one && one->site[0]) {
		diagnose_write_site(writer, one);
		diagnose_write(writer, " (rank %d)", send ? verdict->from : verdict->to);
	}
	diagnose_write(writer, "; the %s on record",
		       send   ? "receive is not"
		       : recv ? "send is not"
			      : "send and the receive are not");
}

/* "rank 0 sends 10 float32 to rank 1 with tag 7 where rank 1 receives 9 float32", with both call
 * sites. All but the call sites is what the message has said of itself. */
static void write_pair(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
		       const struct diagnose_verdict *verdict)
{
	diagnose_write(writer, "rank %d sends %" PRIu64 " %s to rank %d with tag %d", verdict->from,
		       verdict->sent, trace_dtype_name(verdict->matched.sent_dtype), verdict->to,
		       verdict->matched.tag);
	diagnose_write_group(writer, verdict->group);
	diagnose_write(
		writer, "%s rank %d receives %" PRIu64 " %s",
		verdict->status == LS_TRUNCATED ? ", longer than the receive buffer:" : " where",
		verdict->to, verdict->expected, trace_dtype_name(verdict->matched.expected_dtype));
	write_pair_sites(writer, snapshot, verdict);
}

/* "rank 2 sends 10 elements to rank 0 in all-to-allv #7, where rank 0 expects 12", with both call
 * sites. */
static void write_exchange(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			   const struct diagnose_verdict *verdict)
{
	int from = verdict->from, to = verdict->to;
	const struct diagnose_record *send =
		diagnose_collective_at(&snapshot->ranks[from], verdict->group, verdict->seq);
	const struct diagnose_record *recv =
		diagnose_collective_at(&snapshot->ranks[to], verdict->group, verdict->seq);
	diagnose_write(writer, "rank %d sends %" PRIu64 " element%s to rank %d in ", from,
		       verdict->sent, verdict->sent == 1 ? "" : "s", to);
	diagnose_write_operation(writer, recv ? recv : send);
	diagnose_write(writer, ", where rank %d expects %" PRIu64, to, verdict->expected);
	if (!send || !recv) {
		diagnose_write_site(writer, recv ? recv : send);
		return;
	}
	struct diagnose_mismatch sites = {
		.class_count = 2,
		.classes = {{ranks_of(from), send}, {ranks_of(to), recv}},
	};
	write_sites(writer, &sites, -1);
}

static bool is_rank(const struct diagnose_snapshot *snapshot, int rank)
{
	return rank >= 0 && rank < snapshot->size;
}

void diagnose_write_mismatch(struct diagnose_writer *writer,
			     const struct diagnose_snapshot *snapshot,
			     const struct diagnose_verdict *verdict)
{
	struct diagnose_mismatch mismatch;
	bool two = is_rank(snapshot, verdict->from) && is_rank(snapshot, verdict->to);
	if (verdict->fields & DIAGNOSE_PAIR && two) {
		write_pair(writer, snapshot, verdict);
		return;
	}
	if (verdict->fields & DIAGNOSE_EXCHANGE && two) {
		write_exchange(writer, snapshot, verdict);
		return;
	}
	if (!verdict->fields || !diagnose_find_mismatch(snapshot, verdict->group, &mismatch)) {
		if (ranks_any(&verdict->culprits))
			diagnose_write_ranks(writer, &verdict->culprits);
		else
			diagnose_write(writer, "ranks");
		diagnose_write(writer, " called different operations");
		if (verdict->seq)
			diagnose_write(writer, " as #%" PRIu64, verdict->seq);
		return;
	}
	bool minority = mismatch.class_count == 2 && mismatch.majority >= 0;
	if (minority)
		write_minority(writer, &mismatch);
	else
		write_neutrally(writer, &mismatch);
	write_sites(writer, &mismatch, minority ? mismatch.majority : -1);
}
