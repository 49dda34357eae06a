/* SPDX-License-Identifier: BSD-3-Clause
 * A long message and its RTS slot (src/transport/mail.h; src/mailbox: send.c, arrive.c, sendrecv.c,
 * cancel.c, abandon.c).
 *
 * Properties:
 * - A message is received whole, each piece copied once and not before it is staged; or it was
 *   cancelled. Both ranks agree on which.
 * - No rank touches a buffer after the call that it belongs to has returned.
 * - The RTS slot is not used again while a rank may touch it.
 * - No thread waits forever.
 *
 * Processes: a source sends two messages of two pieces, one after the other through the same RTS
 * slot, and an owner receives both. Each rank has two threads. One is the caller. The other one
 * posts sends that wait for a free slot, or cancels a posted one (source); or it matches what has
 * arrived (owner). The group may fail at any time; then both callers abandon their operations.
 *
 * Abstractions: a wait is a guard on the awaited words: see doorbell.pml. How a message gets into a
 * slot and matches a receive is in mail.pml; here `posted` stands for all of that. A payload is in
 * its block when the send is posted; or its caller posts the send first, and then stages the pieces
 * one after the other, each in its part of the block, or all in the same place. Or the owner reads
 * the payload by address, and the source helps if the owner has asked (`matched`): it copies pieces
 * ahead into one place. An atomic block accesses at most one word that both ranks see, apart from
 * words that the other rank reads only after it has seen a later store.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define PIECES 2
#define USES 2

/* transport_mail_word */
#define WORD(g, n) ((g) * 4 + (n))
/* The cursor: generation, closed, matched, pieces that were begun. */
#define CURSOR(g) ((g) * 16)
#define CLOSED_BIT 8
#define MATCHED_BIT 4
#define BEGUN(c) ((c) & 3)

/* Words that both ranks see. */
byte posted;
byte cursor, generation, staged, source_copied, matched, owner_copied, done;
byte holds; /* mail_places: the piece that the source says is in the place */
bit cause;

/* Private to the source: the lock of its mailbox, and what it guards. */
bit source_lock;
mtype = { NEW, QUEUED, SENT, POSTED, MATCHED, COMPLETE };
mtype send_state = NEW;
byte sends; /* how many there were: the generation of the newest */
bit in_use, unowned; /* of the RTS slot */
bit cancelled; /* p2p->cancelled */
bit posted_first; /* p2p->posted_first: not all pieces were staged when it was posted */
bit in_places; /* p2p->in_places: there is one place, which all pieces use in turn */
bit helps; /* p2p->in_places and by_address */
byte next_ahead; /* while it helps: p2p->pieces_staged */

/* Private to the owner, in the same way. */
bit owner_lock;
mtype receive_state = NEW;
byte in_next = 1; /* the next message to look at */
byte message, message_generation; /* of the receive */

/* for the assertions */
/* by message: its call has returned, so that the buffer is the user's */
bit source_returned[USES + 1], target_returned[USES + 1];
bit was_matched[USES + 1], was_cancelled[USES + 1];
byte copied[USES + 1], written[USES + 1]; /* one bit for each piece */
#define NOTHING 3
byte place; /* the piece that is in the place; NOTHING: a part of one, or of another message */

#define LOCK(l) atomic { !l; l = 1 }
#define UNLOCK(l) l = 0

/* ---- both ranks ---- */

/* A piece is copied in two steps. from_place: not out of the source's buffer. */
inline copy(g, p, from_place)
{
	atomic {
		assert(!from_place || place == p);
		assert(was_matched[g] && !source_returned[g] && !target_returned[g]);
		assert(!(copied[g] & (1 << p)));
		assert(written[g] & (1 << p));
		copied[g] = copied[g] | (1 << p)
	}
	atomic {
		assert(!from_place || place == p);
		assert(!source_returned[g] && !target_returned[g])
	}
}

/* transport_mail_claim. p == PIECES: none is left. */
inline claim(p)
{
	atomic {
#if MUTANT == 3 /* does not look whether the other rank has closed the cursor */
		if
		:: BEGUN(cursor) < PIECES -> p = BEGUN(cursor); cursor++
#else
		if
		:: !(cursor & CLOSED_BIT) && BEGUN(cursor) < PIECES -> p = BEGUN(cursor); cursor++
#endif
		:: else -> p = PIECES
		fi
	}
}

/* copy_pieces: copies staged pieces that no other rank copies, and counts each once it is there.
 * stop: the group has failed. */
inline copy_pieces(g, word, mine, p, stop, is_owner, ahead)
{
	do
	::
#if MUTANT != 15 /* mutant 15 does not look whether the piece is staged */
	   p = BEGUN(cursor);
	   if
	   :: p >= PIECES || staged >= WORD(g, p + 1)
	   :: cause -> stop = 1; break
	   fi;
#endif
#if MUTANT == 18 /* does not look which piece is in the place */
	   ahead = is_owner && (in_places || (helps && holds >= WORD(g, 1)));
#else
	   ahead = is_owner && (in_places || (helps && holds == WORD(g, BEGUN(cursor) + 1)));
#endif
	   claim(p);
	   if :: p == PIECES -> break :: else fi;
#if MUTANT == 4 /* counts the piece before it has copied it */
	   atomic { mine++; word = WORD(g, mine) }
	   copy(g, p, ahead);
#else
	   copy(g, p, ahead);
	   atomic { mine++; word = WORD(g, mine) }
#endif
	   if :: cause -> stop = 1; break :: else fi
	od;
	atomic { p = 0; ahead = 0 }
}

/* transport_mail_close. theirs: how many pieces the other rank has begun. */
inline close(mine, theirs)
{
	atomic {
#if MUTANT == 5 /* waits for one piece too few */
		theirs = (BEGUN(cursor) > mine + 1 -> BEGUN(cursor) - mine - 1 : 0);
#else
		theirs = BEGUN(cursor) - mine;
#endif
#if MUTANT != 6 /* mutant 6 does not close it, so the other rank goes on */
		cursor = cursor | CLOSED_BIT
#endif
	}
}

/* ---- the source ---- */

/* Under the lock: frees the RTS slot once the owner has seen the cancel of its last use; then uses
 * it. is_own: the caller of a new send does this. */
inline flush(is_own)
{
	if
	:: atomic { unowned && done >= WORD(sends - 1, 0) -> unowned = 0; in_use = 0 }
	:: else
	fi;
	if
	:: in_use
	:: else ->
		in_use = 1;
		generation = sends;
		cursor = CURSOR(sends);
		if
		:: is_own -> posted_first = 1; helps = 0; if :: in_places = 1 :: in_places = 0 fi
		:: atomic { in_places = 0; written[sends] = 3; staged = WORD(sends, 3) };
			if :: helps = 1 :: helps = 0 fi
		fi;
		atomic { posted = sends; send_state = SENT }
	fi
}

/* transport_mail_cancel */
inline cancel()
{
	atomic {
		if
		:: cursor == CURSOR(sends) ->
			cursor = CURSOR(sends) | CLOSED_BIT;
			was_cancelled[sends] = 1
		:: else
		fi
	}
}

/* mailbox_complete_send */
inline complete_send()
{
#if MUTANT == 1
	/* reads it without the lock; the send may be cancelled, and the owner see that, in
	 * between */
	is_cancelled = cancelled;
	LOCK(source_lock);
#else
	LOCK(source_lock);
	is_cancelled = cancelled;
#endif
	atomic {
#if MUTANT == 7 /* frees the slot before the owner has seen the cancel */
		in_use = 0;
#else
		in_use = is_cancelled;
		unowned = is_cancelled;
#endif
		cancelled = 0;
		send_state = COMPLETE;
		assert(was_cancelled[sends] == is_cancelled);
		assert(is_cancelled || copied[sends] == 3);
		source_returned[sends] = 1;
		place = NOTHING;
		UNLOCK(source_lock)
	}
}

/* stage_pieces */
inline stage_pieces()
{
	do
	:: posted_first && piece < PIECES ->
#if MUTANT != 17 /* mutant 17 does not wait until the owner has copied the piece before */
		if
		:: !in_places || piece == 0 || owner_copied >= WORD(sends, piece)
		:: cause -> stop = 1; break
		fi;
#endif
		place = piece;
#if MUTANT == 16 /* says so before the piece is there */
		staged = WORD(sends, piece + 1);
		written[sends] = written[sends] | (1 << piece);
#else
		written[sends] = written[sends] | (1 << piece);
		staged = WORD(sends, piece + 1);
#endif
		piece++;
		if :: cause -> stop = 1; break :: else fi
	:: else -> break
	od;
	atomic { piece = 0; posted_first = 0 }
}

/* mailbox_help: copies a piece ahead that the owner has not begun, if the place is free. */
inline help()
{
	piece = BEGUN(cursor);
	if
	:: piece < next_ahead -> piece = next_ahead
	:: else
	fi;
	if
#if MUTANT == 19 /* does not wait until the owner has copied the piece before */
	:: piece < PIECES ->
#else
	:: piece < PIECES && (piece == 0 || owner_copied >= WORD(sends, piece)) ->
#endif
		place = NOTHING;
#if MUTANT == 20 /* says so before the piece is there */
		holds = WORD(sends, piece + 1);
		place = piece;
#else
		place = piece;
		holds = WORD(sends, piece + 1);
#endif
		next_ahead = piece + 1
	:: else
	fi;
	piece = 0
}

/* await_receiver in sendrecv.c */
inline await_receiver()
{
	do
	::
		seen = cancelled || done >= WORD(sends, 0);
		if
		:: seen -> complete_send(); break
		:: else
		fi;
		if
#if MUTANT == 12 /* copies although the owner has not invited it */
		:: !has_helped && !helps ->
#else
		:: !has_helped && !helps && matched >= WORD(sends, 0) ->
#endif
			copy_pieces(sends, source_copied, mine, piece, stop, false, ahead);
			has_helped = 1
		:: helps && next_ahead < PIECES && matched >= WORD(sends, 0) -> help()
		:: done >= WORD(sends, 0) || cancelled
		:: cause -> stop = 1
		fi;
		if :: stop -> break :: else fi
	od
}

/* mailbox_abandon, of a send */
inline abandon_send()
{
	state = send_state;
	if
	:: state == QUEUED ->
		LOCK(source_lock);
		if
		:: send_state == QUEUED -> send_state = COMPLETE
		:: else -> cancel()
		fi;
		UNLOCK(source_lock);
#if MUTANT != 9 /* mutant 9 does not read it again: another thread may have posted the send */
		state = send_state
#endif
	:: else
	fi;
	if
	:: state == SENT ->
#if MUTANT == 13 /* takes an owner that invites nobody for one that has matched nothing */
		theirs = 0;
		if
		:: matched >= WORD(sends, 0) -> close(mine, theirs)
		:: else -> cancel()
		fi;
#else
		cancel();
		if
		:: was_cancelled[sends] -> theirs = 0
		:: else -> close(mine, theirs)
		fi;
#endif
		theirs == 0 || owner_copied >= WORD(sends, theirs)
	:: else
	fi;
	atomic { source_returned[sends] = 1; place = NOTHING }
}

proctype source()
{
	byte mine, piece, theirs;
	bit seen, is_cancelled, has_helped, stop, ahead;
	mtype state;
	do
	:: sends < USES ->
		LOCK(source_lock);
		atomic { sends++; send_state = QUEUED };
		flush(true);
		UNLOCK(source_lock);
		do
		:: send_state != QUEUED -> break
		:: send_state == QUEUED && done >= WORD(sends - 1, 0) ->
			LOCK(source_lock);
			if
			:: send_state == QUEUED -> flush(false)
			:: else
			fi;
			UNLOCK(source_lock)
		:: send_state == QUEUED && cause -> stop = 1; break
		od;
		if :: !stop -> stage_pieces() :: else fi;
		if :: !stop -> await_receiver() :: else fi;
		if
		:: stop -> break
		:: else -> atomic { mine = 0; has_helped = 0; next_ahead = 0; seen = 0; is_cancelled = 0 }
		fi
	:: else -> break
	od;
	if
	:: stop -> abandon_send()
	:: else
	fi
}

/* Posts a send that waits for a free slot, or cancels a posted one; or does nothing more. */
proctype other_source_thread()
{
	byte tries;
	do
	:: atomic {
		!source_lock && send_state == QUEUED && done >= WORD(sends - 1, 0) ->
		source_lock = 1
	   };
	   flush(false);
	   UNLOCK(source_lock)
	:: atomic {
		/* A send whose block has places cannot be cancelled: may_post_first. */
		!source_lock && send_state == SENT && !in_places && tries < 2 ->
		source_lock = 1;
		tries++
	   };
	   cancel();
#if MUTANT == 2 /* the caller may find that the send is done, and not that it was cancelled */
	   UNLOCK(source_lock);
	   cancelled = was_cancelled[sends]
#else
	   cancelled = was_cancelled[sends];
	   UNLOCK(source_lock)
#endif
	:: break
	od
}

/* ---- the owner ---- */

#include "parts/rts_owner.pml"

proctype failure()
{
	if
	:: cause = 1
	:: skip
	fi
}

init {
	atomic {
		run source();
		run other_source_thread();
		run owner();
		run other_owner_thread();
		run failure()
	}
}
