/* SPDX-License-Identifier: BSD-3-Clause
 * Boxes and what their owner asks for (src/transport/mail.h and .c; src/mailbox/send.c and arrive.c): two
 * sources send to one owner, each in its own box of two slots; one of them so many that slots are passed
 * over. The owner receives from one source or any, with one tag or any, several at a time. One of the
 * messages is long, and may be taken back at any time before it is met; what becomes of it afterwards is
 * rts.pml's business. A wait is a guard on the awaited words: that the doorbell loses no wake-up is
 * shown in doorbell.pml. What the owner does under its lock is one process here.
 *
 * Shown: a receive meets the oldest message of a source that fits it, and a message the receive that was
 * called first of those it fits; so messages of one source and tag are received in their order. Each is met
 * at most once, whole, and never after it was taken back. A slot is not filled again while its message lies
 * there. Nobody waits while there is something for him: in the end who waits for room has none, of what lies there
 * nothing fits what is asked for, and what was taken back is gone if its source is asked for anything. An atomic
 * block touches at most one word that both sides see, apart from those whose reader is ordered behind. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define SOURCES 2
#define SLOTS 2
#define MOST 3 /* messages of a source */
#define RECEIVES 3
#define ANY 2

/* Which of the messages (1, 2, ...) of source 0 is long. */
#define LONG 2

/* In memory that both sides see, of source q: slot of position p; message m. */
#define SLOT(q, p) ((q) * SLOTS + (p) % SLOTS)
#define ID(q, m) ((q) * MOST + (m) - 1)
byte sequence[SOURCES * SLOTS], held[SOURCES * SLOTS], freed[SOURCES * SLOTS];
byte envelope[SOURCES * SLOTS], payload[SOURCES * SLOTS]; /* both are the message */
byte taken[SOURCES];
mtype = { NOBODYS, MET, CLOSED };
mtype cursor = NOBODYS; /* of the long message */

bit tag[SOURCES * MOST]; /* in the envelope */

/* Private to the owner. */
byte next[SOURCES];          /* position to be looked at */
bit unmet[SOURCES * MOST];   /* arrived, wanted by nobody yet */
byte place[SOURCES * MOST];  /* in which slot */
byte calls;                  /* receives begun */
byte wants_source[RECEIVES], wants_tag[RECEIVES];
bit asks[RECEIVES];

/* For the assertions only. */
byte sent[SOURCES];          /* messages posted */
bit lies[SOURCES * SLOTS];   /* a message lies there */
bit was_met[SOURCES * MOST], back[SOURCES * MOST];

#define FITS(r, q, t) \
	((wants_source[r] == ANY || wants_source[r] == q) && (wants_tag[r] == ANY || wants_tag[r] == t))
#define IS_LONG(q, m) (q == 0 && m == LONG)
#define WANTED_BY(r, q) (asks[r] && (wants_source[r] == ANY || wants_source[r] == q))
#define WANTED(q) (WANTED_BY(0, q) || WANTED_BY(1, q) || WANTED_BY(2, q))
#define IS_THERE(q) (sequence[SLOT(q, next[q])] >= next[q])

/* ---- the sources ---- */

inline fill()
{
	atomic {
		assert(!lies[slot]);
		lies[slot] = 1;
		envelope[slot] = sent[q] + 1;
		payload[slot] = sent[q] + 1;
		if
		:: sent[q] > 0 || q == 1 -> tag[ID(q, sent[q] + 1)] = 1
		:: q == 0 /* the other way round is the same */
		fi
	}
}

/* mailbox_cancel, and transport_mail_skip. */
inline take_back()
{
#if MUTANT == 14 /* the owner may look before there is anything to see */
	sequence[SLOT(0, at)] = at;
#endif
	atomic {
		takes_back = 0;
		if
		:: cursor == NOBODYS -> cursor = CLOSED; back[ID(0, LONG)] = 1
		:: else
		fi
	}
	atomic {
#if MUTANT != 13 && MUTANT != 14 /* else the owner does not learn that it is to look */
		sequence[SLOT(0, at)] = at;
#endif
		at++
	}
}

proctype source(byte q; byte count)
{
	byte at = 1, clear = 1 + SLOTS, seen, slot, tries;
	bit takes_back; /* the long message, at some time while that is possible; all under its lock is one process */
	if
	:: takes_back = q == 0
	:: skip
	fi;
end_full:
	do
	:: takes_back && sent[q] >= LONG -> take_back()
	:: sent[q] < count && (sent[q] - seen < SLOTS || taken[q] > seen) ->
		/* mail_has_room */
		if
		:: sent[q] - seen < SLOTS
		:: atomic {
			sent[q] - seen == SLOTS ->
			seen = taken[q];
			if
#if MUTANT == 1 /* as if all were taken in their order */
			:: true -> clear = at + sent[q] - seen
#else
			:: seen == sent[q] -> clear = at + SLOTS
#endif
			:: else
			fi
		   }
		fi;
		/* mail_post */
		do
		:: atomic {
			tries < SLOTS && at >= clear && held[SLOT(q, at)] != freed[SLOT(q, at)] -> tries++
		   };
#if MUTANT != 2 /* else the owner does not learn that it was passed over */
		   sequence[SLOT(q, at)] = at;
#endif
		   at++
		:: else -> break
		od;
		slot = SLOT(q, at);
#if MUTANT == 3 /* the envelope comes last */
		held[slot] = at;
		sequence[slot] = at;
		fill();
#elif MUTANT == 4 /* who sees the sequence number first thinks that it was passed over */
		fill();
		sequence[slot] = at;
		held[slot] = at;
#else
		fill();
		held[slot] = at;
		sequence[slot] = at;
#endif
		atomic { at++; sent[q]++; tries = 0; slot = 0 }
	:: sent[q] == count && !takes_back -> break
	od
}

/* ---- the owner ---- */

/* Here the payload is used: what lies there is message m. Then mail_take. */
#define USE assert(!ok || payload[slot] == m)
inline take(q, slot)
{
#if MUTANT == 5 /* the source may find no slot although there is room */
	taken[q]++;
	atomic { USE; lies[slot] = 0; envelope[slot] = 0; payload[slot] = 0; freed[slot] = held[slot] }
#else
	atomic { USE; lies[slot] = 0; envelope[slot] = 0; payload[slot] = 0; freed[slot] = held[slot] };
	taken[q]++
#endif
}

/* Receive r has found message m of source q: it meets it, unless it was taken back. ok: whether. */
inline meet(r, q, m, slot)
{
	atomic {
#if MUTANT == 6 /* without asking the RTS slot */
		ok = 1;
#else
		ok = !IS_LONG(q, m) || cursor == NOBODYS;
#endif
		if
		:: ok && IS_LONG(q, m) -> cursor = MET
		:: else
		fi;
		assert(m > 0 && !was_met[ID(q, m)]);
		if
		:: ok ->
			assert(!back[ID(q, m)]);
			i = 1;
			do
			:: i < m ->
				assert(was_met[ID(q, i)] || back[ID(q, i)] || !FITS(r, q, tag[ID(q, i)]));
				i++
			:: else -> break
			od;
			i = 0;
			do
			:: i < r -> assert(!asks[i] || !FITS(i, q, tag[ID(q, m)])); i++
			:: else -> i = 0; break
			od;
			was_met[ID(q, m)] = 1;
			asks[r] = 0;
			wants_source[r] = 0;
			wants_tag[r] = 0
		:: else
		fi
	}
#if MUTANT == 12
	USE
#else
	take(q, slot)
#endif
}

/* What has arrived and met nobody may have been taken back since. */
inline purge(q)
{
	if
#if MUTANT != 15 /* else it lies there until somebody wants it */
	:: atomic {
		passed && q == 0 && unmet[ID(0, LONG)] && cursor == CLOSED ->
		unmet[ID(0, LONG)] = 0;
		slot = place[ID(0, LONG)];
		place[ID(0, LONG)] = 0;
		m = LONG
	   };
	   take(0, slot)
#endif
	:: else
	fi;
	atomic { passed = 0; m = 0; slot = 0 }
}

/* mailbox_arrive */
inline arrive(q)
{
	do
	:: atomic {
		IS_THERE(q) ->
		slot = SLOT(q, next[q]);
		next[q]++
	   };
	   if
#if MUTANT == 8 /* whatever lies there */
	   :: atomic {
		held[slot] != 0 ->
#else
	   :: atomic {
		held[slot] == next[q] - 1 ->
#endif
			m = envelope[slot];
			assert(m > 0 && !unmet[ID(q, m)]);
			found = RECEIVES;
#if MUTANT == 7 /* the one that was called last */
			i = 0;
			do
			:: i < RECEIVES && asks[i] && FITS(i, q, tag[ID(q, m)]) -> found = i; i++
			:: i < RECEIVES && !(asks[i] && FITS(i, q, tag[ID(q, m)])) -> i++
			:: i == RECEIVES -> break
			od;
#else
			i = RECEIVES;
			do
			:: i > 0 && asks[i - 1] && FITS(i - 1, q, tag[ID(q, m)]) -> found = i - 1; i--
			:: i > 0 && !(asks[i - 1] && FITS(i - 1, q, tag[ID(q, m)])) -> i--
			:: i == 0 -> break
			od;
#endif
			i = 0
		};
#if MUTANT == 12 /* its slot is free as soon as it has arrived */
		take(q, slot);
#endif
		if
		:: found < RECEIVES -> meet(found, q, m, slot)
		:: else -> atomic { unmet[ID(q, m)] = 1; place[ID(q, m)] = slot }
		fi
	   :: else -> passed = q == 0 /* of the other nothing is taken back */
	   fi;
	   atomic { m = 0; slot = 0; found = 0; ok = 0 }
	:: else -> break
	od;
	purge(q)
}

/* Receive r looks at what has arrived from source q and met nobody. */
inline meet_unmet(r)
{
	do
	:: atomic {
#if MUTANT == 10 /* the newest first */
		m = MOST;
		do
		:: m > 0 && unmet[ID(q, m)] && FITS(r, q, tag[ID(q, m)]) -> break
		:: m > 0 && !(unmet[ID(q, m)] && FITS(r, q, tag[ID(q, m)])) -> m--
		:: m == 0 -> break
		od;
#else
		m = 1;
		do
		:: m <= MOST && unmet[ID(q, m)] && FITS(r, q, tag[ID(q, m)]) -> break
		:: m <= MOST && !(unmet[ID(q, m)] && FITS(r, q, tag[ID(q, m)])) -> m++
		:: m > MOST -> m = 0; break
		od;
#endif
		if
		:: m == 0 -> break
		:: else -> unmet[ID(q, m)] = 0; slot = place[ID(q, m)]; place[ID(q, m)] = 0
		fi
	   }
	   meet(r, q, m, slot);
	   atomic {
		m = 0;
		slot = 0;
		if
		:: ok -> break
		:: else
		fi
	   }
	od
}

/* The sources that a receive wants, in any order. */
#define FROM_EACH(r, look)                                             \
	if                                                             \
	:: wants_source[r] != 1 -> q = 0                               \
	:: wants_source[r] != 0 -> q = 1                               \
	fi;                                                            \
	look;                                                          \
	if                                                             \
	:: wants_source[r] == ANY && !ok -> q = 1 - q; look            \
	:: else                                                        \
	fi;                                                            \
	q = 0

/* mailbox_receive */
inline receive(r)
{
	atomic {
		if
		:: wants_source[r] = 0
		:: wants_source[r] = ANY
		fi;
		if
		:: wants_tag[r] = 0
		:: wants_tag[r] = 1
		:: wants_tag[r] = ANY
		fi
	}
#if MUTANT == 9 /* before it has taken in what has arrived */
	FROM_EACH(r, meet_unmet(r));
	if
	:: !ok -> FROM_EACH(r, arrive(q))
	:: else
	fi;
#else
	/* What has arrived already belongs to those that were called before. */
	FROM_EACH(r, arrive(q));
	FROM_EACH(r, meet_unmet(r));
#endif
	atomic { asks[r] = !ok; calls++; ok = 0 }
}

#if MUTANT == 11 /* who asks any source waits for one */
#define AWAITS(q) (WANTED(q) && (q == 0 || !WANTED(0)))
#else
#define AWAITS(q) WANTED(q)
#endif

proctype owner()
{
	byte q, slot, m, found, i;
	bit ok, passed;
end_waits:
	do
	:: calls < RECEIVES -> receive(calls)
	:: atomic { AWAITS(0) && IS_THERE(0) -> q = 0 }; arrive(q)
	:: atomic { AWAITS(1) && IS_THERE(1) -> q = 1 }; arrive(q); q = 0
	od
}

#define LIES(q, m) \
	((lies[SLOT(q, 0)] && envelope[SLOT(q, 0)] == m) || (lies[SLOT(q, 1)] && envelope[SLOT(q, 1)] == m))
#define ASKED(r) (asks[r] && FITS(r, q, tag[ID(q, m)]))

/* All sources have sent everything, or have no room; what lies there, looked at or not, fits no receive; and was not taken
 * back, if anything of its source is asked for. */
inline check(count)
{
	assert(sent[q] == count || (lies[SLOT(q, 0)] && lies[SLOT(q, 1)]));
	m = 1;
	do
	:: m <= sent[q] ->
		is_asked = !was_met[ID(q, m)] && !back[ID(q, m)] && (ASKED(0) || ASKED(1) || ASKED(2));
		assert(!is_asked);
		assert(!back[ID(q, m)] || !WANTED(q) || !LIES(q, m));
		m++
	:: else -> break
	od
}

init {
	byte q, m;
	bit is_asked;
	atomic { next[0] = 1; next[1] = 1; run source(0, MOST); run source(1, 1); run owner() }
	timeout ->
	d_step { q = 0; check(MOST); q = 1; check(1) }
}
