/* SPDX-License-Identifier: BSD-3-Clause
 * The ends of two members of a group on two hosts (src/engine/end.c, src/hosts/parting.c, src/failure/far_ends.c), that only
 * give, as in ending.pml. Each draws what it calls, up to MOST collectives of two sorts, closes the group and ends. The link
 * keeps the order; what is under way to a rank is lost when the other one has ended. Rank 1 may stay in the group, as if it
 * waited for somebody else, until rank 0 has ended. Not here: the ring of entries (ending.pml),
 * and areas that are used again (far_team.pml: whoever sees that a member has left has all that it had sent before).
 *
 * Shown: once both have ended, a difference has been found exactly if there is one; whoever compares with an end has the
 * entries before it; and each rank ends, whatever the other one's program does, while a thread there makes progress. */
/* mutants: 1 2 3 4 5 6 7 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define MOST 2
#define AT(r, s) ((r) * (MOST + 1) + (s))
#define OTHER(r) (1 - (r))

/* What a rank has published: how many collectives it has entered, a hash of them up to each, and its end. */
byte entered[2], hash[6], ended[2];
/* What has arrived at a rank from the other one. */
byte got[2], got_hash[6], got_ended[2], got_end_hash[2];
bit members_ended[2];

byte sent[2], sent_end[2];
bit leaves[2], has_sent_leaves[2], owes_heard[2], has_parted[2], gone[2];
bit found; /* the cause */

mtype = { ENTRY, END, LEAVES, HEARD };
chan link_0 = [4] of { mtype, byte, byte }; /* to rank 0 */
chan link_1 = [4] of { mtype, byte, byte };

inline send(r, what, first, second)
{
	if
	:: r == 0 -> link_1!what, first, second
	:: else -> link_0!what, first, second
	fi
}

#define ROOM(r) ((r == 0 && len(link_1) < 2) || (r == 1 && len(link_0) < 2))

/* differs of end.c: this rank has closed the group. */
inline compare_closed(r)
{
	if
	:: got_ended[r] != 0 ->
		if
		:: got_ended[r] != ended[r] || got_end_hash[r] != hash[AT(r, entered[r])] -> found = 1
		:: else
		fi
	:: else ->
		if
		:: got[r] > entered[r] -> found = 1
		:: got[r] == entered[r] && got_hash[AT(r, got[r])] != hash[AT(r, got[r])] -> found = 1
		:: else
		fi
	fi
}

/* engine_end_check and differs_inside: this rank is in the group. */
inline compare_inside(r)
{
	assert(got[r] == got_ended[r] - 1);
	if
	:: entered[r] >= got_ended[r] -> found = 1
	:: entered[r] == got_ended[r] - 1 && hash[AT(r, entered[r])] != got_hash[AT(r, entered[r])] -> found = 1
	:: else
	fi
}

inline compare_arrived(r)
{
	if
	:: ended[r] -> compare_closed(r)
	:: !ended[r] && got_ended[r] -> compare_inside(r)
	:: else
	fi
}

proctype member(byte r)
{
	byte more;
	do
	:: entered[r] < MOST && !found ->
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
	:: r == 1 -> gone[0]
	:: true
	fi;
	if
	:: found
	:: else ->
#if MUTANT == 1 /* an end that arrives in between is compared with nothing */
		atomic { compare_closed(r) };
		ended[r] = entered[r] + 1
#else
		ended[r] = entered[r] + 1;
		atomic { compare_closed(r) }
#endif
	fi;
	more = 0;
	leaves[r] = 1;
#if MUTANT != 2 /* both may end with the ends of the other under way */
	has_parted[r];
#endif
	gone[r] = 1
}

#if MUTANT == 3 /* the end may be behind that */
#define HAS_SAID_ALL(r) 1
#else
#define HAS_SAID_ALL(r) (sent[r] == entered[r] && sent_end[r] == ended[r])
#endif
#if MUTANT == 4 /* whoever stays lets nobody go */
#define MAY_TELL(r) 0
#else
#define MAY_TELL(r) owes_heard[r]
#endif

/* relay_to, hosts_parting_send, and what arrives: one thread at a time. */
proctype progress(byte r)
{
	byte number, value;
	mtype kind;
end:	do
	:: gone[r] -> break
	:: !gone[r] && ROOM(r) && (sent[r] < entered[r] || sent_end[r] != ended[r]) ->
#if MUTANT != 5
		value = ended[r];
#endif
		do
		:: atomic {
			ROOM(r) && sent[r] < entered[r] ->
			sent[r]++;
			send(r, ENTRY, sent[r], hash[AT(r, sent[r])])
		   }
		:: !gone[r] && sent[r] == entered[r] -> break
		:: gone[r] || !ROOM(r) -> goto over
		od;
#if MUTANT == 5 /* entries that came since are behind it */
		value = ended[r];
#endif
		if
		:: atomic {
			!gone[r] && ROOM(r) && value != sent_end[r] ->
			sent_end[r] = value;
			send(r, END, value, hash[AT(r, value - 1)])
		   }
		:: value == sent_end[r] || gone[r] || !ROOM(r)
		fi;
over:		value = 0
	:: atomic {
		!gone[r] && ROOM(r) && leaves[r] && !has_sent_leaves[r] && HAS_SAID_ALL(r) ->
		has_sent_leaves[r] = 1;
		send(r, LEAVES, 0, 0)
	   }
	:: atomic {
		!gone[r] && ROOM(r) && MAY_TELL(r) ->
		owes_heard[r] = 0;
		if
		:: !has_sent_leaves[r] -> send(r, HEARD, 0, 0)
		:: else
		fi
	   }
	:: atomic {
		!gone[r] && ((r == 0 && nempty(link_0)) || (r == 1 && nempty(link_1))) ->
		if
		:: r == 0 && nempty(link_0) -> link_0?kind, number, value
		:: r == 1 && nempty(link_1) -> link_1?kind, number, value
		fi
	   };
		if
		:: kind == ENTRY ->
			atomic {
				got_hash[AT(r, number)] = value;
				got[r] = number
			}
		:: kind == END ->
#if MUTANT == 6 /* the program may close the group in between */
			atomic {
				got_end_hash[r] = value;
				got_ended[r] = number;
				compare_arrived(r);
				got_ended[r] = 0
			};
#endif
			got_end_hash[r] = value;
			got_ended[r] = number;
			members_ended[r] = 1;
#if MUTANT != 6 && MUTANT != 7 /* 7: nobody looks once both have closed the group */
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
		gone[OTHER(r)] && !gone[r] && !has_parted[r] ->
		has_parted[r] = 1;
		do
		:: r == 0 && nempty(link_0) -> link_0?kind, number, value
		:: r == 1 && nempty(link_1) -> link_1?kind, number, value
		:: (r == 0 && empty(link_0)) || (r == 1 && empty(link_1)) -> break
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
	got_hash[AT(0, 0)] = 1;
	got_hash[AT(1, 0)] = 1;
	atomic {
		run progress(0);
		run progress(1);
		run member(0);
		run member(1)
	};
	gone[0] && gone[1];
	assert(found == (entered[0] != entered[1] || hash[AT(0, entered[0])] != hash[AT(1, entered[1])]))
}
