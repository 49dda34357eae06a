/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share: facts read out of a snapshot; the finders of the proved
 * causes, with which the judge decides and the text explains; and the writer of texts. Not for
 * other rooms.
 *
 * All ranks here are world ranks. A job may have thousands, so nothing may compare each rank with
 * each. */
#ifndef DIAGNOSE_FACTS_H
#define DIAGNOSE_FACTS_H

#include <sys/types.h>

#include "diagnose/diagnose.h"

/* ---- snapshot.c ---- */

/* Makes it a snapshot of `size` ranks of which nothing is known. */
void diagnose_snapshot_clear(struct diagnose_snapshot *snapshot, int size);

/* ---- facts.c ---- */

/* The rank will do nothing more: it is dead, or has closed the world group. */
bool diagnose_is_gone(const struct diagnose_rank *rank);
/* The rank has closed this group, or all groups. Group 0 is the world group. */
bool diagnose_has_left(const struct diagnose_rank *rank, uint32_t group);
/* The ranks that will do nothing more in this group: they are dead, or had closed it before any
 * word was read. */
struct ranks diagnose_gone_from(const struct diagnose_snapshot *snapshot, uint32_t group);
/* As diagnose_gone_from, remembered in *last, which is zeroed at first: for many calls in a row. */
struct diagnose_gone {
	bool known;
	uint32_t group;
	struct ranks ranks;
};
const struct ranks *diagnose_gone_again(const struct diagnose_snapshot *snapshot, uint32_t group,
					struct diagnose_gone *last);
/* Whether a thread waits in this group; 0: in any. */
static inline bool diagnose_is_in(const struct diagnose_thread *thread, uint32_t group)
{
	return group == 0 || thread->wait.group == group;
}
/* The rank is a victim of an earlier failure: its last operation, or its ls_group_open, ended with
 * the group's failure. */
bool diagnose_has_failed(const struct diagnose_rank *rank);

/* The ranks that a thread waits for: the peers of its unsatisfied edges. Empty unless the thread is
 * certainly blocked: both reads found the same wait, and its condition was false in between. */
struct ranks diagnose_thread_needs(const struct diagnose_snapshot *snapshot,
				   const struct diagnose_thread *thread);
/* Whether the thread waits for any rank. */
bool diagnose_waits(const struct diagnose_snapshot *snapshot, const struct diagnose_thread *thread);
/* Whether the thread is certainly blocked, and its wait can never succeed if the `silent` ranks do
 * nothing more. If all words are needed, one that will not come is enough; if any word suffices,
 * none of them may come. */
bool diagnose_is_in_vain(const struct diagnose_snapshot *snapshot,
			 const struct diagnose_thread *thread, const struct ranks *silent);
/* Whether this slot is not a waiting thread, but shows what would wake the rank's progress
 * thread. */
bool diagnose_is_armed(const struct diagnose_thread *thread);
/* diagnose_thread_needs over all threads of a rank. Empty for a rank that is dead or has left,
 * whose slots are stale. */
struct ranks diagnose_rank_needs(const struct diagnose_snapshot *snapshot, int rank);

/* For each rank the ranks whose threads name it in any word: what holds of those may change when
 * the named rank changes. On the heap; NULL without memory. */
struct ranks *diagnose_find_waiters(const struct diagnose_snapshot *snapshot);
/* The ranks that wait for any of `ranks`; all ranks if `waiters_on` is NULL. */
struct ranks diagnose_waiters_on(const struct ranks *waiters_on, int size,
				 const struct ranks *ranks);

bool diagnose_is_collective(const struct trace_record *record);
bool diagnose_is_p2p(const struct trace_record *record); /* send or recv */
/* These return NULL if there is no such record, or if `rank` is NULL. */
const struct diagnose_record *diagnose_record_at(const struct diagnose_rank *rank, uint64_t index);
/* The record whose index has these lowest bits, as words of a wait name it. */
const struct diagnose_record *diagnose_record_low(const struct diagnose_rank *rank, uint32_t low);
/* The operation in which the thread waits for one of the ranks `whom`; it may wait for several
 * operations. */
const struct diagnose_record *diagnose_record_for(const struct diagnose_rank *rank,
						  const struct diagnose_thread *thread,
						  const struct ranks *whom);
const struct diagnose_record *diagnose_collective_at(const struct diagnose_rank *rank,
						     uint32_t group, uint64_t seq);
/* Members that have not entered the collective `record` of this rank. */
struct ranks diagnose_missing_from(const struct diagnose_snapshot *snapshot, int rank,
				   const struct diagnose_record *record);
const struct diagnose_record *diagnose_newest(const struct diagnose_rank *rank);
/* The newest record of the same sort as `like`: a collective of the same group, or a message
 * between the same two ranks. `like` is a record of rank `other`. */
const struct diagnose_record *diagnose_newest_like(const struct diagnose_rank *rank,
						   const struct trace_record *like, int other);
/* A word in the segment of rank `owner`; NULL: it cannot be read. */
const _Atomic uint64_t *diagnose_find_word(const struct diagnose_source *const *by_rank, int size,
					   int owner, uint64_t offset);
/* NULL: as far as the snapshot shows, the rank is not in such a group. */
const struct diagnose_group *diagnose_group_of(const struct diagnose_rank *rank, uint32_t id);

/* ---- process_state.c ---- */

/* Reads a small file of /proc in one piece. Returns its length, or -1. *mine (may be NULL): this
 * user owns it, or is root. */
ssize_t diagnose_read_file(const char *path, char *text, size_t bytes, bool *mine);

/* Whether the living process `pid` has been a rank with this trace, mapped here, and runs another
 * program now. False also if /proc does not tell. */
bool diagnose_is_replaced(int pid, const struct trace_view *trace);

/* ---- threads.c ---- */

/* What those threads of a rank's process do that are in no wait of its wait table. */
struct diagnose_look {
	bool awake; /* a thread that is in no wait table may act, or cannot be read */
	/* of these threads: unchanged as long as they are the same threads in the same sleep */
	uint64_t hash;
	/* Bit i: slot i's thread is outside, and asleep so that only threads outside, threads
	 * without a slot or threads in a wait can wake it, as the rank's watch has seen. 0:
	 * unknown. */
	uint32_t outside;
	uint64_t outside_sleep; /* as hash, but of threads without a slot and threads outside */
	bool idle;              /* there is such a thread, or that is unknown */
};
/* Not 0: the same as long as the look is the same. */
static inline uint64_t diagnose_hash_of(const struct diagnose_look *look)
{
	uint64_t hash = look->hash * UINT64_C(0x9e3779b97f4a7c15);
	hash = (hash ^ look->outside_sleep) * UINT64_C(0x9e3779b97f4a7c15);
	return (hash ^ look->outside ^ (uint64_t)look->idle << 32) | 1;
}
/* Call for a source that has a trace. */
struct diagnose_look diagnose_look_threads(const struct diagnose_source *source);
/* Marks the threads of these slots (bit i: slot i) as asleep outside. */
void diagnose_set_asleep(struct diagnose_rank *rank, uint32_t slots);

/* ---- collect_records.c ---- */

/* What one rank has done, newest first. */
void diagnose_copy_records(const struct trace_view *trace, struct diagnose_snapshot *snapshot,
			   struct diagnose_rank *rank);

/* ---- collect_callbacks.c ---- */

/* For all ranks. Call it when the dead and left ranks are known, between the first and the second
 * read of the slots. */
void diagnose_look_at_callbacks(const struct diagnose_source *const *by_rank,
				struct diagnose_snapshot *snapshot);
/* Whether what waits in the group may go on without a word: the group fails, or one of its
 * operations has a time limit of its own. */
bool diagnose_may_end(const struct diagnose_source *const *by_rank,
		      const struct diagnose_snapshot *snapshot, const struct trace_view *trace,
		      uint32_t group);

/* ---- streams.c ---- */

/* For one rank: in the waits of its threads, replaces words that a device stores by those that the
 * stream waits for, as far as that is known. Call it when the rank's records have been copied. */
void diagnose_follow_streams(const struct diagnose_source *const *by_rank,
			     struct diagnose_snapshot *snapshot, int r);
/* The operation right in front of this one on its stream, if the stream has to do that one before
 * it comes to this one; NULL: none is known. */
const struct diagnose_record *diagnose_in_front(const struct diagnose_rank *rank,
						const struct diagnose_record *op);
/* Whether the thread waits for a device, and it is not known what holds that up. */
bool diagnose_awaits_device(const struct diagnose_thread *thread);
/* Whether an operation in front of the thread's own needs a rank that is gone from the group of
 * that operation. Then that one fails, and the stream goes on. */
bool diagnose_awaits_gone_behind(const struct diagnose_snapshot *snapshot,
				 const struct diagnose_rank *rank,
				 const struct diagnose_thread *thread);

/* ---- collect_groups.c ---- */

/* The hash table of groups' members. */
const struct diagnose_set *diagnose_sets(const struct diagnose_snapshot *snapshot);
/* Adds the members of a group to the snapshot, unless they are there or it has no room. */
void diagnose_add_members(struct diagnose_snapshot *snapshot, uint32_t id,
			  const struct ranks *members);
/* For all ranks, before slots and words are read: the groups in which threads wait, and who has
 * closed them. */
void diagnose_copy_groups_first(const struct trace_view *const *traces,
				struct diagnose_snapshot *snapshot);
/* For one rank, after everything else was copied. */
void diagnose_copy_groups_last(const struct trace_view *trace, struct diagnose_snapshot *snapshot,
			       struct diagnose_rank *rank);
/* Replaces group ranks, as records have them, by world ranks, as a snapshot has them. */
void diagnose_translate(const struct trace_view *trace, struct diagnose_snapshot *snapshot,
			struct diagnose_record *record);

/* ---- judge_mismatch.c ---- */

/* Ranks that made the same call at one position, and one of their records. */
struct diagnose_class {
	struct ranks ranks;
	const struct diagnose_record *example;
};

/* If ranks made more different calls at one position, the last class has all others. */
enum { DIAGNOSE_CLASS_MAX = 16 };

/* A position of a group's collectives at which ranks made different calls. */
struct diagnose_mismatch {
	uint32_t group;
	uint64_t seq;
	uint32_t fields;
	int majority; /* the class that is taken as right; -1: no class is larger than all others */
	int class_count;
	struct diagnose_class classes[DIAGNOSE_CLASS_MAX]; /* sorted by their lowest ranks */
};

/* The earliest such position of this group, 0: of any; false if there is none. */
bool diagnose_find_mismatch(const struct diagnose_snapshot *snapshot, uint32_t group,
			    struct diagnose_mismatch *out);

/* DIAGNOSE_PAIR: the send; NULL if no record of it is left. */
const struct diagnose_record *diagnose_find_send(const struct diagnose_snapshot *snapshot,
						 const struct diagnose_verdict *verdict);
/* The receive; NULL if no record of it is left. */
const struct diagnose_record *diagnose_find_receive(const struct diagnose_snapshot *snapshot,
						    const struct diagnose_verdict *verdict);

/* ---- judge_cycle.c ---- */

/* Texts look at so many hops of a cycle. */
enum { DIAGNOSE_HOP_MAX = 64 };

struct diagnose_hop {
	int rank, peer;
	const struct diagnose_thread *thread; /* of rank, which waits for peer */
};

/* The ranks of a proved deadlock, which can never continue. */
struct ranks diagnose_find_stuck(const struct diagnose_snapshot *snapshot);
/* As diagnose_find_stuck, if the ranks of `assumed` are stuck, too. */
struct ranks diagnose_find_stuck_if(const struct diagnose_snapshot *snapshot,
				    const struct ranks *assumed);

/* Ranks that seem to be deadlocked, but have a thread that is not seen to wait, or is in a foreign
 * call, and may still act. */
struct ranks diagnose_find_unproved(const struct diagnose_snapshot *snapshot);

/* One cycle of a proved deadlock: each hop's peer is the next hop's rank. If there are several, it
 * is one to which the waits of a rank of `from` lead; NULL or empty: any. Writes its first hops, at
 * most `max`, and the set of its ranks. Returns its length; 0: none. */
int diagnose_find_cycle(const struct diagnose_snapshot *snapshot, const struct ranks *from,
			struct diagnose_hop *hops, int max, struct ranks *ranks);

/* ---- judge_missing.c ---- */

/* Which ranks each rank waits for. The hint adds the rank that gives it. That rank has just given
 * up waiting, so its slot is empty. A hint without a record comes from a rank that was only
 * looking. */
struct diagnose_needs {
	int hint_rank;                             /* -1: no hint */
	const struct diagnose_record *hint_record; /* the operation that it gave up; NULL: none */
	struct ranks hint_needs;                   /* empty without hint_record */
	struct ranks sharers; /* other ranks that need the same, except themselves */
};
void diagnose_find_needs(const struct diagnose_snapshot *snapshot, const struct diagnose_hint *hint,
			 struct diagnose_needs *out);
struct ranks diagnose_needs_of(const struct diagnose_snapshot *snapshot,
			       const struct diagnose_needs *needs, int rank);

/* Ranks that are dead or have left, and without which some wait in this group (0: in any group) can
 * never end. */
struct ranks diagnose_find_gone(const struct diagnose_snapshot *snapshot,
				const struct diagnose_needs *needs, uint32_t group);

/* Ranks that others wait for in this group (0: in any group) and that do not wait themselves:
 * stopped ranks, and ranks that are elsewhere. */
void diagnose_find_elsewhere(const struct diagnose_snapshot *snapshot,
			     const struct diagnose_needs *needs, uint32_t group,
			     struct ranks *stopped, struct ranks *elsewhere);
/* For a collective that has been given up: members that are stopped and have not done their part of
 * it, if the ranks of `elsewhere`, which the collective seemed to wait for, may only wait
 * themselves. */
struct ranks diagnose_find_behind(const struct diagnose_snapshot *snapshot,
				  const struct diagnose_needs *needs, const struct ranks *elsewhere);

/* ---- write.c ---- */

/* Writes into out[bytes], always NUL-terminated. Text that does not fit is dropped, and `cut` is
 * set. */
struct diagnose_writer {
	char *out;
	size_t bytes, used;
	bool cut;
	const struct diagnose_snapshot *snapshot; /* has the members of groups; NULL: see members */
	const struct ranks *members; /* of the group of any record; empty or NULL: all ranks */
};
void diagnose_writer_init(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			  char *out, size_t bytes);
void diagnose_write(struct diagnose_writer *writer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Text of another process, with control characters replaced by '?'. */
void diagnose_write_foreign(struct diagnose_writer *writer, const char *text);
/* "rank 2", "ranks 0, 1 and 3", "ranks 0-62". */
void diagnose_write_ranks(struct diagnose_writer *writer, const struct ranks *ranks);
void diagnose_write_duration(struct diagnose_writer *writer, uint64_t ns); /* "12 ms" */
/* "all-reduce #58", "recv #3 of group 5 (ranks 0 and 1) from rank 1 (tag 7)"; "an operation" for
 * NULL. */
void diagnose_write_operation(struct diagnose_writer *writer, const struct diagnose_record *record);
/* " of group 5 (ranks 0 and 1)"; nothing for the world group, and for a group whose members are
 * unknown. */
void diagnose_write_group(struct diagnose_writer *writer, uint32_t id);
/* "all-reduce #58", "probe" */
void diagnose_write_name(struct diagnose_writer *writer, const struct trace_record *op);
/* "tag 7", "any tag" */
void diagnose_write_tag(struct diagnose_writer *writer, int tag);
/* " from rank 1 (tag 7)" for a receive, " from any rank (any tag)", nothing for a collective. */
void diagnose_write_partner(struct diagnose_writer *writer, const struct trace_record *op);
/* The clause of trace_stream_clause, for an operation that has not ended. */
void diagnose_write_stream(struct diagnose_writer *writer, const struct trace_record *op);
/* ", called from a.c:10", or nothing. */
void diagnose_write_site(struct diagnose_writer *writer, const struct diagnose_record *record);
/* "; its main thread is in load at data.py:88", or nothing. */
void diagnose_write_python(struct diagnose_writer *writer, const struct diagnose_rank *rank);
/* "; its thread 4711 has been in the foreign call cuMemFree for 12.3 s", or nothing. */
void diagnose_write_foreign_call(struct diagnose_writer *writer,
				 const struct diagnose_snapshot *snapshot,
				 const struct diagnose_rank *rank);
/* "cuMemFree for 12.3 s" */
void diagnose_write_named_call(struct diagnose_writer *writer,
			       const struct diagnose_snapshot *snapshot,
			       const struct wait_slot_body *wait);
/* "was killed by SIGKILL (9)", "exited with code 3", … */
void diagnose_write_end(struct diagnose_writer *writer, const struct diagnose_rank *rank);
/* What to do, as rank r is dead. */
void diagnose_write_death_advice(struct diagnose_writer *writer,
				 const struct diagnose_snapshot *snapshot, int r);
/* Whether the rank is on another host, so that its trace is not seen here. */
static inline bool diagnose_is_remote(const struct diagnose_rank *rank)
{
	return !rank->known && rank->host[0];
}
/* Why a rank is not known: "on host b", "its trace cannot be read". */
void diagnose_write_unseen(struct diagnose_writer *writer, const struct diagnose_rank *rank);
/* "pid 7; ", and with several hosts "pids 7, 8 on host a, 7 on host b; ". */
void diagnose_write_pids(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			 const struct ranks *ranks);
/* The process to look at, "PID" if it is not known, or there are several (rank -1). */
void diagnose_write_pid(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			int rank);
/* " on host a": where that process is, if the job is on several hosts. */
void diagnose_write_host(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			 int rank);
/* "running", "asleep", … */
const char *diagnose_process_text(enum diagnose_process process);
/* Ends a text that was cut with "...". */
void diagnose_write_ellipsis(struct diagnose_writer *writer);

/* ---- in_turn.c ---- */

/* After a deadlock: lines that say which operation stands behind which, if that matters. */
void diagnose_write_in_turn(struct diagnose_writer *writer, const struct diagnose_snapshot *snapshot,
			    const struct diagnose_verdict *verdict);

/* ---- hints.c ---- */

/* Writes lines about messages that nearly match a waiting receive or block it, and about receives
 * that took the expected message; nothing if there are none. Returns which lines it wrote. */
enum { DIAGNOSE_HINT_NEARLY = 1, DIAGNOSE_HINT_TAKEN = 2, DIAGNOSE_HINT_IN_THE_WAY = 4 };
unsigned diagnose_write_hints(struct diagnose_writer *writer,
			      const struct diagnose_snapshot *snapshot,
			      const struct diagnose_verdict *verdict);

/* ---- headline.c, headline_mismatch.c ---- */

void diagnose_write_headline(struct diagnose_writer *writer,
			     const struct diagnose_snapshot *snapshot,
			     const struct diagnose_verdict *verdict);
/* The headline of a mismatch. */
void diagnose_write_mismatch(struct diagnose_writer *writer,
			     const struct diagnose_snapshot *snapshot,
			     const struct diagnose_verdict *verdict);

#endif
