/* SPDX-License-Identifier: BSD-3-Clause
 * Cells of a source (src/transport/mail.h: struct mail_cells, mail_has_left; src/mailbox/cells.c): two of them serve its
 * messages to two owners, each of which has a box of two slots, sees the messages in their order and takes them out in
 * any. What a source does under its lock, and what an owner does, is one process each; which message a receive meets is
 * mail.pml's business. Copies are two steps each, so that whatever is written meanwhile is seen.
 *
 * Shown: a cell is not filled while its message lies there or is being copied, so each message is received whole; and
 * once a message has been received its cell is found to be free, also if its slot has been used again since. An atomic
 * block touches at most one word that both sides see, apart from those whose reader is ordered behind. */
/* mutants: 1 2 3 4 5 6 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define OWNERS 2
#define SLOTS 2
#define CELLS 2
#define MOST 4 /* messages to an owner */

/* In memory that both sides see, of owner q: slot of position p; message m. */
#define SLOT(q, p) ((q) * SLOTS + (p) % SLOTS)
#define ID(q, m) ((q) * MOST + (m))
byte sequence[OWNERS * SLOTS], held[OWNERS * SLOTS], freed[OWNERS * SLOTS];
byte envelope[OWNERS * SLOTS], place[OWNERS * SLOTS]; /* which message, and 1 + its cell */
byte taken[OWNERS];
byte cell[CELLS];

/* Private to the source. */
bit free[CELLS];
byte position_of[CELLS], sent_to[CELLS];
byte at[OWNERS], clear[OWNERS], seen[OWNERS], sent[OWNERS];
#if MUTANT == 2
byte number[CELLS];
#endif

/* For the assertions only. */
bit lies[CELLS];

/* mail_has_left, of cell c. */
#if MUTANT == 2 /* as if all were taken in their order */
#define HAS_LEFT(q) (taken[q] >= number[c])
#elif MUTANT == 6 /* its slot may have been used again */
#define HAS_LEFT(q) (freed[SLOT(q, position_of[c])] == position_of[c])
#else
#define HAS_LEFT(q) (position_of[c] + SLOTS < clear[q] || freed[SLOT(q, position_of[c])] >= position_of[c])
#endif

/* has_cells: c is a free one, or CELLS. */
inline find_cell()
{
	c = 0;
	do
	:: c < CELLS ->
		atomic {
			if
			:: !free[c] && HAS_LEFT(sent_to[c]) -> free[c] = 1
			:: else
			fi;
			c++
		}
	:: else -> break
	od;
	if
	:: free[0] -> c = 0
	:: !free[0] && free[1] -> c = 1
	:: else -> c = CELLS
	fi
}

inline fill()
{
	atomic { assert(!lies[c]); lies[c] = 1; cell[c] = 0 };
	cell[c] = ID(q, sent[q] + 1)
}

inline publish()
{
	atomic { envelope[slot] = sent[q] + 1; place[slot] = c + 1 };
	held[slot] = at[q];
	sequence[slot] = at[q]
}

inline has_room()
{
	if
	:: sent[q] - seen[q] < SLOTS
	:: atomic {
		sent[q] - seen[q] == SLOTS ->
		seen[q] = taken[q];
		if
#if MUTANT == 3 /* although some lie there still */
		:: true -> clear[q] = at[q] + SLOTS
#else
		:: seen[q] == sent[q] -> clear[q] = at[q] + SLOTS
#endif
		:: else
		fi
	   }
	fi
}

active proctype source()
{
	byte q, c, slot, tries;
	atomic {
		free[0] = 1; free[1] = 1;
		at[0] = 1; at[1] = 1;
		clear[0] = 1 + SLOTS; clear[1] = 1 + SLOTS
	}
end_full:
	do
	:: sent[0] < MOST && (sent[0] - seen[0] < SLOTS || taken[0] > seen[0]) -> q = 0; goto send
	:: sent[1] < MOST && (sent[1] - seen[1] < SLOTS || taken[1] > seen[1]) -> q = 1; goto send
	:: sent[0] == MOST && sent[1] == MOST -> goto done
	od;
send:
	has_room();
	find_cell();
	if
	:: c == CELLS -> goto end_full /* it goes another way, which is nothing to this model */
	:: else
	fi;
	free[c] = 0;
	sent_to[c] = q;
#if MUTANT == 2
	number[c] = sent[q] + 1;
#endif
#if MUTANT == 4 /* where it might have lain */
	position_of[c] = at[q];
#endif
	/* mail_post */
	do
	:: atomic {
		tries < SLOTS && at[q] >= clear[q] && held[SLOT(q, at[q])] != freed[SLOT(q, at[q])] -> tries++
	   };
	   sequence[SLOT(q, at[q])] = at[q];
	   at[q]++
	:: else -> break
	od;
	slot = SLOT(q, at[q]);
#if MUTANT == 5
	publish();
	fill();
#else
	fill();
	publish();
#endif
	atomic {
#if MUTANT != 4
		position_of[c] = at[q];
#endif
		at[q]++;
		sent[q]++;
		tries = 0;
		slot = 0;
		c = 0
	}
	goto end_full;
done:
	/* Once all have been received, no cell is kept back. */
	taken[0] == MOST && taken[1] == MOST;
	find_cell();
	assert(free[0] && free[1])
}

inline copy(q, slot)
{
	assert(cell[place[slot] - 1] == ID(q, envelope[slot]));
	atomic { assert(cell[place[slot] - 1] == ID(q, envelope[slot])); lies[place[slot] - 1] = 0 }
}

inline take(q, slot)
{
#if MUTANT == 1 /* it is the source's again before it has been copied */
	freed[slot] = held[slot];
	copy(q, slot);
#else
	copy(q, slot);
	freed[slot] = held[slot];
#endif
	atomic { taken[q]++; waits[(slot) % SLOTS] = 0 }
}

active [OWNERS] proctype owner()
{
	byte next = 1;
	bit waits[SLOTS]; /* a message of which it has learned */
	byte q = _pid - 1;
end_waits:
	do
	:: sequence[SLOT(q, next)] >= next ->
		atomic {
			if
			:: held[SLOT(q, next)] == next -> waits[next % SLOTS] = 1
			:: else
			fi;
			next++
		}
	:: waits[0] -> take(q, q * SLOTS)
	:: waits[1] -> take(q, q * SLOTS + 1)
	od
}
