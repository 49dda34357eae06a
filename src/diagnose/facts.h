/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share: simple facts read out of a job, the finders of the proved
 * causes (the judge uses them to decide, the text to tell), and the writer of texts. Not for other
 * rooms.
 *
 * A set of ranks is a uint64_t, bit r for rank r of the world, as all ranks here are. */
#ifndef DIAGNOSE_FACTS_H
#define DIAGNOSE_FACTS_H

#include <sys/types.h>

#include "diagnose/diagnose.h"

static inline uint64_t diagnose_bit(int rank)
{
	return rank >= 0 && rank < DIAGNOSE_RANK_MAX ? UINT64_C(1) << rank : 0;
}

static inline int diagnose_count_ranks(uint64_t ranks)
{
	return __builtin_popcountll(ranks);
}

/* The lowest rank of a set that is not empty. */
static inline int diagnose_lowest_rank(uint64_t ranks)
{
	return __builtin_ctzll(ranks);
}

/* ---- facts.c ---- */

/* Nobody can expect anything of this rank any more: it is dead, or has closed the group of all
 * ranks. */
bool diagnose_is_gone(const struct diagnose_rank *rank);
/* It has closed this group, or all. Group 0 stands for that of all ranks. */
bool diagnose_has_left(const struct diagnose_rank *rank, uint32_t group);
/* Of whom nobody can expect anything in this group: dead, or closed it before any word was looked
 * at. */
uint64_t diagnose_gone_from(const struct diagnose_job *job, uint32_t group);
/* Whether a thread waits in this group; 0: in any. */
static inline bool diagnose_is_in(const struct diagnose_thread *thread, uint32_t group)
{
	return group == 0 || thread->wait.group == group;
}
/* Its last operation ended with the group's failure, or its ls_group_open did: it is a victim of
 * something earlier. */
bool diagnose_has_failed(const struct diagnose_rank *rank);

/* Whom a thread waits for: the peers of its unsatisfied edges; empty unless it is surely blocked
 * (the same wait in both looks, and its condition false in between). */
uint64_t diagnose_thread_needs(const struct diagnose_job *job, const struct diagnose_thread *thread);
/* Whether it is surely blocked, and nothing that it waits for can come if none of these ranks does
 * anything: of words that are all needed one is enough, of those of which any suffices it takes
 * all. */
bool diagnose_is_in_vain(const struct diagnose_job *job, const struct diagnose_thread *thread,
			 uint64_t silent);
/* Whether this is no thread that waits, but what the rank would see to by itself. */
bool diagnose_is_armed(const struct diagnose_thread *thread);
/* The same over all threads of a rank; empty for one that is gone, whose slots are stale. */
uint64_t diagnose_rank_needs(const struct diagnose_job *job, int rank);

bool diagnose_is_collective(const struct trace_record *record);
bool diagnose_is_p2p(const struct trace_record *record); /* send or recv */
/* All NULL if there is no such record, or `rank` is NULL. */
const struct diagnose_record *diagnose_record_at(const struct diagnose_rank *rank, uint64_t index);
/* The operation in which the thread waits for one of `whom`: of several that it waits for. */
const struct diagnose_record *diagnose_record_for(const struct diagnose_rank *rank,
						  const struct diagnose_thread *thread,
						  uint64_t whom);
const struct diagnose_record *diagnose_collective_at(const struct diagnose_rank *rank,
						     uint32_t group, uint64_t seq);
/* Other members of its group that have not entered the collective `record` of this rank. */
uint64_t diagnose_absent_from(const struct diagnose_job *job, int rank,
			      const struct diagnose_record *record);
const struct diagnose_record *diagnose_newest(const struct diagnose_rank *rank);
/* The newest record of the same sort as `like` (collective of the group, or between the same two
 * ranks, `other` being who has `like`). */
const struct diagnose_record *diagnose_newest_like(const struct diagnose_rank *rank,
						   const struct trace_record *like, int other);

/* ---- process.c ---- */

/* Reads a small file that the kernel makes up, in one piece; its length, or -1. *mine (may be
 * NULL): its owner is me, or I am root. */
ssize_t diagnose_read_file(const char *path, char *text, size_t bytes, bool *mine);

/* ---- threads.c ---- */

/* What the threads of a rank's process do that are in no wait in its wait table. */
struct diagnose_look {
	bool awake; /* one that is in no wait table may act, or cannot be looked at */
	/* of these: the same as long as they are the same, and all sleep the same sleep */
	uint64_t hash;
	/* Slots of those that are outside: bit i. All of them sleep, like those in no wait table,
	 * where only each other and those in a wait can wake them, as the rank's watch has seen; 0:
	 * that is not known. */
	uint32_t outside;
	uint64_t rest; /* as hash, of those in no wait table and those outside */
	bool idle;     /* there is one of these, or it is not known */
};
/* The source has a trace. */
struct diagnose_look diagnose_look_threads(const struct diagnose_source *source);
/* Of its threads that are outside these sleep: bit i of `slots` for slot i. */
void diagnose_set_asleep(struct diagnose_rank *rank, uint32_t slots);

/* ---- collect.c ---- */

/* A word of the segment of rank `owner`; NULL: it cannot be read. */
const _Atomic uint64_t *diagnose_find_word(const struct diagnose_source *const *by_rank, int size,
					   int owner, uint64_t offset);

/* ---- collect_callbacks.c ---- */

/* Of all ranks, once it is known who is gone, after the first look at the slots and before any
 * other. */
void diagnose_look_at_callbacks(const struct diagnose_source *const *by_rank,
				struct diagnose_job *job);

/* ---- collect_groups.c ---- */

/* NULL: the rank is in no such group, as far as the job shows. */
const struct diagnose_group *diagnose_group_of(const struct diagnose_rank *rank, uint32_t id);
/* Of all ranks, before slots and words are looked at: what they wait in, and who has closed it. */
void diagnose_copy_groups_first(const struct trace_view *const *traces, struct diagnose_job *job);
/* Of one rank, when all else has been copied. */
void diagnose_copy_groups_last(const struct trace_view *trace, struct diagnose_rank *rank);
/* Records name ranks of their group; a job names those of the world. */
void diagnose_translate(const struct trace_view *trace, int size, struct diagnose_record *record);

/* ---- judge_mismatch.c ---- */

/* Ranks that called the same thing at one position, and one of their records. */
struct diagnose_class {
	uint64_t ranks;
	const struct diagnose_record *example;
};

/* One position of a group's collectives where not all called the same. */
struct diagnose_mismatch {
	uint32_t group;
	uint64_t seq;
	uint32_t fields;
	int majority; /* the class that is right, -1: no class is larger than every other one */
	int class_count;
	struct diagnose_class classes[DIAGNOSE_RANK_MAX]; /* by their lowest rank */
};

/* The earliest such position of this group, 0: of any; false if there is none. */
bool diagnose_find_mismatch(const struct diagnose_job *job, uint32_t group,
			    struct diagnose_mismatch *out);

/* DIAGNOSE_PAIR: the send, NULL if it is not on record, or what is there is another one. */
const struct diagnose_record *diagnose_find_send(const struct diagnose_job *job,
						 const struct diagnose_verdict *verdict);
/* The receive, NULL if it is not on record. */
const struct diagnose_record *diagnose_find_receive(const struct diagnose_job *job,
						    const struct diagnose_verdict *verdict);

/* ---- judge_cycle.c ---- */

struct diagnose_hop {
	int rank, peer;
	const struct diagnose_thread *thread; /* of rank, which waits for peer */
};

/* Ranks that can never go on. */
uint64_t diagnose_find_stuck(const struct diagnose_job *job);

/* Of ranks that seem to wait for each other for ever those that have a thread, not seen to wait,
 * which may still act. */
uint64_t diagnose_find_unproved(const struct diagnose_job *job);

/* One cycle of a proved deadlock, each hop's peer being the next one's rank; its length, 0:
 * none. */
int diagnose_find_cycle(const struct diagnose_job *job, struct diagnose_hop *hops);

/* ---- judge_absent.c ---- */

/* Who waits for whom, with what the hint adds: its rank has just given up waiting, so that its slot
 * shows nothing any more. A hint without such a record comes from somebody who only looked on. */
struct diagnose_needs {
	uint64_t of[DIAGNOSE_RANK_MAX];
	int hint_rank;                             /* -1: no hint */
	const struct diagnose_record *hint_record; /* the operation it gave up; NULL: none */
	uint64_t hint_needs; /* part of of[hint_rank]; empty without hint_record */
};
void diagnose_find_needs(const struct diagnose_job *job, const struct diagnose_hint *hint,
			 struct diagnose_needs *out);

/* Ranks that are gone and without which some wait in this group, 0: in any, can never end. */
uint64_t diagnose_find_gone(const struct diagnose_job *job, const struct diagnose_needs *needs,
			    uint32_t group);

/* Ranks that are waited for in this group, 0: in any, and do not wait themselves: stopped ones, and
 * those that are elsewhere. */
void diagnose_find_away(const struct diagnose_job *job, const struct diagnose_needs *needs,
			uint32_t group, uint64_t *stopped, uint64_t *elsewhere);

/* ---- write.c ---- */

/* Writes into out[bytes], always NUL-terminated; what does not fit is left out and `cut` is set. */
struct diagnose_writer {
	char *out;
	size_t bytes, used;
	bool cut;
};
void diagnose_writer_init(struct diagnose_writer *writer, char *out, size_t bytes);
void diagnose_write(struct diagnose_writer *writer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Text from somewhere else, with everything that a terminal would obey replaced by '?'. */
void diagnose_write_foreign(struct diagnose_writer *writer, const char *text);
/* "rank 2", "ranks 0, 1 and 3", "ranks 0-62". */
void diagnose_write_ranks(struct diagnose_writer *writer, uint64_t ranks);
void diagnose_write_duration(struct diagnose_writer *writer, uint64_t ns); /* "12 ms" */
/* "all-reduce #58", "recv #3 of group 5 (ranks 0 and 1) from rank 1 (tag 7)"; "an operation" for
 * NULL. */
void diagnose_write_operation(struct diagnose_writer *writer, const struct diagnose_record *record);
/* " of group 5 (ranks 0 and 1)", nothing for that of all ranks. */
void diagnose_write_group(struct diagnose_writer *writer, const struct diagnose_record *record);
/* The members of a group, empty for that of all ranks and for one that is not known. */
uint64_t diagnose_members(const struct diagnose_job *job, uint32_t id);
/* The same as diagnose_write_group, of a group that need not be in any record. */
void diagnose_write_group_of(struct diagnose_writer *writer, const struct diagnose_job *job,
			     uint32_t id);
/* "all-reduce #58", "probe" */
void diagnose_write_name(struct diagnose_writer *writer, const struct trace_record *op);
/* "tag 7", "any tag" */
void diagnose_write_tag(struct diagnose_writer *writer, int tag);
/* " from rank 1 (tag 7)" for a receive, " from any rank (any tag)", nothing for a collective. */
void diagnose_write_partner(struct diagnose_writer *writer, const struct trace_record *op);
/* ", called from a.c:10", or nothing. */
void diagnose_write_site(struct diagnose_writer *writer, const struct diagnose_record *record);
/* "; its main thread is in load at data.py:88", or nothing. */
void diagnose_write_python(struct diagnose_writer *writer, const struct diagnose_rank *rank);
/* "was killed by SIGKILL (9)", "exited with code 3", … */
void diagnose_write_end(struct diagnose_writer *writer, const struct diagnose_rank *rank);
/* "running", "asleep", … */
const char *diagnose_process_text(enum diagnose_process process);
/* Replaces the end of a text that was cut by "...". */
void diagnose_write_ellipsis(struct diagnose_writer *writer);

/* ---- hints.c ---- */

/* Lines on messages that nearly fit what is waited for, or lie in its way, and on receives that
 * took what is missed; nothing if there are none. Returns which. */
enum { DIAGNOSE_HINT_NEARLY = 1, DIAGNOSE_HINT_TAKEN = 2, DIAGNOSE_HINT_IN_THE_WAY = 4 };
unsigned diagnose_write_hints(struct diagnose_writer *writer, const struct diagnose_job *job,
			      const struct diagnose_verdict *verdict);

/* ---- headline.c, headline_mismatch.c ---- */

void diagnose_write_headline(struct diagnose_writer *writer, const struct diagnose_job *job,
			     const struct diagnose_verdict *verdict);
/* The headline of a mismatch. */
void diagnose_write_mismatch(struct diagnose_writer *writer, const struct diagnose_job *job,
			     const struct diagnose_verdict *verdict);

#endif
