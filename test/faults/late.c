/* SPDX-License-Identifier: BSD-3-Clause
 * "After an error no peer touches the caller's buffer any more": late [--runs N] [--seed N]
 * [--at-once N] plays jobs. In each play one rank is stopped, mostly in the middle of reading or
 * writing its peers' memory; meanwhile the calls of the others fail; then it continues. A seed
 * draws each play and is printed with it: --runs 1 --seed S plays it again. Prints TAP and "N
 * passed, N failed". */
#include "late.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	LIMIT_US = 30000000, /* a play that takes longer hangs */
	TRAP_US = 60000, /* a victim that has not reached its trap by then is stopped where it is */
	RUNS = 100,
	/* At least one of so many victims must be stopped in the middle of its work. */
	TRAPPED_MIN = 6,
};

struct pipe {
	int read, write;
};

struct play {
	struct late_plan plan;
	struct late_shared *shared;
	struct pipe tell, go, abort;
	int output; /* memfd that receives what the ranks print */
	pid_t pids[LATE_SIZE_MAX];
	uint64_t end_us;
	int ready, errors, victims_errors;
	bool trapped;
	const char *wrong; /* NULL: nothing wrong so far */
};

/* Sums over all players. */
struct totals {
	_Atomic unsigned passed, failed, trapped, number;
};

_Noreturn static void die(const char *what)
{
	fprintf(stderr, "late: %s: %s\n", what, strerror(errno));
	exit(2);
}

static uint64_t now_us(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* ---- drawing ---- */

static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static unsigned below(uint64_t *state, unsigned limit)
{
	return (unsigned)(draw(state) % limit);
}

static void add_link(struct late_plan *plan, uint64_t *state, int source, int target)
{
	plan->links[plan->link_count++] =
		(struct late_link){source, target, (enum late_way)below(state, LATE_WAYS),
				   (enum late_way)below(state, LATE_WAYS)};
}

/* Messages of the victim. It has at least one, and the trap is for its first worker. */
static void draw_messages(struct late_plan *plan, uint64_t *state)
{
	int threads = 1 + (int)below(state, 3);
	for (int i = 0; i < plan->size * threads; i++) {
		int peer = i % plan->size;
		bool takes = plan->kind == LATE_SEND ||
			     (plan->kind == LATE_BOTH && below(state, 2) == 0);
		if (peer == plan->victim)
			continue;
		if (takes)
			add_link(plan, state, peer, plan->victim);
		else
			add_link(plan, state, plan->victim, peer);
	}
}

static void draw_links(struct late_plan *plan, uint64_t *state)
{
	unsigned size = (unsigned)plan->size;
	if (late_messages_only(plan))
		draw_messages(plan, state);
	if (plan->kind == LATE_MIXED)
		for (int left = 1 + (int)below(state, 4); left > 0; left--)
			add_link(plan, state, (int)below(state, size), (int)below(state, size));
}

/* How and when the play fails, and when the victim stops and continues. */
static void draw_failure(struct late_plan *plan, uint64_t *state)
{
	unsigned size = (unsigned)plan->size;
	plan->trap = below(state, 3) > 0;
	size_t slice = plan->bytes / size;
	plan->trap_at = slice * (unsigned)plan->victim + draw(state) % slice;
	plan->trap_round = below(state, 3);
	plan->abort = below(state, 2);
	plan->abort_first = plan->abort && below(state, 3) == 0;
	plan->abort_us = below(state, plan->abort_first ? 20000 : 5000);
	plan->stop_us = plan->trap ? TRAP_US : below(state, plan->abort_first ? 2000 : 30000);
	for (int r = 0; r < plan->size; r++)
		plan->limit_ms[r] = plan->abort ? LATE_LONG_MS : 60 + below(state, 140);
	plan->resume_early = below(state, 3) == 0;
	plan->resume_us = below(state, 400000);
	plan->kill = below(state, 10) == 0;
	plan->aborter = (int)below(state, size);
	/* A victim that is stopped until all others have failed cannot make them fail. */
	if (plan->abort && !plan->resume_early && plan->aborter == plan->victim)
		plan->aborter = (plan->victim + 1) % plan->size;
}

static struct late_plan draw_plan(uint64_t seed)
{
	/* Only a direct all-reduce writes to memory of peers, so it is drawn most often. */
	static const char *const algorithms[] = {"direct", "direct",   "direct",
						 "ring",   "doubling", "tree"};
	static const enum late_kind kinds[] = {LATE_ALLREDUCE, LATE_ALLREDUCE, LATE_MIXED,
					       LATE_MIXED,     LATE_BROADCAST, LATE_SEND,
					       LATE_RECEIVE,   LATE_BOTH};
	uint64_t state = seed;
	struct late_plan plan = {.seed = seed, .size = 2 + (int)below(&state, LATE_SIZE_MAX - 1)};
	unsigned size = (unsigned)plan.size;
	plan.victim = (int)below(&state, size);
	plan.root = (int)below(&state, size);
	plan.kind = kinds[below(&state, sizeof kinds / sizeof *kinds)];
	plan.algorithm = algorithms[below(&state, sizeof algorithms / sizeof *algorithms)];
	plan.bytes = ((size_t)32768 << below(&state, 9)) + below(&state, 1000);
	plan.guard_bytes = (size_t)64 * below(&state, 20 << below(&state, 3));
	plan.plain = below(&state, 3) == 0;
	plan.read = plan.plain && below(&state, 2);
	plan.in_place = below(&state, 2);
	plan.packed = !plan.plain && below(&state, 2);
	plan.reuse = !plan.packed && below(&state, 3) == 0;
	plan.starved = !plan.plain && !plan.reuse && below(&state, 12) == 0;
	draw_links(&plan, &state);
	draw_failure(&plan, &state);
	return plan;
}

static void print_plan(const struct late_plan *plan)
{
	static const char *const kinds[] = {"all-reduces", "broadcasts", "mixed calls",
					    "send",        "receive",    "both"};
	printf("seed %llu: %d ranks, %s (%s, %d links) of %zu bytes of %s memory%s, rank %d stopped%s, "
	       "%s%s%s%s%s%s",
	       (unsigned long long)plan->seed, plan->size, kinds[plan->kind], plan->algorithm,
	       plan->link_count, plan->bytes,
	       plan->read    ? "plain, read"
	       : plan->plain ? "plain"
			     : "shared",
	       plan->in_place ? " in place" : "", plan->victim,
	       plan->trap ? " in its work" : " at random", plan->abort ? "abort" : "time limit",
	       plan->abort_first ? " before" : "", plan->reuse ? ", blocks reused" : "",
	       plan->packed ? ", packed" : "", plan->starved ? ", starved" : "",
	       plan->kill ? ", killed" : "");
	if (plan->resume_early)
		printf(", continued after %u us", plan->resume_us);
}

/* ---- playing ---- */

static struct pipe make_pipe(void)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) != 0)
		die("pipe2");
	return (struct pipe){fds[0], fds[1]};
}

static void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void begin(struct play *play)
{
	play->tell = make_pipe();
	play->go = make_pipe();
	play->abort = make_pipe();
	play->output = memfd_create("late", MFD_CLOEXEC);
	play->shared = mmap(NULL, sizeof *play->shared, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (play->output < 0 || play->shared == MAP_FAILED)
		die("memory");
	play->end_us = now_us() + LIMIT_US;
	fflush(stdout);
	for (int r = 0; r < play->plan.size; r++) {
		play->pids[r] = fork();
		if (play->pids[r] < 0)
			die("fork");
		if (play->pids[r] > 0)
			continue;
		shut(&play->tell.read);
		shut(&play->go.write);
		shut(&play->abort.write);
		if (dup2(play->output, STDOUT_FILENO) < 0 || dup2(play->output, STDERR_FILENO) < 0)
			_exit(2);
		struct late_pipes pipes = {play->tell.write, play->go.read, play->abort.read};
		_exit(late_rank(&play->plan, r, play->shared, &pipes));
	}
	shut(&play->tell.write);
}

/* Takes one message of a rank, if one comes before the deadline. */
static bool listen_until(struct play *play, uint64_t until_us)
{
	char message[2];
	uint64_t now = now_us(), left = now < until_us ? until_us - now : 0;
	struct timespec timeout = {.tv_sec = (time_t)(left / 1000000),
				   .tv_nsec = (long)(left % 1000000) * 1000};
	struct pollfd fd = {.fd = play->tell.read, .events = POLLIN};
	int count = ppoll(&fd, 1, &timeout, NULL);
	if (count < 0 && errno != EINTR)
		die("ppoll");
	if (count <= 0)
		return false;
	if (read(play->tell.read, message, sizeof message) != sizeof message) {
		play->wrong = "a rank has ended early";
		return false;
	}
	play->ready += message[0] == LATE_READY;
	play->trapped |= message[0] == LATE_TRAPPED;
	if (message[0] == LATE_ERROR && message[1] == play->plan.victim)
		play->victims_errors++;
	else
		play->errors += message[0] == LATE_ERROR;
	return true;
}

/* Lets that much time pass, which is a part of the play. */
static void pass_us(struct play *play, uint64_t us)
{
	uint64_t until = now_us() + us;
	while (!play->wrong && now_us() < until)
		listen_until(play, until);
}

static bool all_ready(const struct play *play)
{
	return play->ready == play->plan.size;
}

static bool others_failed(const struct play *play)
{
	int wanted = 0;
	for (int r = 0; r < play->plan.size; r++)
		wanted += r == play->plan.victim ? 0 : late_workers(&play->plan, r);
	return play->errors >= wanted;
}

static void await(struct play *play, bool (*there)(const struct play *), const char *otherwise)
{
	while (!play->wrong && !there(play))
		if (!listen_until(play, play->end_us) && now_us() >= play->end_us)
			play->wrong = otherwise;
}

static void make_abort(struct play *play)
{
	pass_us(play, play->plan.abort_us);
	if (write(play->abort.write, "a", 1) != 1)
		die("write");
}

static void stop_victim(struct play *play)
{
	pid_t pid = play->pids[play->plan.victim];
	uint64_t until = now_us() + play->plan.stop_us;
	while (!play->wrong && !play->trapped && now_us() < until)
		listen_until(play, until);
	int status;
	if (kill(pid, SIGSTOP) != 0 || waitpid(pid, &status, WUNTRACED) != pid)
		die("SIGSTOP");
	if (!WIFSTOPPED(status))
		play->wrong = "the victim has ended early";
}

/* Ends the ranks that are left, by force if the play has gone wrong. The exit status of a rank says
 * what it saw. */
static void end(struct play *play)
{
	const struct late_plan *plan = &play->plan;
	while (!play->wrong && listen_until(play, play->end_us))
		;
	/* The pipe has ended, which listen_until takes for an early end. */
	play->wrong = now_us() >= play->end_us ? "it hangs" : NULL;
	for (int r = 0; r < plan->size; r++) {
		int status;
		if (play->wrong)
			kill(play->pids[r], SIGKILL);
		if (waitpid(play->pids[r], &status, 0) != play->pids[r])
			die("waitpid");
		bool killed = plan->kill && r == plan->victim && WIFSIGNALED(status) &&
			      WTERMSIG(status) == SIGKILL;
		if (!play->wrong && !killed && status != 0)
			play->wrong = "a rank failed";
	}
	shut(&play->tell.read);
	shut(&play->go.read);
	shut(&play->abort.read);
	munmap(play->shared, sizeof *play->shared);
}

static void run(struct play *play)
{
	const struct late_plan *plan = &play->plan;
	pid_t victim;
	begin(play);
	victim = play->pids[plan->victim];
	await(play, all_ready, "the job does not begin");
	if (play->wrong)
		goto out;
	play->shared->begun = true;
	if (plan->abort_first)
		make_abort(play);
	stop_victim(play);
	if (plan->abort && !plan->abort_first)
		make_abort(play);
	if (plan->resume_early)
		pass_us(play, plan->resume_us);
	else
		await(play, others_failed, "calls do not end");
out:
	if (play->wrong)
		for (int r = 0; r < plan->size; r++)
			kill(play->pids[r], SIGKILL);
	play->shared->over = true;
	shut(&play->go.write);
	shut(&play->abort.write);
	kill(victim, plan->kill ? SIGKILL : SIGCONT);
	const char *wrong = play->wrong;
	play->wrong = NULL;
	end(play);
	if (wrong)
		play->wrong = wrong;
}

static void print_output(int output)
{
	char text[4096];
	bool begins = true;
	lseek(output, 0, SEEK_SET);
	for (ssize_t got; (got = read(output, text, sizeof text)) > 0;)
		for (ssize_t i = 0; i < got; i++) {
			printf(begins ? "# %c" : "%c", text[i]);
			begins = text[i] == '\n';
		}
}

/* Plays all seeds of one player: first, first + step, … */
static void play_all(struct totals *totals, uint64_t seed, unsigned runs, unsigned first,
		     unsigned step)
{
	for (unsigned i = first; i < runs; i += step) {
		struct play play = {.plan = draw_plan(seed + i)};
		run(&play);
		printf("%s %u - ", play.wrong ? "not ok" : "ok", ++totals->number);
		print_plan(&play.plan);
		printf("%s%s\n", play.wrong ? ": " : "", play.wrong ? play.wrong : "");
		if (play.wrong)
			print_output(play.output);
		fflush(stdout);
		close(play.output);
		totals->failed += play.wrong != NULL;
		totals->passed += play.wrong == NULL;
		totals->trapped += play.trapped;
	}
}

static unsigned long long number(const char *text)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);
	if (!*text || *end) {
		fprintf(stderr, "late: '%s' is no number\n", text);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	static const struct option names[] = {{"runs", required_argument, NULL, 'r'},
					      {"seed", required_argument, NULL, 's'},
					      {"at-once", required_argument, NULL, 'a'},
					      {0}};
	unsigned runs = RUNS, at_once = 2;
	uint64_t seed = (uint64_t)time(NULL) * 100000 + (uint64_t)getpid();
	for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
		if (c == 'r')
			runs = (unsigned)number(optarg);
		else if (c == 's')
			seed = number(optarg);
		else if (c == 'a')
			at_once = (unsigned)number(optarg);
		else
			return 2;
	}
	struct totals *totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (totals == MAP_FAILED)
		die("mmap");
	printf("# seed %llu\n1..%u\n", (unsigned long long)seed, runs);
	fflush(stdout);
	for (unsigned i = 0; i < at_once; i++)
		if (fork() == 0) {
			play_all(totals, seed, runs, i, at_once);
			_exit(0);
		}
	for (int status; wait(&status) > 0;)
		totals->failed += status != 0; /* a player that could not continue */
	if (runs >= RUNS && totals->trapped < runs / TRAPPED_MIN) {
		printf("# only %u victims were stopped in their work\n", totals->trapped);
		totals->failed++;
	}
	printf("# %u of %u victims were stopped in the middle of their work\n", totals->trapped,
	       runs);
	printf("%u passed, %u failed\n", totals->passed, totals->failed);
	return totals->failed != 0;
}
