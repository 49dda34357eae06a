/* SPDX-License-Identifier: BSD-3-Clause
 * Part of request.pml: the bell, how it is armed, and progress by whichever thread. */

/* ---- the bell ---- */

#if MUTANT == 23
/* disarms the bell without a request, if the bell was armed in the other way meanwhile */
#define REQUESTS(how) (bell_bits & (how))
#else
#define REQUESTS(how) (bell_bits & ARMED)
#endif
/* wake_bell in wait.c; `how` is its `armed`: one of these bits is enough. Between the two steps
 * another thread may arm the bell anew, in the other way. */
#define WAKE(how)                                                \
	if                                                       \
	:: bell_bits & how ->                                    \
		atomic {                                         \
			if                                       \
			:: REQUESTS(how) -> requests_changed = 1 \
			:: else                                  \
			fi;                                      \
			bell_bits = 0                            \
		}                                                \
	:: else                                                  \
	fi

/* ---- arming, under the lock ---- */

inline hide_words()
{
	if
	:: shown ->
		shown = 0;
		shows_receive = 0;
		shows_send = 0;
		unpublished = unpublished + COUNTED
	:: else
	fi
}

inline disarm_bell()
{
	if
	:: armed ->
#if MUTANT != 2 /* mutant 2 counts the progress thread out twice */
		hide_words();
#endif
		armed = 0;
		urgent = 0;
		bell_bits = 0;
		unpublished = unpublished - COUNTED
	:: else
	fi
}

inline arm_bell()
{
	if
	:: !armed -> unpublished = unpublished + COUNTED; armed = 1
	:: else
	fi;
	urgent = urgent_count > 0;
#if MUTANT != 10
	/* mutant 10 leaves words in the table that are no longer all that the progress thread
	 * awaits */
	hide_words();
#endif
	bell_bits = bell_bits | ARMED | (urgent -> URGENT : 0)
}

/* p2p_take */
inline p2p_take(mine)
{
	UNDER_LOCK
		mine = !progressing;
		progressing = 1;
		if
		:: mine -> disarm_bell()
		:: else
		fi;
	UNLOCKED
}

/* Arms the bell, and then looks whether progress is possible now. */
inline arm_and_check(ready)
{
	UNDER_LOCK
		ready = !progressing && progress_count > 0;
		if
		:: ready -> arm_bell()
		:: else
		fi;
	UNLOCKED
#if MUTANT == 1 /* does not look: what came before the bell was armed has requested nothing */
	ready = 0
#else
	ready = ready && (HAS_WORK || RECEIVE_IS_READY || SEND_IS_READY)
#endif
}

/* ---- progress ---- */

/* An operation is complete, or has begun: wakes the threads that wait for this, on the doorbell of
 * their own rank. */
inline p2p_wake_followers()
{
	if
	:: followers > 0 ->
		wakeups[0] = (wakeups[0] -> CHANGED : 0);
		wakeups[1] = (wakeups[1] -> CHANGED : 0);
		WAKE(URGENT)
	:: else
	fi
}

/* p2p_collect */
inline p2p_collect()
{
	atomic {
		if
		:: receive == COMPLETE -> receive = COLLECTED; progress_count--; p2p_wake_followers()
		:: else
		fi
	}
	atomic {
		if
		:: send == COMPLETE ->
			send = COLLECTED;
			send_is_listed = 0;
			progress_count = progress_count - send_wants_progress;
			urgent_count = urgent_count - send_wants_progress;
			p2p_wake_followers()
		:: else
		fi
	}
}

/* more: a slice of the message has been copied, and not all. */
inline p2p_pass(more)
{
	atomic {
		if
		:: RECEIVE_IS_READY -> receive = MATCHED
		:: else
		fi;
		if
		:: SEND_IS_READY -> send = COMPLETE
		:: else
		fi;
		if
		:: receive == MATCHED -> receive = COMPLETE; more = 0
		:: receive == MATCHED -> more = 1
		:: receive != MATCHED -> more = 0
		fi
	}
	p2p_collect()
}

/* p2p_release */
inline p2p_release(more, mine)
{
	do
	::
		UNDER_LOCK
			progressing = 0;
			more = more && progress_count > 0;
			if
			:: more -> arm_bell()
			:: else
			fi;
		UNLOCKED
#if MUTANT != 12 /* mutant 12 does not wake a thread that now has to make progress */
		atomic { p2p_wake_followers() };
#endif
		if
		:: atomic { more -> requests_changed = 1; more = 0; break }
		:: else
		fi;
#if MUTANT == 3
		/* does not look for what came while it made progress, which has requested
		 * nothing */
		break;
#endif
		arm_and_check(mine);
		if
		:: mine -> p2p_take(mine)
		:: else
		fi;
		if
		:: mine -> p2p_pass(more)
		:: else -> break
		fi
	od
}
