/* SPDX-License-Identifier: BSD-3-Clause
 * How the ranks of a list make a group by messages (src/group/from_members.c).
 *
 * Properties:
 * - If one rank gets the group, all get it, by the same calls; none of these calls ends in another
 *   way.
 * - If a rank refuses another rank's call, its own call ends, and the other rank learns that the
 *   lists differ, or has ended that call.
 * - No rank is refused more often than there are wrong lists.
 * - In the end no note is left, and no receive is posted. No rank has a receive posted for a rank
 *   that may be in its next call.
 *
 * Processes: three ranks. Ranks 1 and 2 may first pass a wrong list. A rank that is refused calls
 * again, with the right list; but one of them may give up instead.
 *
 * Abstractions: a note stays with its sender until it is delivered or cancelled. A rank that waits
 * notices only what it waits for. The serial of a card is the number of the call, from 1. A set is
 * a number that no other set has; the code uses a hash.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 7 8 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define RANKS 3
#define CALLS 3
#define RIGHT 0 /* all three ranks */
#define WRONG 1 /* all three ranks, in another order */
#define SHORTER 2   /* ranks 0 and 1 */
#define WRONG_TOO 3 /* all three ranks, in yet another order */
#define IS_LISTED(l, q) ((l) != SHORTER || (q) < 2)

/* The note of rank a to rank b: as sent, and as received. */
#define OF(a, b) ((a) * RANKS + (b))
#define HASH_OF(a, b, c) ((a) + 4 * (b) + 16 * (c))
bit sent[9];
byte sent_serial[9], sent_list[9], sent_set[9];
bit sent_refuses[9];
mtype = { NO_RECEIVE, POSTED, MATCHED };
mtype inbox[9] = NO_RECEIVE;
byte inbox_serial[9], inbox_list[9], inbox_set[9];
bit inbox_refuses[9];

byte withdrawn_call[RANKS]; /* the last call that has withdrawn its offer: `times_closed` */
byte agreed_set[RANKS]; /* the set of the group that this rank has got; 0: none */
byte knows_difference[RANKS]; /* the last call in which the rank has learned that lists differ */
bit one_has_given_up; /* one rank does not call again */

#define SEND(q, s, r) \
	sent[OF(me, q)] = 1; \
	sent_serial[OF(me, q)] = call; \
	sent_list[OF(me, q)] = list; \
	sent_set[OF(me, q)] = s; \
	sent_refuses[OF(me, q)] = r; \
	DELIVER(OF(me, q))
#define CANCEL_SEND(q) \
	sent[OF(me, q)] = 0; \
	sent_serial[OF(me, q)] = 0; \
	sent_list[OF(me, q)] = 0; \
	sent_set[OF(me, q)] = 0; \
	sent_refuses[OF(me, q)] = 0
/* Delivers a note at once when it is sent and its receive is posted. That loses no behaviour,
 * because both may happen as late as they like. */
#define DELIVER(i) \
	if \
	:: sent[i] && inbox[i] == POSTED -> \
		inbox[i] = MATCHED; \
		inbox_serial[i] = sent_serial[i]; \
		inbox_list[i] = sent_list[i]; \
		inbox_set[i] = sent_set[i]; \
		inbox_refuses[i] = sent_refuses[i]; \
		sent[i] = 0; \
		sent_serial[i] = 0; \
		sent_list[i] = 0; \
		sent_set[i] = 0; \
		sent_refuses[i] = 0 \
	:: else \
	fi
#define CLEAR_INBOX(i) \
	inbox[i] = NO_RECEIVE; \
	inbox_serial[i] = 0; \
	inbox_list[i] = 0; \
	inbox_set[i] = 0; \
	inbox_refuses[i] = 0

/* The other two ranks. */
#define PEER_1 ((me + 1) % RANKS)
#define PEER_2 ((me + 2) % RANKS)
#define HAS_CARD(q) (!IS_LISTED(list, q) || card[q])
#define MY_SET HASH_OF(card[0], card[1], card[2])
#define HAS_NOTE(q) (inbox[OF(q, me)] == MATCHED)
#define BEHIND(q) (IS_LISTED(list, q) && (confirmed -> confirmed_by[q] != confirmed : !card[q]))

/* Takes the note that has come from rank q. */
inline take_note(q)
{
	if
	:: inbox_serial[OF(q, me)] != card[q] ->
#if MUTANT != 1 /* mutant 1 keeps its confirmation although a card of the set has changed */
		confirmed = 0
#else
		skip
#endif
	:: else
	fi;
	card[q] = inbox_serial[OF(q, me)];
	confirmed_by[q] = inbox_set[OF(q, me)];
	if
	:: inbox_list[OF(q, me)] != list ->
		other = q;
		refused = inbox_refuses[OF(q, me)];
		knows_difference[me] = call
	:: else
	fi;
	CLEAR_INBOX(OF(q, me))
}

inline listen_to(q)
{
	if
	:: IS_LISTED(list, q) && inbox[OF(q, me)] == NO_RECEIVE &&
			!(confirmed && confirmed_by[q] == confirmed) ->
		inbox[OF(q, me)] = POSTED;
		DELIVER(OF(q, me))
	:: else
	fi
}

/* Before this rank confirms. */
inline stop_listening(q)
{
	if
#if MUTANT != 3 /* mutant 3 still listens to them */
	:: other == RANKS && HAS_CARD(PEER_1) && HAS_CARD(PEER_2) && confirmed_by[q] == MY_SET ->
		if
		:: HAS_NOTE(q) -> take_note(q)
		:: else -> CLEAR_INBOX(OF(q, me))
		fi
#endif
	:: else
	fi
}

inline send_card(q)
{
	if
	:: IS_LISTED(list, q) -> SEND(q, 0, 0)
	:: else
	fi
}

inline send_confirmation(q)
{
	if
	:: IS_LISTED(list, q) -> SEND(q, confirmed, 0)
	:: else
	fi
}

/* Receives what rank q has sent to this rank: what is there, then what comes in its place. */
inline receive_rest(q)
{
	CLEAR_INBOX(OF(q, me));
	if
	:: IS_LISTED(list, q) ->
		inbox[OF(q, me)] = POSTED;
		DELIVER(OF(q, me));
		CLEAR_INBOX(OF(q, me))
	:: else
	fi
}

proctype rank(byte me)
{
	byte call = 1, list = RIGHT, confirmed, other = RANKS;
	byte card[RANKS], confirmed_by[RANKS];
	bit refused;

	if
	:: me == 1 -> list = WRONG
	:: me == 1 -> list = SHORTER
	:: me == 2 -> list = WRONG_TOO
	:: me != 1
	fi;
begin:
	atomic {
		assert(call <= CALLS);
		card[me] = call;
		card[PEER_1] = 0;
		card[PEER_2] = 0;
		confirmed_by[PEER_1] = 0;
		confirmed_by[PEER_2] = 0;
		confirmed = 0;
		other = RANKS;
		refused = 0;
		send_card(PEER_1);
		send_card(PEER_2)
	};
	do
	:: atomic { other == RANKS && HAS_NOTE(PEER_1) -> take_note(PEER_1) }
	:: atomic { other == RANKS && HAS_NOTE(PEER_2) -> take_note(PEER_2) }
	:: atomic {
		other == RANKS && !HAS_NOTE(PEER_1) && !HAS_NOTE(PEER_2) ->
		listen_to(PEER_1);
		listen_to(PEER_2);
		if
		:: HAS_NOTE(PEER_1) || HAS_NOTE(PEER_2) -> goto look
		:: else
		fi;
		if
		:: HAS_CARD(PEER_1) && HAS_CARD(PEER_2) && !confirmed ->
			stop_listening(PEER_1);
			stop_listening(PEER_2);
			if
			:: other == RANKS && HAS_CARD(PEER_1) && HAS_CARD(PEER_2) ->
				CANCEL_SEND(PEER_1);
				CANCEL_SEND(PEER_2);
				confirmed = MY_SET;
#if MUTANT == 4
				break /* does not wait for confirmations */
#endif
			:: else -> goto look
			fi
		:: confirmed && !BEHIND(PEER_1) && !BEHIND(PEER_2) -> break
		:: else -> goto end_waits
		fi
	   };
		atomic { send_confirmation(PEER_1) };
		atomic { send_confirmation(PEER_2); goto look };
/* If a rank has given up, this wait may never end. Otherwise `init` shows that it does. */
end_waits:
		(BEHIND(PEER_1) && HAS_NOTE(PEER_1)) || (BEHIND(PEER_2) && HAS_NOTE(PEER_2));
look:		skip
	:: other != RANKS -> goto fail
	od;

	/* Each of the others needs the confirmation of this rank. */
	atomic {
		!sent[OF(me, PEER_1)] && !sent[OF(me, PEER_2)];
		assert(list == RIGHT);
		assert(withdrawn_call[PEER_1] < card[PEER_1] &&
				withdrawn_call[PEER_2] < card[PEER_2]);
		assert(!agreed_set[PEER_1] || agreed_set[PEER_1] == confirmed);
		assert(!agreed_set[PEER_2] || agreed_set[PEER_2] == confirmed);
		assert(inbox[OF(me, PEER_1)] != POSTED && inbox[OF(me, PEER_2)] != POSTED);
		assert(inbox[OF(PEER_1, me)] == NO_RECEIVE && inbox[OF(PEER_2, me)] == NO_RECEIVE);
		agreed_set[me] = confirmed;
		goto over
	};

fail:
	atomic {
		assert(!agreed_set[0] && !agreed_set[1] && !agreed_set[2]);
		CANCEL_SEND(PEER_1);
		CANCEL_SEND(PEER_2);
#if MUTANT != 5 /* mutant 5 sends no refusal */
		if
#if MUTANT != 8 /* mutant 8 refuses also a rank that has refused this one */
		:: refused
#endif
		:: !refused || MUTANT == 8 -> SEND(other, 0, 1)
		fi
#endif
	};
#if MUTANT != 2
	withdrawn_call[me] = call;
#endif
#if MUTANT != 6 /* mutant 6 does not look whether that rank has withdrawn */
	atomic {
		if
		:: withdrawn_call[other] >= card[other] -> CANCEL_SEND(other)
		:: else
		fi
	};
#endif
#if MUTANT != 7 /* mutant 7 does not receive what was sent to it meanwhile */
	atomic { receive_rest(PEER_1) };
	atomic { receive_rest(PEER_2) };
#endif
#if MUTANT == 2
	/* withdraws only now: too late for a rank that has sent something since */
	withdrawn_call[me] = call;
#endif
	atomic {
		!sent[OF(me, other)];
		assert(knows_difference[other] >= card[other] ||
				withdrawn_call[other] >= card[other] ||
			(inbox[OF(me, other)] == MATCHED && inbox_serial[OF(me, other)] == call));
		CLEAR_INBOX(OF(PEER_1, me));
		CLEAR_INBOX(OF(PEER_2, me));
		if
		:: !one_has_given_up -> one_has_given_up = 1; goto over
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
		agreed_set[0] && agreed_set[1] && agreed_set[2] || one_has_given_up;
		assert(one_has_given_up ||
				(!sent[1] && !sent[2] && !sent[3] && !sent[5] && !sent[6] &&
						!sent[7]))
	}
}
