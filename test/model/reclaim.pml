/* SPDX-License-Identifier: BSD-3-Clause
 * The RTS slots of a box (src/transport/mail.h: reclaim, rts_done; src/mailbox/send.c, mailbox.c: has_room, room_word, sent,
 * cancel), when all are in use: 0 by a long send that one thread of the source sees to, at its leisure, and that
 * may be taken back; 1 by one for which nobody waits: a send that was taken back, or a block that was handed over. Two
 * more threads of the source want one each. The owner ends the uses in any order. A wait is a guard on the awaited
 * word: see doorbell.pml; what is done under the mailbox' lock is one step, unless the order of its loads and stores
 * is what matters. Blocks have RTS slots of their own (MAIL_RTS), but one count of returns serves all: what is shown
 * holds for each half, as a return of the other half only makes a waiting thread look once more.
 *
 * Shown: who wants an RTS slot gets one once any is over, whoever sees to it, and though the thread whose it was has not
 * looked; none is used again before it is over; and who looks late touches nothing of a use that is not his. */
/* mutants: 1 2 3 4 5 6 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define PARCELS 2
#define NOBODY 9

/* In memory that both sides see. A cursor is the generation of its use, and whether it was closed. */
byte over[PARCELS], returned;
byte generation[PARCELS];
bit closed;  /* RTS slot 0, in its first use */
bit met;     /* the owner has it, and lets the source help */

/* Private to the source, under its lock. */
bit lock;
bit in_use[PARCELS];
bit back;            /* the first send was taken back */
bit queued[2];       /* the two that want an RTS slot */
byte seen;           /* of returned */

/* For the assertions only. */
bit is_over[PARCELS]; /* the owner is done with the present use */
bit first_is_over;

/* Under the lock: has_room, for whoever is first in the queue. */
inline reclaim(p)
{
#if MUTANT != 1 /* read when it is too late */
	seen = returned;
#endif
	p = 0;
	do
	:: p < PARCELS ->
		atomic {
			if
#if MUTANT == 2 /* who sends it is to see to that */
			:: in_use[p] && over[p] >= generation[p] && (p != 0 || generation[0] > 1) -> in_use[p] = 0
#else
			:: in_use[p] && over[p] >= generation[p] -> in_use[p] = 0
#endif
			:: else
			fi;
			p++
		}
	:: else -> break
	od;
#if MUTANT == 1
	seen = returned;
#endif
	p = 0
}

/* flush_peer */
inline flush(p)
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
				assert(is_over[p]);
				is_over[p] = 0;
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

/* A send that blocks until it has an RTS slot, and goes away. */
proctype sender(bit me)
{
	byte p, wait;
	atomic { !lock -> lock = 1 };
	flush(p);
	do
	:: queued[me] ->
		atomic { wait = seen + 1; lock = 0 };
#if MUTANT == 3 /* the lowest that is in use, as if they were over in their order */
		atomic { (over[0] >= generation[0] || !queued[me]) && !lock -> lock = 1; wait = 0 };
#else
		atomic { returned >= wait && !lock -> lock = 1; wait = 0 };
#endif
		flush(p)
	:: else -> break
	od;
	lock = 0
}

/* Whose the first send is: it looks at any time, or never. */
proctype first()
{
	byte p;
	bit seen_met, seen_over;
	do
	:: back || over[0] >= 1 ->
		atomic { !lock -> lock = 1 };
		atomic {
#if MUTANT == 4 /* it may be somebody else's by now */
			in_use[0] = back && in_use[0];
#else
			in_use[0] = in_use[0] && (back || generation[0] != 1);
#endif
			assert(back == closed);
			first_is_over = 1;
			lock = 0
		};
		break
	:: met ->
		/* It claims a piece. */
		if
#if MUTANT == 5 /* whoever's it is */
		:: assert(generation[0] == 1)
#else
		:: generation[0] == 1
		:: generation[0] != 1 -> skip /* nothing is left */
#endif
		fi
	:: break
	od
}

/* Takes it back. */
proctype canceller()
{
	if
	:: atomic { !lock && !first_is_over -> lock = 1 };
	   atomic {
		if
		:: generation[0] == 1 && !met && !is_over[0] && !closed -> closed = 1; back = 1
		:: else
		fi;
		lock = 0
	   }
	:: skip
	fi
}

/* rts_done. `matched` of a later use is greater still, so it stays. */
inline end(p)
{
	if
	:: p == 0 && generation[0] == 1 && !closed -> met = 1
	:: else
	fi;
#if MUTANT == 6 /* who waits may look before there is anything to see */
	returned++;
	atomic { over[p] = generation[p]; is_over[p] = 1 }
#else
	atomic { over[p] = generation[p]; is_over[p] = 1 };
	returned++
#endif
}

proctype owner()
{
	/* Nothing has to end but one use for each that waits. */
	do
	:: atomic { !is_over[0] -> skip }; end(0)
	:: atomic { !is_over[1] -> skip }; end(1)
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
		run first();
		run canceller();
		run owner()
	}
}
