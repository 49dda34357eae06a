/* SPDX-License-Identifier: BSD-3-Clause
 * A long message and its RTS slot (src/transport/mail.h; src/mailbox/send.c, arrive.c, sendrecv.c): a source
 * sends two, one after the other through the same RTS slot, of two pieces each; its owner receives as many.
 * Of each rank two threads see to it: the one whose operation it is, and another one, which posts what
 * waits for room, takes a send back, or takes in what has arrived. The group may fail at any time; then
 * both give up, and take their buffers back. A wait is a guard on the awaited words: see doorbell.pml. How
 * a message gets into a slot and meets a receive is mail.pml's business; here `posted` is all there is of
 * it.
 *
 * The bytes of a send lie in a block when it is posted; or it is posted late, which only the thread does
 * whose send it is, and that thread stages the pieces one after the other.
 *
 * Shown: a message is either received, whole, each piece copied once and not before it lies in the block, or it was taken back, and source and
 * owner agree on which; nobody touches a buffer after its user has it back; the RTS slot is not used again
 * while somebody may touch it; nobody waits forever. An atomic block touches at most one word that both
 * ranks see, apart from those whose reader is ordered behind. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define PIECES 2
#define USES 2

/* mail_word */
#define WORD(g, n) ((g) * 4 + (n))
/* The cursor: generation, closed, met, pieces that were begun. */
#define CURSOR(g) ((g) * 16)
#define CLOSED 8
#define MET 4
#define BEGUN(c) ((c) & 3)

/* In memory that both ranks see. */
byte posted;
byte cursor, generation, staged, source_copied, met, owner_copied, over;
bit cause;

/* Private to the source: mailbox->lock, and what it guards. */
bit source_lock;
mtype = { NEW, QUEUED, SENT, ASKED, MEETS, OVER };
mtype sending = NEW; /* stage of the send */
byte sends;          /* which one: its generation */
bit in_use, unowned;  /* the RTS slot */
bit back;            /* the send was taken back */
bit late;            /* it was posted before its pieces were staged */

/* Private to the owner, likewise. */
bit owner_lock;
mtype receiving = NEW;
byte next = 1;       /* message to be taken in */
byte message, use;   /* the receive's message; its RTS slot's generation */

/* For the assertions only. */
bit source_back[USES + 1], target_back[USES + 1]; /* the buffer belongs to its user again */
bit was_met[USES + 1], taken_back[USES + 1];
byte copied[USES + 1], written[USES + 1]; /* one bit each piece */

#define LOCK(l) atomic { !l; l = 1 }
#define UNLOCK(l) l = 0

/* ---- both ---- */

/* A piece takes its time. */
inline copy(g, p)
{
	atomic {
		assert(was_met[g] && !source_back[g] && !target_back[g]);
		assert(!(copied[g] & (1 << p)));
		assert(written[g] & (1 << p));
		copied[g] = copied[g] | (1 << p)
	}
	assert(!source_back[g] && !target_back[g])
}

/* mail_claim: p is PIECES if none is left. */
inline claim(p)
{
	atomic {
#if MUTANT == 3 /* it does not look whether the other has closed it */
		if
		:: BEGUN(cursor) < PIECES -> p = BEGUN(cursor); cursor++
#else
		if
		:: !(cursor & CLOSED) && BEGUN(cursor) < PIECES -> p = BEGUN(cursor); cursor++
#endif
		:: else -> p = PIECES
		fi
	}
}

/* Copies what is staged and nobody else copies; each piece is counted once it is there. stop: the group has failed. */
inline copy_pieces(g, word, mine, p, stop)
{
	do
	::
#if MUTANT != 15 /* else it does not look whether the piece is staged */
	   p = BEGUN(cursor);
	   if
	   :: p >= PIECES || staged >= WORD(g, p + 1)
	   :: cause -> stop = 1; break
	   fi;
#endif
	   claim(p);
	   if :: p == PIECES -> break :: else fi;
#if MUTANT == 4 /* counted before it is copied */
	   atomic { mine++; word = WORD(g, mine) }
	   copy(g, p);
#else
	   copy(g, p);
	   atomic { mine++; word = WORD(g, mine) }
#endif
	   if :: cause -> stop = 1; break :: else fi
	od;
	p = 0
}

/* is_out: how many pieces the other has begun, once no more are. */
inline close(mine, theirs)
{
	atomic {
#if MUTANT == 5 /* waits for one piece too few */
		theirs = (BEGUN(cursor) > mine + 1 -> BEGUN(cursor) - mine - 1 : 0);
#else
		theirs = BEGUN(cursor) - mine;
#endif
#if MUTANT != 6 /* else the other goes on */
		cursor = cursor | CLOSED
#endif
	}
}

/* ---- the source ---- */

/* Under the lock: the RTS slot is free once the owner has seen what was taken back (sweep); then it is used.
 * mine: by the thread whose send it is, when that is new. */
inline flush(mine_now)
{
	if
	:: atomic { unowned && over >= WORD(sends - 1, 0) -> unowned = 0; in_use = 0 }
	:: else
	fi;
	if
	:: in_use
	:: else ->
		in_use = 1;
		generation = sends;
		cursor = CURSOR(sends);
		if
		:: mine_now -> late = 1
		:: atomic { written[sends] = 3; staged = WORD(sends, 3) }
		fi;
		atomic { posted = sends; sending = SENT }
	fi
}

/* mail_withdraw */
inline withdraw()
{
	atomic {
		if
		:: cursor == CURSOR(sends) ->
			cursor = CURSOR(sends) | CLOSED;
			taken_back[sends] = 1
		:: else
		fi
	}
}

/* mailbox_complete_send */
inline send_is_over()
{
#if MUTANT == 1 /* it may be taken back, and seen by the owner, in between */
	withdrawn = back;
	LOCK(source_lock);
#else
	LOCK(source_lock);
	withdrawn = back;
#endif
	atomic {
#if MUTANT == 7 /* free before the owner has seen that it was taken back */
		in_use = 0;
#else
		in_use = withdrawn;
		unowned = withdrawn;
#endif
		back = 0;
		sending = OVER;
		assert(taken_back[sends] == withdrawn);
		assert(withdrawn || copied[sends] == 3);
		source_back[sends] = 1;
		UNLOCK(source_lock)
	}
}

/* stage_pieces */
inline stage_pieces()
{
	do
	:: late && piece < PIECES ->
#if MUTANT == 16 /* it says so before the piece is there */
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
	atomic { piece = 0; late = 0 }
}

/* sent */
inline see_to_send()
{
	do
	::
		seen = back || over >= WORD(sends, 0);
		if
		:: seen -> send_is_over(); break
		:: else
		fi;
		if
#if MUTANT == 12 /* before the owner has said that it has met it */
		:: !helped ->
#else
		:: !helped && met >= WORD(sends, 0) ->
#endif
			copy_pieces(sends, source_copied, mine, piece, stop);
			helped = 1
		:: over >= WORD(sends, 0) || back
		:: cause -> stop = 1
		fi;
		if :: stop -> break :: else fi
	od
}

/* mailbox_abandon */
inline abandon_send()
{
	stage = sending;
	if
	:: stage == QUEUED ->
		LOCK(source_lock);
		if
		:: sending == QUEUED -> sending = OVER
		:: else -> withdraw()
		fi;
		UNLOCK(source_lock);
#if MUTANT != 9 /* somebody else may have posted it meanwhile */
		stage = sending
#endif
	:: else
	fi;
	if
	:: stage == SENT ->
#if MUTANT == 13 /* as if an owner that invites nobody had met nothing */
		theirs = 0;
		if
		:: met >= WORD(sends, 0) -> close(mine, theirs)
		:: else -> withdraw()
		fi;
#else
		withdraw();
		if
		:: taken_back[sends] -> theirs = 0
		:: else -> close(mine, theirs)
		fi;
#endif
		theirs == 0 || owner_copied >= WORD(sends, theirs)
	:: else
	fi;
	source_back[sends] = 1
}

proctype source()
{
	byte mine, piece, theirs;
	bit seen, withdrawn, helped, stop;
	mtype stage;
	do
	:: sends < USES ->
		LOCK(source_lock);
		atomic { sends++; sending = QUEUED };
		flush(true);
		UNLOCK(source_lock);
		do
		:: sending != QUEUED -> break
		:: sending == QUEUED && over >= WORD(sends - 1, 0) ->
			LOCK(source_lock);
			if
			:: sending == QUEUED -> flush(false)
			:: else
			fi;
			UNLOCK(source_lock)
		:: sending == QUEUED && cause -> stop = 1; break
		od;
		if :: !stop -> stage_pieces() :: else fi;
		if :: !stop -> see_to_send() :: else fi;
		if
		:: stop -> break
		:: else -> atomic { mine = 0; helped = 0; seen = 0; withdrawn = 0 }
		fi
	:: else -> break
	od;
	if
	:: stop -> abandon_send()
	:: else
	fi
}

/* Posts what waits for room, or takes it back once it is posted; or does nothing any more. */
proctype thread_of_source()
{
	byte tries;
	do
	:: atomic {
		!source_lock && sending == QUEUED && over >= WORD(sends - 1, 0) ->
		source_lock = 1
	   };
	   flush(false);
	   UNLOCK(source_lock)
	:: atomic { !source_lock && sending == SENT && tries < 2 -> source_lock = 1; tries++ };
	   withdraw();
#if MUTANT == 2 /* the send may be found to be over, and not that it was taken back */
	   UNLOCK(source_lock);
	   back = taken_back[sends]
#else
	   back = taken_back[sends];
	   UNLOCK(source_lock)
#endif
	:: break
	od
}

/* ---- the owner ---- */

/* mailbox_arrive, under the lock: what is there meets the receive, or is discarded. */
inline arrive()
{
	do
	:: receiving == ASKED && posted >= next ->
		atomic { gen = generation; assert(gen == next) };
#if MUTANT == 11 /* a look and a store, and not one step */
		is_mine = cursor == CURSOR(gen);
		atomic {
			if
			:: is_mine -> cursor = CURSOR(gen) | MET; was_met[next] = 1
#else
		atomic {
			is_mine = cursor == CURSOR(gen);
			if
			:: is_mine -> cursor = CURSOR(gen) | MET; was_met[next] = 1
#endif
			:: else
			fi;
			assert(!was_met[next] || !taken_back[next])
		}
		if
		:: is_mine ->
			/* The source may help, if it sees where to. */
			if
			:: met = WORD(gen, 0)
			:: skip
			fi;
			atomic { message = next; use = gen; receiving = MEETS }
		:: else ->
#if MUTANT != 14 /* else the source never learns of it */
			over = WORD(gen, 0)
#endif
		fi;
		atomic { next++; is_mine = 0; gen = 0 }
	:: else -> break
	od
}

/* met, and given */
inline see_to_receive()
{
	copy_pieces(message, owner_copied, mine, piece, stop);
	if
	:: stop
	:: else ->
		if
#if MUTANT == 8 /* what the source has claimed may not be there yet */
		:: true
#else
		:: mine == PIECES || source_copied >= WORD(use, PIECES - mine)
#endif
		:: cause -> stop = 1
		fi
	fi;
	if
	:: !stop && cursor & CLOSED -> stop = 1
	:: else
	fi;
	if
	:: stop
	:: else ->
		atomic {
			assert(copied[message] == 3);
			target_back[message] = 1;
			over = WORD(use, 0)
		}
	fi
}

inline abandon_receive()
{
	stage = receiving;
	if
	:: stage == ASKED ->
		LOCK(owner_lock);
		if
		:: receiving == ASKED -> receiving = OVER
		:: else
		fi;
		UNLOCK(owner_lock);
#if MUTANT != 10 /* somebody else may have let it meet a message meanwhile */
		stage = receiving
#endif
	:: else
	fi;
	if
	:: stage == MEETS ->
		close(mine, theirs);
		theirs == 0 || source_copied >= WORD(use, theirs)
	:: else
	fi;
	if
	:: receiving == MEETS -> target_back[message] = 1
	:: else
	fi
}

proctype owner()
{
	byte mine, piece, theirs, gen, count;
	bit is_mine, stop;
	mtype stage;
	do
	:: count < USES ->
		LOCK(owner_lock);
		atomic { receiving = ASKED; count++ };
		arrive();
		UNLOCK(owner_lock);
		/* Nothing may come any more: what was sent may have been taken back. */
end_asked:	do
		:: receiving != ASKED -> break
		:: receiving == ASKED && posted >= next ->
			LOCK(owner_lock);
			arrive();
			UNLOCK(owner_lock)
		:: receiving == ASKED && cause -> stop = 1; break
		od;
		if
		:: !stop -> see_to_receive()
		:: else
		fi;
		if
		:: stop -> break
		:: else -> mine = 0
		fi
	:: else -> break
	od;
	if
	:: stop -> abandon_receive()
	:: else
	fi
}

/* Takes in what has arrived; or does nothing any more. */
proctype thread_of_owner()
{
	byte gen;
	bit is_mine;
	do
	:: atomic { !owner_lock && receiving == ASKED && posted >= next -> owner_lock = 1 };
	   arrive();
	   UNLOCK(owner_lock)
	:: break
	od
}

proctype failure()
{
	if
	:: cause = 1
	:: skip
	fi
}

init {
	atomic {
		run source(); run thread_of_source(); run owner(); run thread_of_owner(); run failure()
	}
}
