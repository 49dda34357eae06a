/* SPDX-License-Identifier: BSD-3-Clause
 * The report: headline, a line for each rank (ranks whose lines would be the same share one), and
 * what to do. What does not fit is left out by whole lines, and the text says so. */
#include "diagnose/facts.h"

#include <inttypes.h>
#include <string.h>

/* All that a line says except pids; ranks with equal lines are told together. */
struct line {
	struct ranks ranks;
	const char *role;
	struct diagnose_part part;
	const struct diagnose_rank *rank; /* an example */
	/* the thread that has been longest in a foreign call, of any of these ranks; NULL: none */
	const struct diagnose_thread *foreign;
};

enum { LINE_MAX = 32 }; /* more than there is room for */

struct report {
	const struct diagnose_snapshot *snapshot;
	const struct diagnose_verdict *verdict;
	int count;
	struct line lines[LINE_MAX];
	struct ranks omitted; /* ranks for whose lines there was no room */
};

static const char *role_of(const struct report *report, int r, const struct diagnose_part *part)
{
	const struct diagnose_verdict *verdict = report->verdict;
	if (ranks_have(&verdict->culprits, r)) {
		switch (verdict->cause) {
		case DIAGNOSE_MISMATCH:
			return "differing";
		case DIAGNOSE_DIED:
			return "dead";
		case DIAGNOSE_LEFT:
			return "left";
		case DIAGNOSE_DEADLOCK:
			return "in the cycle";
		case DIAGNOSE_STOPPED:
			return "stopped";
		case DIAGNOSE_ELSEWHERE:
			return report->snapshot->ranks[r].known ? "elsewhere" : "not seen";
		case DIAGNOSE_ABORTED:
			return verdict->closes                     ? "left"
			       : verdict->status == LS_INTERRUPTED ? "interrupted"
								   : "aborted";
		default:
			break;
		}
	}
	if (verdict->timed_out && r == verdict->witness)
		return "timed out";
	/* A rank that waited when it was found may have what it waited for by now. */
	bool done = part->record && part->record->record.state == TRACE_DONE;
	if (part->since_ns || (!done && ranks_have(&verdict->waiting, r)))
		return "waiting";
	if (report->snapshot->ranks[r].left)
		return "left";
	if (report->snapshot->ranks[r].process == DIAGNOSE_PROCESS_DEAD)
		return "dead";
	if (!report->snapshot->ranks[r].known)
		return "not seen";
	return part->record && part->record->record.state == TRACE_RUNNING ? "busy" : "outside";
}

static bool is_same_line(const struct line *a, const struct line *b)
{
	if (strcmp(a->role, b->role) != 0 || a->rank->process != b->rank->process ||
	    a->rank->signal != b->rank->signal || a->rank->exit_code != b->rank->exit_code ||
	    a->rank->known != b->rank->known || !a->part.since_ns != !b->part.since_ns ||
	    !a->part.record != !b->part.record || strcmp(a->rank->python, b->rank->python) != 0)
		return false;
	if (!a->foreign != !b->foreign ||
	    (a->foreign && strcmp(a->foreign->wait.foreign, b->foreign->wait.foreign) != 0))
		return false;
	if (!a->rank->known && strcmp(a->rank->host, b->rank->host) != 0)
		return false;
	if (!a->part.record)
		return true;
	const struct trace_record *x = &a->part.record->record, *y = &b->part.record->record;
	return x->kind == y->kind && x->group == y->group && x->seq == y->seq &&
	       x->count == y->count && x->dtype == y->dtype && x->reduce_op == y->reduce_op &&
	       x->peer == y->peer && x->tag == y->tag && x->state == y->state &&
	       (x->state != TRACE_RUNNING || x->stream == y->stream) &&
	       !strcmp(a->part.record->site, b->part.record->site);
}

static void add_rank(struct report *report, int r)
{
	struct line line = {.ranks = ranks_of(r), .rank = &report->snapshot->ranks[r]};
	line.part = diagnose_part_of(report->snapshot, report->verdict, r);
	line.role = role_of(report, r, &line.part);
	line.foreign = diagnose_foreign_call(line.rank);
	for (int i = 0; i < report->count; i++) {
		struct line *other = &report->lines[i];
		if (!is_same_line(&line, other))
			continue;
		ranks_add(&other->ranks, r);
		if (line.part.since_ns < other->part.since_ns)
			other->part.since_ns = line.part.since_ns;
		if (line.foreign && line.foreign->wait.since_ns < other->foreign->wait.since_ns)
			other->foreign = line.foreign;
		return;
	}
	if (report->count == LINE_MAX)
		ranks_add(&report->omitted, r);
	else
		report->lines[report->count++] = line;
}

/* Culprits first, then ranks that wait for them, then the others. */
static void add_ranks(struct report *report)
{
	const struct ranks *first = &report->verdict->culprits, *second = &report->verdict->waiting;
	for (int turn = 0; turn < 3; turn++)
		for (int r = 0; r < report->snapshot->size; r++)
			if (turn == (ranks_have(first, r) ? 0 : ranks_have(second, r) ? 1 : 2))
				add_rank(report, r);
}

/* "all-reduce #58 of 1000 float32, sum", "send #3 of 1000 float32 to rank 1 (tag 7)" */
static void write_signature(struct diagnose_writer *writer, const struct diagnose_record *record)
{
	const struct trace_record *op = &record->record;
	diagnose_write_name(writer, op);
	diagnose_write_group(writer, op->group);
	struct trace_kind_facts facts = trace_kind_facts(op->kind);
	if (facts.typed)
		diagnose_write(writer, " of %" PRIu64 " %s", op->count, trace_dtype_name(op->dtype));
	diagnose_write_partner(writer, op);
	if (facts.reduces)
		diagnose_write(writer, ", %s", trace_reduce_name(op->reduce_op));
	if (facts.rooted && op->peer >= 0)
		diagnose_write(writer, ", root %d", op->peer);
}

static void write_ago(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
		      const char *before, uint64_t ns, const char *after)
{
	if (!ns || ns > snapshot->now_ns)
		return;
	diagnose_write(writer, "%s", before);
	diagnose_write_duration(writer, snapshot->now_ns - ns);
	diagnose_write(writer, "%s", after);
}

static void write_doing(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			const struct line *line)
{
	const struct diagnose_record *record = line->part.record;
	if (!line->rank->known) {
		diagnose_write_unseen(writer, line->rank);
		return;
	}
	if (!record) {
		diagnose_write(writer, "no operation recorded");
		return;
	}
	if (line->part.since_ns || record->record.state == TRACE_RUNNING) {
		diagnose_write(writer, "in ");
		write_signature(writer, record);
		diagnose_write_stream(writer, &record->record);
		write_ago(writer, snapshot, ", for ",
			  line->part.since_ns ? line->part.since_ns : record->begin_ns, "");
	} else {
		bool failed = record->record.state == TRACE_FAILED;
		diagnose_write(writer, "last was ");
		write_signature(writer, record);
		diagnose_write(writer, failed ? ", failed" : ", finished");
		if (failed)
			diagnose_write(writer, " (%s)",
				       ls_status_name((ls_status)record->record.status));
		write_ago(writer, snapshot, " ", record->end_ns, " ago");
	}
	diagnose_write_site(writer, record);
}

static void write_foreign_call(struct diagnose_writer *writer,
			       const struct diagnose_snapshot *snapshot, const struct line *line)
{
	if (ranks_count(&line->ranks) == 1) {
		diagnose_write_foreign_call(writer, snapshot, line->rank);
	} else if (line->foreign) {
		diagnose_write(writer, "; a thread of each has been in the foreign call ");
		diagnose_write_named_call(writer, snapshot, &line->foreign->wait);
	}
}

enum { PID_MAX = 8 }; /* process ids told in one line */

static void write_process(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			  const struct line *line)
{
	int count = ranks_count(&line->ranks);
	diagnose_write(writer, " (");
	if (count <= PID_MAX && line->rank->pid > 0)
		diagnose_write_pids(writer, snapshot, &line->ranks);
	if (line->rank->process == DIAGNOSE_PROCESS_DEAD)
		diagnose_write_end(writer, line->rank);
	else
		diagnose_write(writer, "%s", diagnose_process_text(line->rank->process));
	diagnose_write(writer, ")");
}

static void write_line(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
		       const struct line *line)
{
	diagnose_write(writer, "\n  ");
	diagnose_write_ranks(writer, &line->ranks);
	diagnose_write(writer, ": %s, ", line->role);
	write_doing(writer, snapshot, line);
	write_foreign_call(writer, snapshot, line);
	diagnose_write_python(writer, line->rank);
	write_process(writer, snapshot, line);
}

/* The operation has failed, so advice on ranks that are elsewhere would not help any more. */
static void write_time_limit(struct diagnose_writer *writer)
{
	diagnose_write(writer, "\nIf the operation may take so long, raise LOCKSTEP_TIMEOUT_MS "
			       "or the call's timeout_ms.");
}

static void write_stopped_advice(struct diagnose_writer *writer, const struct report *report)
{
	if (report->verdict->timed_out) {
		diagnose_write(writer, "\nFind out who stopped it, such as a debugger or a batch "
				       "system that suspends jobs. If it may be\nstopped for so "
				       "long, raise LOCKSTEP_TIMEOUT_MS or the call's timeout_ms.");
		return;
	}
	diagnose_write(writer, "\nLet it go on with `kill -CONT ");
	diagnose_write_pid(writer, report->snapshot, report->verdict->culprit);
	diagnose_write(writer, "`");
	diagnose_write_host(writer, report->snapshot, report->verdict->culprit);
	diagnose_write(writer, ", or leave the debugger that holds it.");
}

static bool any_awaits_mutex(const struct report *report)
{
	RANKS_EACH (r, &report->verdict->culprits)
		if (r < report->snapshot->size && report->snapshot->ranks[r].awaits_mutex)
			return true;
	return false;
}

/* Whether nothing is known of the ranks that are late: some host has not answered. */
static bool are_unseen(const struct report *report)
{
	bool unseen = ranks_any(&report->verdict->culprits);
	RANKS_EACH (r, &report->verdict->culprits)
		unseen = unseen && r < report->snapshot->size &&
			 diagnose_is_remote(&report->snapshot->ranks[r]);
	return unseen;
}

static void write_late_advice(struct diagnose_writer *writer, const struct report *report)
{
	if (any_awaits_mutex(report)) {
		diagnose_write(writer,
			       "\nIt can never continue, and no time limit helps. Let all threads "
			       "take these mutexes in the same\norder, and hold none of them in a "
			       "fork. Which they are: `lockstep diagnose --stacks ");
		diagnose_write_pid(writer, report->snapshot, report->verdict->culprit);
		diagnose_write(writer, "`");
		diagnose_write_host(writer, report->snapshot, report->verdict->culprit);
		diagnose_write(writer, ".");
		return;
	}
	if (are_unseen(report))
		diagnose_write(writer, "\nNo host has told what they do. A host is slow, or TCP does "
				       "not arrive there: see whether a firewall\nor the MTU is "
				       "in the way. Heartbeats are short, and use UDP.");
	if (report->verdict->timed_out) {
		write_time_limit(writer);
		return;
	}
	diagnose_write(writer, "\nNothing has failed yet. If the rank is only slow, wait. The "
			       "operation fails at its time limit\n(LOCKSTEP_TIMEOUT_MS, or that of "
			       "the group or call). See what the rank does: `lockstep diagnose "
			       "--stacks ");
	diagnose_write_pid(writer, report->snapshot, report->verdict->culprit);
	diagnose_write(writer, "`");
	diagnose_write_host(writer, report->snapshot, report->verdict->culprit);
	diagnose_write(writer, ".");
}

/* A rank has closed a group in which others still need it. */
static void write_left_advice(struct diagnose_writer *writer, const struct report *report)
{
	const struct diagnose_verdict *verdict = report->verdict;
	int witness = verdict->witness;
	bool known = witness >= 0 && witness < report->snapshot->size;
	const struct diagnose_record *record =
		known ? diagnose_record_at(&report->snapshot->ranks[witness], verdict->record)
		      : NULL;
	if (!record || !diagnose_is_p2p(&record->record))
		diagnose_write(writer,
			       "\nLet all ranks make the same calls: give each the same number "
			       "of batches, or let all agree\nwhen to stop before the first one "
			       "closes its group.");
	else if (record->record.kind == TRACE_SEND)
		diagnose_write(writer, "\nLet the rank that it is sent to receive it before that one "
				       "closes its group.");
	else
		diagnose_write(writer,
			       "\nLet each receive meet a send: compare group, source and tag of the "
			       "receive with what that\nrank sends before it closes its group.");
}

/* What the calls of a cycle are. */
enum { CYCLE_COLLECTIVE = 1, CYCLE_SEND = 2, CYCLE_RECEIVE = 4 };

static unsigned calls_of_cycle(const struct report *report, bool *itself)
{
	struct diagnose_hop hops[DIAGNOSE_HOP_MAX];
	const struct diagnose_snapshot *snapshot = report->snapshot;
	struct ranks cycle;
	int length = diagnose_find_cycle(snapshot, &report->verdict->culprits, hops,
					 DIAGNOSE_HOP_MAX, &cycle);
	unsigned calls = 0;
	*itself = length == 1;
	for (int i = 0; i < length && i < DIAGNOSE_HOP_MAX; i++) {
		struct ranks peer = ranks_of(hops[i].peer);
		const struct diagnose_record *record =
			diagnose_record_for(&snapshot->ranks[hops[i].rank], hops[i].thread, &peer);
		if (!record)
			return 0;
		calls |= diagnose_is_collective(&record->record) ? CYCLE_COLLECTIVE
			 : record->record.kind == TRACE_SEND     ? CYCLE_SEND
								 : CYCLE_RECEIVE;
	}
	return calls;
}

/* hints: what diagnose_write_hints has said of messages. */
static void write_deadlock_advice(struct diagnose_writer *writer, const struct report *report,
				  unsigned hints)
{
	bool itself;
	unsigned calls = calls_of_cycle(report, &itself);
	if (itself && calls == CYCLE_RECEIVE)
		diagnose_write(writer, "\nA rank that receives from itself must have begun the send "
				       "before, with isend if it is long;\nor it begins the receive "
				       "with irecv, sends, and then waits for it.");
	else if (itself && calls == CYCLE_SEND)
		diagnose_write(writer,
			       "\nA rank that sends to itself must not block in the send: begin "
			       "it with isend, receive, and\nthen wait for it.");
	else if (hints & DIAGNOSE_HINT_NEARLY)
		diagnose_write(writer,
			       "\nLet each receive ask for what was sent: compare its group, "
			       "source and tag with those of the\nmessage that is not received.");
	else if (hints & DIAGNOSE_HINT_TAKEN)
		diagnose_write(writer,
			       "\nLet each receive meet a send of its own: a receive of any "
			       "source or any tag takes whatever\ncomes first, so name them, or "
			       "send once for each receive.");
	else if (hints & DIAGNOSE_HINT_IN_THE_WAY)
		diagnose_write(writer, "\nLet the rank that they are sent to receive the messages "
				       "that are in the way.");
	else if (calls == CYCLE_COLLECTIVE)
		diagnose_write(writer,
			       "\nLet ranks that are in several of these groups make their calls "
			       "in the same order.");
	else if (calls == CYCLE_SEND)
		diagnose_write(writer,
			       "\nLet one of these ranks receive before it sends, or begin the "
			       "sends with isend.");
	else
		diagnose_write(writer, "\nChange the order of these calls on one of the ranks, for "
				       "instance let it send before it receives.");
}

static void write_advice(struct diagnose_writer *writer, const struct report *report, unsigned hints)
{
	switch (report->verdict->cause) {
	case DIAGNOSE_MISMATCH:
		if (report->verdict->fields & DIAGNOSE_PAIR)
			diagnose_write(writer, "\nA receive must name the count and the dtype of the "
					       "send that it gets.");
		else if (report->verdict->fields & DIAGNOSE_EXCHANGE)
			diagnose_write(writer,
				       "\nWhat a rank receives from another must be what that "
				       "one sends to it: compare send_counts on\nthe one with "
				       "recv_counts on the other.");
		else
			diagnose_write(writer, "\nAll ranks must make the same calls in the same "
					       "order, with the same count, dtype, reduce op and\n"
					       "root: compare what leads to these calls.");
		break;
	case DIAGNOSE_DIED:
		diagnose_write_death_advice(writer, report->snapshot, report->verdict->culprit);
		break;
	case DIAGNOSE_LEFT:
		write_left_advice(writer, report);
		break;
	case DIAGNOSE_DEADLOCK:
		write_deadlock_advice(writer, report, hints);
		diagnose_write_in_turn(writer, report->snapshot, report->verdict);
		break;
	case DIAGNOSE_STOPPED:
		write_stopped_advice(writer, report);
		break;
	case DIAGNOSE_ELSEWHERE:
		write_late_advice(writer, report);
		break;
	case DIAGNOSE_TIMED_OUT:
		write_time_limit(writer);
		break;
	case DIAGNOSE_HEALTHY:
	case DIAGNOSE_ABORTED:
		break;
	}
}

enum {
	LINE_BYTES = 1024,
	OMITTED_BYTES = 128, /* kept free for the line that names the ranks without a line */
};

/* Writes lines as far as they leave room for `reserve` bytes, and names the ranks of the other
 * lines if possible. */
static void write_lines(struct diagnose_writer *writer, const struct report *report, size_t reserve)
{
	char text[LINE_BYTES];
	struct diagnose_writer line;
	struct ranks omitted = report->omitted;
	for (int i = 0; i < report->count; i++) {
		diagnose_writer_init(&line, report->snapshot, text, sizeof(text));
		write_line(&line, report->snapshot, &report->lines[i]);
		diagnose_write_ellipsis(&line);
		if (writer->used + line.used + reserve + OMITTED_BYTES >= writer->bytes)
			ranks_join(&omitted, &report->lines[i].ranks);
		else
			diagnose_write(writer, "%s", text);
	}
	if (!ranks_any(&omitted))
		return;
	diagnose_writer_init(&line, report->snapshot, text, sizeof(text));
	diagnose_write(&line, "\n  ");
	diagnose_write_ranks(&line, &omitted);
	diagnose_write(&line, ": no room to tell");
	if (writer->used + line.used + reserve < writer->bytes)
		diagnose_write(writer, "%s", text);
}

void diagnose_text(const struct diagnose_snapshot *snapshot, const struct diagnose_verdict *verdict,
		   char *out, size_t bytes)
{
	struct report report = {.snapshot = snapshot, .verdict = verdict};
	struct diagnose_writer writer, advice;
	char text[LINE_BYTES];
	diagnose_writer_init(&writer, snapshot, out, bytes);
	diagnose_write_headline(&writer, snapshot, verdict);
	diagnose_write_ellipsis(&writer);
	if (writer.cut)
		return;
	add_ranks(&report);
	diagnose_writer_init(&advice, snapshot, text, sizeof(text));
	unsigned hints = diagnose_write_hints(&advice, snapshot, verdict);
	write_advice(&advice, &report, hints);
	if (writer.used + advice.used >= bytes)
		return;
	write_lines(&writer, &report, advice.used);
	diagnose_write(&writer, "%s", text);
}
