/* SPDX-License-Identifier: BSD-3-Clause
 * Part of rts.pml: the owner. */

/* mailbox_arrive, under the lock: matches or discards what has arrived. */
inline arrive()
{
	do
	:: receive_state == POSTED && posted >= in_next ->
		atomic { gen = generation; assert(gen == in_next) };
#if MUTANT == 11 /* matches with a load and a store, not in one step */
		matches = cursor == CURSOR(gen);
		atomic {
			if
			:: matches -> cursor = CURSOR(gen) | MATCHED_BIT; was_matched[in_next] = 1
#else
		atomic {
			matches = cursor == CURSOR(gen);
			if
			:: matches -> cursor = CURSOR(gen) | MATCHED_BIT; was_matched[in_next] = 1
#endif
			:: else
			fi;
			assert(!was_matched[in_next] || !was_cancelled[in_next])
		}
		if
		:: matches ->
			/* It may invite the source to copy pieces, too. */
			if
			:: matched = WORD(gen, 0)
			:: skip
			fi;
			atomic {
				message = in_next;
				message_generation = gen;
				receive_state = MATCHED
			}
		:: else ->
#if MUTANT != 14 /* mutant 14 does not tell the source that the cancel was seen */
			done = WORD(gen, 0)
#endif
		fi;
		atomic { in_next++; matches = 0; gen = 0 }
	:: else -> break
	od
}

/* copy_matched, await_source */
inline copy_matched()
{
	copy_pieces(message, owner_copied, mine, piece, stop, true, ahead);
	if
	:: stop
	:: else ->
		if
#if MUTANT == 8 /* does not wait for pieces that the source has claimed */
		:: true
#else
		:: mine == PIECES || source_copied >= WORD(message_generation, PIECES - mine)
#endif
		:: cause -> stop = 1
		fi
	fi;
	if
	:: !stop && cursor & CLOSED_BIT -> stop = 1
	:: else
	fi;
	if
	:: stop
	:: else ->
		atomic {
			assert(copied[message] == 3);
			target_returned[message] = 1;
			done = WORD(message_generation, 0)
		}
	fi
}

inline abandon_receive()
{
	state = receive_state;
	if
	:: state == POSTED ->
		LOCK(owner_lock);
		if
		:: receive_state == POSTED -> receive_state = COMPLETE
		:: else
		fi;
		UNLOCK(owner_lock);
#if MUTANT != 10 /* mutant 10 does not read it again: another thread may have matched the receive */
		state = receive_state
#endif
	:: else
	fi;
	if
	:: state == MATCHED ->
		close(mine, theirs);
		theirs == 0 || source_copied >= WORD(message_generation, theirs)
	:: else
	fi;
	if
	:: receive_state == MATCHED -> target_returned[message] = 1
	:: else
	fi
}

proctype owner()
{
	byte mine, piece, theirs, gen, count;
	bit matches, stop, ahead;
	mtype state;
	do
	:: count < USES ->
		LOCK(owner_lock);
		atomic { receive_state = POSTED; count++ };
		arrive();
		UNLOCK(owner_lock);
		/* Perhaps nothing arrives any more, because the sends were cancelled. */
end_asked:	do
		:: receive_state != POSTED -> break
		:: receive_state == POSTED && posted >= in_next ->
			LOCK(owner_lock);
			arrive();
			UNLOCK(owner_lock)
		:: receive_state == POSTED && cause -> stop = 1; break
		od;
		if
		:: !stop -> copy_matched()
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

/* Matches what has arrived; or does nothing more. */
proctype other_owner_thread()
{
	byte gen;
	bit matches;
	do
	:: atomic { !owner_lock && receive_state == POSTED && posted >= in_next -> owner_lock = 1 };
	   arrive();
	   UNLOCK(owner_lock)
	:: break
	od
}
