/* SPDX-License-Identifier: BSD-3-Clause
 * RTS slots of a ring, when all are in use (src/transport/mail.h, transport_mail_reclaim;
 * src/mailbox: has_room and mailbox_flush_peer in send.c, mailbox_room_word in mailbox.c,
 * cancel.c).
 *
 * Properties:
 * - A send that needs an RTS slot gets one once some use has ended: whichever, and also if the
 *   thread that used the slot has not noticed that.
 * - No slot is used again before its use has ended.
 * - A thread that looks late touches nothing of a later use.
 *
 * Processes: slot 0 is used by a long send of `first_sender`, a thread that looks at its send at
 * any time, or never. `canceller` may cancel that send. Slot 1 is used by a send for which nobody
 * waits: one that was cancelled, or that hands its block over. Two more senders want a slot each.
 * The owner ends the uses, in any order.
 *
 * Abstractions: a wait is a guard on the awaited word: see doorbell.pml. What a thread does under
 * the lock of the mailbox is one step, except where the order of its accesses matters. In the code
 * blocks have a half of the RTS slots (MAIL_RTS), but `returned` counts both halves. What is shown
 * here holds for each half, because the end of a use in the other half only makes a waiting thread
 * look once more.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define RTS_SLOTS 2
#define NOBODY 9

/* Words that both ranks see. The cursor of slot 0 is its generation and `closed`. */
byte done[RTS_SLOTS], returned;
byte generation[RTS_SLOTS];
bit closed; /* the cursor of RTS slot 0, in its first use */
bit matched; /* the owner has matched that message, and lets the source copy pieces */

/* Private to the source, under its lock. */
bit lock;
bit in_use[RTS_SLOTS];
bit was_cancelled; /* the first send was cancelled */
bit queued[2]; /* the two sends that wait for an RTS slot */
byte seen_returned; /* mail_out.returned */

/* for the assertions only */
bit has_ended[RTS_SLOTS]; /* the owner has ended the present use */
bit first_has_ended;

/* transport_mail_reclaim: under the lock, for the first send of the queue. */
inline reclaim(p)
{
#if MUTANT != 1 /* mutant 1 reads it after it has checked the slots */
	seen_returned = returned;
#endif
	p = 0;
	do
	:: p < RTS_SLOTS ->
		atomic {
			if
#if MUTANT == 2 /* leaves slot 0 to the thread that sends with it */
			:: in_use[p] && done[p] >= generation[p] && (p != 0 || generation[0] > 1) ->
				in_use[p] = 0
#else
			:: in_use[p] && done[p] >= generation[p] -> in_use[p] = 0
#endif
			:: else
			fi;
			p++
		}
	:: else -> break
	od;
#if MUTANT == 1
	seen_returned = returned;
#endif
	p = 0
}

/* mailbox_flush_peer */
inline flush_peer(p)
{
	do
	:: queued[0] || queued[1] ->
		if
		:: in_use[0] && in_use[1] -> reclaim(p)
		:: else
		fi;
		if
		:: in_use[0] && in_use[1] -> break
		:: else ->
			atomic {
				p = (in_use[0] -> 1 : 0);
				assert(has_ended[p]);
				has_ended[p] = 0;
				in_use[p] = 1;
				generation[p]++;
				if
				:: queued[0] -> queued[0] = 0
				:: else -> queued[1] = 0
				fi;
				p = 0
			}
		fi
	:: else -> break
	od
}

/* A send that blocks until it has an RTS slot. Then the thread leaves. */
proctype sender(bit me)
{
	byte p, wait;
	atomic { !lock -> lock = 1 };
	flush_peer(p);
	do
	:: queued[me] ->
		atomic { wait = seen_returned + 1; lock = 0 };
#if MUTANT == 3 /* waits for the first slot, as if uses ended in order */
		atomic { (done[0] >= generation[0] || !queued[me]) && !lock -> lock = 1; wait = 0 };
#else
		atomic { returned >= wait && !lock -> lock = 1; wait = 0 };
#endif
		flush_peer(p)
	:: else -> break
	od;
	lock = 0
}

/* The thread of the first send. It looks at any time, or never. */
proctype first_sender()
{
	byte p;
	bit seen_matched, seen_done;
	do
	:: was_cancelled || done[0] >= 1 ->
		atomic { !lock -> lock = 1 };
		atomic {
#if MUTANT == 4 /* does not check that the slot still has its own generation */
			in_use[0] = was_cancelled && in_use[0];
#else
			in_use[0] = in_use[0] && (was_cancelled || generation[0] != 1);
#endif
			assert(was_cancelled == closed);
			first_has_ended = 1;
			lock = 0
		};
		break
	:: matched ->
		/* It claims a piece. */
		if
#if MUTANT == 5 /* claims it in whatever use the slot is */
		:: assert(generation[0] == 1)
#else
		:: generation[0] == 1
		:: generation[0] != 1 -> skip /* another use: no piece of its own is left */
#endif
		fi
	:: break
	od
}

/* Cancels the first send. */
proctype canceller()
{
	if
	:: atomic { !lock && !first_has_ended -> lock = 1 };
	   atomic {
		if
		:: generation[0] == 1 && !matched && !has_ended[0] && !closed ->
			closed = 1;
			was_cancelled = 1
		:: else
		fi;
		lock = 0
	   }
	:: skip
	fi
}

/* transport_mail_rts_done. `matched` only grows, and the value of a later use is greater, so here
 * it stays set. */
inline rts_done(p)
{
	if
	:: p == 0 && generation[0] == 1 && !closed -> matched = 1
	:: else
	fi;
#if MUTANT == 6 /* raises `returned` first, so a waiting thread may look too early */
	returned++;
	atomic { done[p] = generation[p]; has_ended[p] = 1 }
#else
	atomic { done[p] = generation[p]; has_ended[p] = 1 };
	returned++
#endif
}

proctype owner()
{
	/* Two uses have to end, one for each waiting send. */
	do
	:: atomic { !has_ended[0] -> skip }; rts_done(0)
	:: atomic { !has_ended[1] -> skip }; rts_done(1)
	:: returned >= 2 -> break
	od
}

init {
	atomic {
		in_use[0] = 1;
		in_use[1] = 1;
		generation[0] = 1;
		generation[1] = 1;
		queued[0] = 1;
		queued[1] = 1;
		run sender(0);
		run sender(1);
		run first_sender();
		run canceller();
		run owner()
	}
}
