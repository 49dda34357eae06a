/* SPDX-License-Identifier: BSD-3-Clause
 * A job on several hosts while it runs: frames of daemons become output and news of the job;
 * requests of the loop become frames to daemons. */
#include "launcher/daemons.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/wait.h"
#include "failure/run_notes.h"
#include "inspect/host_part.h"

/* ---- words ---- */

void launcher_host_read_words(struct launcher_host *host)
{
	char data[1024];

	for (;;) {
		ssize_t got = read(host->words_fd, data, sizeof data);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (got <= 0) {
			close(host->words_fd);
			host->words_fd = -1;
			return;
		}
		size_t bytes = (size_t)got, room = sizeof host->words - 1;
		/* The last words count. */
		if (host->words_used + bytes > room) {
			size_t kept = room - bytes;
			if (kept > host->words_used)
				kept = host->words_used;
			memmove(host->words, host->words + host->words_used - kept, kept);
			host->words_used = kept;
		}
		memcpy(host->words + host->words_used, data, bytes);
		host->words_used += bytes;
		host->words[host->words_used] = '\0';
	}
}

void launcher_host_say_words(struct launcher_host *host)
{
	static const char own[] = "lockstep: ";

	for (char *line = host->words; line < host->words + host->words_used;) {
		size_t length = strcspn(line, "\r\n");
		bool is_end = line[length] == '\0';
		line[length] = '\0';
		if (length > 0)
			MESSAGE_SAY(MESSAGE_RUN_HOST, host->name,
				    line + (strncmp(line, own, sizeof own - 1) == 0 ? sizeof own - 1
										    : 0));
		if (is_end)
			break;
		line += length + 1;
	}
	host->words_used = 0;
	host->words[0] = '\0';
}

void launcher_host_await(struct launcher_host *host, uint64_t limit_ms)
{
	uint64_t deadline_ns = clock_deadline_ns(limit_ms);
	struct pollfd ready[2] = {{.fd = host->pidfd, .events = POLLIN},
				  {.fd = host->words_fd, .events = POLLIN}};

	while (ready[0].fd >= 0 || ready[1].fd >= 0) {
		ls_status status = wait_fds(NULL, ready, 2, -1, deadline_ns);
		if (status != LS_OK && status != LS_INTERRUPTED)
			return;
		if (status != LS_OK)
			continue;
		if (ready[0].revents)
			ready[0].fd = -1;
		if (ready[1].revents)
			launcher_host_read_words(host);
		ready[1].fd = host->words_fd;
	}
}

void launcher_host_end_text(const struct launcher_host *host, char *out, size_t bytes)
{
	siginfo_t info = {0};
	const char *what = host->is_here ? "lockstep there" : "ssh";

	if (waitid(P_PIDFD, (id_t)host->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
	    info.si_pid == 0)
		snprintf(out, bytes, "%s has not ended", what);
	else
		snprintf(out, bytes, "%s %s %d", what,
			 info.si_code == CLD_EXITED ? "ended with" : "was killed by signal",
			 info.si_status);
}

/* ---- what daemons say ---- */

static struct launcher_stream *find_stream(struct launcher_job *job,
					   const struct launcher_host *host, int rank,
					   uint32_t which)
{
	if (rank < host->first || rank >= host->first + host->count || which > 1)
		return NULL;
	return &job->output.streams[rank][which];
}

static bool hear_output(struct launcher_job *job, struct launcher_host *host,
			const struct channel_frame *frame)
{
	struct channel_output output;

	if (!launcher_channel_copy(frame, &output, sizeof output))
		return false;
	struct launcher_stream *stream = find_stream(job, host, output.rank, output.stream);
	size_t bytes = frame->bytes - sizeof output;
	if (!stream || bytes > CHANNEL_CREDIT_BYTES)
		return false;
	host->owed += bytes;
	if (!stream->fed) /* given up before */
		return true;
	if (!launcher_output_feed(stream, frame->payload + sizeof output, bytes))
		launcher_channel_send(&host->channel, CHANNEL_SHUT, &output, sizeof output, NULL, 0);
	return true;
}

static bool hear_ended(struct launcher_job *job, struct launcher_host *host,
		       const struct channel_frame *frame)
{
	struct channel_ended ended;

	if (!launcher_channel_copy(frame, &ended, sizeof ended) ||
	    !find_stream(job, host, ended.rank, 0) || ended.signal < 0 || ended.signal >= NSIG ||
	    ended.exit_code < -1 || ended.exit_code > 255 || job->ranks[ended.rank].ended)
		return false;
	struct launcher_rank *rank = &job->ranks[ended.rank];
	rank->ended = rank->news = true;
	rank->exit_code = ended.exit_code;
	rank->signal = ended.signal;
	rank->dumped = ended.dumped != 0;
	return true;
}

static bool hear_started(struct launcher_job *job, struct launcher_host *host,
			 const struct channel_frame *frame)
{
	struct channel_started started;

	if (!launcher_channel_copy(frame, &started, sizeof started))
		return false;
	for (int i = 0; i < host->count; i++)
		job->ranks[host->first + i].remote_pid = started.pids[i];
	host->has_started = true;
	return true;
}

/* The host's ranks that have not ended before count as failed. */
static void lose_ranks(struct launcher_job *job, struct launcher_host *host, int exit_code)
{
	for (int i = host->first; i < host->first + host->count; i++) {
		struct launcher_rank *rank = &job->ranks[i];
		for (int which = 0; which < 2; which++)
			if (job->output.streams[i][which].fed)
				launcher_output_feed(&job->output.streams[i][which], NULL, 0);
		if (rank->ended)
			continue;
		rank->ended = rank->news = rank->lost = true;
		rank->exit_code = exit_code;
	}
}

void launcher_hosts_end_input(struct launcher_hosts *hosts)
{
	if (hosts->input_fd > STDERR_FILENO)
		close(hosts->input_fd);
	hosts->input_fd = -1;
}

static bool hear_taken(struct launcher_hosts *hosts, const struct launcher_host *host,
		       const struct channel_frame *frame)
{
	struct channel_credit taken;

	if (host->first != 0 || !launcher_channel_copy(frame, &taken, sizeof taken) ||
	    taken.bytes > CHANNEL_INPUT_BYTES - hosts->input_room)
		return false;
	hosts->input_room += taken.bytes;
	if (taken.bytes == 0)
		launcher_hosts_end_input(hosts);
	return true;
}

static void send_input(struct launcher_hosts *hosts)
{
	char data[16384];
	size_t room = hosts->input_room < sizeof data ? (size_t)hosts->input_room : sizeof data;

	ssize_t bytes = read(hosts->input_fd, data, room);
	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (bytes <= 0) {
		launcher_hosts_end_input(hosts);
		bytes = 0;
	}
	hosts->input_room -= (uint64_t)bytes;
	launcher_channel_send(&hosts->hosts[0].channel, CHANNEL_INPUT, data, (size_t)bytes, NULL, 0);
}

static bool hear_notes(struct launcher_host *host, const struct channel_frame *frame)
{
	size_t size = sizeof(struct failure_run_note);

	return frame->bytes % size == 0 &&
	       frame->bytes <= CHANNEL_NOTES_MAX * size - (host->notes.end - host->notes.start) &&
	       launcher_channel_put(&host->notes, frame->payload, frame->bytes);
}

/* False, here and in hear_part: hosts_gather.c has not asked, or the daemon sends too much. */
static bool hear_state(struct launcher_host *host, const struct channel_frame *frame)
{
	struct channel_state state;
	uint64_t now_ns = clock_now_ns();

	if (!host->asked_ns || host->error_ns || !launcher_channel_copy(frame, &state, sizeof state))
		return false;
	/* It read its clock between the question and now. */
	host->error_ns = (now_ns - host->asked_ns) / 2 + 1;
	host->offset_ns = (int64_t)(state.now_ns - (host->asked_ns + host->error_ns));
	return true;
}

static bool hear_part(struct launcher_host *host, const struct channel_frame *frame)
{
	if (!host->error_ns || host->has_told ||
	    frame->bytes > 2 * (size_t)INSPECT_PART_BYTES_MAX - (host->part.end - host->part.start))
		return false;
	host->has_told = frame->bytes == 0;
	return host->has_told || launcher_channel_put(&host->part, frame->payload, frame->bytes);
}

static void pass_words_on(struct launcher_host *host)
{
	if (host->words_used > 0)
		launcher_output_feed(&host->stream, host->words, host->words_used);
	host->words_used = 0;
}

static bool hear_frame(struct launcher_job *job, struct launcher_host *host,
		       const struct channel_frame *frame)
{
	struct channel_refused refused;

	switch (frame->type) {
	case CHANNEL_OUTPUT:
		return hear_output(job, host, frame);
	case CHANNEL_ENDED:
		return hear_ended(job, host, frame);
	case CHANNEL_NOTES:
		return hear_notes(host, frame);
	case CHANNEL_STATE:
		return hear_state(host, frame);
	case CHANNEL_PART:
		return hear_part(host, frame);
	case CHANNEL_TAKEN:
		return hear_taken(job->hosts, host, frame);
	case CHANNEL_STARTED:
		return hear_started(job, host, frame);
	case CHANNEL_ALIVE: /* hosts_silence.c counts all that comes */
		return true;
	case CHANNEL_REFUSED:
		if (!launcher_channel_copy(frame, &refused, sizeof refused) ||
		    refused.exit_status < 1 || refused.exit_status > 255)
			return false;
		host->state = LAUNCHER_HOST_REFUSED;
		/* The daemon wrote its reasons before this frame, but they come another way. */
		launcher_channel_send(&host->channel, CHANNEL_END, NULL, 0, NULL, 0);
		launcher_channel_flush(&host->channel);
		launcher_host_await(host, 2000);
		pass_words_on(host);
		MESSAGE_SAY(MESSAGE_RUN_HOST, host->name, "could not start its ranks");
		lose_ranks(job, host, refused.exit_status);
		return true;
	default:
		return false;
	}
}

void launcher_host_ranks_text(const struct launcher_host *host, char *out, size_t bytes)
{
	if (host->count > 1)
		snprintf(out, bytes, "ranks %d-%d", host->first, host->first + host->count - 1);
	else
		snprintf(out, bytes, "rank %d", host->first);
}

void launcher_host_give_up(struct launcher_job *job, struct launcher_host *host)
{
	/* The daemon of this host, or ssh, which has other hosts' daemons at its other end. */
	kill(-host->pid, SIGKILL);
	host->state = LAUNCHER_HOST_GONE;
	host->channel.ended = true;
	lose_ranks(job, host, LAUNCHER_FAILED);
}

static void lose_host(struct launcher_job *job, struct launcher_host *host)
{
	char how[96], ranks[32];

	launcher_host_await(host, 500);
	launcher_host_end_text(host, how, sizeof how);
	launcher_host_ranks_text(host, ranks, sizeof ranks);
	MESSAGE_SAY(MESSAGE_RUN_HOST_LOST, host->name, ranks,
		    host->channel.wrong ? "what comes from it is not lockstep's" : how);
	host->state = LAUNCHER_HOST_GONE;
	lose_ranks(job, host, LAUNCHER_FAILED);
}

/* ---- the loop's view ---- */

static void add_fd(struct launcher_poll *set, int fd, int *poll)
{
	*poll = -1;
	if (fd < 0)
		return;
	*poll = set->count;
	set->fds[set->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

void launcher_hosts_poll(struct launcher_job *job, struct launcher_poll *set)
{
	for (int i = 0; job->hosts && i < job->hosts->count; i++) {
		struct launcher_host *host = &job->hosts->hosts[i];
		launcher_channel_poll(&host->channel, set);
		add_fd(set, host->words_fd, &host->words_poll);
	}
	if (job->hosts)
		add_fd(set, job->hosts->input_room > 0 ? job->hosts->input_fd : -1,
		       &job->hosts->input_poll);
}

static void step_host(struct launcher_job *job, struct launcher_host *host,
		      const struct launcher_poll *set)
{
	struct channel_frame frame;

	if (host->words_poll >= 0 && set->fds[host->words_poll].revents)
		launcher_host_read_words(host);
	pass_words_on(host);
	if (host->state == LAUNCHER_HOST_GONE)
		return;
	launcher_channel_step(&host->channel, set);
	while (launcher_channel_next(&host->channel, &frame))
		if (!hear_frame(job, host, &frame))
			host->channel.wrong = host->channel.ended = true;
	if (host->channel.ended && host->state == LAUNCHER_HOST_RUNS) {
		lose_host(job, host);
		pass_words_on(host);
	}
	if (host->owed > 0 && launcher_output_has_room(&job->output)) {
		struct channel_credit credit = {.bytes = host->owed};
		launcher_channel_send(&host->channel, CHANNEL_CREDIT, &credit, sizeof credit, NULL,
				      0);
		host->owed = 0;
	}
}

void launcher_hosts_step(struct launcher_job *job, const struct launcher_poll *set)
{
	for (int i = 0; job->hosts && i < job->hosts->count; i++)
		step_host(job, &job->hosts->hosts[i], set);
	if (job->hosts && job->hosts->input_fd >= 0 && job->hosts->input_poll >= 0 &&
	    set->fds[job->hosts->input_poll].revents)
		send_input(job->hosts);
}

void launcher_hosts_signal(struct launcher_job *job, int number, bool groups)
{
	struct channel_signal told = {.number = number, .groups = groups};

	for (int i = 0; i < job->hosts->count; i++) {
		struct launcher_channel *channel = &job->hosts->hosts[i].channel;
		launcher_channel_send(channel, CHANNEL_SIGNAL, &told, sizeof told, NULL, 0);
		launcher_channel_flush(channel); /* this process may be about to stop */
	}
}

void launcher_hosts_tell_ended(struct launcher_job *job, int rank)
{
	const struct launcher_rank *ended = &job->ranks[rank];
	struct channel_ended gone = {.rank = rank,
				     .exit_code = ended->exit_code,
				     .signal = ended->signal,
				     .dumped = ended->dumped};

	/* Whether it ran on nobody knows. */
	for (int i = 0; i < job->hosts->count && !ended->lost; i++) {
		struct launcher_host *host = &job->hosts->hosts[i];
		if (host->state == LAUNCHER_HOST_RUNS)
			launcher_channel_send(&host->channel, CHANNEL_GONE, &gone, sizeof gone,
					      NULL, 0);
	}
}

void launcher_hosts_give_up(struct launcher_job *job)
{
	for (int i = 0; job->hosts && i < job->hosts->count; i++) {
		struct launcher_host *host = &job->hosts->hosts[i];
		bool all = true;
		for (int rank = host->first; rank < host->first + host->count; rank++)
			all &= job->ranks[rank].ended;
		if (all || host->state != LAUNCHER_HOST_RUNS)
			continue;
		MESSAGE_SAY(MESSAGE_RUN_HOST, host->name,
			    "has not told that its ranks are killed; they may still run there");
		host->state = LAUNCHER_HOST_GONE;
		host->channel.ended = true; /* nobody reads it any more, so it would stay ready */
		lose_ranks(job, host, LAUNCHER_FAILED);
	}
}

const char *launcher_hosts_name(const struct launcher_job *job, int rank)
{
	for (int i = 0; i < job->hosts->count; i++) {
		const struct launcher_host *host = &job->hosts->hosts[i];
		if (rank < host->first + host->count)
			return host->name;
	}
	return "?";
}
