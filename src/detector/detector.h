/* SPDX-License-Identifier: BSD-3-Clause
 * Which hosts of a job are silent, as the agent of one host sees it: a state machine. The caller
 * moves the bytes, and has the clock: any one that only grows from 1 on and counts nanoseconds.
 *
 *   each beat that has come:  detector_receive
 *   then, by detector_deadline_ns at the latest:  detector_step; its beat goes to all other hosts
 *   then:  detector_next until it returns false
 *
 * The slow clock counts only time in which this host looked (detector_step), so that hosts do not
 * seem silent because this one was frozen.
 *
 * Hosts have numbers from 0. No function blocks, allocates or prints. One thread at a time. */
#ifndef DETECTOR_DETECTOR_H
#define DETECTOR_DETECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "auth/auth.h"
#include "base/ranks.h"

enum {
	DETECTOR_HOSTS_MAX = RANKS_HOSTS_MAX,
	DETECTOR_BEAT_MS = 50,
	DETECTOR_SILENT_MS = 1000, /* unheard for this long: a verdict */
	DETECTOR_OPEN_MS = 3000,   /* the same, if other hosts hear that host now and then */
	DETECTOR_FRESH_MS = 400,   /* last heard at most this long ago: counts as heard */
	DETECTOR_STEADY_MS = 600,  /* heard without a gap for this long: counts as back */
	DETECTOR_IN_ORDER = 4,     /* beats heard without one missing: counts as back, too */
	DETECTOR_MISSED = 10,      /* beats that one host has heard, and another one not: a proof */
	DETECTOR_STEADY_MAX_MS = 32000,
	DETECTOR_START_MS = 5000, /* a host of which no beat has come by then */
	DETECTOR_STEP_MS = 200,   /* the longest time between two steps that counts in full */
	DETECTOR_GAP_MS = 100,    /* how much of a longer time counts */
	DETECTOR_NEVER_MS = 65535,
	DETECTOR_DRIFT_PPM = 500, /* how much faster one clock may be, as Linux corrects them */
};

/* A beat as it goes over the network; all hosts of a job have one byte order. */
struct detector_beat {
	char magic[8];
	uint64_t job;
	uint64_t generation; /* of the agent, see struct detector_past */
	uint64_t number;     /* of the beat, from 1 */
	uint64_t hears;      /* a bit for each host: within DETECTOR_FRESH_MS, in real time */
	uint8_t host, hosts; /* the sender; how many there are */
	uint8_t leaves;      /* 1: nobody will send for this host any more */
	uint8_t late;        /* 1: the sender was asleep a moment ago */
	uint16_t agent;      /* what the sender says of itself, such as its rank */
	uint8_t zero[2];
	/* For each host, how long the sender has not heard it, by its slow clock;
	 * DETECTOR_NEVER_MS: it never has. */
	uint16_t age_ms[DETECTOR_HOSTS_MAX];
	uint16_t counts[DETECTOR_HOSTS_MAX]; /* how many beats of each it has heard, modulo 2^16 */
	/* For clocks: when this beat was sent, by the sender's clock; for each host, when its
	 * newest beat that the sender has heard was sent, by that host's clock, and how long before
	 * this beat that one had come (0: none has come). */
	uint64_t sent_ns;
	uint64_t echo_ns[DETECTOR_HOSTS_MAX];
	uint32_t held_ns[DETECTOR_HOSTS_MAX];
	struct auth_tag tag; /* over all of the above; zero in jobs without a secret */
};
_Static_assert(sizeof(struct detector_beat) == 48 + 256 + 8 + 768 + 32, "no padding on the wire");
_Static_assert(DETECTOR_HOSTS_MAX <= 64 && DETECTOR_HOSTS_MAX < UINT8_MAX &&
		       RANKS_WORLD_MAX <= UINT16_MAX,
	       "a bit and a number for each host, and room for a rank");

enum detector_kind {
	DETECTOR_SILENT, /* host `from`: no host that is heard here hears it */
	DETECTOR_LINK,   /* what host `from` sends to host `to` does not arrive; both live */
	DETECTOR_HEARD,  /* the end of a silence (to: -1) or of a broken link */
	DETECTOR_NEVER,  /* no beat of host `from` has ever come */
};

struct detector_verdict {
	enum detector_kind kind;
	int from, to;      /* `to` -1: none */
	int witness;       /* of a link to this host: the host that hears `from`; else -1 */
	uint64_t since_ns; /* by the caller's clock: since when it is so, about */
	/* From detector_is_unheard: for how long agents of this host have listened since, by their
	 * slow clocks. Otherwise 0. */
	uint64_t listened_ns;
	/* After a silence: how long it was, and how many of the beats that the host sent meanwhile
	 * did not come. A host that was frozen has sent none. Otherwise 0. */
	uint64_t unheard_ms, unheard_beats;
};

/* What an agent must know of a host that an earlier agent of its own host has heard. Zero: that
 * host was never heard. */
struct detector_past {
	uint64_t generation, number; /* of its newest beat */
	uint64_t broken;             /* a bit for each `to`: links from it that were reported */
	uint64_t silent;             /* 1: its silence was reported */
	uint64_t unheard_ns;         /* as detector_is_unheard said; 0: it was heard */
	uint64_t listened_ns;        /* as it said, too */
};

struct detector_options {
	int host, hosts; /* this one; how many, 2 to DETECTOR_HOSTS_MAX */
	int agent;       /* 0 to 65535, to be told to all */
	uint64_t job;
	uint64_t generation;                /* larger than that of any earlier agent of this host */
	const struct auth_session *session; /* must outlive the detector. NULL: no signature */
	const struct detector_past *past;   /* of each host; NULL: all zero */
};

/* Beats that were dropped. */
struct detector_dropped {
	uint64_t malformed, foreign, forged, old;
};

/* The clock of another host. When it was measured, at at_ns, it was ahead of the caller's clock by
 * offset_ns, give or take error_ns. */
struct detector_clock {
	int64_t offset_ns;
	uint64_t error_ns, at_ns; /* error_ns 0: not known */
};

/* What is known of another host. Times by the slow clock, unless said. */
struct detector_peer {
	uint64_t generation, number; /* of its newest beat; 0: never heard */
	uint64_t heard_ns, heard_real_ns;
	uint64_t steady_ns;                 /* since when it is heard without a gap */
	bool is_known;                      /* heard, by this agent or an earlier one */
	bool has_come;                      /* heard by this agent */
	bool is_gone;                       /* it has left: no verdicts */
	bool is_silent;                     /* reported */
	bool is_never;                      /* reported */
	uint64_t unheard_ms, unheard_beats; /* of the silence that was reported last */
	/* Since when this host does not hear it (proved: but another host does), and since when it
	 * does not hear this host, as it says. These end before a verdict is taken back. */
	struct detector_since {
		uint64_t real_ns; /* by the caller's clock; 0: heard */
		uint64_t slow_ns; /* may be before the slow clock's 0: modulo 2^64 */
	} unheard, deaf;
	bool is_proved;
	uint64_t in_order; /* beats since `unheard` began, up to the newest, without one missing */
	/* Its beats since `deaf` began, up to the newest, each of which says that it has heard a
	 * further one of this host. */
	uint64_t heard_mine;
	/* Its newest beat: when it was sent, by its clock, and when it came, by the caller's. */
	uint64_t sent_ns, came_ns;
	struct detector_clock clock;
	uint16_t agent;
	uint32_t calm_ms; /* for how long it must be heard until it is back */
	uint16_t count;   /* of its beats that were heard, modulo 2^16 */
	/* What the peer says of each host; since when it says that it hears that host, 0: it does
	 * not hear it. */
	uint16_t age_ms[DETECTOR_HOSTS_MAX], counts[DETECTOR_HOSTS_MAX];
	uint64_t hears_ns[DETECTOR_HOSTS_MAX];
	/* For each host X: base, `counts` of X after this host last heard X, with a bit in has_base
	 * if that is known; mine, this host's own count of X's beats when `counts` of X last
	 * changed; missed, how many more this host had when it last heard this peer. */
	uint16_t base[DETECTOR_HOSTS_MAX];
	uint16_t mine[DETECTOR_HOSTS_MAX], missed[DETECTOR_HOSTS_MAX];
	uint64_t has_base;
};

/* The caller provides the memory, and changes nothing in it. */
struct detector {
	struct detector_options options;
	uint64_t start_ns, real_ns; /* real: of the last call */
	uint64_t clock_ns;          /* the slow clock; 1 at the start */
	uint64_t awake_ns;          /* since when the slow clock has not stood still */
	uint64_t next_ns;           /* of the next beat, real */
	uint64_t number;
	uint64_t broken[DETECTOR_HOSTS_MAX]; /* by `from`: a bit for each `to`; reported */
	bool leaves;
	struct detector_dropped dropped;
	struct detector_peer peers[DETECTOR_HOSTS_MAX];
	struct detector_verdict verdicts[8]; /* not taken yet */
	int verdict_count;
};

void detector_init(struct detector *detector, const struct detector_options *options,
		   uint64_t now_ns);

/* Takes a beat, or whatever else has come. Returns the host that was heard; -1: the bytes were
 * dropped. */
int detector_receive(struct detector *detector, const void *bytes, size_t count, uint64_t now_ns);

/* To be called when detector_receive has got all that has come. True: send *out to all other hosts
 * now. */
bool detector_step(struct detector *detector, uint64_t now_ns, struct detector_beat *out);
uint64_t detector_deadline_ns(const struct detector *detector);

/* Gives the next verdict since the last step; false: there is no more. The next step finds verdicts
 * again that nobody took, or that found no room. */
bool detector_next(struct detector *detector, struct detector_verdict *out);
/* Whether this host and `host` do not hear each other, as of the last step; *out: the verdict, of
 * the kind DETECTOR_SILENT or DETECTOR_LINK, with since when that is so. It begins with a verdict.
 * It ends when both have heard each other for DETECTOR_STEADY_MS; when DETECTOR_IN_ORDER beats of
 * `host` have come in a row, however slowly, which it had stopped sending, or each of which says
 * that it has heard a further one of this host, which it had not heard; or when `host` leaves,
 * unless its last beat says that it does not hear this host. DETECTOR_HEARD comes later the more
 * verdicts there were; until it comes, this may begin and end again without a verdict. */
bool detector_is_unheard(const struct detector *detector, int host, struct detector_verdict *out);

/* The ranks of this host have ended, or left the job, as far as the caller can see: there is no
 * verdict on it, and detector_is_unheard stays as it is, until a beat of it comes. */
void detector_forget(struct detector *detector, int host);
/* From now on beats say that this host leaves the job. */
void detector_leave(struct detector *detector);

/* What the agent of that host has said of itself in its last beat; -1: the agent has not been heard
 * for some beats, so another one may have taken over. */
int detector_agent(const struct detector *detector, int host);
/* What is known of that host's clock. Each beat of that host answers one of this host, so that the
 * time of the round trip is known; the clock there was read somewhere within it. The shortest round
 * trip counts, and the less the older it is, as clocks drift. False: nothing is known. */
bool detector_clock(const struct detector *detector, int host, struct detector_clock *out);
/* What the next agent of this host must know of `host`. */
struct detector_past detector_past(const struct detector *detector, int host);

/* The key of a job's beats. */
void detector_session(const struct auth_token *token, uint64_t job, struct auth_session *out);

static inline uint64_t detector_ms(uint64_t ms)
{
	return ms * 1000000;
}

#endif
