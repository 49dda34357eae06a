/* SPDX-License-Identifier: BSD-3-Clause
 * Programs that a seed draws: what 2 to 4 ranks of 1 to 4 threads do on a world and on groups that
 * they make, as flat data; and what the outcome must be.
 *
 * A program is one sequence of events. A lane is one thread of one rank. What a lane does in an
 * event is its half of that event. A lane calls its halves in the order of the events. A call
 * blocks; or it begins an operation, for which the lane waits some of its events later.
 *
 * So a program without a plant always ends, whatever the schedule, even if no message were
 * buffered. For take the first of all events that are not over. All events before it are over, so
 * each of its lanes comes to it. program_is_legal excludes what could break this: a tag belongs to
 * one pair of lanes, or to one event; one lane of each rank calls the collectives of a group; and
 * messages from one rank to another in a group never take all slots, unless only one lane sends
 * there and only one receives.
 *
 * A plant is an error at the end of such a program. Its outcome is known (program_expect). */
#ifndef TEST_EXPLORE_PROGRAM_H
#define TEST_EXPLORE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <lockstep/lockstep.h>

enum {
	PROGRAM_RANKS = 4,
	PROGRAM_THREADS = 4, /* of a rank */
	PROGRAM_LANES = PROGRAM_RANKS * PROGRAM_THREADS,
	PROGRAM_GROUPS = 8, /* the first is the world */
	PROGRAM_EVENTS = 64,
	PROGRAM_REPEAT = 200,
	PROGRAM_SHORT = 4096, /* a longer message stays with its sender until it is received */
	PROGRAM_TEXT = 65536,
};

#define PROGRAM_KINDS(X)                                                                             \
	X(MESSAGE, "message") /* `repeat` messages from one lane to another */                       \
	X(SERVER, "server")   /* the same from each lane of `senders`; `to` receives from any */     \
	X(BLOCKS, "blocks")   /* blocks handed over, of which the receiver keeps some */             \
	/* `repeat` long sends that nobody receives, or receives of what nobody sends: lane `from` \
	 * cancels them, and meanwhile `to` stays in the group, beside the library */ \
	X(CANCEL_SEND, "cancel-send")                                                                \
	X(CANCEL_RECV, "cancel-recv")                                                                \
	X(COLLECTIVE, "collective") /* on a group, by one lane of each member */                     \
	X(MAKE, "make")   /* of a group, by those lanes of its parent that call collectives */       \
	X(CLOSE, "close") /* of a group, by those that call its collectives */                       \
	X(REGISTER, "register")     /* memory of each member, a collective */                        \
	X(DEREGISTER, "deregister") /* by each member; then the memory is mapped anew */             \
	X(ABORT, "abort")           /* lane `from` aborts the group */                               \
	X(KILL, "kill") /* the process of lane `from` is killed, `repeat` points later */

enum program_kind {
#define X(name, text) PROGRAM_##name,
	PROGRAM_KINDS(X)
#undef X
		PROGRAM_KIND_COUNT
};

/* How a half is called, and how it is waited for. */
#define PROGRAM_FORMS(X)                                                                          \
	X(BLOCKING, "blocking")                                                                   \
	X(WAIT, "wait")         /* a handle, and ls_wait */                                       \
	X(TEST, "test")         /* some ls_test, then ls_wait */                                  \
	X(BRIEF, "brief")       /* some ls_wait with a short time limit, then ls_wait */          \
	X(ANY, "any")           /* ls_wait_any of all that the lane has under way in the group */ \
	X(POLL, "poll")         /* ls_test until it is over */                                    \
	X(CALLBACK, "callback") /* no handle; the lane waits beside the library */                \
	X(DROPPED, "dropped")   /* the same; the lane frees the handle at once */                 \
	X(BATCH, "batch")       /* in one batch with the lane's next halves in this group */      \
	X(PROBE, "probe")       /* a receive that probes first, and then blocks */                \
	X(IPROBE, "iprobe")     /* …that probes some times without waiting */                   \
	X(BLOCK, "block")       /* ls_send_block, ls_recv_block; blocks */                        \
	X(RETRACT, "retract")   /* begun, cancelled; if that succeeds, called again, blocking */

enum program_form {
#define X(name, text) PROGRAM_##name,
	PROGRAM_FORMS(X)
#undef X
		PROGRAM_FORM_COUNT
};

enum program_memory {
	PROGRAM_ALLOCATED, /* by ls_alloc */
	PROGRAM_PLAIN,
	/* if the lane has registered memory just then; else as PROGRAM_ALLOCATED */
	PROGRAM_REGISTERED,
	PROGRAM_MEMORIES
};

/* How a half differs from its event. Such a half belongs to a plant. */
enum {
	PROGRAM_ABSENT = 1, /* it is not called */
	PROGRAM_TWICE = 2,  /* a collective is called twice */
	/* the lane calls this collective and the next one in the wrong order */
	PROGRAM_SWAPPED = 4,
	PROGRAM_AWAY =
		8, /* not called; the lane waits beside the library until the other half is over */
	PROGRAM_ODD_KIND = 16,
	PROGRAM_ODD_COUNT = 32,
	PROGRAM_ODD_DTYPE = 64,
	PROGRAM_ODD_REDUCE = 128,
	PROGRAM_ODD_ROOT = 256,
	PROGRAM_ODD = PROGRAM_ODD_KIND | PROGRAM_ODD_COUNT | PROGRAM_ODD_DTYPE |
		      PROGRAM_ODD_REDUCE | PROGRAM_ODD_ROOT,
};

struct program_half {
	uint8_t form;   /* enum program_form */
	uint8_t lag;    /* the lane waits for it after this many more of its halves */
	uint8_t memory; /* enum program_memory */
	uint8_t choice; /* random, for choices that do not affect the outcome */
	uint16_t otherwise;
	uint16_t timeout_ms; /* 0: the group's */
};

struct program_event {
	uint8_t kind; /* enum program_kind */
	uint8_t group;
	uint8_t from, to; /* lanes */
	uint8_t tag;      /* 0 to 3: which of the tags of this pair of lanes */
	/* of a collective: enum operation_kind; dtype, op and root as in operation.h */
	uint8_t operation;
	uint8_t dtype, op, root;
	bool any_tag; /* its receives are for any tag; the group has no messages of other events */
	uint16_t repeat;
	uint16_t senders; /* of a server: a set of lanes */
	uint32_t bytes;   /* of a message; of a collective: how many elements */
	struct program_half halves[PROGRAM_LANES];
};

enum program_how { PROGRAM_WORLD, PROGRAM_SPLIT, PROGRAM_FROM_RANKS, PROGRAM_FROM_MEMBERS };

struct program_group {
	uint8_t how; /* enum program_how */
	uint8_t parent;
	uint8_t size;
	uint8_t members[PROGRAM_RANKS]; /* ranks of the world, in their order in the group */
	/* by rank of the world: which of its threads calls collectives */
	uint8_t threads[PROGRAM_RANKS];
};

/* Whether and how a program goes wrong. program_expect.c has what is expected, and why. */
#define PROGRAM_PLANTS(X)                                                                         \
	X(NONE, "none")                                                                           \
	X(DROPPED_SEND, "dropped-send")     /* a message is not sent; its sender's rank ends */   \
	X(DROPPED_RECV, "dropped-recv")     /* a long message is not received */                  \
	X(ODD_COLLECTIVE, "odd-collective") /* a rank calls it with another kind, count, … */   \
	X(ODD_LAST, "odd-last")             /* the same in the group's last collective */         \
	X(SKIPPED, "skipped")               /* a rank skips a collective; others follow */        \
	X(SKIPPED_LAST, "skipped-last")     /* …the group's last one */                         \
	X(TWICE_LAST, "twice-last")         /* a rank calls the group's last collective twice */  \
	X(IN_OTHER_ORDER, "swapped")                                                              \
	X(ODD_MESSAGE, "odd-message") /* count or dtype of a receive is not that of the send */   \
	X(CYCLE,                                                                                  \
	  "cycle") /* ranks wait for each other, in messages and collectives of several groups */ \
	X(STARVED_SERVER,                                                                         \
	  "starved-server") /* a receive from any; some peers end, the others wait for it */      \
	X(TIME_LIMIT, "time-limit") /* of one call, while its peer is alive and elsewhere */      \
	X(GIVEN_UP, "given-up")     /* ls_group_abort, while others wait */                       \
	X(KILLED, "killed")

enum program_plant {
#define X(name, text) PROGRAM_PLANT_##name,
	PROGRAM_PLANTS(X)
#undef X
		PROGRAM_PLANT_COUNT
};

/* What all programs on one world share. */
struct program_world {
	uint8_t ranks;    /* 2 to PROGRAM_RANKS */
	uint8_t messages; /* LOCKSTEP_MESSAGES */
	/* LOCKSTEP_P2P=serial: then each rank has one thread, and cancels nothing */
	bool serial;
	bool blocking; /* LOCKSTEP_BLOCKING=1 */
};

struct program {
	uint64_t seed; /* from which the program was drawn; it marks the program's data */
	struct program_world world;
	uint8_t threads[PROGRAM_RANKS];
	uint8_t group_count, event_count;
	uint8_t plant;       /* enum program_plant */
	uint8_t plant_event; /* its first event */
	uint8_t culprit;     /* the rank that makes the mistake */
	uint16_t looks;      /* how often `lockstep diagnose` looks at it while it runs */
	struct program_group groups[PROGRAM_GROUPS];
	struct program_event events[PROGRAM_EVENTS];
};

static inline int program_lane(int rank, int thread)
{
	return rank * PROGRAM_THREADS + thread;
}

static inline int program_rank_of(int lane)
{
	return lane / PROGRAM_THREADS;
}

/* ---- program_make.c, program_draw.c, program_plant.c ---- */

struct program_taste {
	int events;  /* about this many; 0: a random number */
	bool plants; /* about half of the programs have one */
	bool kills;  /* also the death of a rank */
	bool looks;
	bool registers; /* memory; a world can register 64 times in all */
	int only;       /* enum program_plant, 0: any */
};

/* Draws the settings of a world from `seed`. The caller sets LOCKSTEP_… accordingly before it opens
 * the world. */
void program_draw_world(uint64_t seed, struct program_world *world);
void program_make(uint64_t seed, const struct program_world *world,
		  const struct program_taste *taste, struct program *program);

/* ---- program_legal.c ---- */

/* Whether the lane has a part in the event, even one that is not called. */
bool program_takes_part(const struct program *program, int event, int lane);
/* The rank in the group of a rank of the world; -1: it is not a member. */
int program_rank_in(const struct program_group *group, int rank);
/* The lane that calls the collectives of a group for this rank. */
int program_collector(const struct program_group *group, int rank);
int program_tag(const struct program *program, int event);

/* Plays the program with sends that end only when they are received. Says which halves never end,
 * by lane; without a plant, none. */
struct program_stuck {
	bool any;
	bool at[PROGRAM_LANES][PROGRAM_EVENTS];
};
void program_play(const struct program *program, struct program_stuck *stuck);
/* NULL, or what is wrong: with a program from a file, or with one that was reduced. */
const char *program_is_legal(const struct program *program);

/* ---- program_text.c ---- */

/* One line for each group and event. What follows a # says for readers what each lane does. */
void program_print(const struct program *program, FILE *file);
/* NULL, or what is wrong, and in which line. */
const char *program_read(FILE *file, struct program *program);

/* ---- program_run.c ---- */

/* How one half ended. */
struct program_end {
	bool begun, over;
	bool skipped; /* its group had not been made */
	ls_status status;
	int order; /* position among all halves that are over, of all lanes, from 1 */
	uint64_t begin_ns, end_ns;
};

struct program_results {
	struct program_end ends[PROGRAM_LANES][PROGRAM_EVENTS];
	/* By rank: when all its lanes had ended, and before it closed anything. size 0: the rank
	 * knew of no failure. */
	struct ls_failure failures[PROGRAM_RANKS][PROGRAM_GROUPS];
	uint64_t lane_end_ns[PROGRAM_LANES]; /* 0: it has not ended */
	bool rank_over[PROGRAM_RANKS];
	int first_lane, first_event; /* whose call failed first; -1: none */
	int looked;                  /* how often */
	char seen[2048];             /* a verdict that a look has seen; "": none */
};

/* One program while it runs: shared by its ranks, which are threads of one process. */
struct program_run;

struct program_run *program_run_new(const struct program *program);
void program_run_free(struct program_run *run);
/* Runs the part of this rank, in its first managed thread, which has opened *world. Closes all
 * groups but the world; with a plant it also closes the world, and sets *world to NULL. */
void program_run_rank(struct program_run *run, int rank, ls_group **world);
/* Call when all ranks are over. */
const struct program_results *program_run_results(struct program_run *run);
/* Makes the looks, until all ranks are over. Call in a managed thread of no rank. */
void program_run_looks(void *run);
/* Whether the world cannot be used any more. */
bool program_run_spoiled(struct program_run *run);

/* ---- program_expect.c, program_judge.c ---- */

struct program_expectation {
	uint32_t statuses; /* bit s: a group may fail with status s */
	uint8_t groups;    /* bit g: group g may fail so */
	int culprit;       /* the rank that the report must name; -1: none or any */
	/* the report may name none, because too few ranks had called to tell which one differs */
	bool may_blame_nobody;
	bool may_end_quietly;       /* no call has to fail, if the report was printed */
	struct program_stuck stuck; /* halves that must fail */
	/* The report must have the label of at least one of these halves. */
	struct program_stuck named;
};
void program_expect(const struct program *program, struct program_expectation *expectation);

/* Whether the outcome is right; else `why` says what is wrong. `said`: what was printed on standard
 * error. */
bool program_judge(const struct program *program, const struct program_results *results,
		   const char *said, char *why, size_t bytes);

/* ---- program_shrink.c ---- */

typedef bool program_fails(void *data, const struct program *program);

/* Reduces the program as long as it still fails: fewer events, lanes, ranks and groups, shorter
 * messages, simpler forms. Calls `fails` at most `tries` times. Returns how often it did. */
int program_shrink(struct program *program, program_fails *fails, void *data, int tries);

#endif
