/* SPDX-License-Identifier: BSD-3-Clause
 * The state of drawing a program: what has been drawn so far, and how many slots of the library the
 * events may take at most. */
#ifndef TEST_EXPLORE_PROGRAM_DRAW_H
#define TEST_EXPLORE_PROGRAM_DRAW_H

#include "generator.h"
#include "program.h"

enum {
	DRAW_BLOCKS = 40, /* that a receiver keeps of one sender; it could keep 64 */
	DRAW_MIXED = -1,
};

struct draw {
	uint64_t generator;
	struct program *program;
	const struct program_taste *taste;
	bool open[PROGRAM_GROUPS]; /* made, and not closed */
	/* it has a message of any tag, and so no other event may send */
	bool any_only[PROGRAM_GROUPS];
	bool registered;
	/* By group, from rank to rank: how many messages there are; the pair of lanes (1 + from *
	 * PROGRAM_LANES + to; 0: none so far; DRAW_MIXED: several); and whether there are more
	 * messages than slots, so that it must stay one pair. */
	int messages[PROGRAM_GROUPS][PROGRAM_RANKS][PROGRAM_RANKS];
	int pairs[PROGRAM_GROUPS][PROGRAM_RANKS][PROGRAM_RANKS];
	bool full[PROGRAM_GROUPS][PROGRAM_RANKS][PROGRAM_RANKS];
	int blocks[PROGRAM_RANKS][PROGRAM_RANKS];
};

static inline uint32_t draw_below(struct draw *draw, uint32_t end)
{
	return generator_below(&draw->generator, end);
}

static inline bool draw_one_in(struct draw *draw, uint32_t n)
{
	return draw_below(draw, n) == 0;
}

/* ---- program_draw.c ---- */

/* Reserves slots for `count` messages. False: there are not so many, and nothing has changed. */
bool draw_places(struct draw *draw, int group, int from, int to, int count);
/* The same; from now on only these two lanes may send and receive there. */
bool draw_places_alone(struct draw *draw, int group, int from, int to, int count);
/* The next event, zeroed; NULL: no room for another. */
struct program_event *draw_event(struct draw *draw, enum program_kind kind, int group);
int draw_open_group(struct draw *draw);
int draw_member(struct draw *draw, int group);
int draw_lane_of(struct draw *draw, int rank);
/* A lane of any member of the group. */
int draw_lane(struct draw *draw, int group);
uint32_t draw_bytes(struct draw *draw);
/* A half that is not part of a plant. */
void draw_collective_halves(struct draw *draw, struct program_event *event);
void draw_half(struct draw *draw, struct program_half *half, const uint8_t *forms, uint32_t count);
/* Kind, dtype, op, root and count. */
void draw_operation(struct draw *draw, struct program_event *event, bool barriers);
/* Makes a group of some ranks of `parent`. Returns its number; 0: no room for another. */
int draw_group(struct draw *draw, int parent, bool members);
/* A barrier of the group with nothing under way: all members have made the groups of earlier
 * events. */
void draw_barrier(struct draw *draw, int group);

/* ---- program_make.c ---- */

void draw_healthy_event(struct draw *draw);

/* ---- program_plant.c ---- */

void draw_plant(struct draw *draw, enum program_plant plant);

#endif
