/* SPDX-License-Identifier: BSD-3-Clause
 * Cells of a source (src/transport/mail.h: struct mail_cells, transport_mail_has_left;
 * src/mailbox/cells.c).
 *
 * Properties:
 * - The source fills a cell only after the last message in it has been copied. So each message is
 *   received whole.
 * - Once a message has been received, the source finds that its cell is free, also if the message's
 *   slot has been used again since.
 *
 * Processes: one source sends messages through CELLS cells to two owners. Each owner has a ring of
 * SLOTS slots. It sees messages in the order of their positions, and receives them in any order.
 *
 * Abstractions: a rank does all of this under one lock, so it is one process. Matching is in
 * mail.pml: here any message that has arrived may be received next. A copy is two steps, so that a
 * store in between shows. An atomic block accesses at most one word that both ranks see, apart from
 * words that the other rank reads only after it has seen a later store.
 *
 * Mutants: each makes one mistake, which the comment at its `#if MUTANT` names. Spin must refuse
 * it. */
/* mutants: 1 2 3 4 5 6 */
#ifndef MUTANT
#define MUTANT 0
#endif

#define OWNERS 2
#define SLOTS 2
#define CELLS 2
#define MESSAGES 4 /* to each owner */

/* Words that both ranks see, of owner q: the slot of position p; the number of message m. */
#define SLOT(q, p) ((q) * SLOTS + (p) % SLOTS)
#define ID(q, m) ((q) * MESSAGES + (m))
byte sequence[OWNERS * SLOTS], held[OWNERS * SLOTS], freed[OWNERS * SLOTS];
byte envelope[OWNERS * SLOTS], cell_of[OWNERS * SLOTS]; /* which message; 1 + its cell */
byte taken[OWNERS];
byte cell[CELLS];

/* Private to the source: free cells; position and owner of the message in each; then as in struct
 * mail_out, for each owner. */
bit free[CELLS];
byte position_of[CELLS], peer_of[CELLS];
byte out_next[OWNERS], clear[OWNERS], seen[OWNERS], posted[OWNERS];
#if MUTANT == 2
byte number[CELLS];
#endif

bit is_full[CELLS]; /* for the assertions: a message is there that was not copied */

/* transport_mail_has_left, for the message in cell c */
#if MUTANT == 2 /* takes `taken` for the number of a message, as if owners received them in order */
#define HAS_LEFT(q) (taken[q] >= number[c])
#elif MUTANT == 6 /* does not expect that the slot was used again */
#define HAS_LEFT(q) (freed[SLOT(q, position_of[c])] == position_of[c])
#else
#define HAS_LEFT(q) \
	(position_of[c] + SLOTS < clear[q] || freed[SLOT(q, position_of[c])] >= position_of[c])
#endif

/* mailbox_reclaim_cells. c: a free cell; CELLS: there is none. */
inline find_cell()
{
	c = 0;
	do
	:: c < CELLS ->
		atomic {
			if
			:: !free[c] && HAS_LEFT(peer_of[c]) -> free[c] = 1
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

inline fill_cell()
{
	atomic { assert(!is_full[c]); is_full[c] = 1; cell[c] = 0 };
	cell[c] = ID(q, posted[q] + 1)
}

inline fill_slot()
{
	atomic { envelope[slot] = posted[q] + 1; cell_of[slot] = c + 1 };
	held[slot] = out_next[q];
	sequence[slot] = out_next[q]
}

inline find_room()
{
	if
	:: posted[q] - seen[q] < SLOTS
	:: atomic {
		posted[q] - seen[q] == SLOTS ->
		seen[q] = taken[q];
		if
#if MUTANT == 3 /* takes all slots for free, although some messages are still there */
		:: true -> clear[q] = out_next[q] + SLOTS
#else
		:: seen[q] == posted[q] -> clear[q] = out_next[q] + SLOTS
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
		out_next[0] = 1; out_next[1] = 1;
		clear[0] = 1 + SLOTS; clear[1] = 1 + SLOTS
	}
end_full:
	do
	:: posted[0] < MESSAGES && (posted[0] - seen[0] < SLOTS || taken[0] > seen[0]) ->
		q = 0;
		goto send
	:: posted[1] < MESSAGES && (posted[1] - seen[1] < SLOTS || taken[1] > seen[1]) ->
		q = 1;
		goto send
	:: posted[0] == MESSAGES && posted[1] == MESSAGES -> goto done
	od;
send:
	find_room();
	find_cell();
	if
	/* The source sends such a message as a long one, which is not in this model. */
	:: c == CELLS -> goto end_full
	:: else
	fi;
	free[c] = 0;
	peer_of[c] = q;
#if MUTANT == 2
	number[c] = posted[q] + 1;
#endif
#if MUTANT == 4 /* records the position before it skips any */
	position_of[c] = out_next[q];
#endif
	/* transport_mail_post */
	do
	:: atomic {
		tries < SLOTS && out_next[q] >= clear[q] &&
			held[SLOT(q, out_next[q])] != freed[SLOT(q, out_next[q])] ->
		tries++
	   };
	   sequence[SLOT(q, out_next[q])] = out_next[q];
	   out_next[q]++
	:: else -> break
	od;
	slot = SLOT(q, out_next[q]);
#if MUTANT == 5 /* fills the cell only after the message is posted */
	fill_slot();
	fill_cell();
#else
	fill_cell();
	fill_slot();
#endif
	atomic {
#if MUTANT != 4
		position_of[c] = out_next[q];
#endif
		out_next[q]++;
		posted[q]++;
		tries = 0;
		slot = 0;
		c = 0
	}
	goto end_full;
done:
	/* Once all messages have been received, all cells are free. */
	taken[0] == MESSAGES && taken[1] == MESSAGES;
	find_cell();
	assert(free[0] && free[1])
}

inline copy(q, slot)
{
	assert(cell[cell_of[slot] - 1] == ID(q, envelope[slot]));
	atomic {
		assert(cell[cell_of[slot] - 1] == ID(q, envelope[slot]));
		is_full[cell_of[slot] - 1] = 0
	}
}

inline receive(q, slot)
{
#if MUTANT == 1 /* frees the slot, and so the cell, before it has copied the message */
	freed[slot] = held[slot];
	copy(q, slot);
#else
	copy(q, slot);
	freed[slot] = held[slot];
#endif
	atomic { taken[q]++; arrived[(slot) % SLOTS] = 0 }
}

active [OWNERS] proctype owner()
{
	byte next = 1;
	bit arrived[SLOTS]; /* by slot: a message that has arrived, and was not received */
	byte q = _pid - 1;
end_waits:
	do
	:: sequence[SLOT(q, next)] >= next ->
		atomic {
			if
			:: held[SLOT(q, next)] == next -> arrived[next % SLOTS] = 1
			:: else
			fi;
			next++
		}
	:: arrived[0] -> receive(q, q * SLOTS)
	:: arrived[1] -> receive(q, q * SLOTS + 1)
	od
}
