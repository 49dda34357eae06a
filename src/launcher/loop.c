/* SPDX-License-Identifier: BSD-3-Clause
 * The launcher's one loop, and the stages of a job's end: normal, then after the first failure a
 * time in which survivors may report and end by themselves, then SIGTERM, then SIGKILL. Only
 * process groups of ranks are ever signalled; their leaders are not reaped before the end, so no
 * group's number can come to mean other processes. */
#include "launcher/launcher_private.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/wait.h"

static void signal_all(struct launcher_job *job, int number, bool groups)
{
	if (job->hosts) {
		launcher_hosts_signal(job, number, groups);
		return;
	}
	for (int rank = 0; rank < job->started; rank++) {
		const struct launcher_rank *target = &job->ranks[rank];
		/* A process group outlives its leader; a signal to the leader alone needs it
		 * alive. */
		if (groups)
			kill(-target->pid, number);
		else if (!target->ended)
			kill(target->pid, number);
	}
}

/* Sends a signal to all ranks, to end them. Stops them first: otherwise ranks that get the signal
 * last would report the death of the first ones. Ranks that were stopped before get it, too. */
static void tell_all(struct launcher_job *job, int number, bool groups)
{
	signal_all(job, SIGSTOP, true);
	signal_all(job, number, groups);
	signal_all(job, SIGCONT, true);
}

static void enter_ending(struct launcher_job *job, enum launcher_ending ending, uint64_t now_ns)
{
	static const uint64_t lasts_ms[] = {
		[LAUNCHER_GRACE] = LAUNCHER_GRACE_MS,
		[LAUNCHER_TERM] = LAUNCHER_TERM_MS,
		[LAUNCHER_KILL] = LAUNCHER_DRAIN_MS,
	};

	if (ending <= job->ending)
		return;
	job->ending = ending;
	job->ending_until_ns = now_ns + lasts_ms[ending] * UINT64_C(1000000);
	if (ending >= LAUNCHER_TERM && job->ended < job->started)
		launcher_monitor_freeze(job);
	if (ending == LAUNCHER_TERM)
		tell_all(job, SIGTERM, true);
	else if (ending == LAUNCHER_KILL)
		tell_all(job, SIGKILL, true);
}

static bool is_over(const struct launcher_job *job)
{
	return job->ended == job->started && launcher_output_ended(&job->output) &&
	       launcher_output_written(&job->output);
}

/* Whether --timeout still counts: a rank that has failed ends the job as well, and has its
 * reason. */
static bool is_limited(const struct launcher_job *job)
{
	return job->ending == LAUNCHER_NORMAL || (job->ending == LAUNCHER_GRACE && job->first < 0);
}

static void advance_ending(struct launcher_job *job, uint64_t now_ns)
{
	bool drops;
	if (is_limited(job) && now_ns >= job->timeout_ns && !is_over(job)) {
		job->timed_out = true;
		enter_ending(job, LAUNCHER_TERM, now_ns);
	}
	/* Processes that hold the pipes of ranks that have ended get as much time as survivors. So
	 * does the reader of the output, once the job is to end. */
	bool waits = !launcher_output_ended(&job->output) ||
		     (job->hurried && !launcher_output_written(&job->output));
	if (job->ending == LAUNCHER_NORMAL && job->ended == job->started && waits)
		enter_ending(job, LAUNCHER_GRACE, now_ns);
	if (now_ns < job->ending_until_ns)
		return;
	switch (job->ending) {
	case LAUNCHER_NORMAL:
		break;
	case LAUNCHER_GRACE:
		enter_ending(job, LAUNCHER_TERM, now_ns);
		break;
	case LAUNCHER_TERM:
		enter_ending(job, LAUNCHER_KILL, now_ns);
		break;
	case LAUNCHER_KILL:
		drops = job->timed_out || job->hurried;
		/* A process that has left the rank's group holds the pipes, and the launcher may
		 * not end it. But while nobody reads the text before, the pipes may hold more. */
		if (job->ended == job->started && (drops || launcher_output_written(&job->output)))
			launcher_output_close(&job->output);
		if (drops) /* the job is to end */
			launcher_output_drop(&job->output);
		if (++job->kill_rounds > LAUNCHER_KILL_ROUNDS)
			launcher_hosts_give_up(job);
		job->ending_until_ns = now_ns + LAUNCHER_DRAIN_MS * UINT64_C(1000000);
		break;
	}
}

/* ---- signals ---- */

/* A signal that the terminal sends to all processes in its foreground goes to all processes of a
 * rank. Any other goes to the rank alone: its workers may not know the signal, and would end. */
static bool is_for_groups(int number)
{
	return number == SIGINT || number == SIGHUP || number == SIGQUIT;
}

/* A job that runs on after a signal has handled it. What fails later has another cause, and its
 * evidence is that of its own time. */
static void forget_signal(struct launcher_job *job, uint64_t now_ns)
{
	if (job->ending != LAUNCHER_NORMAL || now_ns < job->signal_end_ns)
		return;
	job->signal_end_ns = CLOCK_NEVER;
	job->forwarded = 0;
	job->hurried = false;
	launcher_monitor_thaw(job);
}

static void hear_signal(struct launcher_job *job, int number, uint64_t now_ns)
{
	switch (number) {
	case SIGTSTP:
		signal_all(job, SIGSTOP, true);
		raise(SIGSTOP);
		return;
	case SIGCONT:
		signal_all(job, SIGCONT, true);
		return;
	case SIGINT:
		job->interrupts++;
		break;
	default:
		break;
	}
	if (number == SIGINT && job->interrupts > 1) {
		if (job->ending < LAUNCHER_KILL && job->ended < job->started)
			job->killed = true;
		launcher_output_drop(&job->output);
		enter_ending(job, LAUNCHER_KILL, now_ns);
		return;
	}
	if (number == SIGUSR1 || number == SIGUSR2) {
		signal_all(job, number, false);
		return;
	}
	if (job->first < 0)
		job->forwarded = number;
	job->hurried = true;
	job->signal_end_ns = now_ns + LAUNCHER_SIGNAL_MS * UINT64_C(1000000);
	launcher_monitor_freeze(job);
	tell_all(job, number, is_for_groups(number));
}

static void hear_signals(struct launcher_job *job, uint64_t now_ns)
{
	struct signalfd_siginfo info;

	while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
		hear_signal(job, (int)info.ssi_signo, now_ns);
}

/* ---- ends ---- */

/* Whether the rank has ended since the last call. */
static bool has_news(const struct launcher_job *job, struct launcher_rank *rank)
{
	bool news = rank->news;

	if (!job->hosts)
		return !rank->ended && launcher_child_ended(rank);
	rank->news = false;
	return news;
}

/* Among ranks found to have ended in the same round, one that was ended by a signal counts as the
 * first: more likely the others ended because of it than the other way round. */
static void note_failure(struct launcher_job *job, int rank, bool same_round)
{
	if (job->first < 0 ||
	    (same_round && job->ranks[rank].signal != 0 && job->ranks[job->first].signal == 0))
		job->first = rank;
}

/* News from several hosts may overtake each other: so their round lasts longer. */
static bool is_first_round(const struct launcher_job *job, uint64_t now_ns)
{
	return job->first < 0 || (job->hosts && now_ns < job->round_end_ns);
}

static bool is_any_ready(const struct launcher_job *job, const struct launcher_poll *set)
{
	for (int i = 0; i < job->started; i++)
		if (job->hosts ? job->ranks[i].news
			       : job->ranks[i].poll >= 0 && set->fds[job->ranks[i].poll].revents)
			return true;
	return false;
}

/* With hosts: tells all ranks who has ended. They fail because of it, some by a signal, which must
 * not count as the cause; so an end that is itself a failure is told after its round. */
static void tell_ends(struct launcher_job *job, uint64_t now_ns)
{
	for (int i = 0; job->hosts && i < job->started; i++) {
		struct launcher_rank *rank = &job->ranks[i];
		if (!rank->ended || rank->told ||
		    (launcher_has_failed(rank) && now_ns < job->round_end_ns))
			continue;
		rank->told = true;
		launcher_hosts_tell_ended(job, i);
	}
}

static bool is_any_untold(const struct launcher_job *job)
{
	for (int i = 0; job->hosts && i < job->started; i++)
		if (job->ranks[i].ended && !job->ranks[i].told)
			return true;
	return false;
}

/* Looks at all ranks if one is ready: poll goes through the ranks one after the other, so it may
 * show the second end and not the first. */
static void hear_ends(struct launcher_job *job, const struct launcher_poll *set, uint64_t now_ns)
{
	bool had_failed = job->first >= 0, same_round = is_first_round(job, now_ns);

	if (!is_any_ready(job, set))
		return;
	for (int i = 0; i < job->started; i++) {
		struct launcher_rank *rank = &job->ranks[i];
		if (!has_news(job, rank))
			continue;
		rank->ended_after_term = job->ending >= LAUNCHER_TERM;
		rank->order = job->ended++;
		launcher_monitor_ended(job, i);
		if (launcher_has_failed(rank))
			note_failure(job, i, same_round);
	}
	if (job->first < 0)
		return;
	if (!had_failed) {
		job->round_end_ns = now_ns + LAUNCHER_ROUND_MS * UINT64_C(1000000);
		launcher_monitor_collect(job);
	}
	launcher_note_cause(job);
	enter_ending(job, LAUNCHER_GRACE, now_ns);
}

/* ---- the loop ---- */

void launcher_loop_kill(struct launcher_job *job)
{
	enter_ending(job, LAUNCHER_KILL, clock_now_ns());
}

static void fill_poll(struct launcher_job *job, struct launcher_poll *set)
{
	set->count = 0;
	set->fds[set->count] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
	job->signal_poll = set->count++;
	for (int i = 0; i < job->started; i++) {
		job->ranks[i].poll = -1;
		if (job->ranks[i].ended || job->hosts)
			continue;
		set->fds[set->count] = (struct pollfd){.fd = job->ranks[i].pidfd, .events = POLLIN};
		job->ranks[i].poll = set->count++;
	}
	launcher_monitor_poll(job, set);
	launcher_hosts_poll(job, set);
	launcher_output_poll(&job->output, set);
	launcher_input_poll(&job->input, set);
}

static uint64_t next_deadline(const struct launcher_job *job)
{
	uint64_t deadline_ns = launcher_monitor_deadline(job);

	uint64_t watch_ns = launcher_hosts_deadline(job);

	if (watch_ns < deadline_ns)
		deadline_ns = watch_ns;
	if (is_limited(job) && job->timeout_ns < deadline_ns)
		deadline_ns = job->timeout_ns;
	if (job->ending != LAUNCHER_NORMAL && job->ending_until_ns < deadline_ns)
		deadline_ns = job->ending_until_ns;
	if (is_any_untold(job) && job->round_end_ns < deadline_ns)
		deadline_ns = job->round_end_ns;
	return deadline_ns;
}

ls_status launcher_loop(struct launcher_job *job)
{
	struct launcher_poll set;

	while (!is_over(job)) {
		fill_poll(job, &set);
		ls_status status = wait_fds(NULL, set.fds, set.count, -1, next_deadline(job));
		if (status != LS_OK && status != LS_TIMED_OUT && status != LS_INTERRUPTED)
			return status;
		if (status != LS_OK)
			for (int i = 0; i < set.count; i++)
				set.fds[i].revents = 0;
		uint64_t now_ns = clock_now_ns();
		forget_signal(job, now_ns);
		if (set.fds[job->signal_poll].revents)
			hear_signals(job, now_ns);
		/* Before the ends: a rank that has met is not missing. */
		launcher_monitor_step(job, now_ns);
		launcher_hosts_step(job, &set);
		launcher_hosts_watch(job, now_ns);
		launcher_output_step(&job->output, &set);
		launcher_input_step(&job->input, &set);
		hear_ends(job, &set, now_ns);
		tell_ends(job, now_ns);
		advance_ending(job, now_ns);
	}
	return LS_OK;
}
