/* SPDX-License-Identifier: BSD-3-Clause
 * Programs that a seed draws: what 2 to 4 ranks of 1 to 4 threads do on a world and on groups that
 * they make, as flat data, and what must come out of it.
 *
 * A program is one sequence of events. A lane is one thread of one rank; it has a half of each
 * event that it takes part in, and calls its halves in the order of the events, each blocking, or
 * begun there and waited for some of its events later. So a program without a plant always comes to
 * its end, whatever the schedule, even if no message were buffered: of all events that are not over
 * take the first; all that its halves wait for is over, so each of its lanes comes to it. What
 * could break that is kept out by program_is_legal: a tag is of one pair of lanes, or of one event;
 * collectives of a group are called by one lane of each rank; the places for messages from one rank
 * to another in a group are never all taken, unless just one lane sends there and just one
 * receives.
 *
 * A plant is an error at the end of such a program, whose outcome is known (program_expect). */
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
	X(SERVER, "server")   /* the same from each lane of `senders`, to one that asks any */       \
	X(BLOCKS, "blocks")   /* blocks handed over, of which the receiver keeps some */             \
	/* `repeat` long sends that nobody receives, or receives of what nobody sends: lane `from` \
	 * takes them back, and meanwhile `to` stays in the group, beside the library */ \
	X(CANCEL_SEND, "cancel-send")                                                                \
	X(CANCEL_RECV, "cancel-recv")                                                                \
	X(COLLECTIVE, "collective") /* on a group, by one lane of each member */                     \
	X(MAKE, "make")   /* of a group, by those lanes of its parent that call collectives */       \
	X(CLOSE, "close") /* of a group, by those that call its collectives */                       \
	X(REGISTER, "register")     /* memory of each member, a collective */                        \
	X(DEREGISTER, "deregister") /* by each member; then the memory is mapped anew */             \
	X(ABORT, "abort")           /* lane `from` gives the group up */                             \
	X(KILL, "kill")             /* lane `from` has its process killed, `repeat` points later */

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
	X(BRIEF, "brief")       /* some ls_wait that give up after a moment, then ls_wait */      \
	X(ANY, "any")           /* ls_wait_any of all that the lane has under way in the group */ \
	X(POLL, "poll")         /* ls_test until it is over */                                    \
	X(CALLBACK, "callback") /* no handle; waits beside the library */                         \
	X(DROPPED, "dropped")   /* the same, with a handle that is given back at once */          \
	X(BATCH, "batch")       /* in one with the lane's next halves in this group */            \
	X(PROBE, "probe")       /* a receive that asks first, and then blocks */                  \
	X(IPROBE, "iprobe")     /* …that asks some times without waiting */                     \
	X(BLOCK, "block")       /* ls_send_block, ls_recv_block; blocks */                        \
	X(RETRACT, "retract")   /* begun, taken back; if that succeeds, called again, blocking */

enum program_form {
#define X(name, text) PROGRAM_##name,
	PROGRAM_FORMS(X)
#undef X
		PROGRAM_FORM_COUNT
};

enum program_memory {
	PROGRAM_ALLOCATED, /* by ls_alloc */
	PROGRAM_PLAIN,
	PROGRAM_REGISTERED, /* if the lane has any just then, else as allocated */
	PROGRAM_MEMORIES
};

/* What a half does otherwise than its event says: that makes it a plant's. */
enum {
	PROGRAM_ABSENT = 1, /* it is not called */
	PROGRAM_TWICE = 2,  /* a collective is called twice */
	/* a collective is called in place of the next event's, and that in place of it */
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
	uint8_t lag;    /* it is waited for this many of the lane's halves later */
	uint8_t memory; /* enum program_memory */
	uint8_t choice; /* random: whatever makes no difference to what comes out */
	uint16_t otherwise;
	uint16_t timeout_ms; /* 0: the group's */
};

struct program_event {
	uint8_t kind; /* enum program_kind */
	uint8_t group;
	uint8_t from, to;  /* lanes */
	uint8_t tag;       /* 0 to 3: which of the tags of this pair of lanes */
	uint8_t operation; /* of a collective: enum operation_kind, dtype, op and root as there */
	uint8_t dtype, op, root;
	bool any_tag; /* its receives ask for any; the group has no messages but this event's */
	uint16_t repeat;
	uint16_t senders; /* of a server: a set of lanes */
	uint32_t bytes;   /* of a message; of a collective: elements */
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

/* Whether and how a program goes wrong. "Alone" are the lanes that wait for what never comes. What
 * is expected stands in program_expect.c beside the reasons. */
#define PROGRAM_PLANTS(X)                                                                          \
	X(NONE, "none")                                                                            \
	X(DROPPED_SEND, "dropped-send")     /* a message is not sent; its sender's rank ends */    \
	X(DROPPED_RECV, "dropped-recv")     /* a long one is not received */                       \
	X(ODD_COLLECTIVE, "odd-collective") /* a rank calls it with another kind, count, … */    \
	X(ODD_LAST, "odd-last")             /* the same in the group's last one */                 \
	X(SKIPPED, "skipped")               /* a rank leaves out a collective, others follow */    \
	X(SKIPPED_LAST, "skipped-last")     /* …the group's last */                              \
	X(TWICE_LAST, "twice-last")         /* a rank calls the group's last one once more */      \
	X(IN_OTHER_ORDER, "swapped")                                                               \
	X(ODD_MESSAGE, "odd-message") /* count or dtype of a receive is not that of the send */    \
	X(CYCLE,                                                                                   \
	  "cycle") /* ranks wait for each other, in messages and collectives, of several groups */ \
	X(STARVED_SERVER,                                                                          \
	  "starved-server") /* any source; some peers have ended, the others wait for it */        \
	X(TIME_LIMIT, "time-limit") /* of one call, while its peer is alive and elsewhere */       \
	X(GIVEN_UP, "given-up")     /* ls_group_abort, while others wait */                        \
	X(KILLED, "killed")

enum program_plant {
#define X(name, text) PROGRAM_PLANT_##name,
	PROGRAM_PLANTS(X)
#undef X
		PROGRAM_PLANT_COUNT
};

/* What all programs on one world have alike. */
struct program_world {
	uint8_t ranks;    /* 2 to PROGRAM_RANKS */
	uint8_t messages; /* LOCKSTEP_MESSAGES */
	/* LOCKSTEP_P2P=serial: then each rank has one thread, and takes nothing back */
	bool serial;
	bool blocking; /* LOCKSTEP_BLOCKING=1 */
};

struct program {
	uint64_t seed; /* it was drawn from; marks its data */
	struct program_world world;
	uint8_t threads[PROGRAM_RANKS];
	uint8_t group_count, event_count;
	uint8_t plant;       /* enum program_plant */
	uint8_t plant_event; /* its first event */
	uint8_t culprit;     /* the rank that does otherwise */
	uint16_t looks;      /* of `lockstep diagnose`, while it runs */
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
	int events;  /* about this many; 0: as drawn */
	bool plants; /* about half of the programs have one */
	bool kills;  /* also a death */
	bool looks;
	bool registers; /* memory: a world has room for 64 of that, ever */
	int only;       /* enum program_plant, 0: any */
};

/* The settings of a world that suit `seed`; LOCKSTEP_… must be set so before it is opened. */
void program_draw_world(uint64_t seed, struct program_world *world);
void program_make(uint64_t seed, const struct program_world *world,
		  const struct program_taste *taste, struct program *program);

/* ---- program_legal.c ---- */

/* Whether the lane has a part in the event, even one that is not called. */
bool program_takes_part(const struct program *program, int event, int lane);
/* Where the world's rank is in the group, -1: nowhere. */
int program_rank_in(const struct program_group *group, int rank);
/* The lane that calls the collectives of a group for this rank. */
int program_collector(const struct program_group *group, int rank);
int program_tag(const struct program *program, int event);

/* Plays the program with sends that never end before they are received: the events whose halves
 * never end, by lane. Without a plant none. */
struct program_stuck {
	bool any;
	bool at[PROGRAM_LANES][PROGRAM_EVENTS];
};
void program_play(const struct program *program, struct program_stuck *stuck);
/* NULL, or what is wrong: so of what a file says, or of what was shrunk. */
const char *program_is_legal(const struct program *program);

/* ---- program_text.c ---- */

/* One line for each group and event; what follows a # is for readers: what each lane does. */
void program_print(const struct program *program, FILE *file);
/* NULL, or what is wrong, and in which line. */
const char *program_read(FILE *file, struct program *program);

/* ---- program_run.c ---- */

/* How one half ended. */
struct program_end {
	bool begun, over;
	bool skipped; /* its group had not been made */
	ls_status status;
	int order; /* of all halves of all lanes that are over, from 1 */
	uint64_t begin_ns, end_ns;
};

struct program_results {
	struct program_end ends[PROGRAM_LANES][PROGRAM_EVENTS];
	/* Of each rank, when all its lanes had ended and before it closed anything; size 0: it does
	 * not know it. */
	struct ls_failure failures[PROGRAM_RANKS][PROGRAM_GROUPS];
	uint64_t lane_end_ns[PROGRAM_LANES]; /* 0: it has not ended */
	bool rank_over[PROGRAM_RANKS];
	int first_lane, first_event; /* whose failure came first; -1: none */
	int looked;                  /* how often */
	char seen[2048];             /* a verdict that a look gave; "": none */
};

/* One program while it runs: shared by its ranks, which are threads of one process. */
struct program_run;

struct program_run *program_run_new(const struct program *program);
void program_run_free(struct program_run *run);
/* Runs this rank's part, from its first managed thread, which has opened *world. Leaves nothing
 * open but the world; with a plant the rank closes that, too, and *world is NULL. */
void program_run_rank(struct program_run *run, int rank, ls_group **world);
/* When all is over. */
const struct program_results *program_run_results(struct program_run *run);
/* The looks, from a managed thread of nobody, until all ranks are over. */
void program_run_looks(void *run);
/* Whether the world cannot be used any more. */
bool program_run_spoiled(struct program_run *run);

/* ---- program_expect.c, program_judge.c ---- */

struct program_expectation {
	uint32_t statuses;          /* bit s: status s may close a group */
	uint8_t groups;             /* bit g: which may be closed so */
	int culprit;                /* the rank that must be named, -1: none or any */
	bool may_blame_nobody;      /* because too few ranks had come to say which one differs */
	bool may_end_quietly;       /* no call need fail, if the report was printed */
	struct program_stuck stuck; /* halves that must fail */
	/* Halves of which at least one label must stand in the report. */
	struct program_stuck named;
};
void program_expect(const struct program *program, struct program_expectation *expectation);

/* Whether what came out is right; else why not. `said` is what was printed on standard error. */
bool program_judge(const struct program *program, const struct program_results *results,
		   const char *said, char *why, size_t bytes);

/* ---- program_shrink.c ---- */

typedef bool program_fails(void *data, const struct program *program);

/* Makes it smaller as long as it still fails: fewer events, lanes, ranks and groups, shorter
 * messages, plainer forms. At most `tries` calls. Returns how many there were. */
int program_shrink(struct program *program, program_fails *fails, void *data, int tries);

#endif
