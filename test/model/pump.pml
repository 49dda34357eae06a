/* SPDX-License-Identifier: BSD-3-Clause
 * Which thread makes progress on the link to another host (src/hosts/pump.c, advance.c). A thread of a rank publishes
 * something, which the link sends at once or keeps back, and waits: it makes progress while it spins, and hands over when it
 * sleeps. Beside it another thread publishes, or waits, or uses the link between hosts_progress_begin and _end. The pump
 * ticks while others make progress; else it arms the link and sleeps. The network brings a message, and says when there is
 * room again in a link that was full.
 *
 * In the model the nap has no time limit, and a tick may last until something else ends it. There is one peer and one area.
 * What the thread does that makes progress is seen in three steps: the link advances; it takes what was asked of it; it sends.
 * A thread that sleeps for a message is a guard: that the doorbell loses no wake-up is shown in doorbell.pml.
 *
 * Shown: once all threads sleep nothing is left unsent, neither marked nor kept back, nor undelivered. What the link keeps
 * back outlives one tick at most, also while a thread spins for ever. What the link has copied when it was posted, of which
 * the network tells nothing, is seen by a thread that lets the link advance. No tick goes on after a thread has handed over, unless
 * another one has made progress since. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 */
#ifndef MUTANT
#define MUTANT 0
#endif

/* hosts.progress */
#define HELD 1
#define AGAIN 2
#define PUSH 4
byte progress;
#if MUTANT == 1 /* the thread that makes progress does not look again for what was left to it */
#define ASK 0
#else
#define ASK AGAIN
#endif

/* enum pump_state */
#define AWAKE 0
#define TICKS 1
#define ARMED 2
byte state = AWAKE;
/* enum pump_progress */
#define PROGRESS_NONE 0
#define PROGRESS_MADE 1
#define PROGRESS_HANDED_OVER 2
byte pump_progress;
bit event; /* of event_fd */

/* What is to be sent. */
byte word, sent; /* as published; as the link has it */
bit unsent;
bit kept; /* the link keeps something back, and `kept` says so */

/* The link and the network. */
bit no_room, owes_room, brings_room; /* no room; the peer has to say that there is again; it has */
bit brings;                       /* a message has arrived, and was not delivered */
bit armed, readable;
bit brought, delivered;
bit copied; /* the link has copied what was posted, and says so when it next advances */
bit copies; /* within one step: it has copied just now */

/* For the assertions. */
byte handing;     /* threads that hand over now */
bit looks_again;  /* `pump_progress` says that somebody has handed over, and nobody has */
bit outlived;     /* what is kept back has outlived a tick */

/* What is posted then has no room for a while, or it has. */
inline push_all()
{
	kept = 0;
	outlived = 0;
	if
	:: !owes_room && !brings_room -> no_room = 1; owes_room = 1
	:: true
	fi
}

inline pump_sees()
{
	atomic {
		if
#if MUTANT != 19 /* the pump is about to nap */
		:: pump_progress == PROGRESS_NONE -> pump_progress = PROGRESS_HANDED_OVER; looks_again = 1
#endif
		:: else
		fi
	};
	if
	:: atomic { state == ARMED -> state = AWAKE } event = 1
	:: else
	fi
}

/* Others see what it has sent when it is over. */
inline serve(pushes)
{
	atomic {
		pushes = (progress & PUSH) != 0;
#if MUTANT == 17 /* what is left to it while it pushes is kept back again */
		progress = progress & HELD
#else
		progress = progress & (HELD | PUSH)
#endif
	};
	atomic {
		if
		:: unsent && word != sent && no_room -> /* the mark stays; nothing is kept back */
#if MUTANT == 2 /* it does not */
			unsent = 0
#else
			skip
#endif
		:: unsent && word != sent && !no_room ->
			unsent = 0;
			sent = word;
			if
			:: kept = 1 /* no rank waits for it */
			:: push_all()
			:: push_all(); copied = 1; copies = 1
			fi
		:: else -> unsent = 0
		fi;
		if
#if MUTANT != 3 /* it does not push */
		:: kept && pushes -> push_all()
#endif
		:: else
		fi;
		pushes = copies;
		copies = 0
	};
	if
	:: pushes ->
		pushes = 0;
#if MUTANT != 18 /* the pump sleeps, and the network says nothing */
		pump_sees()
#endif
	:: else
	fi
}

inline link_advance(did)
{
	atomic {
		if
		:: brings || brings_room || copied -> did = 1
		:: else
		fi;
		if
		:: brings -> brings = 0; delivered = 1
		:: else
		fi;
		if
		:: brings_room -> brings_room = 0; no_room = 0
		:: else
		fi;
		copied = 0;
		armed = 0;
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
			serve(pushes);
			if
			:: atomic { !(progress & AGAIN) -> progress = 0; break }
			:: else
			fi
		od
	fi
}

/* With hosts_pump_pushes. */
inline push_or_leave(did, has, pushes)
{
	if
	:: !kept
	:: else ->
		has = 0;
		if
		:: state == ARMED -> has = 1
		:: else ->
#if MUTANT != 5 /* the pump is about to nap, and does not learn of it */
			if
			:: pump_progress == PROGRESS_NONE -> pump_progress = PROGRESS_MADE
			:: else
			fi;
#endif
#if MUTANT != 6 /* the pump naps by now */
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
#if MUTANT == 7 /* served before it is there */
	unsent = 1;
	word++;
#else
	word++;
	unsent = 1;
#endif
	make_progress(ASK, 0, did, has, pushes);
	push_or_leave(did, has, pushes)
}

/* pump.c: advance */
inline advance(did, has, pushes)
{
#if MUTANT == 4 /* the pump ticks and arms in between, and sleeps though the link is not armed any more */
	atomic { pump_progress = PROGRESS_MADE; has = state == ARMED };
	if
	:: atomic { has -> has = 0; state = AWAKE } event = 1
	:: else
	fi;
#endif
	make_progress(ASK, 1, did, has, pushes);
	did = 0;
	push_or_leave(did, has, pushes);
#if MUTANT != 8 && MUTANT != 9 /* 8: the pump is about to nap */
	pump_progress = PROGRESS_MADE;
#endif
	if
#if MUTANT != 10 && MUTANT != 4 /* the link is not armed any more, and the pump sleeps on */
	:: atomic { state == ARMED -> state = AWAKE } event = 1
#endif
	:: else
	fi
#if MUTANT == 9 /* it may have begun to nap in between */
	pump_progress = PROGRESS_MADE
#endif
}

inline hand_over()
{
#if MUTANT == 11 /* another thread has made progress, or this one, while the pump was about to nap */
	atomic { pump_progress = PROGRESS_NONE; handing++ };
#else
	atomic { pump_progress = PROGRESS_HANDED_OVER; looks_again = 0; handing++ };
#endif
	if
#if MUTANT != 12 /* the pump sleeps on until its tick is over */
	:: atomic { state == TICKS -> state = AWAKE } event = 1
#endif
	:: else
	fi;
	handing--
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
	:: waits && !delivered -> advance(did, has, pushes)
	:: waits && !delivered ->
		hand_over();
end_sleeps:	delivered;
		break
	od
}

proctype beside()
{
	bit did, has, pushes;
	atomic { !(progress & HELD) -> progress = progress | HELD };
	do
	:: atomic { !(progress & AGAIN) -> progress = 0; break }
	:: else -> serve(pushes)
	od;
#if MUTANT != 13 /* it has served a thread that sees nothing that is kept back */
	push_or_leave(did, has, pushes)
#endif
}

inline tick(did, has, pushes)
{
#if MUTANT != 14 /* as long as others make progress nothing is pushed */
	make_progress(ASK | PUSH, 0, did, has, pushes);
#endif
	state = TICKS;
	if
#if MUTANT != 15 /* a thread that has handed over before that has not seen it */
	:: pump_progress == PROGRESS_HANDED_OVER
#endif
	:: else ->
		if
		:: atomic { event -> event = 0 }
		:: atomic {
			!event ->
			assert(pump_progress != PROGRESS_HANDED_OVER || handing || looks_again);
			assert(!outlived || progress);
			outlived = kept && !progress
		}
		fi
	fi;
	state = AWAKE
}

inline nap()
{
	state = ARMED;
	if
#if MUTANT != 16 /* a thread that has made progress before that has not seen it */
	:: pump_progress != PROGRESS_NONE
#endif
	:: else ->
end_naps:	atomic { event || readable -> event = 0 }
	fi;
	state = AWAKE
}

inline hosts_arm(has, pushes, arms)
{
	atomic { has = progress & HELD; progress = progress | HELD | AGAIN };
	if
	:: has -> has = 0
	:: else ->
		serve(pushes);
		atomic {
			if
			:: kept -> push_all()
			:: else
			fi;
			arms = !brings && !brings_room && !copied; /* as net_arm does */
			armed = arms
		};
		if
		:: atomic { !(progress & AGAIN) -> progress = 0 }
		:: else -> progress = 0; arms = 0
		fi
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
			:: was == PROGRESS_MADE -> was = 0; tick(did, has, pushes)
			:: else ->
				was = 0;
				hosts_arm(has, pushes, arms);
				if
				:: arms -> arms = 0; nap()
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
		!brought ->
		brought = 1;
		brings = 1;
		readable = readable | armed
	}
	:: atomic {
		owes_room ->
		owes_room = 0;
		brings_room = 1;
		readable = readable | armed
	}
	od
}

proctype ending()
{
	timeout;
	assert(word == sent && !kept && !progress);
	assert(!brings && !brings_room && !copied)
}

init {
	atomic {
		run thread(1, 1);
		if
		:: run thread(1, 0)
		:: run thread(0, 1)
		:: run beside()
		fi;
		run pump();
		run network();
		run ending()
	}
}
