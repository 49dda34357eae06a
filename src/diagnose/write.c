/* SPDX-License-Identifier: BSD-3-Clause
 * The words and numbers that reports are made of. */
#include "diagnose/facts.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

void diagnose_writer_init(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			  char *out, size_t bytes)
{
	*writer = (struct diagnose_writer){
		.out = out, .bytes = bytes, .cut = bytes == 0, .snapshot = snapshot};
	if (bytes)
		out[0] = 0;
}

void diagnose_write(struct diagnose_writer *writer, const char *format, ...)
{
	va_list arguments;
	if (writer->cut)
		return;
	size_t room = writer->bytes - writer->used;
	va_start(arguments, format);
	int length = vsnprintf(writer->out + writer->used, room, format, arguments);
	va_end(arguments);
	writer->cut = length < 0 || (size_t)length >= room;
	if (length < 0)
		writer->out[writer->used] = 0;
	else
		writer->used += writer->cut ? room - 1 : (size_t)length;
}

void diagnose_write_foreign(struct diagnose_writer *writer, const char *text)
{
	for (int bytes; *text && !writer->cut; text += bytes) {
		bool shown = text_is_shown(text, &bytes) && *text != '\n' && *text != '\t';
		diagnose_write(writer, "%.*s", shown ? bytes : 1, shown ? text : "?");
	}
}

void diagnose_write_ellipsis(struct diagnose_writer *writer)
{
	size_t end = writer->used;
	if (!writer->cut || writer->bytes < 4)
		return;
	if (end > writer->bytes - 4)
		end = writer->bytes - 4;
	while (end && ((unsigned char)writer->out[end] & 0xc0) == 0x80)
		end--; /* not in the middle of a character */
	memcpy(writer->out + end, "...", 4);
	writer->used = end + 3;
}

/* The rank after the run of neighbours that begins at r. */
static int run_end(const struct ranks *ranks, int r)
{
	while (ranks_have(ranks, r))
		r++;
	return r;
}

enum {
	RUN_MIN = 4,   /* this many neighbours are written as a range */
	RUNS_MAX = 48, /* this many ranges and single ranks are written, then the number of all */
};

static bool has_range(const struct ranks *ranks)
{
	for (int first = ranks_first(ranks); first >= 0;) {
		int end = run_end(ranks, first);
		if (end - first >= RUN_MIN)
			return true;
		first = end < RANKS_JOB_MAX ? ranks_from(ranks, end) : -1;
	}
	return false;
}

void diagnose_write_ranks(struct diagnose_writer *writer, const struct ranks *ranks)
{
	/* "1 and 3", but "1, 3-5": next to a range an "and" reads as if it belonged to its end. */
	const char *last = has_range(ranks) ? ", " : " and ";
	int first = ranks_first(ranks), count = ranks_count(ranks);
	diagnose_write(writer, count == 1 ? "rank " : "ranks ");
	for (int runs = 0; first >= 0; runs++) {
		int end = run_end(ranks, first);
		if (end - first < RUN_MIN)
			end = first + 1;
		int next = end < RANKS_JOB_MAX ? ranks_from(ranks, end) : -1;
		if (runs == RUNS_MAX && next >= 0) {
			diagnose_write(writer, ", ... (%d in all)", count);
			return;
		}
		diagnose_write(writer, "%s%d", runs == 0 ? "" : next < 0 ? last : ", ", first);
		if (end > first + 1)
			diagnose_write(writer, "-%d", end - 1);
		first = next;
	}
}

void diagnose_write_duration(struct diagnose_writer *writer, uint64_t ns)
{
	uint64_t ms = ns / 1000000, s = ms / 1000;
	if (ns < 1000000)
		diagnose_write(writer, "%" PRIu64 " us", ns / 1000);
	else if (ms < 1000)
		diagnose_write(writer, "%" PRIu64 " ms", ms);
	else if (s < 100)
		diagnose_write(writer, "%" PRIu64 ".%" PRIu64 " s", s, ms % 1000 / 100);
	else if (s < 600)
		diagnose_write(writer, "%" PRIu64 " s", s);
	else if (s < 100 * 60)
		diagnose_write(writer, "%" PRIu64 " min", s / 60);
	else
		diagnose_write(writer, "%" PRIu64 " h", s / 3600);
}

void diagnose_write_partner(struct diagnose_writer *writer, const struct trace_record *op)
{
	if (!diagnose_is_p2p(op))
		return;
	bool sends = op->kind == TRACE_SEND;
	diagnose_write(writer, sends ? " to " : " from ");
	if (op->peer >= 0)
		diagnose_write(writer, "rank %d", op->peer);
	else
		diagnose_write(writer, sends ? "an unknown rank" : "any rank");
	diagnose_write(writer, " (");
	diagnose_write_tag(writer, op->tag);
	diagnose_write(writer, ")");
}

void diagnose_write_tag(struct diagnose_writer *writer, int tag)
{
	if (tag < 0)
		diagnose_write(writer, "any tag");
	else
		diagnose_write(writer, "tag %d", tag);
}

void diagnose_write_name(struct diagnose_writer *writer, const struct trace_record *op)
{
	char name[TRACE_NAME_BYTES];
	trace_name(op, name, sizeof name);
	diagnose_write(writer, "%s", name);
}

void diagnose_write_group(struct diagnose_writer *writer, uint32_t id)
{
	const struct ranks *members =
		writer->snapshot ? diagnose_members(writer->snapshot, id) : writer->members;
	if (!members || !ranks_any(members))
		return;
	diagnose_write(writer, " of group %" PRIu32 " (", id);
	diagnose_write_ranks(writer, members);
	diagnose_write(writer, ")");
}

void diagnose_write_operation(struct diagnose_writer *writer, const struct diagnose_record *record)
{
	if (!record) {
		diagnose_write(writer, "an operation");
		return;
	}
	diagnose_write_name(writer, &record->record);
	diagnose_write_group(writer, record->record.group);
	diagnose_write_partner(writer, &record->record);
}

void diagnose_write_stream(struct diagnose_writer *writer, const struct trace_record *op)
{
	if (op->state == TRACE_RUNNING)
		diagnose_write(writer, "%s", trace_stream_clause(op));
}

void diagnose_write_site(struct diagnose_writer *writer, const struct diagnose_record *record)
{
	if (!record || !record->site[0])
		return;
	diagnose_write(writer, ", called from ");
	diagnose_write_foreign(writer, record->site);
}

void diagnose_write_python(struct diagnose_writer *writer, const struct diagnose_rank *rank)
{
	if (!rank->python[0])
		return;
	diagnose_write(writer, "; ");
	diagnose_write_foreign(writer, rank->python);
}

void diagnose_write_named_call(struct diagnose_writer *writer,
			       const struct diagnose_snapshot *snapshot,
			       const struct wait_slot_body *wait)
{
	diagnose_write_foreign(writer, wait->foreign[0] ? wait->foreign : "without a name");
	if (wait->since_ns && wait->since_ns <= snapshot->now_ns) {
		diagnose_write(writer, " for ");
		diagnose_write_duration(writer, snapshot->now_ns - wait->since_ns);
	}
}

static bool is_in_call(const struct diagnose_thread *thread)
{
	return thread->stable && thread->wait.state == WAIT_FOREIGN;
}

/* Among the rank's other threads the one that has been in a foreign call for longest; NULL: none
 * is in one. */
static const struct diagnose_thread *find_second_call(const struct diagnose_rank *rank,
						      const struct diagnose_thread *longest,
						      uint32_t *count)
{
	const struct diagnose_thread *second = NULL;
	*count = 0;
	for (uint32_t i = 0; i < rank->thread_count; i++) {
		const struct diagnose_thread *thread = &rank->threads[i];
		if (thread == longest || !is_in_call(thread))
			continue;
		++*count;
		if (!second || thread->wait.since_ns < second->wait.since_ns)
			second = thread;
	}
	return second;
}

static void write_thread(struct diagnose_writer *writer, const struct diagnose_rank *rank,
			 const struct diagnose_thread *thread)
{
	if (thread->wait.tid == (uint32_t)rank->pid)
		diagnose_write(writer, "its main thread");
	else
		diagnose_write(writer, "its thread %" PRIu32, thread->wait.tid);
}

/* Names two threads: the one may be in its call because of the other, as when a free keeps a
 * driver's lock. */
static void write_foreign_call(struct diagnose_writer *writer,
			       const struct diagnose_snapshot *snapshot,
			       const struct diagnose_rank *rank)
{
	const struct diagnose_thread *longest = diagnose_foreign_call(rank);
	uint32_t others;
	const struct diagnose_thread *second = find_second_call(rank, longest, &others);
	write_thread(writer, rank, longest);
	diagnose_write(writer, " has been in the foreign call ");
	diagnose_write_named_call(writer, snapshot, &longest->wait);
	if (second) {
		diagnose_write(writer, others > 1 ? ", " : " and ");
		write_thread(writer, rank, second);
		diagnose_write(writer, " in ");
		diagnose_write_named_call(writer, snapshot, &second->wait);
	}
	if (others > 1)
		diagnose_write(writer, ", and %" PRIu32 " more of its threads in such calls",
			       others - 1);
}

void diagnose_write_foreign_call(struct diagnose_writer *writer,
				 const struct diagnose_snapshot *snapshot,
				 const struct diagnose_rank *rank)
{
	if (!diagnose_foreign_call(rank))
		return;
	diagnose_write(writer, "; ");
	write_foreign_call(writer, snapshot, rank);
}

void diagnose_foreign_call_text(const struct diagnose_snapshot *snapshot, int rank, char *out,
				size_t bytes)
{
	struct diagnose_writer writer;
	diagnose_writer_init(&writer, snapshot, out, bytes);
	if (diagnose_foreign_call(&snapshot->ranks[rank]))
		write_foreign_call(&writer, snapshot, &snapshot->ranks[rank]);
	diagnose_write_ellipsis(&writer);
}

void diagnose_named_call_text(const struct diagnose_snapshot *snapshot,
			      const struct wait_slot_body *wait, char *out, size_t bytes)
{
	struct diagnose_writer writer;
	diagnose_writer_init(&writer, snapshot, out, bytes);
	diagnose_write_named_call(&writer, snapshot, wait);
	diagnose_write_ellipsis(&writer);
}

void diagnose_write_end(struct diagnose_writer *writer, const struct diagnose_rank *rank)
{
	const char *name = rank->signal > 0 ? text_signal(rank->signal) : NULL;
	if (name)
		diagnose_write(writer, "was killed by SIG%s (%d)", name, rank->signal);
	else if (rank->signal > 0)
		diagnose_write(writer, "was killed by signal %d", rank->signal);
	else if (rank->signal == 0 && rank->exit_code >= 0)
		diagnose_write(writer, "exited with code %d", rank->exit_code);
	else if (rank->exit_code == DIAGNOSE_EXEC)
		diagnose_write(writer, "was replaced by another program (exec)");
	else
		diagnose_write(writer, rank->left                 ? "ended"
				       : diagnose_is_remote(rank) ? "died or was cut off"
								  : "died of an unknown cause");
}

void diagnose_write_death_advice(struct diagnose_writer *writer,
				 const struct diagnose_snapshot *snapshot, int r)
{
	static const struct diagnose_rank unknown;
	const struct diagnose_rank *rank =
		r >= 0 && r < snapshot->size ? &snapshot->ranks[r] : &unknown;
	if (rank->signal == SIGKILL)
		diagnose_write(writer, "\nSomebody killed it, or the kernel did for want of "
				       "memory: see `dmesg` for \"Out of memory\".");
	else if (rank->exit_code == DIAGNOSE_EXEC)
		diagnose_write(writer, "\nIt called exec with open groups. Start that program as a "
				       "child, or close the groups before.");
	else
		diagnose_write(writer, "\nSee what it printed before it ended.");
}

void diagnose_write_unseen(struct diagnose_writer *writer, const struct diagnose_rank *rank)
{
	if (diagnose_is_remote(rank))
		diagnose_write(writer, "on host %s", rank->host);
	else
		diagnose_write(writer, "its trace cannot be read");
}

static bool has_several_hosts(const struct diagnose_snapshot *snapshot)
{
	const char *first = "";
	for (int r = 0; r < snapshot->size; r++) {
		const char *host = snapshot->ranks[r].host;
		if (host[0] && first[0] && strcmp(host, first) != 0)
			return true;
		first = first[0] ? first : host;
	}
	return false;
}

void diagnose_write_host(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			 int rank)
{
	if (rank >= 0 && rank < snapshot->size && snapshot->ranks[rank].host[0] &&
	    has_several_hosts(snapshot))
		diagnose_write(writer, " on host %s", snapshot->ranks[rank].host);
}

void diagnose_write_pids(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			 const struct ranks *ranks)
{
	const char *between = ranks_count(ranks) == 1 ? "pid " : "pids ";
	int last = -1;
	bool differ = false;
	RANKS_EACH (r, ranks) {
		if (last >= 0 && strcmp(snapshot->ranks[last].host, snapshot->ranks[r].host) != 0) {
			diagnose_write_host(writer, snapshot, last);
			differ = true;
		}
		diagnose_write(writer, "%s%d", between, snapshot->ranks[r].pid);
		between = ", ";
		last = r;
	}
	/* For ranks that are not seen the host has just been said. */
	if (differ || (last >= 0 && !diagnose_is_remote(&snapshot->ranks[last])))
		diagnose_write_host(writer, snapshot, last);
	diagnose_write(writer, "; ");
}

void diagnose_write_pid(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			int rank)
{
	if (rank >= 0 && rank < snapshot->size && snapshot->ranks[rank].pid > 0)
		diagnose_write(writer, "%d", snapshot->ranks[rank].pid);
	else
		diagnose_write(writer, "PID");
}

const char *diagnose_cause_name(unsigned cause)
{
	static const char *const names[] = {
		[DIAGNOSE_HEALTHY] = "healthy",     [DIAGNOSE_MISMATCH] = "mismatch",
		[DIAGNOSE_DIED] = "died",           [DIAGNOSE_LEFT] = "left",
		[DIAGNOSE_DEADLOCK] = "deadlock",   [DIAGNOSE_STOPPED] = "stopped",
		[DIAGNOSE_ELSEWHERE] = "elsewhere", [DIAGNOSE_TIMED_OUT] = "timed out",
		[DIAGNOSE_ABORTED] = "aborted",
	};
	return cause < sizeof names / sizeof names[0] ? names[cause] : "?";
}

const char *diagnose_process_text(enum diagnose_process process)
{
	switch (process) {
	case DIAGNOSE_PROCESS_RUNNING:
		return "running";
	case DIAGNOSE_PROCESS_SLEEPING:
		return "asleep";
	case DIAGNOSE_PROCESS_STOPPED:
		return "stopped";
	case DIAGNOSE_PROCESS_DEAD:
		return "dead";
	case DIAGNOSE_PROCESS_UNKNOWN:
		break;
	}
	return "in an unknown state";
}

void diagnose_operation_text(const struct diagnose_record *record, const struct ranks *members,
			     char *out, size_t bytes)
{
	struct diagnose_writer writer;
	diagnose_writer_init(&writer, NULL, out, bytes);
	writer.members = members;
	diagnose_write_operation(&writer, record);
	diagnose_write_site(&writer, record);
	diagnose_write_ellipsis(&writer);
}

void diagnose_message_text(const struct diagnose_message *message, const struct ranks *members,
			   char *out, size_t bytes)
{
	struct diagnose_record send = {
		.record = {.kind = TRACE_SEND, .seq = message->seq, .group = message->group}};
	struct diagnose_writer writer;
	memcpy(send.site, message->site, sizeof send.site);
	diagnose_writer_init(&writer, NULL, out, bytes);
	writer.members = members;
	diagnose_write_name(&writer, &send.record);
	diagnose_write_group(&writer, message->group);
	diagnose_write(&writer, " of %" PRIu64 " %s from rank %d to rank %d (tag %d)",
		       message->count, trace_dtype_name(message->dtype), message->from, message->to,
		       message->tag);
	diagnose_write_site(&writer, &send);
	diagnose_write_ellipsis(&writer);
}
