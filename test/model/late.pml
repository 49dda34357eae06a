/* SPDX-License-Identifier: BSD-3-Clause
 * A send on a stream to a rank on another host (src/hosts/relay.c, mirror.c, fetch.c; send and
 * receive in src/mailbox). The message is announced, and may be matched, before the stream has
 * copied its payload. The payload is offered after that, or never if the group fails.
 *
 * Properties:
 * - The receiver gets the payload that the stream has copied, or the group has failed.
 * - Nobody reads the sender's buffer after the send has ended.
 * - Both calls end, if the stream comes to the send or the group fails.
 *
 * Processes: the thread of the sender, and that of the receiver; for each rank one process makes
 * progress on the link; the stream; and a group that may fail, of which the two ranks learn
 * independently.
 *
 * Abstractions: the link keeps the order of notes. A wait is a guard. `marked` stands for a pair of
 * ranks that is marked (hosts_mark); the order between a mark and what it is for is as in the code.
 * A message without a byte takes the same way.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 */
#ifndef MUTANT
#define MUTANT 0
#endif

mtype = { NONE, OPEN, GONE, MATCHED, CLOSED }; /* cursors of the two RTS slots */
mtype = { LATE, LONG, SLOT };
chan to_target = [4] of { mtype };
chan to_source = [2] of { bit }; /* the payload was fetched, or refused */

bit copied, failed; /* by the stream; the group */

/* the source */
mtype cursor = OPEN;
bit staged, marked, knows_failure, payload_over, has_ended;

/* the target */
mtype remote_cursor = NONE;
bit slot, late, offered, wanted, withdrawn, remote_marked, remote_knows_failure, source_copied, has_payload;
bit remote_has_ended;

active proctype stream()
{
	if
	:: copied = 1
	:: failed = 1
	:: copied = 1; failed = 1
	:: failed = 1; copied = 1
	fi
}

active proctype sender()
{
	marked = 1; /* it has posted the message */
	if
	:: copied ->
		staged = 1;
#if MUTANT != 1 /* does not say that the payload is there */
		marked = 1;
#endif
		if
		:: payload_over
		:: failed -> knows_failure = 1
		fi
	:: failed -> knows_failure = 1
	fi;
	if
	:: knows_failure ->
		/* transport_mail_cancel: nothing is offered any more; or it was, and goes back. */
		bit taken_back;
		atomic {
			taken_back = (cursor == OPEN);
			if
			:: taken_back -> cursor = CLOSED
			:: else
			fi
		};
		if
		:: taken_back
		:: else -> payload_over
		fi
	:: else
	fi;
	has_ended = 1
}

inline offer()
{
#if MUTANT == 2 /* offers although the send has been taken back */
	to_target!LONG;
#else
	atomic {
		offers = (cursor == OPEN);
		if
		:: offers -> cursor = GONE
		:: else
		fi
	};
	if
	:: offers -> to_target!LONG
	:: else
	fi;
#endif
}

active proctype source_link()
{
	bit has_sent, is_late, offers;
	do
	:: atomic { marked -> marked = 0 };
		if
		:: !has_sent ->
			if
#if MUTANT == 3 /* offers what the stream has not copied */
			:: true -> offer()
#else
			:: staged -> offer()
			:: !staged -> to_target!LATE; is_late = 1
#endif
			fi;
			to_target!SLOT;
			has_sent = 1
		:: else
		fi;
		if
		:: is_late && staged -> offer(); is_late = 0
		:: else
		fi
	:: to_source?_ -> payload_over = 1
	:: has_ended && remote_has_ended && !marked && empty(to_source) -> break
	od
}

active proctype receiver()
{
	if
	:: slot ->
		bit is_mine;
		atomic {
			is_mine = (remote_cursor == OPEN);
			if
			:: is_mine -> remote_cursor = MATCHED
			:: else
			fi
		};
		if
		:: is_mine ->
			wanted = 1;
			remote_marked = 1;
			if
			:: source_copied
			:: failed -> remote_knows_failure = 1
			fi
		:: else -> failed; remote_knows_failure = 1
		fi
	:: failed -> remote_knows_failure = 1
	fi;
	if
	:: remote_knows_failure ->
		withdrawn = 1;
		remote_marked = 1;
		if
		:: remote_cursor == MATCHED || remote_cursor == CLOSED -> !is_mine || source_copied
		:: else
		fi
	:: else -> assert(has_payload)
	fi;
	remote_has_ended = 1
}

inline refuse()
{
	if
	:: withdrawn && offered -> offered = 0; to_source!0
	:: else
	fi
}

/* hosts_fetch_wanted */
inline fetch()
{
#if MUTANT == 4 /* waits for a payload that does not come after a failure */
	stays = late;
#else
	stays = late && !withdrawn;
#endif
	atomic {
		takes = wanted;
#if MUTANT == 5 /* forgets what is late */
		wanted = 0;
		stays = 0;
#else
		wanted = wanted && stays;
#endif
	};
	if
	:: takes && !stays && offered ->
		offered = 0;
		assert(staged && !has_ended);
		has_payload = 1;
		source_copied = 1;
		to_source!1
	:: takes && !stays && !offered ->
#if MUTANT != 5
		assert(failed);
#endif
		remote_cursor = CLOSED;
		source_copied = 1
	:: else
	fi
}

active proctype target_link()
{
	bit stays, takes;
	do
	:: to_target?LATE -> late = 1; remote_cursor = OPEN
	:: to_target?SLOT -> slot = 1
	:: to_target?LONG ->
		if
		:: late ->
			late = 0;
			offered = 1;
#if MUTANT != 6 /* does not look whether it is wanted already */
			remote_marked = 1
#endif
		:: else -> offered = 1; remote_cursor = OPEN
		fi;
#if MUTANT != 7 /* keeps what comes after a failure */
		refuse()
#endif
	:: atomic { remote_marked -> remote_marked = 0 };
		fetch();
		refuse()
	:: has_ended && remote_has_ended && empty(to_target) && !remote_marked -> break
	od
}
