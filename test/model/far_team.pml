/* SPDX-License-Identifier: BSD-3-Clause
 * How ranks on two hosts use areas for one group after another (src/hosts/teams.c; relay_to in relay.c; find_relay,
 * shows_life and note_opened in mirror.c). Each has two areas, and sends the other one word in each
 * group. It may close the group without having waited for that of the other, as after a failure. Rank 1 may take an offer
 * back first, of which nobody is told. The link keeps the order. Offers travel beside it, as other ranks may pass them on.
 *
 * The thread that makes progress, arrivals, and hosts_team_open and _close exclude each other, as hosts_progress_begin
 * sees to. There are marks for everything: see pump.pml. Bounded: GROUPS groups; rank 0 keeps its second area for the last
 * one, and rank 1 takes either after the first; it takes an offer back in the second. All members are alive, and make each
 * group.
 *
 * Shown: a word of one group is never found in another; a rank that sees that the other has left has its word, so none is
 * lost; and every group is made in the end. */
/* mutants: 1 2 3 4 5 6 7 8 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define GROUPS 3
#define NONE 2 /* no area */

/* A rank's areas: AT(rank, area). What is `in` a rank's mirror of the other has the index of the rank whose mirror it is. */
#define AT(r, x) ((r) * 2 + (x))
byte opened[4], times_closed[4];
byte word[4];      /* 0, or the group of which the word of the other rank has come */
byte published[4]; /* the group for which the rank has a word to send */
byte in_opened[4], in_closed[4];
byte relay_of[4] = NONE; /* mirror->relays: the rank's own area of the group */

/* hosts_notify, by the rank's own area. */
bit has_team[4], has_to[4], is_ready[4];
byte generation[4], its_area[4];
byte sent_opened[4], sent_closed[4], sent_word[4];

byte told_area[2 * GROUPS], told_closed[2 * GROUPS], made[2]; /* offers: [group][rank] */
bit held[2];                                /* by the thread of the rank that makes progress */

mtype = { OPENED, CLOSED, WORD };
chan link_0 = [4] of { mtype, byte, byte }; /* to rank 0 */
chan link_1 = [4] of { mtype, byte, byte };

inline send(r, kind, area, value)
{
	if
	:: r == 0 -> link_1!kind, area, value
	:: else -> link_0!kind, area, value
	fi
}

#define HAS_ROOM(r) ((r == 0 && len(link_1) < 2) || (r == 1 && len(link_0) < 2))

#define IS_ANNOUNCED(r, x) (sent_opened[AT(r, x)] || opened[AT(r, x)] > sent_closed[AT(r, x)])
#define SENDS(r, x)                                                                         \
	(has_team[AT(r, x)] && has_to[AT(r, x)] && IS_ANNOUNCED(r, x) &&                     \
	 (opened[AT(r, x)] != sent_opened[AT(r, x)] ||                                       \
	  (READY(r, x) && (published[AT(r, x)] != sent_word[AT(r, x)] ||                     \
			   times_closed[AT(r, x)] != sent_closed[AT(r, x)]))))
#if MUTANT == 1 /* sends before the other has made the group, which drops it */
#define READY(r, x) 1
#else
#define READY(r, x) is_ready[AT(r, x)]
#endif

/* relay_to */
proctype progress(byte r)
{
	byte x, closed;
end:	do
	:: atomic {
		HAS_ROOM(r) && !held[r] && (SENDS(r, 0) || SENDS(r, 1)) ->
		held[r] = 1;
		if
		:: SENDS(r, 0) -> x = 0
		:: SENDS(r, 1) -> x = 1
		fi;
		closed = times_closed[AT(r, x)]
	  };
	  atomic {
		if
		:: opened[AT(r, x)] != sent_opened[AT(r, x)] ->
			send(r, OPENED, x, opened[AT(r, x)]);
			sent_opened[AT(r, x)] = opened[AT(r, x)]
		:: else
		fi;
		if
		:: READY(r, x) && published[AT(r, x)] != sent_word[AT(r, x)] ->
			send(r, WORD, its_area[AT(r, x)], published[AT(r, x)]);
			sent_word[AT(r, x)] = published[AT(r, x)]
		:: else
		fi
	  };
	  atomic {
#if MUTANT == 2 /* what was published since it looked comes after that */
		closed = times_closed[AT(r, x)];
#endif
		if
		:: READY(r, x) && closed != sent_closed[AT(r, x)] ->
			send(r, CLOSED, x, closed);
			sent_closed[AT(r, x)] = closed
		:: else
		fi;
		closed = 0;
		x = 0;
		held[r] = 0
	  }
	od
}

#if MUTANT == 4 /* it may be left over from the group before */
#define IS_HEARD(r, area) 1
#else
#define IS_HEARD(r, area) is_ready[AT(r, area)]
#endif

/* put_word */
inline take(r, kind, area, value)
{
	if
	:: kind == OPENED ->
#if MUTANT == 3 /* the rank has not made the group yet, and never learns that the other has */
		if
		:: relay_of[AT(r, area)] == NONE || value <= in_opened[AT(r, area)]
		:: else -> in_opened[AT(r, area)] = value
		fi;
#else
		in_opened[AT(r, area)] = value;
#endif
		if
		:: relay_of[AT(r, area)] != NONE && in_opened[AT(r, area)] == value &&
		   value >= generation[AT(r, relay_of[AT(r, area)])] ->
			is_ready[AT(r, relay_of[AT(r, area)])] = 1
		:: else
		fi
	:: kind == CLOSED ->
		if
		:: value > in_closed[AT(r, area)] -> in_closed[AT(r, area)] = value
		:: else
		fi
	:: kind == WORD ->
		if
		:: has_team[AT(r, area)] && has_to[AT(r, area)] && IS_HEARD(r, area) ->
			word[AT(r, area)] = value
		:: else
		fi
	fi
}

proctype arrivals(byte r)
{
	mtype kind;
	byte area, value;
end:	do
	:: atomic {
		!held[r] && ((r == 0 && nempty(link_0)) || (r == 1 && nempty(link_1))) ->
		if
		:: r == 0 && nempty(link_0) -> link_0?kind, area, value
		:: r == 1 && nempty(link_1) -> link_1?kind, area, value
		fi;
		take(r, kind, area, value);
		kind = 0;
		area = 0;
		value = 0
	  }
	od
}

/* The other has closed the group that has this area, as is_left_by_all finds out. */
#define IT_HAS_LEFT(r, x) (in_closed[AT(r, its_area[AT(r, x)])] != before[x])
#if MUTANT == 5 /* the other may not have been told */
#define IS_USED(r, x) 0
#else
#define IS_USED(r, x) (has_to[AT(r, x)] && sent_closed[AT(r, x)] != times_closed[AT(r, x)])
#endif
#define IS_FREE(r, x) (before[x] == 255 || (IT_HAS_LEFT(r, x) && !IS_USED(r, x)))

/* hosts_team_open */
inline open(r, x, area, closed)
{
	atomic {
		!held[r] ->
		if
		:: relay_of[AT(r, area)] != NONE -> has_to[AT(r, relay_of[AT(r, area)])] = 0
		:: else
		fi;
#if MUTANT != 6 /* it seems to have left at once */
		if
		:: in_closed[AT(r, area)] < closed -> in_closed[AT(r, area)] = closed
		:: else
		fi;
#endif
		its_area[AT(r, x)] = area;
		generation[AT(r, x)] = closed + 1;
#if MUTANT == 7 /* the other was faster, and does not say it again */
		is_ready[AT(r, x)] = 0;
#elif MUTANT == 8 /* it was so in the group before */
		skip;
#else
		is_ready[AT(r, x)] = in_opened[AT(r, area)] >= closed + 1;
#endif
		sent_opened[AT(r, x)] = 0;
		sent_closed[AT(r, x)] = times_closed[AT(r, x)];
		sent_word[AT(r, x)] = 0;
		has_to[AT(r, x)] = 1;
		relay_of[AT(r, area)] = x;
		has_team[AT(r, x)] = 1
	}
}

proctype member(byte r)
{
	byte group = 1, x, before[2] = 255; /* left_before of the other, by the group's area */
	do
	:: group <= GROUPS ->
		atomic {
			!held[r] ->
			if
			:: IS_FREE(r, 0) && !(r == 0 && group == GROUPS) -> x = 0
			:: IS_FREE(r, 1) && group > 1 && !(r == 0 && group < GROUPS) -> x = 1
			fi;
			/* hosts_team_close, transport_area_reset */
			if
			:: has_team[AT(r, x)] && has_to[AT(r, x)] ->
				has_to[AT(r, x)] = 0;
				relay_of[AT(r, its_area[AT(r, x)])] = NONE
			:: else
			fi;
			has_team[AT(r, x)] = 0;
			word[AT(r, x)] = 0;
			published[AT(r, x)] = 0
		};
		if
		:: r == 1 && group == 2 -> times_closed[AT(r, x)]++ /* group_withdraw */
		:: true
		fi;
		atomic {
			told_area[2 * group - 2 + r] = x;
			told_closed[2 * group - 2 + r] = times_closed[AT(r, x)];
			made[r] = group
		};
		atomic { made[1 - r] >= group -> before[x] = told_closed[2 * group - 2 + 1 - r] };
		open(r, x, told_area[2 * group - 2 + 1 - r], before[x]);
		opened[AT(r, x)] = times_closed[AT(r, x)] + 1; /* hosts_team_announce */
		published[AT(r, x)] = group;
		if
		:: atomic { word[AT(r, x)] != 0 -> assert(word[AT(r, x)] == group) }
		:: atomic { IT_HAS_LEFT(r, x) -> assert(word[AT(r, x)] == group) }
		:: true /* the group has failed */
		fi;
		assert(word[AT(r, x)] == 0 || word[AT(r, x)] == group);
		times_closed[AT(r, x)]++;
		group++
	:: else -> break
	od
}

init {
	atomic {
		run progress(0);
		run progress(1);
		run arrivals(0);
		run arrivals(1);
		run member(0);
		run member(1)
	}
}
