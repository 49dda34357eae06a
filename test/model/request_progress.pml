/* SPDX-License-Identifier: BSD-3-Clause
 * Part of request.pml: the bell, arming, and progress on everything, by whichever thread. */

/* ---- the bell ---- */

#if MUTANT == 23 /* it is disarmed, though what it was armed for meanwhile is not seen to */
#define REQUESTS(how) (bits & (how))
#else
#define REQUESTS(how) (bits & ARMED)
#endif
/* `how` as `armed` in wait.c: one of these bits is enough. */
/* In between it may be armed anew, and in the other way. */
#define WAKE(how)                                                 \
	if                                                        \
	:: bits & how ->                                          \
		atomic {                                          \
			if                                        \
			:: REQUESTS(how) -> requested = 1         \
			:: else                                   \
			fi;                                       \
			bits = 0                                  \
		}                                                 \
	:: else                                                   \
	fi

/* ---- arming, under the lock ---- */

inline hide()
{
	if
	:: shown -> shown = 0; shows_receive = 0; shows_send = 0; unpublished = unpublished + COUNTED
	:: else
	fi
}

inline disarm()
{
	if
	:: armed ->
#if MUTANT != 2 /* else it is counted out twice */
		hide();
#endif
		armed = 0;
		urgent = 0;
		bits = 0;
		unpublished = unpublished - COUNTED
	:: else
	fi
}

inline arm()
{
	if
	:: !armed -> unpublished = unpublished + COUNTED; armed = 1
	:: else
	fi;
	urgent = urgent_count > 0;
#if MUTANT != 10 /* what was shown is not all that the progress thread wakes for any more */
	hide();
#endif
	bits = bits | ARMED | (urgent -> URGENT : 0)
}

/* p2p_take */
inline take(mine)
{
	UNDER_LOCK
		mine = !progressing;
		progressing = 1;
		if
		:: mine -> disarm()
		:: else
		fi;
	UNLOCKED
}

/* Whether something could go on now, for one that has armed the progress thread. */
inline arm_and_check(ready)
{
	UNDER_LOCK
		ready = !progressing && progress_count > 0;
		if
		:: ready -> arm()
		:: else
		fi;
	UNLOCKED
#if MUTANT == 1 /* what came before it was armed has requested nothing */
	ready = 0
#else
	ready = ready && (HAS_WORK || RECEIVE_IS_READY || SEND_IS_READY)
#endif
}

/* ---- going on with everything ---- */

/* Something is over, or new, for those that rest; on the doorbell of the rank itself. */
inline wake_waiters()
{
	if
	:: progress_waiters > 0 ->
		points[0] = (points[0] -> CHANGED : 0);
		points[1] = (points[1] -> CHANGED : 0);
		WAKE(URGENT)
	:: else
	fi
}

/* p2p_collect */
inline collect()
{
	atomic {
		if
		:: receive == DONE -> receive = OVER; progress_count--; wake_waiters()
		:: else
		fi
	}
	atomic {
		if
		:: send == DONE ->
			send = OVER;
			send_listed = 0;
			progress_count = progress_count - send_wants;
			urgent_count = urgent_count - send_wants;
			wake_waiters()
		:: else
		fi
	}
}

/* more: a slice of the message is copied, and not all. */
inline sweep(more)
{
	atomic {
		if
		:: RECEIVE_IS_READY -> receive = MET
		:: else
		fi;
		if
		:: SEND_IS_READY -> send = DONE
		:: else
		fi;
		if
		:: receive == MET -> receive = DONE; more = 0
		:: receive == MET -> more = 1
		:: receive != MET -> more = 0
		fi
	}
	collect()
}

/* p2p_release */
inline leave(more, mine)
{
	do
	::
		UNDER_LOCK
			progressing = 0;
			more = more && progress_count > 0;
			if
			:: more -> arm()
			:: else
			fi;
		UNLOCKED
#if MUTANT != 12 /* a thread that rests has to make progress now */
		atomic { wake_waiters() };
#endif
		if
		:: atomic { more -> requested = 1; more = 0; break }
		:: else
		fi;
#if MUTANT == 3 /* whatever came while it made progress was no request */
		break;
#endif
		arm_and_check(mine);
		if
		:: mine -> take(mine)
		:: else
		fi;
		if
		:: mine -> sweep(more)
		:: else -> break
		fi
	od
}
