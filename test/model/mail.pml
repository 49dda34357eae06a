/* SPDX-License-Identifier: BSD-3-Clause
 * Messages in the rings of their receiver, and its receives (src/transport/mail.h, mail.c;
 * src/mailbox/send.c, arrive.c, cancel.c).
 *
 * Properties:
 * - A receive matches the oldest message of a source that fits it. A message matches the first
 *   posted receive that it fits. So messages of one source and tag are received in order.
 * - A message is matched at most once, is whole, and is not matched after it was cancelled.
 * - The source does not fill a slot while a message is in it.
 * - Nobody waits although there is something for it. In the end a source that waits for room has
 *   none; no message in a slot fits a posted receive; and a cancelled message has left its slot if
 *   some receive wants a message of its source.
 *
 * Processes: two sources send to one owner, each through its own ring of SLOTS slots. Source 0
 * sends so many messages that it skips slots. One of them is long, and may be cancelled until it is
 * matched; what follows the match is in rts.pml. The owner posts RECEIVES receives, each from one
 * source or any, with one tag or any.
 *
 * Abstractions: what a rank does under the lock of its mailbox is one process. A wait is a guard on
 * the awaited words; doorbell.pml shows that no wake-up is lost. An atomic block accesses at most
 * one word that both ranks see, apart from words that the other rank reads only after it has seen a
 * later store.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define SOURCES 2
#define SLOTS 2
#define MESSAGES 3 /* of source 0 */
#define RECEIVES 3
#define ANY 2

/* This message of source 0 is long; the first one is 1. */
#define LONG 2

/* Words that both ranks see, of source q: the slot of position p; the number of message m. */
#define SLOT(q, p) ((q) * SLOTS + (p) % SLOTS)
#define ID(q, m) ((q) * MESSAGES + (m) - 1)
byte sequence[SOURCES * SLOTS], held[SOURCES * SLOTS], freed[SOURCES * SLOTS];
byte envelope[SOURCES * SLOTS], payload[SOURCES * SLOTS]; /* each is the message's number */
byte taken[SOURCES];
mtype = { UNMATCHED, MATCHED, CLOSED };
mtype cursor = UNMATCHED; /* of the long message's RTS slot */

bit tag[SOURCES * MESSAGES]; /* in its envelope */

/* Private to the owner. */
byte in_next[SOURCES]; /* the next position to look at */
bit unexpected[SOURCES * MESSAGES]; /* has arrived and matched no receive */
byte slot_of[SOURCES * MESSAGES]; /* in which slot */
byte receives_begun;
byte wants_source[RECEIVES], wants_tag[RECEIVES];
bit is_posted[RECEIVES];

/* for the assertions only */
byte posted[SOURCES]; /* messages posted */
bit is_full[SOURCES * SLOTS]; /* has a message */
bit was_matched[SOURCES * MESSAGES], was_cancelled[SOURCES * MESSAGES];

#define FITS(r, q, t) \
	((wants_source[r] == ANY || wants_source[r] == q) && \
	 (wants_tag[r] == ANY || wants_tag[r] == t))
#define IS_LONG(q, m) (q == 0 && m == LONG)
#define IS_WANTED_BY(r, q) (is_posted[r] && (wants_source[r] == ANY || wants_source[r] == q))
#define IS_WANTED(q) (IS_WANTED_BY(0, q) || IS_WANTED_BY(1, q) || IS_WANTED_BY(2, q))
#define HAS_ARRIVED(q) (sequence[SLOT(q, in_next[q])] >= in_next[q])

/* ---- the sources ---- */

inline fill()
{
	atomic {
		assert(!is_full[slot]);
		is_full[slot] = 1;
		envelope[slot] = posted[q] + 1;
		payload[slot] = posted[q] + 1;
		if
		:: posted[q] > 0 || q == 1 -> tag[ID(q, posted[q] + 1)] = 1
		:: q == 0 /* tags 0 and 1 may change places */
		fi
	}
}

/* withdraw_send of cancel.c; transport_mail_skip. */
inline cancel()
{
#if MUTANT == 14
	/* skips the position first, so the owner may look before the message is cancelled */
	sequence[SLOT(0, out_next)] = out_next;
#endif
	atomic {
		cancels = 0;
		if
		:: cursor == UNMATCHED -> cursor = CLOSED; was_cancelled[ID(0, LONG)] = 1
		:: else
		fi
	}
	atomic {
#if MUTANT != 13 && MUTANT != 14
		/* mutant 13 does not make the owner look; mutant 14 did that too early */
		sequence[SLOT(0, out_next)] = out_next;
#endif
		out_next++
	}
}

proctype source(byte q; byte count)
{
	byte out_next = 1, clear = 1 + SLOTS, seen, slot, tries;
	bit cancels; /* at some time the source cancels the long message */
	if
	:: cancels = q == 0
	:: skip
	fi;
end_full:
	do
	:: cancels && posted[q] >= LONG -> cancel()
	:: posted[q] < count && (posted[q] - seen < SLOTS || taken[q] > seen) ->
		/* transport_mail_find_room */
		if
		:: posted[q] - seen < SLOTS
		:: atomic {
			posted[q] - seen == SLOTS ->
			seen = taken[q];
			if
#if MUTANT == 1 /* expects that messages are taken in order */
			:: true -> clear = out_next + posted[q] - seen
#else
			:: seen == posted[q] -> clear = out_next + SLOTS
#endif
			:: else
			fi
		   }
		fi;
		/* transport_mail_post */
		do
		:: atomic {
			tries < SLOTS && out_next >= clear &&
				held[SLOT(q, out_next)] != freed[SLOT(q, out_next)] ->
			tries++
		   };
#if MUTANT != 2 /* mutant 2 does not show the owner that the position was skipped */
		   sequence[SLOT(q, out_next)] = out_next;
#endif
		   out_next++
		:: else -> break
		od;
		slot = SLOT(q, out_next);
#if MUTANT == 3 /* fills the slot last */
		held[slot] = out_next;
		sequence[slot] = out_next;
		fill();
#elif MUTANT == 4 /* stores `sequence` first, so the owner may take the position for skipped */
		fill();
		sequence[slot] = out_next;
		held[slot] = out_next;
#else
		fill();
		held[slot] = out_next;
		sequence[slot] = out_next;
#endif
		atomic { out_next++; posted[q]++; tries = 0; slot = 0 }
	:: posted[q] == count && !cancels -> break
	od
}

/* ---- the owner ---- */

/* Uses the payload of message m. Then transport_mail_free_slot. */
#define USE_PAYLOAD assert(!matched || payload[slot] == m)
inline free_slot(q, slot)
{
#if MUTANT == 5 /* raises `taken` first, so the source may find no free slot */
	taken[q]++;
	atomic {
		USE_PAYLOAD;
		is_full[slot] = 0;
		envelope[slot] = 0;
		payload[slot] = 0;
		freed[slot] = held[slot]
	}
#else
	atomic {
		USE_PAYLOAD;
		is_full[slot] = 0;
		envelope[slot] = 0;
		payload[slot] = 0;
		freed[slot] = held[slot]
	};
	taken[q]++
#endif
}

/* Receive r has found message m of source q, and matches it unless it was cancelled. matched: it
 * did. */
inline match(r, q, m, slot)
{
	atomic {
#if MUTANT == 6 /* does not use the cursor of the RTS slot */
		matched = 1;
#else
		matched = !IS_LONG(q, m) || cursor == UNMATCHED;
#endif
		if
		:: matched && IS_LONG(q, m) -> cursor = MATCHED
		:: else
		fi;
		assert(m > 0 && !was_matched[ID(q, m)]);
		if
		:: matched ->
			assert(!was_cancelled[ID(q, m)]);
			i = 1;
			do
			:: i < m ->
				assert(was_matched[ID(q, i)] || was_cancelled[ID(q, i)] ||
						!FITS(r, q, tag[ID(q, i)]));
				i++
			:: else -> break
			od;
			i = 0;
			do
			:: i < r -> assert(!is_posted[i] || !FITS(i, q, tag[ID(q, m)])); i++
			:: else -> i = 0; break
			od;
			was_matched[ID(q, m)] = 1;
			is_posted[r] = 0;
			wants_source[r] = 0;
			wants_tag[r] = 0
		:: else
		fi
	}
#if MUTANT == 12
	USE_PAYLOAD
#else
	free_slot(q, slot)
#endif
}

/* purge_cancelled: discards an unexpected message that was cancelled meanwhile. */
inline purge_cancelled(q)
{
	if
#if MUTANT != 15 /* mutant 15 keeps it until a receive wants it */
	:: atomic {
		skipped && q == 0 && unexpected[ID(0, LONG)] && cursor == CLOSED ->
		unexpected[ID(0, LONG)] = 0;
		slot = slot_of[ID(0, LONG)];
		slot_of[ID(0, LONG)] = 0;
		m = LONG
	   };
	   free_slot(0, slot)
#endif
	:: else
	fi;
	atomic { skipped = 0; m = 0; slot = 0 }
}

/* mailbox_arrive */
inline arrive(q)
{
	do
	:: atomic {
		HAS_ARRIVED(q) ->
		slot = SLOT(q, in_next[q]);
		in_next[q]++
	   };
	   if
#if MUTANT == 8 /* takes also what is left over from an older position */
	   :: atomic {
		held[slot] != 0 ->
#else
	   :: atomic {
		held[slot] == in_next[q] - 1 ->
#endif
			m = envelope[slot];
			assert(m > 0 && !unexpected[ID(q, m)]);
			found = RECEIVES;
#if MUTANT == 7 /* takes the receive that was posted last */
			i = 0;
			do
			:: i < RECEIVES && is_posted[i] && FITS(i, q, tag[ID(q, m)]) ->
				found = i;
				i++
			:: i < RECEIVES && !(is_posted[i] && FITS(i, q, tag[ID(q, m)])) -> i++
			:: i == RECEIVES -> break
			od;
#else
			i = RECEIVES;
			do
			:: i > 0 && is_posted[i - 1] && FITS(i - 1, q, tag[ID(q, m)]) ->
				found = i - 1;
				i--
			:: i > 0 && !(is_posted[i - 1] && FITS(i - 1, q, tag[ID(q, m)])) -> i--
			:: i == 0 -> break
			od;
#endif
			i = 0
		};
#if MUTANT == 12 /* frees the slot before the message is matched */
		free_slot(q, slot);
#endif
		if
		:: found < RECEIVES -> match(found, q, m, slot)
		:: else -> atomic { unexpected[ID(q, m)] = 1; slot_of[ID(q, m)] = slot }
		fi
	   :: else -> skipped = q == 0 /* only source 0 cancels */
	   fi;
	   atomic { m = 0; slot = 0; found = 0; matched = 0 }
	:: else -> break
	od;
	purge_cancelled(q)
}

/* Receive r looks at the unexpected messages of source q. */
inline match_unexpected(r)
{
	do
	:: atomic {
#if MUTANT == 10 /* takes the newest first */
		m = MESSAGES;
		do
		:: m > 0 && unexpected[ID(q, m)] && FITS(r, q, tag[ID(q, m)]) -> break
		:: m > 0 && !(unexpected[ID(q, m)] && FITS(r, q, tag[ID(q, m)])) -> m--
		:: m == 0 -> break
		od;
#else
		m = 1;
		do
		:: m <= MESSAGES && unexpected[ID(q, m)] && FITS(r, q, tag[ID(q, m)]) -> break
		:: m <= MESSAGES && !(unexpected[ID(q, m)] && FITS(r, q, tag[ID(q, m)])) -> m++
		:: m > MESSAGES -> m = 0; break
		od;
#endif
		if
		:: m == 0 -> break
		:: else -> unexpected[ID(q, m)] = 0; slot = slot_of[ID(q, m)]; slot_of[ID(q, m)] = 0
		fi
	   }
	   match(r, q, m, slot);
	   atomic {
		m = 0;
		slot = 0;
		if
		:: matched -> break
		:: else
		fi
	   }
	od
}

/* Looks at the sources that receive r wants, in any order. */
#define FOR_EACH_SOURCE(r, look)                                 \
	if                                                       \
	:: wants_source[r] != 1 -> q = 0                         \
	:: wants_source[r] != 0 -> q = 1                         \
	fi;                                                      \
	look;                                                    \
	if                                                       \
	:: wants_source[r] == ANY && !matched -> q = 1 - q; look \
	:: else                                                  \
	fi;                                                      \
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
#if MUTANT == 9 /* looks at unexpected messages before it looks at what has arrived */
	FOR_EACH_SOURCE(r, match_unexpected(r));
	if
	:: !matched -> FOR_EACH_SOURCE(r, arrive(q))
	:: else
	fi;
#else
	/* What has arrived already belongs to receives that were posted before. */
	FOR_EACH_SOURCE(r, arrive(q));
	FOR_EACH_SOURCE(r, match_unexpected(r));
#endif
	atomic { is_posted[r] = !matched; receives_begun++; matched = 0 }
}

#if MUTANT == 11 /* a receive from any source waits only for source 0 */
#define AWAITS(q) (IS_WANTED(q) && (q == 0 || !IS_WANTED(0)))
#else
#define AWAITS(q) IS_WANTED(q)
#endif

proctype owner()
{
	byte q, slot, m, found, i;
	bit matched, skipped;
end_waits:
	do
	:: receives_begun < RECEIVES -> receive(receives_begun)
	:: atomic { AWAITS(0) && HAS_ARRIVED(0) -> q = 0 }; arrive(q)
	:: atomic { AWAITS(1) && HAS_ARRIVED(1) -> q = 1 }; arrive(q); q = 0
	od
}

#define IS_IN_SLOT(q, m) \
	((is_full[SLOT(q, 0)] && envelope[SLOT(q, 0)] == m) || \
	 (is_full[SLOT(q, 1)] && envelope[SLOT(q, 1)] == m))
#define IS_POSTED_FOR(r) (is_posted[r] && FITS(r, q, tag[ID(q, m)]))

/* All sources have posted everything, or have no room. No message in a slot, seen or not, fits a
 * posted receive. And no cancelled message is in a slot if a receive wants a message of its
 * source. */
inline check(count)
{
	assert(posted[q] == count || (is_full[SLOT(q, 0)] && is_full[SLOT(q, 1)]));
	m = 1;
	do
	:: m <= posted[q] ->
		could_match = !was_matched[ID(q, m)] && !was_cancelled[ID(q, m)] &&
				(IS_POSTED_FOR(0) || IS_POSTED_FOR(1) || IS_POSTED_FOR(2));
		assert(!could_match);
		assert(!was_cancelled[ID(q, m)] || !IS_WANTED(q) || !IS_IN_SLOT(q, m));
		m++
	:: else -> break
	od
}

init {
	byte q, m;
	bit could_match;
	atomic {
		in_next[0] = 1;
		in_next[1] = 1;
		run source(0, MESSAGES);
		run source(1, 1);
		run owner()
	}
	timeout ->
	d_step { q = 0; check(MESSAGES); q = 1; check(1) }
}
