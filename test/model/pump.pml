/* SPDX-License-Identifier: BSD-3-Clause
 * Which thread makes progress on the link to another host (src/hosts/advance.c, pump.c,
 * wake_pump.c).
 *
 * Properties:
 * - Once all threads sleep, nothing is left: not marked and unsent, not kept back, not undelivered.
 * - The link keeps nothing back for longer than one tick, also while a thread spins forever.
 * - If the link copies a message when it is posted, of which the network reports nothing, some
 *   thread still lets the link advance.
 * - The pump does not sleep out its tick after a thread has handed over, unless another thread has
 *   made progress since.
 *
 * Processes: a thread publishes something, and then waits. It makes progress while it spins, and
 * hands over when it goes to sleep. Beside it a second one publishes, or waits, or uses the link
 * between hosts_progress_begin and hosts_progress_end. The pump ticks while other threads make
 * progress; otherwise it arms the link and sleeps. The network brings one message, and says when
 * there is room again in a link that was full.
 *
 * Abstractions: there is one peer and one area. The armed sleep, and the sleep until another thread
 * has stopped, have no time limit, and a tick may last until something else ends it; in the code
 * all end sooner. The thread that makes progress
 * does so in three steps: the link advances; it reads what others have left to it; it sends. A
 * thread that sleeps for a message is a guard: see doorbell.pml.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 */
#ifndef MUTANT
#define MUTANT 0
#endif

/* hosts.progress */
#define HELD 1
#define AGAIN 2
#define PUSH 4
#define CALLED 8
byte progress;
#if MUTANT == 1 /* a thread does not leave its work to the one that makes progress */
#define ASK 0
#else
#define ASK AGAIN
#endif

/* pump->state */
#define AWAKE 0
#define TICKS 1
#define ARMED 2
byte state = AWAKE;
/* pump->progress */
#define PROGRESS_NONE 0
#define PROGRESS_MADE 1
#define PROGRESS_HANDED_OVER 2
byte pump_progress;
bit event; /* pump->event_fd is readable */

/* What a thread publishes: its value; the value that the link has; the mark. */
byte published, sent;
bit marked;
bit kept_back; /* the link keeps something back, and the bit in hosts->kept_back is set */

/* The link and the network. */
/* no room; the peer has yet to say that there is room; it has said so */
bit link_full, room_due, room_arrived;
bit message_arrived; /* and was not delivered */
bit link_armed, readable;
bit message_sent, delivered;
bit copied; /* has copied what was posted, and says so when it next advances */
bit copies; /* within one step: it has just copied */

/* For the assertions. */
byte handing_over; /* threads that hand over now */
bit recheck_only; /* pump_progress says that a thread has handed over, but none has */
bit outlived; /* what is kept back has outlived a tick */

/* Afterwards the link may be full for a while. */
inline push_all()
{
	kept_back = 0;
	outlived = 0;
	if
	:: !room_due && !room_arrived -> link_full = 1; room_due = 1
	:: true
	fi
}

inline hosts_pump_recheck()
{
	atomic {
		if
#if MUTANT != 19 /* mutant 19 does not reach a pump that is about to sleep */
		:: pump_progress == PROGRESS_NONE ->
			pump_progress = PROGRESS_HANDED_OVER;
			recheck_only = 1
#endif
		:: else
		fi
	};
	if
	:: atomic { state == ARMED -> state = AWAKE } event = 1
	:: else
	fi
}

/* Others see what this has sent only when it is over. */
inline serve_others(pushes)
{
	atomic {
		pushes = (progress & PUSH) != 0;
#if MUTANT == 17
		/* also clears a PUSH that another thread has left, so that what it wants is kept
		 * back */
		progress = progress & (HELD | CALLED)
#elif MUTANT == 21
		/* forgets that the pump sleeps until this thread stops */
		progress = progress & (HELD | PUSH)
#else
		progress = progress & (HELD | PUSH | CALLED)
#endif
	};
	atomic {
		if
		/* The mark stays, and nothing is kept back. */
		:: marked && published != sent && link_full ->
#if MUTANT == 2 /* forgets the mark */
			marked = 0
#else
			skip
#endif
		:: marked && published != sent && !link_full ->
			marked = 0;
			sent = published;
			if
			:: kept_back = 1 /* kept back: no rank waits for it */
			:: push_all()
			:: push_all(); copied = 1; copies = 1
			fi
		:: else -> marked = 0
		fi;
		if
#if MUTANT != 3 /* mutant 3 does not push */
		:: kept_back && pushes -> push_all()
#endif
		:: else
		fi;
		pushes = copies;
		copies = 0
	};
	if
	:: pushes ->
		pushes = 0;
#if MUTANT != 18 /* mutant 18 lets the pump sleep, although the network reports nothing */
		hosts_pump_recheck()
#endif
	:: else
	fi
}

/* If no other thread has left something. The code wakes the pump a moment later, which would only
 * prolong the pump's sleep. */
inline stop_progress(stopped)
{
	atomic {
		stopped = !(progress & AGAIN);
		if
#if MUTANT != 20 /* mutant 20 lets a pump sleep that waits for this thread to stop */
		:: stopped && (progress & CALLED) -> event = 1
#endif
		:: else
		fi;
		progress = (stopped -> 0 : progress)
	}
}

inline link_advance(did)
{
	atomic {
		if
		:: message_arrived || room_arrived || copied -> did = 1
		:: else
		fi;
		if
		:: message_arrived -> message_arrived = 0; delivered = 1
		:: else
		fi;
		if
		:: room_arrived -> room_arrived = 0; link_full = 0
		:: else
		fi;
		copied = 0;
		link_armed = 0;
		readable = 0
	}
}

inline make_progress(asks, advances, did, has, pushes)
{
	did = 0;
	atomic { has = progress & HELD; progress = progress | HELD | asks };
	if
	:: has -> has = 0
	:: else ->
		do
		::
			if
			:: advances -> link_advance(did)
			:: else
			fi;
			serve_others(pushes);
			stop_progress(has);
			if
			:: has -> has = 0; break
			:: else
			fi
		od
	fi
}

/* Includes hosts_pump_pushes. */
inline push_or_leave(did, has, pushes)
{
	if
	:: !kept_back
	:: else ->
		has = 0;
		if
		:: state == ARMED -> has = 1
		:: else ->
#if MUTANT != 5 /* mutant 5 does not tell a pump that is about to sleep */
			if
			:: pump_progress == PROGRESS_NONE -> pump_progress = PROGRESS_MADE
			:: else
			fi;
#endif
#if MUTANT != 6 /* mutant 6 does not look whether the pump sleeps by now */
			if
			:: state == ARMED -> has = 1
			:: else
			fi
#endif
		fi;
		if
		:: has -> make_progress(ASK | PUSH, 0, did, has, pushes)
		:: else
		fi
	fi
}

inline hosts_notify(did, has, pushes)
{
#if MUTANT == 7 /* marks it first; so another thread may look before it is published */
	marked = 1;
	published++;
#else
	published++;
	marked = 1;
#endif
	make_progress(ASK, 0, did, has, pushes);
	push_or_leave(did, has, pushes)
}

/* pump.c: advance_link */
inline advance_link(did, has, pushes)
{
#if MUTANT == 4
	/* wakes the pump first; the pump may tick and arm before the link advances, and sleep
	 * although the link is not armed any more */
	atomic { pump_progress = PROGRESS_MADE; has = state == ARMED };
	if
	:: atomic { has -> has = 0; state = AWAKE } event = 1
	:: else
	fi;
#endif
	make_progress(ASK, 1, did, has, pushes);
	did = 0;
	push_or_leave(did, has, pushes);
#if MUTANT != 8 && MUTANT != 9 /* mutant 8 does not tell a pump that is about to sleep */
	pump_progress = PROGRESS_MADE;
#endif
	if
#if MUTANT != 10 && MUTANT != 4
	/* mutants 4 and 10 let the pump sleep, although the link is not armed any more */
	:: atomic { state == ARMED -> state = AWAKE } event = 1
#endif
	:: else
	fi
#if MUTANT == 9 /* does so too late: the pump may have gone to sleep in between */
	pump_progress = PROGRESS_MADE
#endif
}

inline hand_over_progress()
{
#if MUTANT == 11 /* hides from a pump that is about to sleep that a thread has made progress */
	atomic { pump_progress = PROGRESS_NONE; handing_over++ };
#else
	atomic { pump_progress = PROGRESS_HANDED_OVER; recheck_only = 0; handing_over++ };
#endif
	if
#if MUTANT != 12 /* mutant 12 lets the pump sleep until its tick is over */
	:: atomic { state == TICKS -> state = AWAKE } event = 1
#endif
	:: else
	fi;
	handing_over--
}

proctype thread(bit publishes, waits)
{
	bit did, has, pushes;
	if
	:: publishes -> hosts_notify(did, has, pushes)
	:: else
	fi;
	do
	:: !waits -> break
	:: waits && delivered -> break
	:: waits && !delivered -> advance_link(did, has, pushes)
	:: waits && !delivered ->
		hand_over_progress();
end_sleeps:	delivered;
		break
	od
}

proctype progress_section()
{
	bit did, has, pushes;
	atomic { !(progress & HELD) -> progress = progress | HELD };
	do
	::
		stop_progress(has);
		if
		:: has -> has = 0; break
		:: else -> serve_others(pushes)
		fi
	od;
#if MUTANT != 13 /* mutant 13 keeps back what it has served for a thread that looks no more */
	push_or_leave(did, has, pushes)
#endif
}

inline sleep_one_tick(did, has, pushes)
{
#if MUTANT != 14 /* mutant 14 pushes nothing as long as others make progress */
	make_progress(ASK | PUSH, 0, did, has, pushes);
#endif
	state = TICKS;
	if
#if MUTANT != 15
	/* mutant 15 does not look: a thread that has handed over before has not seen TICKS */
	:: pump_progress == PROGRESS_HANDED_OVER
#endif
	:: else ->
		if
		:: atomic { event -> event = 0 }
		:: atomic {
			!event ->
			assert(pump_progress != PROGRESS_HANDED_OVER || handing_over ||
					recheck_only);
			assert(!outlived || progress);
			outlived = kept_back && !progress
		}
		fi
	fi;
	state = AWAKE
}

inline sleep_armed()
{
	state = ARMED;
	if
#if MUTANT != 16
	/* mutant 16 does not look: a thread that has made progress before has not seen ARMED */
	:: pump_progress != PROGRESS_NONE
#endif
	:: else ->
end_sleeps_armed:	atomic { event || readable -> event = 0 }
	fi;
	state = AWAKE
}

inline hosts_arm(has, pushes, arms)
{
	atomic {
		has = progress & HELD;
		progress = progress | AGAIN | (has -> CALLED : HELD)
	};
	if
	:: has ->
		has = 0;
end_sleeps_called:	atomic { event -> event = 0 }
	:: else ->
		serve_others(pushes);
		atomic {
			if
			:: kept_back -> push_all()
			:: else
			fi;
			arms = !message_arrived && !room_arrived && !copied; /* as net_arm does */
			link_armed = arms
		};
		do
		::
			stop_progress(has);
			if
			:: has -> has = 0; break
			:: else -> serve_others(pushes); arms = 0
			fi
		od
	fi
}

proctype pump()
{
	bit did, has, pushes, arms;
	byte was;
	do
	::
		make_progress(ASK, 1, did, has, pushes);
		if
		:: did -> did = 0
		:: else ->
			atomic { was = pump_progress; pump_progress = PROGRESS_NONE };
			if
			:: was == PROGRESS_MADE -> was = 0; sleep_one_tick(did, has, pushes)
			:: else ->
				was = 0;
				hosts_arm(has, pushes, arms);
				if
				:: arms -> arms = 0; sleep_armed()
				:: else
				fi
			fi
		fi
	od
}

proctype network()
{
end_still:
	do
	:: atomic {
		!message_sent ->
		message_sent = 1;
		message_arrived = 1;
		readable = readable | link_armed
	}
	:: atomic {
		room_due ->
		room_due = 0;
		room_arrived = 1;
		readable = readable | link_armed
	}
	od
}

proctype ending()
{
	timeout;
	assert(published == sent && !kept_back && !progress);
	assert(!message_arrived && !room_arrived && !copied)
}

init {
	atomic {
		run thread(1, 1);
		if
		:: run thread(1, 0)
		:: run thread(0, 1)
		:: run progress_section()
		fi;
		run pump();
		run network();
		run ending()
	}
}
