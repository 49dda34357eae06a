/* SPDX-License-Identifier: BSD-3-Clause
 * Every message that Lockstep prints on its own, one macro each: id, level and format, so that the
 * compiler checks the arguments. messages.def holds the help of each, which `lockstep explain ID` and
 * lockstep-messages(7) show; tools/check sees to it that both list the same ids.
 *
 * Who decides an error says it, once; whoever passes it on says nothing. */
#ifndef BASE_MESSAGES_H
#define BASE_MESSAGES_H

#include <stddef.h>
#include <stdint.h>

#include "settings.h"

/* Prints "lockstep: TEXT [ID]" on standard error in one write, with the rank in front if one was set for
 * this thread. Example: MESSAGE_SAY(MESSAGE_LOCK_ORDER, "group", "memory"). */
#define MESSAGE_SAY(...) message_say(__VA_ARGS__)
void message_say(const char *id, enum setting_log level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Prints a report of several lines (a verdict) as it is, in one write. */
void message_report(const char *id, const char *text);

/* Rank that the messages of the calling thread speak for; -1: none. */
void message_set_rank(int rank);
int message_rank(void);
/* Messages less severe than `level` are dropped from now on, in the whole process. */
void message_set_level(enum setting_log level);

struct message_help {
	const char *id;
	enum setting_log level;
	const char *help;
};
/* The i-th message, NULL past the end; and the one with this id (any case, with or without "LS-"). */
const struct message_help *message_help_at(size_t i);
const struct message_help *message_help_find(const char *id);

/* ---- base ---- */
#define MESSAGE_LOCK_ORDER                  \
	"LS-LOCK-ORDER", SETTING_LOG_ERROR, \
		"lock order: wants a '%s' lock while it holds a '%s' lock"
#define MESSAGE_LOCK_WAIT \
	"LS-LOCK-WAIT", SETTING_LOG_ERROR, "about to wait while it holds a '%s' lock"
#define MESSAGE_LOCK_BROKEN "LS-LOCK-BROKEN", SETTING_LOG_ERROR, "a '%s' lock cannot be %s: %s"
#define MESSAGE_WAIT_WORDS \
	"LS-WAIT-WORDS", SETTING_LOG_ERROR, "a wait names %d words, but can name at most %d"
#define MESSAGE_WAIT_SYSTEM "LS-WAIT-SYSTEM", SETTING_LOG_ERROR, "cannot wait: %s failed: %s"
#define MESSAGE_WAIT_OPEN "LS-WAIT-OPEN", SETTING_LOG_ERROR, "cannot record which threads wait: %s"
#define MESSAGE_SETTING_VALUE "LS-SETTING-VALUE", SETTING_LOG_ERROR, "%s is '%s', but must be %s"
#define MESSAGE_SETTING_UNKNOWN                                                             \
	"LS-SETTING-UNKNOWN", SETTING_LOG_WARN,                                             \
		"%s is no setting, so it is ignored; did you mean %s? `lockstep settings` " \
		"lists all"

/* ---- trace ---- */
#define MESSAGE_TRACE_FAILED \
	"LS-TRACE-FAILED", SETTING_LOG_ERROR, "cannot make the flight recorder: %s: %s"
#define MESSAGE_TRACE_UNSEALED                                                                    \
	"LS-TRACE-UNSEALED", SETTING_LOG_ERROR,                                                   \
		"cannot protect the flight recorder: this kernel is older than Linux 5.1, which " \
		"brought F_SEAL_FUTURE_WRITE"

/* ---- memory ---- */
#define MESSAGE_MEMORY_ARENA                                                                      \
	"LS-MEMORY-ARENA", SETTING_LOG_ERROR,                                                     \
		"cannot make an arena of %zu MiB of address space: %s: %s; LOCKSTEP_ARENA_BYTES " \
		"makes it smaller"
#define MESSAGE_MEMORY_EXHAUSTED                                                                   \
	"LS-MEMORY-EXHAUSTED", SETTING_LOG_ERROR,                                                  \
		"no arena memory for %zu bytes: %s; of its %zu KiB, %zu are in use, %zu are free " \
		"but in blocks too small, %zu were taken from failed operations"
#define MESSAGE_MEMORY_NO_BLOCK                  \
	"LS-MEMORY-NO-BLOCK", SETTING_LOG_ERROR, \
		"ls_free: %p is not the start of a block of this group"
#define MESSAGE_MEMORY_FREED_TWICE \
	"LS-MEMORY-FREED-TWICE", SETTING_LOG_ERROR, "ls_free: the block at %p was freed already"
#define MESSAGE_MEMORY_DETACH                  \
	"LS-MEMORY-DETACH", SETTING_LOG_ERROR, \
		"cannot take %zu bytes of a failed operation at %p away from the other ranks: %s"
#define MESSAGE_MEMORY_VIEW \
	"LS-MEMORY-VIEW", SETTING_LOG_ERROR, "cannot map the arena of another rank: %s"

/* ---- transport ---- */
#define MESSAGE_LINK_SIZE \
	"LS-LINK-SIZE", SETTING_LOG_ERROR, "rank %d of %d: a job has 1 to %d ranks, counted from 0"
#define MESSAGE_LINK_SEGMENT                  \
	"LS-LINK-SEGMENT", SETTING_LOG_ERROR, \
		"cannot make the shared segment of rank %d (%zu bytes): %s: %s"
#define MESSAGE_LINK_LISTEN \
	"LS-LINK-LISTEN", SETTING_LOG_ERROR, "cannot listen for the other ranks: %s: %s"
#define MESSAGE_LINK_MAP "LS-LINK-MAP", SETTING_LOG_ERROR, "cannot map the memory of rank %d: %s"
#define MESSAGE_LINK_SYSTEM "LS-LINK-SYSTEM", SETTING_LOG_ERROR, "cannot connect to rank %d: %s: %s"
#define MESSAGE_LINK_LIMIT                                                                     \
	"LS-LINK-LIMIT", SETTING_LOG_ERROR,                                                    \
		"no descriptor left for the memory of rank %d: raise the limit of open files " \
		"(ulimit -n), %d ranks need about %d"
#define MESSAGE_LINK_MISSING \
	"LS-LINK-MISSING", SETTING_LOG_ERROR, "did not connect in time: rank %s"
#define MESSAGE_LINK_LOST                  \
	"LS-LINK-LOST", SETTING_LOG_ERROR, \
		"rank %d (process %d) ended while the ranks were connecting"
#define MESSAGE_LINK_FAILED \
	"LS-LINK-FAILED", SETTING_LOG_ERROR, "the ranks cannot connect because of rank %d: %s"
#define MESSAGE_LINK_STRANGER                                                                    \
	"LS-LINK-STRANGER", SETTING_LOG_WARN,                                                    \
		"turned away process %d of user %u, which is no rank of this job (%s); more of " \
		"them are turned away without a word"
#define MESSAGE_LINK_IMPOSTOR                  \
	"LS-LINK-IMPOSTOR", SETTING_LOG_ERROR, \
		"process %d of user %u answers in place of rank %d, but %s"

/* ---- rendezvous ---- */
#define MESSAGE_PLACE "LS-PLACE", SETTING_LOG_ERROR, "%s"
#define MESSAGE_WRONG_WORLD_SIZE "LS-WRONG-WORLD-SIZE", SETTING_LOG_ERROR, "%s"
#define MESSAGE_DUPLICATE_RANK "LS-DUPLICATE-RANK", SETTING_LOG_ERROR, "%s"
#define MESSAGE_RANK_MISSING "LS-RANK-MISSING", SETTING_LOG_ERROR, "%s"
#define MESSAGE_PORT_TAKEN "LS-PORT-TAKEN", SETTING_LOG_ERROR, "%s"
#define MESSAGE_NO_MASTER "LS-NO-MASTER", SETTING_LOG_ERROR, "%s"
#define MESSAGE_STRANGER "LS-STRANGER", SETTING_LOG_ERROR, "%s"
#define MESSAGE_WRONG_VERSION "LS-WRONG-VERSION", SETTING_LOG_ERROR, "%s"
#define MESSAGE_MEETING_INTERRUPTED "LS-MEETING-INTERRUPTED", SETTING_LOG_ERROR, "%s"
#define MESSAGE_RENDEZVOUS "LS-RENDEZVOUS", SETTING_LOG_ERROR, "%s"

/* ---- engine ---- */
#define MESSAGE_ENGINE_MEMORY                  \
	"LS-ENGINE-MEMORY", SETTING_LOG_ERROR, \
		"no memory for the plans of this group (%zu steps each); the group was not opened"

/* ---- group ---- */
#define MESSAGE_GROUP_ARGUMENT \
	"LS-GROUP-ARGUMENT", SETTING_LOG_ERROR, "%s: %s is %lld, but must be %s"
#define MESSAGE_GROUP_WATCH                 \
	"LS-GROUP-WATCH", SETTING_LOG_WARN, \
		"cannot watch rank %d (pid %d): %s; if it dies, calls that need it time out"
#define MESSAGE_GROUP_THREAD "LS-GROUP-THREAD", SETTING_LOG_ERROR, "cannot start the watch: %s"
#define MESSAGE_GROUP_TRACE \
	"LS-GROUP-TRACE", SETTING_LOG_WARN, "the trace of rank %d cannot be read: %s"
/* Reports of several lines: message_report prints them as they are. */
#define MESSAGE_VERDICT "LS-VERDICT", SETTING_LOG_ERROR, "%s"
#define MESSAGE_WAITING "LS-WAITING", SETTING_LOG_WARN, "%s"

/* ---- cli ---- */
#define MESSAGE_USAGE "LS-USAGE", SETTING_LOG_ERROR, "%s%s%s; see 'lockstep%s%s --help'"
#define MESSAGE_RUN_SYSTEM \
	"LS-RUN-SYSTEM", SETTING_LOG_ERROR, "the job cannot be started: %s failed: %s"
#define MESSAGE_RUN_START \
	"LS-RUN-START", SETTING_LOG_ERROR, "rank %d cannot be started: %s failed: %s"
#define MESSAGE_RUN_NOT_FOUND "LS-RUN-NOT-FOUND", SETTING_LOG_ERROR, "cannot run '%s': %s"
#define MESSAGE_RUN_CANNOT_EXECUTE "LS-RUN-CANNOT-EXECUTE", SETTING_LOG_ERROR, "cannot run '%s': %s"
#define MESSAGE_RUN_LOG "LS-RUN-LOG", SETTING_LOG_ERROR, "cannot write to %s: %s"
#define MESSAGE_RUN_LINE_LOST                  \
	"LS-RUN-LINE-LOST", SETTING_LOG_ERROR, \
		"no memory for a line of rank %d (%zu bytes): it is lost"
#define MESSAGE_RUN_WITNESS \
	"LS-RUN-WITNESS", SETTING_LOG_WARN, "no memory to keep the state of the ranks"
#define MESSAGE_RUN_FAILED "LS-RUN-FAILED", SETTING_LOG_ERROR, "%s"
#define MESSAGE_RUN_TIMEOUT "LS-RUN-TIMEOUT", SETTING_LOG_ERROR, "%s"
#define MESSAGE_RUN_SNAPSHOT                  \
	"LS-RUN-SNAPSHOT", SETTING_LOG_ERROR, \
		"the state of all ranks was kept; see it with: lockstep diagnose %s"
#define MESSAGE_RUN_SNAPSHOT_FAILED \
	"LS-RUN-SNAPSHOT-FAILED", SETTING_LOG_ERROR, "cannot keep the state of the ranks in %s: %s"
#define MESSAGE_DIAGNOSE_NOTHING \
	"LS-DIAGNOSE-NOTHING", SETTING_LOG_ERROR, "no process here holds memory of a job%s%s%s"
#define MESSAGE_DIAGNOSE_FILE "LS-DIAGNOSE-FILE", SETTING_LOG_ERROR, "cannot read '%s': %s"
#define MESSAGE_DIAGNOSE_PROC \
	"LS-DIAGNOSE-PROC", SETTING_LOG_ERROR, "cannot list processes: /proc: %s"
#define MESSAGE_DIAGNOSE_MEMORY \
	"LS-DIAGNOSE-MEMORY", SETTING_LOG_ERROR, "not enough memory to look at all jobs"
#define MESSAGE_PLAN_FAILED "LS-PLAN-FAILED", SETTING_LOG_ERROR, "cannot make the plan: %s"

#endif
