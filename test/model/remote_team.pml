/* SPDX-License-Identifier: BSD-3-Clause
 * How ranks on two hosts use areas for one group after another (src/hosts/teams.c; relay_to in
 * relay.c; find_relay, shows_life and note_opened in mirror.c).
 *
 * Properties:
 * - A word of one group never appears in another group.
 * - A rank that sees that the other one has left a group has that group's word. So no word is lost.
 * - Every group is made in the end.
 *
 * Processes: two members make GROUPS groups. Each has two areas, and sends the other one word in
 * each group. It may close a group without waiting for the other's word, as after a failure. Rank 1
 * may first withdraw an offer, which it tells nobody. For each rank one process makes progress on
 * the link, and one receives what the link brings.
 *
 * Abstractions: sending, receiving, hosts_team_open and hosts_team_close exclude each other, as
 * hosts_progress_begin makes them do. The link keeps the order. Offers travel beside it, because
 * other ranks may pass them on. Marks (hosts_mark) are left out: pump.pml shows that nothing that
 * is marked stays unsent. All members are alive, and make each group.
 *
 * Bounds: rank 0 keeps its second area for the last group. Rank 1 may take either area after the
 * first group, and withdraws an offer of the second group.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 8 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define GROUPS 3
#define NONE 2 /* no area */

/* The areas of rank r: AT(r, area). mirror_…: what rank r has in its mirror of the other rank. */
#define AT(r, x) ((r) * 2 + (x))
byte opened[4], times_closed[4];
byte word[4]; /* 0, or the group whose word has come from the other rank */
byte published[4]; /* 0, or the group in which the rank has published its word */
byte mirror_opened[4], mirror_closed[4];
/* mirror->relays: the rank's own area of the group that has this area of the other rank */
byte relay_of[4] = NONE;

/* struct hosts_relay, by the rank's own area. */
bit has_team[4], has_relay[4], is_ready[4];
byte generation[4], peer_area[4];
byte sent_opened[4], sent_closed[4], sent_word[4];

byte offered_area[2 * GROUPS], offered_closed[2 * GROUPS], /* [group][rank] */
	groups_offered[2];
bit held[2]; /* [rank]: one of its threads is between hosts_progress_begin and _end */

mtype = { OPENED, CLOSED, WORD };
chan link_to_0 = [4] of { mtype, byte, byte };
chan link_to_1 = [4] of { mtype, byte, byte };

inline send(r, kind, area, value)
{
	if
	:: r == 0 -> link_to_1!kind, area, value
	:: else -> link_to_0!kind, area, value
	fi
}

#define HAS_ROOM(r) ((r == 0 && len(link_to_1) < 2) || (r == 1 && len(link_to_0) < 2))

#define IS_ANNOUNCED(r, x) (sent_opened[AT(r, x)] || opened[AT(r, x)] > sent_closed[AT(r, x)])
#define SENDS(r, x)                                                         \
	(has_team[AT(r, x)] && has_relay[AT(r, x)] && IS_ANNOUNCED(r, x) && \
	 (opened[AT(r, x)] != sent_opened[AT(r, x)] ||                      \
	  (MAY_SEND(r, x) && (published[AT(r, x)] != sent_word[AT(r, x)] || \
			   times_closed[AT(r, x)] != sent_closed[AT(r, x)]))))
#if MUTANT == 1 /* sends before the other rank has made the group, which drops what comes */
#define MAY_SEND(r, x) 1
#else
#define MAY_SEND(r, x) is_ready[AT(r, x)]
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
		:: MAY_SEND(r, x) && published[AT(r, x)] != sent_word[AT(r, x)] ->
			send(r, WORD, peer_area[AT(r, x)], published[AT(r, x)]);
			sent_word[AT(r, x)] = published[AT(r, x)]
		:: else
		fi
	  };
	  atomic {
#if MUTANT == 2
		/* reads it again; CLOSED then goes before what was published since the words were
		 * sent */
		closed = times_closed[AT(r, x)];
#endif
		if
		:: MAY_SEND(r, x) && closed != sent_closed[AT(r, x)] ->
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

#if MUTANT == 4 /* accepts also what is left over from the group before */
#define IS_ACCEPTED(r, area) 1
#else
#define IS_ACCEPTED(r, area) is_ready[AT(r, area)]
#endif

/* put_word */
inline put_word(r, kind, area, value)
{
	if
	:: kind == OPENED ->
#if MUTANT == 3 /* drops OPENED of a group that it has not made yet, and does not get it again */
		if
		:: relay_of[AT(r, area)] == NONE || value <= mirror_opened[AT(r, area)]
		:: else -> mirror_opened[AT(r, area)] = value
		fi;
#else
		mirror_opened[AT(r, area)] = value;
#endif
		if
		:: relay_of[AT(r, area)] != NONE && mirror_opened[AT(r, area)] == value &&
		   value >= generation[AT(r, relay_of[AT(r, area)])] ->
			is_ready[AT(r, relay_of[AT(r, area)])] = 1
		:: else
		fi
	:: kind == CLOSED ->
		if
		:: value > mirror_closed[AT(r, area)] -> mirror_closed[AT(r, area)] = value
		:: else
		fi
	:: kind == WORD ->
		if
		:: has_team[AT(r, area)] && has_relay[AT(r, area)] && IS_ACCEPTED(r, area) ->
			word[AT(r, area)] = value
		:: else
		fi
	fi
}

proctype receive(byte r)
{
	mtype kind;
	byte area, value;
end:	do
	:: atomic {
		!held[r] && ((r == 0 && nempty(link_to_0)) || (r == 1 && nempty(link_to_1))) ->
		if
		:: r == 0 && nempty(link_to_0) -> link_to_0?kind, area, value
		:: r == 1 && nempty(link_to_1) -> link_to_1?kind, area, value
		fi;
		put_word(r, kind, area, value);
		kind = 0;
		area = 0;
		value = 0
	  }
	od
}

/* The other rank has closed the group that has this area: see is_left_by_all. */
#define PEER_HAS_LEFT(r, x) (mirror_closed[AT(r, peer_area[AT(r, x)])] != left_before[x])
#if MUTANT == 5 /* reuses the area before the link has sent CLOSED */
#define IS_USED(r, x) 0
#else
#define IS_USED(r, x) (has_relay[AT(r, x)] && sent_closed[AT(r, x)] != times_closed[AT(r, x)])
#endif
#define IS_FREE(r, x) (left_before[x] == 255 || (PEER_HAS_LEFT(r, x) && !IS_USED(r, x)))

/* hosts_team_open */
inline team_open(r, x, area, closed)
{
	atomic {
		!held[r] ->
		if
		:: relay_of[AT(r, area)] != NONE -> has_relay[AT(r, relay_of[AT(r, area)])] = 0
		:: else
		fi;
#if MUTANT != 6 /* mutant 6 leaves it behind, so the other rank seems to have left at once */
		if
		:: mirror_closed[AT(r, area)] < closed -> mirror_closed[AT(r, area)] = closed
		:: else
		fi;
#endif
		peer_area[AT(r, x)] = area;
		generation[AT(r, x)] = closed + 1;
#if MUTANT == 7 /* ignores an OPENED that has come before; the other rank does not send it again */
		is_ready[AT(r, x)] = 0;
#elif MUTANT == 8 /* keeps what the group before has left here */
		skip;
#else
		is_ready[AT(r, x)] = mirror_opened[AT(r, area)] >= closed + 1;
#endif
		sent_opened[AT(r, x)] = 0;
		sent_closed[AT(r, x)] = times_closed[AT(r, x)];
		sent_word[AT(r, x)] = 0;
		has_relay[AT(r, x)] = 1;
		relay_of[AT(r, area)] = x;
		has_team[AT(r, x)] = 1
	}
}

proctype member(byte r)
{
	/* by area: times_closed of the other rank, as in its offer */
	byte group = 1, x, left_before[2] = 255;
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
			:: has_team[AT(r, x)] && has_relay[AT(r, x)] ->
				has_relay[AT(r, x)] = 0;
				relay_of[AT(r, peer_area[AT(r, x)])] = NONE
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
			offered_area[2 * group - 2 + r] = x;
			offered_closed[2 * group - 2 + r] = times_closed[AT(r, x)];
			groups_offered[r] = group
		};
		atomic {
			groups_offered[1 - r] >= group ->
			left_before[x] = offered_closed[2 * group - 2 + 1 - r]
		};
		team_open(r, x, offered_area[2 * group - 2 + 1 - r], left_before[x]);
		opened[AT(r, x)] = times_closed[AT(r, x)] + 1; /* hosts_team_announce */
		published[AT(r, x)] = group;
		if
		:: atomic { word[AT(r, x)] != 0 -> assert(word[AT(r, x)] == group) }
		:: atomic { PEER_HAS_LEFT(r, x) -> assert(word[AT(r, x)] == group) }
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
		run receive(0);
		run receive(1);
		run member(0);
		run member(1)
	}
}
