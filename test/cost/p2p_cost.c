/* SPDX-License-Identifier: BSD-3-Clause
 * Short sends and receives of one thread to and from another process: how many instructions each
 * takes, and how many of them are locked. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "cost.h"
#include "count.h"

enum {
	SENDS,        /* ls_send, the message goes at once */
	TAGGED_SENDS, /* the same with a tag */
	RECEIVES,     /* ls_recv of a message that is there */
	TAGGED_RECEIVES,
	BEGUN_SENDS,    /* ls_isend, ls_wait and ls_request_free */
	BEGUN_RECEIVES, /* ls_irecv, the same */
	POSTS,          /* ls_irecv, the message is not there */
	WAITS,          /* ls_wait of such a one, and ls_request_free, once it is there */
	POSTS_ALONE,    /* ls_irecv while no other receive is posted, the message is not there */
	WAITS_ALONE,    /* ls_wait of that one, which takes the message in, and ls_request_free */
	WHATS,
	EACH = 8, /* so often each is counted */
	WARM = 40,
	TAG = 3,
};

static const char *const names[WHATS] = {
	"ls_send 8 B",
	"ls_send 8 B, tag",
	"ls_recv 8 B, there",
	"ls_recv 8 B, there, tag",
	"ls_isend 8 B, ls_wait, ls_request_free",
	"ls_irecv 8 B, there, ls_wait, ls_request_free",
	"ls_irecv 8 B, not there",
	"ls_wait of that, once it is there, ls_request_free",
	"ls_irecv 8 B, not there, the only one",
	"ls_wait of the only one, once it is there, ls_request_free",
};
static const struct cost_limit limits[WHATS] = {
	{COST_LIMITS(510, 545), 1},   {COST_LIMITS(530, 565), 1}, {COST_LIMITS(615, 670), 1},
	{COST_LIMITS(635, 690), 1},   {COST_LIMITS(700, 755), 1}, {COST_LIMITS(775, 845), 1},
	{COST_LIMITS(1345, 1365), 4}, {COST_LIMITS(155, 195), 5}, {COST_LIMITS(1020, 1030), 2},
	{COST_LIMITS(900, 955), 4},
};
static const struct cost_limit limits_without_membarrier[WHATS] = {
	{COST_LIMITS(630, 670), 5},    {COST_LIMITS(690, 725), 5},   {COST_LIMITS(735, 790), 5},
	{COST_LIMITS(755, 805), 5},    {COST_LIMITS(1115, 1170), 9}, {COST_LIMITS(1150, 1215), 9},
	{COST_LIMITS(1715, 1760), 12}, {COST_LIMITS(290, 325), 5},   {COST_LIMITS(1690, 1705), 12},
	{COST_LIMITS(1415, 1470), 14},
};

static char rendezvous[64];
/* From the counted rank to the other one, and back. A rank that waits there does not sleep in the
 * library, where each message would wake it. */
static int to_peer[2], to_counted[2];

static void tell(const int *pipe)
{
	if (write(pipe[1], "", 1) != 1)
		_exit(1);
}

static void hear(const int *pipe)
{
	char word;
	if (read(pipe[0], &word, 1) != 1)
		_exit(1);
}

static ls_group *open_group(int rank)
{
	struct ls_group_options options = {
		.size = sizeof options, .rank = rank, .world_size = 2, .rendezvous = rendezvous};
	ls_group *group;
	cost_must(ls_group_open(&options, &group));
	return group;
}

static void finish(ls_request *op)
{
	cost_must(ls_wait(op, 0));
	ls_request_free(op);
}

static ls_request *posted[WARM + EACH];

static void call(ls_group *group, int what, int i, double *value)
{
	struct ls_call_options tagged = {.size = sizeof tagged, .tag = TAG};
	const struct ls_call_options *options =
		what == TAGGED_SENDS || what == TAGGED_RECEIVES ? &tagged : NULL;
	ls_request *op;
	switch (what) {
	case SENDS:
	case TAGGED_SENDS:
		cost_must(ls_send(group, value, 1, LS_FLOAT64, 1, options));
		break;
	case RECEIVES:
	case TAGGED_RECEIVES:
		cost_must(ls_recv(group, value, 1, LS_FLOAT64, 1, options));
		break;
	case BEGUN_SENDS:
		cost_must(ls_isend(group, value, 1, LS_FLOAT64, 1, options, &op));
		finish(op);
		break;
	case BEGUN_RECEIVES:
		cost_must(ls_irecv(group, value, 1, LS_FLOAT64, 1, options, &op));
		finish(op);
		break;
	case POSTS:
		cost_must(ls_irecv(group, value, 1, LS_FLOAT64, 1, options, &posted[i]));
		break;
	default:
		finish(posted[i]);
		break;
	}
}

/* One receive after the other; the peer sends each message when the receive is posted. */
static void count_alone(ls_group *group, struct count *posts, struct count *waits)
{
	static double value;
	for (int i = 0; i < WARM + EACH; i++) {
		ls_request *op;
		count_begin();
		ls_status status = ls_irecv(group, &value, 1, LS_FLOAT64, 1, NULL, &op);
		struct count post = count_end();
		cost_must(status);
		tell(to_peer);
		hear(to_counted);
		count_begin();
		finish(op);
		waits[i < WARM ? 0 : i - WARM] = count_end();
		posts[i < WARM ? 0 : i - WARM] = post;
	}
}

/* Each is called some times before it is counted, with its lines and its pages at hand. */
static void count_all(ls_group *group, struct count *counts)
{
	for (int what = 0; what < POSTS_ALONE; what++) {
		static double values[WARM + EACH];
		hear(to_counted);
		for (int i = 0; i < WARM; i++)
			call(group, what, i, &values[i]);
		for (int i = 0; i < EACH; i++) {
			count_begin();
			call(group, what, WARM + i, &values[WARM + i]);
			counts[what * EACH + i] = count_end();
		}
		tell(to_peer);
	}
	count_alone(group, &counts[POSTS_ALONE * EACH], &counts[WAITS_ALONE * EACH]);
}

/* All that it sends is there before the other one begins to receive. */
static int peer(void)
{
	struct ls_call_options tagged = {.size = sizeof tagged, .tag = TAG};
	ls_group *group = open_group(1);
	for (int what = 0; what < POSTS_ALONE; what++) {
		bool sends = what == SENDS || what == TAGGED_SENDS || what == BEGUN_SENDS;
		bool receives = !sends && what != POSTS;
		const struct ls_call_options *options =
			what == TAGGED_SENDS || what == TAGGED_RECEIVES ? &tagged : NULL;
		double value = 1;
		for (int i = 0; i < WARM + EACH && receives; i++)
			cost_must(ls_send(group, &value, 1, LS_FLOAT64, 0, options));
		tell(to_counted);
		hear(to_peer);
		for (int i = 0; i < WARM + EACH && sends; i++)
			cost_must(ls_recv(group, &value, 1, LS_FLOAT64, 0, options));
	}
	for (int i = 0; i < WARM + EACH; i++) {
		double value = 1;
		hear(to_peer);
		cost_must(ls_send(group, &value, 1, LS_FLOAT64, 0, NULL));
		tell(to_counted);
	}
	ls_group_close(group);
	return 0;
}

int main(void)
{
	struct count counts[WHATS * EACH];
	snprintf(rendezvous, sizeof rendezvous, "unix:lockstep-cost-%d", (int)getpid());
	if (pipe2(to_peer, O_CLOEXEC) != 0 || pipe2(to_counted, O_CLOEXEC) != 0) {
		perror("pipe2");
		return 1;
	}
	pid_t other = fork();
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(to_peer[1]);
		close(to_counted[0]);
		_exit(peer());
	}
	/* So each of the two ends if the other one does. */
	close(to_peer[0]);
	close(to_counted[1]);
	if (!count_init())
		return 1;
	ls_group *group = open_group(0);
	count_all(group, counts);
	ls_group_close(group);
	int status = 1;
	if (waitpid(other, &status, 0) < 0 || status != 0) {
		fprintf(stderr, "the peer ended with status 0x%x\n", (unsigned)status);
		return 1;
	}
	return cost_judge(names, cost_has_membarrier() ? limits : limits_without_membarrier, counts,
			  WHATS, EACH);
}
