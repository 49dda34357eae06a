/* SPDX-License-Identifier: BSD-3-Clause
 * What two ranks on different hosts compare at the end of a group (src/engine/end.c,
 * src/hosts/parting.c, src/failure/remote_ends.c). ending.pml is the same for two ranks of one host.
 *
 * Properties:
 * - Once both have exited, they have found a difference exactly if there is one.
 * - A rank that compares with an end has all entries before it.
 * - The process of each rank exits, whatever the program of the other rank does, as long as some
 *   thread there makes progress on the link.
 *
 * Processes: two members that only contribute data, as in ending.pml. Each calls up to
 * COLLECTIVES_MAX collectives of two kinds, closes the group, and exits. Rank 1 may stay in the
 * group until rank 0 has exited, as if it waited for a third rank. For each rank one process makes
 * progress on the link.
 *
 * Abstractions: the link keeps the order. If a rank exits, the link may lose all that was under way
 * from it. The ring of entries is in ending.pml. Areas that are used again are in remote_team.pml,
 * which shows that a rank that sees that a member has left has all that it sent before.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define COLLECTIVES_MAX 2
#define AT(r, s) ((r) * (COLLECTIVES_MAX + 1) + (s))
#define OTHER(r) (1 - (r))

/* What a rank has published: how many collectives it has entered; a hash of the first n of them;
 * its end. */
byte entered[2], hash[6], ended[2];
/* What has arrived at a rank from the other one. */
byte arrived[2], arrived_hash[6], arrived_end[2], arrived_end_hash[2];
bit members_ended[2];

byte sent[2], sent_end[2];
bit leaves[2], has_sent_leaves[2], owes_heard[2], has_parted[2], has_exited[2];
bit found; /* the group has failed */

mtype = { ENTRY, END, LEAVES, HEARD };
chan link_to_0 = [4] of { mtype, byte, byte };
chan link_to_1 = [4] of { mtype, byte, byte };

inline send(r, what, first, second)
{
	if
	:: r == 0 -> link_to_1!what, first, second
	:: else -> link_to_0!what, first, second
	fi
}

#define HAS_ROOM(r) ((r == 0 && len(link_to_1) < 2) || (r == 1 && len(link_to_0) < 2))

/* differs_outside of end.c: this rank has closed the group. */
inline compare_outside(r)
{
	if
	:: arrived_end[r] != 0 ->
		if
		:: arrived_end[r] != ended[r] ||
		   arrived_end_hash[r] != hash[AT(r, entered[r])] -> found = 1
		:: else
		fi
	:: else ->
		if
		:: arrived[r] > entered[r] -> found = 1
		:: arrived[r] == entered[r] &&
		   arrived_hash[AT(r, arrived[r])] != hash[AT(r, arrived[r])] -> found = 1
		:: else
		fi
	fi
}

/* engine_end_check, and differs_inside of end.c: this rank is in the group. */
inline compare_inside(r)
{
	assert(arrived[r] == arrived_end[r] - 1);
	if
	:: entered[r] >= arrived_end[r] -> found = 1
	:: entered[r] == arrived_end[r] - 1 &&
	   hash[AT(r, entered[r])] != arrived_hash[AT(r, entered[r])] -> found = 1
	:: else
	fi
}

inline compare_arrived(r)
{
	if
	:: ended[r] -> compare_outside(r)
	:: !ended[r] && arrived_end[r] -> compare_inside(r)
	:: else
	fi
}

proctype member(byte r)
{
	byte more;
	do
	:: entered[r] < COLLECTIVES_MAX && !found ->
		if
		:: more = 0
		:: more = 1
		fi;
		atomic {
			hash[AT(r, entered[r] + 1)] = hash[AT(r, entered[r])] * 2 + more;
			entered[r]++
		};
		atomic {
			if
			:: members_ended[r] -> compare_inside(r)
			:: else
			fi
		}
	:: break
	od;
	if
	:: r == 1 -> has_exited[0]
	:: true
	fi;
	if
	:: found
	:: else ->
#if MUTANT == 1 /* compares first; so nothing is compared with an end that arrives in between */
		atomic { compare_outside(r) };
		ended[r] = entered[r] + 1
#else
		ended[r] = entered[r] + 1;
		atomic { compare_outside(r) }
#endif
	fi;
	more = 0;
	leaves[r] = 1;
#if MUTANT != 2
	/* mutant 2 exits at once; the end of each rank may still be under way to the other */
	has_parted[r];
#endif
	has_exited[r] = 1
}

#if MUTANT == 3 /* sends LEAVES perhaps before its end */
#define HAS_SAID_ALL(r) 1
#else
#define HAS_SAID_ALL(r) (sent[r] == entered[r] && sent_end[r] == ended[r])
#endif
#if MUTANT == 4
/* never sends HEARD, so a rank that stays in the group keeps the other one from exiting */
#define MAY_SEND_HEARD(r) 0
#else
#define MAY_SEND_HEARD(r) owes_heard[r]
#endif

/* relay_to, hosts_parting_send, and what arrives: one thread of the rank at a time */
proctype progress(byte r)
{
	byte number, value;
	mtype kind;
end:	do
	:: has_exited[r] -> break
	:: !has_exited[r] && HAS_ROOM(r) && (sent[r] < entered[r] || sent_end[r] != ended[r]) ->
#if MUTANT != 5
		value = ended[r];
#endif
		do
		:: atomic {
			HAS_ROOM(r) && sent[r] < entered[r] ->
			sent[r]++;
			send(r, ENTRY, sent[r], hash[AT(r, sent[r])])
		   }
		:: !has_exited[r] && sent[r] == entered[r] -> break
		:: has_exited[r] || !HAS_ROOM(r) -> goto over
		od;
#if MUTANT == 5
		/* reads `ended` only now, so entries that were published since come after the
		 * END */
		value = ended[r];
#endif
		if
		:: atomic {
			!has_exited[r] && HAS_ROOM(r) && value != sent_end[r] ->
			sent_end[r] = value;
			send(r, END, value, hash[AT(r, value - 1)])
		   }
		:: value == sent_end[r] || has_exited[r] || !HAS_ROOM(r)
		fi;
over:		value = 0
	:: atomic {
		!has_exited[r] && HAS_ROOM(r) && leaves[r] && !has_sent_leaves[r] &&
			HAS_SAID_ALL(r) ->
		has_sent_leaves[r] = 1;
		send(r, LEAVES, 0, 0)
	   }
	:: atomic {
		!has_exited[r] && HAS_ROOM(r) && MAY_SEND_HEARD(r) ->
		owes_heard[r] = 0;
		if
		:: !has_sent_leaves[r] -> send(r, HEARD, 0, 0)
		:: else
		fi
	   }
	:: atomic {
		!has_exited[r] &&
			((r == 0 && nempty(link_to_0)) || (r == 1 && nempty(link_to_1))) ->
		if
		:: r == 0 && nempty(link_to_0) -> link_to_0?kind, number, value
		:: r == 1 && nempty(link_to_1) -> link_to_1?kind, number, value
		fi
	   };
		if
		:: kind == ENTRY ->
			atomic {
				arrived_hash[AT(r, number)] = value;
				arrived[r] = number
			}
		:: kind == END ->
#if MUTANT == 6 /* compares before it stores; the program may close the group in between */
			atomic {
				arrived_end_hash[r] = value;
				arrived_end[r] = number;
				compare_arrived(r);
				arrived_end[r] = 0
			};
#endif
			arrived_end_hash[r] = value;
			arrived_end[r] = number;
			members_ended[r] = 1;
/* Mutant 7 does not compare on arrival, so nobody compares once both have closed the group. */
#if MUTANT != 6 && MUTANT != 7
			atomic { compare_arrived(r) }
#endif
		:: kind == LEAVES ->
			owes_heard[r] = 1;
			has_parted[r] = 1
		:: kind == HEARD -> has_parted[r] = 1
		fi;
		kind = 0;
		number = 0;
		value = 0
	:: atomic {
		has_exited[OTHER(r)] && !has_exited[r] && !has_parted[r] ->
		has_parted[r] = 1;
		do
		:: r == 0 && nempty(link_to_0) -> link_to_0?kind, number, value
		:: r == 1 && nempty(link_to_1) -> link_to_1?kind, number, value
		:: (r == 0 && empty(link_to_0)) || (r == 1 && empty(link_to_1)) -> break
		od;
		kind = 0;
		number = 0;
		value = 0
	   }
	od
}

init {
	hash[AT(0, 0)] = 1;
	hash[AT(1, 0)] = 1;
	arrived_hash[AT(0, 0)] = 1;
	arrived_hash[AT(1, 0)] = 1;
	atomic {
		run progress(0);
		run progress(1);
		run member(0);
		run member(1)
	};
	has_exited[0] && has_exited[1];
	assert(found == (entered[0] != entered[1] ||
			 hash[AT(0, entered[0])] != hash[AT(1, entered[1])]))
}
