/* SPDX-License-Identifier: BSD-3-Clause
 * The launcher's agent on one host: checks that all is there, starts the ranks of this host when
 * the launcher says so, sends what they write and how they end, and passes signals on. It decides
 * nothing. If the launcher is gone, the ranks end. */
#include "launcher/launcher_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/wait.h"
#include "failure/run_notes.h"
#include "launcher/channel.h"
#include "launcher/evidence.h"

enum { SEND_QUEUE_MAX = 1 << 20 };

struct agent {
	struct launcher_channel channel;
	struct launcher_start start;
	struct launcher_guard guard;
	struct launcher_rank ranks[RANKS_HOST_MAX];
	struct launcher_stream streams[RANKS_HOST_MAX][2];
	struct channel_order order;
	/* The strings of the order, and pointers to those of the command, ended by NULL. */
	char *strings;
	char **command;
	/* Standard input of rank 0: a pipe, -1 after its end, and what has to be written to it. */
	int input_fd, input_poll;
	struct channel_queue input;
	bool input_ends;                   /* after `input` */
	struct launcher_evidence evidence; /* if is_ready */
	int started, ended;
	uint64_t credit; /* bytes of output that may be sent */
	bool has_order, is_ready, is_over;
};

/* ---- the order ---- */

static bool order_is_valid(const struct channel_order *order)
{
	return order->size >= 1 && order->size <= RANKS_WORLD_MAX && order->count >= 1 &&
	       order->count <= RANKS_HOST_MAX && order->first >= 0 &&
	       order->first <= order->size - order->count && order->hosts >= 1 &&
	       order->hosts <= order->size && order->host >= 0 && order->host < order->hosts &&
	       order->words >= 1 && order->words <= CHANNEL_FRAME_MAX &&
	       order->variables <= CHANNEL_FRAME_MAX &&
	       memchr(order->address, '\0', sizeof order->address) &&
	       memchr(order->run_id, '\0', sizeof order->run_id);
}

/* Keeps a copy of the strings, and takes them apart. False: their number is wrong, or there is no
 * memory. */
static bool take_strings(struct agent *agent, const char *bytes, size_t count)
{
	size_t strings = 0, wanted = (size_t)1 + agent->order.variables + agent->order.words;
	size_t number = 0;

	for (size_t i = 0; i < count; i++)
		strings += bytes[i] == '\0';
	if (strings != wanted || count == 0 || bytes[count - 1] != '\0')
		return false;
	agent->strings = malloc(count);
	agent->command = calloc((size_t)agent->order.words + 1, sizeof *agent->command);
	if (!agent->strings || !agent->command)
		return false;
	memcpy(agent->strings, bytes, count);
	for (char *at = agent->strings; number < wanted; at += strlen(at) + 1, number++) {
		if (number > agent->order.variables)
			agent->command[number - 1 - agent->order.variables] = at;
		else if (number > 0 && strchr(at, '='))
			putenv(at);
	}
	return true;
}

/* Opens a file with the secret, and an empty one for notes. */
static bool open_files(struct agent *agent)
{
	int fd = memfd_create("lockstep-secret", MFD_CLOEXEC);
	int notes_fd = memfd_create("lockstep-notes", MFD_CLOEXEC);

	agent->start.secret_fd = fd;
	agent->start.notes_fd = notes_fd;
	if (fd >= 0 && fchmod(fd, 0600) == 0 && notes_fd >= 0 && fchmod(notes_fd, 0600) == 0 &&
	    write(fd, agent->order.secret, CHANNEL_SECRET_BYTES) == CHANNEL_SECRET_BYTES)
		return true;
	MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "memfd_create", strerror(errno));
	return false;
}

/* ---- checks ---- */

/* Checks that this host has all that the order needs, and says all that is missing. Returns 0, or
 * the exit status of the launcher. */
static int check_order(struct agent *agent, struct channel_ready *ready)
{
	uint16_t port = 0;
	int failed = 0, program = 0;

	if (chdir(agent->strings) != 0) {
		MESSAGE_SAY(MESSAGE_RUN_FOLDER, agent->strings, strerror(errno));
		failed = LAUNCHER_FAILED;
	} else if (launcher_program_check(&agent->start, &program) != LS_OK) {
		failed = program;
	}
	if (agent->order.hosts > 1 && !launcher_has_libraries())
		failed = LAUNCHER_FAILED;
	if (agent->order.host == 0 && launcher_find_port(agent->start.master_addr, &port) != LS_OK)
		failed = LAUNCHER_FAILED;
	if (!open_files(agent))
		failed = LAUNCHER_FAILED;
	*ready = (struct channel_ready){.host_key = rendezvous_host_key(), .port = port};
	return failed;
}

static void send_refused(struct agent *agent, int exit_status)
{
	struct channel_refused refused = {.exit_status = exit_status};

	launcher_channel_send(&agent->channel, CHANNEL_REFUSED, &refused, sizeof refused, NULL, 0);
}

static bool hear_order(struct agent *agent, const struct channel_frame *frame)
{
	struct channel_order *order = &agent->order;
	struct channel_ready ready;

	if (agent->has_order || !launcher_channel_copy(frame, order, sizeof *order) ||
	    !order_is_valid(order) ||
	    !take_strings(agent, frame->payload + sizeof *order, frame->bytes - sizeof *order))
		return false;
	agent->has_order = true;
	agent->start.command = agent->command;
	agent->start.ranks = order->count;
	agent->start.first = order->first;
	agent->start.size = order->size;
	agent->start.host = order->host;
	agent->start.hosts = order->hosts;
	memcpy(agent->start.run_id, order->run_id, sizeof agent->start.run_id);
	memcpy(agent->start.master_addr, order->address, sizeof agent->start.master_addr);
	int failed = check_order(agent, &ready);
	if (failed) {
		send_refused(agent, failed);
		return true;
	}
	agent->is_ready = true;
	launcher_evidence_init(&agent->evidence, agent->ranks, order->first, order->count,
			       agent->start.notes_fd);
	launcher_channel_send(&agent->channel, CHANNEL_READY, &ready, sizeof ready, NULL, 0);
	return true;
}

/* ---- the input of rank 0 ---- */

static void end_input(struct agent *agent)
{
	if (agent->input_fd >= 0)
		close(agent->input_fd);
	agent->input_fd = -1;
	agent->input.start = agent->input.end;
}

static void send_taken(struct agent *agent, uint64_t bytes)
{
	struct channel_credit taken = {.bytes = bytes};

	launcher_channel_send(&agent->channel, CHANNEL_TAKEN, &taken, sizeof taken, NULL, 0);
}

static bool hear_input(struct agent *agent, const struct channel_frame *frame)
{
	size_t waiting = agent->input.end - agent->input.start;

	if (frame->bytes > CHANNEL_INPUT_BYTES - waiting || agent->input_ends)
		return false;
	if (agent->input_fd < 0)
		return true; /* the launcher sent it before it knew that rank 0 takes no more */
	agent->input_ends = frame->bytes == 0;
	if (agent->input_ends && waiting == 0)
		end_input(agent);
	return launcher_channel_put(&agent->input, frame->payload, frame->bytes);
}

static void write_input(struct agent *agent, short ready)
{
	struct channel_queue *input = &agent->input;
	ssize_t done = 0;

	if (input->start < input->end)
		done = write(agent->input_fd, input->data + input->start, input->end - input->start);
	bool gone = ready & (POLLERR | POLLNVAL);
	if (gone || (done < 0 && errno != EAGAIN && errno != EINTR)) {
		end_input(agent);
		send_taken(agent, 0);
		return;
	}
	if (done > 0) {
		input->start += (size_t)done;
		send_taken(agent, (uint64_t)done);
	}
	if (agent->input_ends && input->start == input->end)
		end_input(agent);
}

/* The read end of the pipe, which rank 0 gets; -1, with a message: there is none. */
static int open_input(struct agent *agent)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "pipe2", strerror(errno));
		return -1;
	}
	/* Only this end: the end from which the rank reads must block. */
	if (fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "fcntl", strerror(errno));
		close(ends[0]);
		close(ends[1]);
		return -1;
	}
	agent->input_fd = ends[1];
	return ends[0];
}

/* ---- ranks ---- */

static bool hear_go(struct agent *agent, const struct channel_frame *frame)
{
	struct channel_started started = {{0}};
	struct channel_go go;
	int exit_status = LAUNCHER_FAILED, input = -1;

	if (!agent->is_ready || agent->started > 0 ||
	    !launcher_channel_copy(frame, &go, sizeof go) || go.port < 1 || go.port > UINT16_MAX)
		return false;
	agent->start.master_port = (uint16_t)go.port;
	ls_status status = launcher_guard_start(&agent->guard);
	agent->start.guard_fd = agent->guard.fd;
	if (status == LS_OK && agent->start.first == 0) {
		input = open_input(agent);
		status = input < 0 ? LS_SYSTEM : LS_OK;
	}
	for (int i = 0; status == LS_OK && i < agent->order.count; i++) {
		status = launcher_child_start(&agent->start, agent->start.first + i,
					      i == 0 ? input : -1, &agent->ranks[i],
					      agent->streams[i], &exit_status);
		if (status != LS_OK)
			break;
		started.pids[i] = agent->ranks[i].pid;
		agent->started++;
	}
	if (input >= 0)
		close(input);
	if (status != LS_OK)
		send_refused(agent, exit_status); /* and the launcher ends the job */
	else
		launcher_channel_send(&agent->channel, CHANNEL_STARTED, &started, sizeof started,
				      NULL, 0);
	return true;
}

static bool hear_signal(struct agent *agent, const struct channel_frame *frame)
{
	struct channel_signal told;

	if (!launcher_channel_copy(frame, &told, sizeof told) || told.number < 1 ||
	    told.number >= NSIG)
		return false;
	for (int i = 0; i < agent->started; i++) {
		/* A process group outlives its leader. */
		if (told.groups)
			kill(-agent->ranks[i].pid, told.number);
		else if (!agent->ranks[i].ended)
			kill(agent->ranks[i].pid, told.number);
	}
	return true;
}

static bool hear_shut(struct agent *agent, const struct channel_frame *frame)
{
	struct channel_output output;

	if (!launcher_channel_copy(frame, &output, sizeof output) ||
	    output.rank < agent->start.first ||
	    output.rank >= agent->start.first + agent->started || output.stream > 1)
		return false;
	struct launcher_stream *stream =
		&agent->streams[output.rank - agent->start.first][output.stream];
	if (stream->fd >= 0)
		close(stream->fd);
	stream->fd = -1;
	launcher_channel_send(&agent->channel, CHANNEL_OUTPUT, &output, sizeof output, NULL, 0);
	return true;
}

static bool hear_credit(struct agent *agent, const struct channel_frame *frame)
{
	struct channel_credit credit;

	if (!launcher_channel_copy(frame, &credit, sizeof credit) ||
	    credit.bytes > CHANNEL_CREDIT_BYTES - agent->credit)
		return false;
	agent->credit += credit.bytes;
	return true;
}

static bool hear_evidence(struct agent *agent, const struct channel_frame *frame)
{
	struct channel_copy copy;

	switch (frame->type) {
	case CHANNEL_COPY:
		if (!launcher_channel_copy(frame, &copy, sizeof copy))
			return false;
		launcher_evidence_copy(&agent->evidence, copy.last != 0);
		return true;
	case CHANNEL_FORGET:
		launcher_evidence_forget(&agent->evidence);
		return true;
	case CHANNEL_ASK:
		launcher_evidence_tell(&agent->evidence, &agent->channel);
		return true;
	default:
		return false;
	}
}

static bool hear_frame(struct agent *agent, const struct channel_frame *frame)
{
	switch (frame->type) {
	case CHANNEL_ORDER:
		return hear_order(agent, frame);
	case CHANNEL_GO:
		return hear_go(agent, frame);
	case CHANNEL_SIGNAL:
		return hear_signal(agent, frame);
	case CHANNEL_CREDIT:
		return hear_credit(agent, frame);
	case CHANNEL_SHUT:
		return hear_shut(agent, frame);
	case CHANNEL_INPUT:
		return hear_input(agent, frame);
	case CHANNEL_END:
		agent->is_over = true;
		return true;
	default:
		return agent->started > 0 && hear_evidence(agent, frame);
	}
}

static void send_notes(struct agent *agent)
{
	struct failure_run_note notes[256];
	off_t at = 0;
	ssize_t got;

	while (at < CHANNEL_NOTES_MAX * (off_t)sizeof notes[0] &&
	       (got = pread(agent->start.notes_fd, notes, sizeof notes, at)) > 0) {
		size_t whole = (size_t)got - (size_t)got % sizeof notes[0];
		launcher_channel_send(&agent->channel, CHANNEL_NOTES, notes, whole, NULL, 0);
		at += got;
	}
}

static void send_end(struct agent *agent, int i)
{
	const struct launcher_rank *rank = &agent->ranks[i];
	struct channel_ended ended = {
		.rank = agent->start.first + i,
		.exit_code = rank->exit_code,
		.signal = rank->signal,
		.dumped = rank->dumped,
	};

	if (rank->exit_code != 0) /* -1: by a signal */
		launcher_evidence_copy(&agent->evidence, false);
	if (++agent->ended == agent->started)
		send_notes(agent);
	launcher_channel_send(&agent->channel, CHANNEL_ENDED, &ended, sizeof ended, NULL, 0);
}

static void send_output(struct agent *agent, int i, int which)
{
	struct launcher_stream *stream = &agent->streams[i][which];
	struct channel_output output = {agent->start.first + i, (uint32_t)which};
	char data[LAUNCHER_READ_BYTES];
	size_t room = agent->credit < sizeof data ? (size_t)agent->credit : sizeof data;

	if (room == 0)
		return; /* the stream before has used up the credit */
	ssize_t bytes = read(stream->fd, data, room);
	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (bytes <= 0) {
		close(stream->fd);
		stream->fd = -1;
		bytes = 0;
	}
	agent->credit -= (uint64_t)bytes;
	launcher_channel_send(&agent->channel, CHANNEL_OUTPUT, &output, sizeof output, data,
			      (size_t)bytes);
}

/* ---- the loop ---- */

static void add_fd(struct launcher_poll *set, int fd, int *poll)
{
	*poll = set->count;
	set->fds[set->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void fill_poll(struct agent *agent, struct launcher_poll *set)
{
	bool sends = agent->credit > 0 &&
		     agent->channel.to.end - agent->channel.to.start < SEND_QUEUE_MAX;

	set->count = 0;
	launcher_channel_poll(&agent->channel, set);
	agent->input_poll = -1;
	if (agent->input_fd >= 0) {
		add_fd(set, agent->input_fd, &agent->input_poll);
		/* Without text only the end of the reader is of interest. */
		set->fds[agent->input_poll].events =
			agent->input.start < agent->input.end ? POLLOUT : 0;
	}
	if (agent->is_ready)
		launcher_evidence_poll(&agent->evidence, set);
	for (int i = 0; i < agent->started; i++) {
		agent->ranks[i].poll = -1;
		if (!agent->ranks[i].ended)
			add_fd(set, agent->ranks[i].pidfd, &agent->ranks[i].poll);
		for (int which = 0; which < 2; which++) {
			struct launcher_stream *stream = &agent->streams[i][which];
			stream->poll = -1;
			if (stream->fd >= 0 && sends)
				add_fd(set, stream->fd, &stream->poll);
		}
	}
}

static bool is_ready(const struct launcher_poll *set, int poll)
{
	return poll >= 0 && set->fds[poll].revents;
}

static void step_agent(struct agent *agent, const struct launcher_poll *set)
{
	struct channel_frame frame;
	int started = agent->started; /* how many ranks are in the set */

	if (agent->is_ready && set->count > 0)
		launcher_evidence_step(&agent->evidence, set);
	for (int i = 0; i < started; i++) {
		for (int which = 0; which < 2; which++)
			if (is_ready(set, agent->streams[i][which].poll))
				send_output(agent, i, which);
		if (is_ready(set, agent->ranks[i].poll) && launcher_child_ended(&agent->ranks[i]))
			send_end(agent, i);
	}
	if (is_ready(set, agent->input_poll))
		write_input(agent, set->fds[agent->input_poll].revents);
	launcher_channel_step(&agent->channel, set);
	while (!agent->is_over && launcher_channel_next(&agent->channel, &frame)) {
		if (!hear_frame(agent, &frame))
			agent->channel.wrong = agent->channel.ended = true;
	}
	launcher_evidence_send(&agent->evidence, &agent->channel);
}

static void run_loop(struct agent *agent)
{
	struct launcher_poll set;

	while (!agent->is_over && !agent->channel.ended) {
		fill_poll(agent, &set);
		ls_status status = wait_fds(NULL, set.fds, set.count, -1, CLOCK_NEVER);
		if (status == LS_OK)
			step_agent(agent, &set);
		else if (status != LS_INTERRUPTED)
			return;
	}
}

/* The channel gets descriptors of its own: nothing else may read from it or write to it. */
static bool take_channel(struct agent *agent)
{
	int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	launcher_channel_init(&agent->channel, in, out);
	return in >= 0 && out >= 0 && null >= 0 && fcntl(in, F_SETFL, O_NONBLOCK) == 0 &&
	       fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK) == 0 &&
	       dup2(null, STDIN_FILENO) >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
}

int launcher_agent_run(void)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct agent *agent = calloc(1, sizeof *agent);

	if (!agent)
		return LAUNCHER_FAILED;
	agent->guard.fd = agent->start.secret_fd = agent->start.notes_fd = agent->input_fd = -1;
	agent->evidence.poll = -1;
	agent->credit = CHANNEL_CREDIT_BYTES;
	int status = LAUNCHER_FAILED;
	if (sigprocmask(SIG_BLOCK, NULL, &agent->start.mask) != 0 ||
	    sigaction(SIGPIPE, &ignore, &agent->start.broken_pipe) != 0 ||
	    sigaction(SIGXFSZ, &ignore, &agent->start.file_limit) != 0 || !take_channel(agent)) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "fcntl", strerror(errno));
	} else {
		launcher_channel_greet(&agent->channel);
		run_loop(agent);
		if (agent->channel.wrong)
			MESSAGE_SAY(MESSAGE_RUN_CHANNEL);
		status = agent->is_over ? 0 : LAUNCHER_FAILED;
	}
	launcher_bury(agent->ranks, agent->started, &agent->guard);
	if (agent->is_ready)
		launcher_evidence_fini(&agent->evidence);
	launcher_channel_fini(&agent->channel);
	free(agent->input.data);
	free(agent->command);
	free(agent); /* not the strings: the environment points into them */
	return status;
}
