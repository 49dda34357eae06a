/* SPDX-License-Identifier: BSD-3-Clause
 * How the ranks of a list come together (src/group/from_members.c): three ranks, two of which may give other lists first.
 * Who is refused calls again, with the right list, until all have the group; or one goes home instead. A note is
 * received once its receiver listens, or is taken back. Who sleeps looks at nothing but what it waits for. A serial
 * is the number of the call, from 1.
 *
 * Shown: if one has the group all get it, with the same calls, none of which ends in another way. Who refuses another
 * one's call ends, and the other one hears that lists differ, or has ended that call. None is refused more often than
 * there were wrong lists. In the end no note is left and nobody listens; and nobody listens to one that may be in its
 * next call. */
/* mutants: 1 2 3 4 5 6 7 8 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define RANKS 3
#define CALLS 3
#define RIGHT 0 /* all three */
#define WRONG 1 /* all three, in another order */
#define FEW 2   /* ranks 0 and 1 */
#define OTHER 3 /* all three, in one more order */
#define LISTS(l, q) ((l) != FEW || (q) < 2)

/* The note of a to b, or what b has received of a. */
#define OF(a, b) ((a) * RANKS + (b))
#define SET(a, b, c) ((a) + 4 * (b) + 16 * (c))
bit out[9];
byte out_serial[9], out_list[9], out_set[9];
bit out_refuses[9];
mtype = { NOT, LISTENS, FULL };
mtype in[9] = NOT;
byte in_serial[9], in_list[9], in_set[9];
bit in_refuses[9];

byte ended[RANKS]; /* the last call that ended without a group: `times_closed` */
byte done[RANKS];  /* the set, 0: none yet */
byte told[RANKS];  /* the last call that has heard that lists differ */
bit home;          /* one does not call again */

#define TELL(q, s, r) \
	out[OF(me, q)] = 1; \
	out_serial[OF(me, q)] = call; \
	out_list[OF(me, q)] = list; \
	out_set[OF(me, q)] = s; \
	out_refuses[OF(me, q)] = r; \
	MEET(OF(me, q))
#define TAKE_BACK(q) \
	out[OF(me, q)] = 0; \
	out_serial[OF(me, q)] = 0; \
	out_list[OF(me, q)] = 0; \
	out_set[OF(me, q)] = 0; \
	out_refuses[OF(me, q)] = 0
/* At once when there is a note and its receiver listens: it may listen, and the sender tell, as late as they like. */
#define MEET(i) \
	if \
	:: out[i] && in[i] == LISTENS -> \
		in[i] = FULL; \
		in_serial[i] = out_serial[i]; \
		in_list[i] = out_list[i]; \
		in_set[i] = out_set[i]; \
		in_refuses[i] = out_refuses[i]; \
		out[i] = 0; \
		out_serial[i] = 0; \
		out_list[i] = 0; \
		out_set[i] = 0; \
		out_refuses[i] = 0 \
	:: else \
	fi
#define CLEAR(i) \
	in[i] = NOT; \
	in_serial[i] = 0; \
	in_list[i] = 0; \
	in_set[i] = 0; \
	in_refuses[i] = 0

/* The others, one after the other. */
#define ONE ((me + 1) % RANKS)
#define TWO ((me + 2) % RANKS)
#define HAS(q) (!LISTS(list, q) || held[q])
#define MINE SET(held[0], held[1], held[2])
#define IS_FULL(q) (in[OF(q, me)] == FULL)
#define BEHIND(q) (LISTS(list, q) && (mine -> cset[q] != mine : !held[q]))

/* q's note, which is in. */
inline take_in(q)
{
	if
	:: in_serial[OF(q, me)] != held[q] ->
#if MUTANT != 1
		mine = 0
#else
		skip
#endif
	:: else
	fi;
	held[q] = in_serial[OF(q, me)];
	cset[q] = in_set[OF(q, me)];
	if
	:: in_list[OF(q, me)] != list ->
		other = q;
		refused = in_refuses[OF(q, me)];
		told[me] = call
	:: else
	fi;
	CLEAR(OF(q, me))
}

inline listen(q)
{
	if
	:: LISTS(list, q) && in[OF(q, me)] == NOT && !(mine && cset[q] == mine) ->
		in[OF(q, me)] = LISTENS;
		MEET(OF(q, me))
	:: else
	fi
}

/* Before it confirms. */
inline stop(q)
{
	if
#if MUTANT != 3
	:: other == RANKS && HAS(ONE) && HAS(TWO) && cset[q] == MINE ->
		if
		:: IS_FULL(q) -> take_in(q)
		:: else -> CLEAR(OF(q, me))
		fi
#endif
	:: else
	fi
}

inline tell_card(q)
{
	if
	:: LISTS(list, q) -> TELL(q, 0, 0)
	:: else
	fi
}

inline confirm(q)
{
	if
	:: LISTS(list, q) -> TELL(q, mine, 0)
	:: else
	fi
}

/* What has been told to me: what is there, and then whatever comes instead. */
inline drain(q)
{
	CLEAR(OF(q, me));
	if
	:: LISTS(list, q) ->
		in[OF(q, me)] = LISTENS;
		MEET(OF(q, me));
		CLEAR(OF(q, me))
	:: else
	fi
}

proctype rank(byte me)
{
	byte call = 1, list = RIGHT, mine, other = RANKS;
	byte held[RANKS], cset[RANKS];
	bit refused;

	if
	:: me == 1 -> list = WRONG
	:: me == 1 -> list = FEW
	:: me == 2 -> list = OTHER
	:: me != 1
	fi;
begin:
	atomic {
		assert(call <= CALLS);
		held[me] = call;
		held[ONE] = 0;
		held[TWO] = 0;
		cset[ONE] = 0;
		cset[TWO] = 0;
		mine = 0;
		other = RANKS;
		refused = 0;
		tell_card(ONE);
		tell_card(TWO)
	};
	do
	:: atomic { other == RANKS && IS_FULL(ONE) -> take_in(ONE) }
	:: atomic { other == RANKS && IS_FULL(TWO) -> take_in(TWO) }
	:: atomic {
		other == RANKS && !IS_FULL(ONE) && !IS_FULL(TWO) ->
		listen(ONE);
		listen(TWO);
		if
		:: IS_FULL(ONE) || IS_FULL(TWO) -> goto look
		:: else
		fi;
		if
		:: HAS(ONE) && HAS(TWO) && !mine ->
			stop(ONE);
			stop(TWO);
			if
			:: other == RANKS && HAS(ONE) && HAS(TWO) ->
				TAKE_BACK(ONE);
				TAKE_BACK(TWO);
				mine = MINE;
#if MUTANT == 4
				break /* all cards are enough */
#endif
			:: else -> goto look
			fi
		:: mine && !BEHIND(ONE) && !BEHIND(TWO) -> break
		:: else -> goto end_doze
		fi
	   };
		atomic { confirm(ONE) };
		atomic { confirm(TWO); goto look };
end_doze:	/* perhaps in vain, if one has gone home: else init is left over */
		(BEHIND(ONE) && IS_FULL(ONE)) || (BEHIND(TWO) && IS_FULL(TWO));
look:		skip
	:: other != RANKS -> goto fail
	od;

	/* Each needs my confirmation. */
	atomic {
		!out[OF(me, ONE)] && !out[OF(me, TWO)];
		assert(list == RIGHT);
		assert(ended[ONE] < held[ONE] && ended[TWO] < held[TWO]);
		assert(!done[ONE] || done[ONE] == mine);
		assert(!done[TWO] || done[TWO] == mine);
		assert(in[OF(me, ONE)] != LISTENS && in[OF(me, TWO)] != LISTENS);
		assert(in[OF(ONE, me)] == NOT && in[OF(TWO, me)] == NOT);
		done[me] = mine;
		goto over
	};

fail:
	atomic {
		assert(!done[0] && !done[1] && !done[2]);
		TAKE_BACK(ONE);
		TAKE_BACK(TWO);
#if MUTANT != 5
		if
#if MUTANT != 8
		:: refused
#endif
		:: !refused || MUTANT == 8 -> TELL(other, 0, 1)
		fi
#endif
	};
#if MUTANT != 2
	ended[me] = call;
#endif
#if MUTANT != 6
	atomic {
		if
		:: ended[other] >= held[other] -> TAKE_BACK(other)
		:: else
		fi
	};
#endif
#if MUTANT != 7
	atomic { drain(ONE) };
	atomic { drain(TWO) };
#endif
#if MUTANT == 2
	ended[me] = call; /* too late for who has told me since */
#endif
	atomic {
		!out[OF(me, other)];
		assert(told[other] >= held[other] || ended[other] >= held[other] ||
			(in[OF(me, other)] == FULL && in_serial[OF(me, other)] == call));
		CLEAR(OF(ONE, me));
		CLEAR(OF(TWO, me));
		if
		:: !home -> home = 1; goto over
		:: true
		fi;
		call++;
		list = RIGHT;
		goto begin
	};
over:	skip
}

init
{
	atomic {
		run rank(0);
		run rank(1);
		run rank(2)
	};
	atomic {
		done[0] && done[1] && done[2] || home;
		assert(home || (!out[1] && !out[2] && !out[3] && !out[5] && !out[6] && !out[7]))
	}
}
