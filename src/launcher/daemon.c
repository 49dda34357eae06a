/* SPDX-License-Identifier: BSD-3-Clause
 * The launcher's daemon on one host: checks that all is there, starts the ranks of this host when
 * the launcher says so, sends what they write and how they end, and passes signals on. It decides
 * nothing. If the launcher is gone, or cannot be reached, the ranks end. */
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
#include "base/open_limit.h"
#include "base/wait.h"
#include "failure/run_notes.h"
#include "launcher/daemon_channel.h"
#include "launcher/daemon.h"

enum { SEND_QUEUE_MAX = 1 << 20 };

struct daemon {
	struct launcher_channel channel;
	struct launcher_start start;
	struct launcher_guard guard;
	struct launcher_rank ranks[RANKS_HOST_MAX];
	struct launcher_stream streams[RANKS_HOST_MAX][2];
	struct channel_order order;
	/* The strings of the order, and pointers to those of the command, ended by NULL. */
	char *strings;
	char **command;
	struct launcher_daemon_input input;
	struct launcher_evidence evidence; /* if is_ready */
	struct launcher_daemon_silence silence;
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
static bool take_strings(struct daemon *daemon, const char *bytes, size_t count)
{
	size_t strings = 0, wanted = (size_t)1 + daemon->order.variables + daemon->order.words;
	size_t number = 0;

	for (size_t i = 0; i < count; i++)
		strings += bytes[i] == '\0';
	if (strings != wanted || count == 0 || bytes[count - 1] != '\0')
		return false;
	daemon->strings = malloc(count);
	daemon->command = calloc((size_t)daemon->order.words + 1, sizeof *daemon->command);
	if (!daemon->strings || !daemon->command)
		return false;
	memcpy(daemon->strings, bytes, count);
	for (char *at = daemon->strings; number < wanted; at += strlen(at) + 1, number++) {
		if (number > daemon->order.variables)
			daemon->command[number - 1 - daemon->order.variables] = at;
		else if (number > 0 && strchr(at, '='))
			putenv(at);
	}
	return true;
}

/* Opens a file with the secret, and an empty one for notes. */
static bool open_files(struct daemon *daemon)
{
	int fd = memfd_create("lockstep-secret", MFD_CLOEXEC);
	int notes_fd = launcher_notes_open();

	daemon->start.secret_fd = fd;
	daemon->start.notes_fd = notes_fd;
	if (fd >= 0 && fchmod(fd, 0600) == 0 && notes_fd >= 0 &&
	    write(fd, daemon->order.secret, CHANNEL_SECRET_BYTES) == CHANNEL_SECRET_BYTES)
		return true;
	MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "memfd_create", OPEN_LIMIT_TEXT(errno));
	return false;
}

/* ---- checks ---- */

/* Checks that this host has all that the order needs, and says all that is missing. Returns 0, or
 * the exit status of the launcher. */
static int check_order(struct daemon *daemon, struct channel_ready *ready)
{
	uint16_t port = 0;
	int failed = 0, program = 0;

	if (chdir(daemon->strings) != 0) {
		MESSAGE_SAY(MESSAGE_RUN_FOLDER, daemon->strings, strerror(errno));
		failed = LAUNCHER_FAILED;
	} else if (launcher_program_check(&daemon->start, &program) != LS_OK) {
		failed = program;
	}
	if (daemon->order.hosts > 1 && !launcher_has_libraries())
		failed = LAUNCHER_FAILED;
	if (daemon->order.host == 0 && launcher_find_port(daemon->start.master_addr, &port) != LS_OK)
		failed = LAUNCHER_FAILED;
	if (!open_files(daemon))
		failed = LAUNCHER_FAILED;
	*ready = (struct channel_ready){.host_key = rendezvous_host_key(), .port = port};
	return failed;
}

static void send_refused(struct daemon *daemon, int exit_status)
{
	struct channel_refused refused = {.exit_status = exit_status};

	launcher_channel_send(&daemon->channel, CHANNEL_REFUSED, &refused, sizeof refused, NULL, 0);
}

static bool hear_order(struct daemon *daemon, const struct channel_frame *frame)
{
	struct channel_order *order = &daemon->order;
	struct channel_ready ready;

	if (daemon->has_order || !launcher_channel_copy(frame, order, sizeof *order) ||
	    !order_is_valid(order) ||
	    !take_strings(daemon, frame->payload + sizeof *order, frame->bytes - sizeof *order))
		return false;
	daemon->has_order = true;
	daemon->start.command = daemon->command;
	daemon->start.ranks = order->count;
	daemon->start.first = order->first;
	daemon->start.size = order->size;
	daemon->start.host = order->host;
	daemon->start.hosts = order->hosts;
	memcpy(daemon->start.run_id, order->run_id, sizeof daemon->start.run_id);
	memcpy(daemon->start.master_addr, order->address, sizeof daemon->start.master_addr);
	int failed = check_order(daemon, &ready);
	if (failed) {
		send_refused(daemon, failed);
		return true;
	}
	daemon->is_ready = true;
	launcher_daemon_silence_init(&daemon->silence);
	launcher_evidence_init(&daemon->evidence, daemon->ranks, order->first, order->count,
			       daemon->start.notes_fd);
	launcher_channel_send(&daemon->channel, CHANNEL_READY, &ready, sizeof ready, NULL, 0);
	return true;
}

/* ---- ranks ---- */

static bool hear_go(struct daemon *daemon, const struct channel_frame *frame)
{
	struct channel_started started = {{0}};
	struct channel_go go;
	int exit_status = LAUNCHER_FAILED, input = -1;

	if (!daemon->is_ready || daemon->started > 0 ||
	    !launcher_channel_copy(frame, &go, sizeof go) || go.port < 1 || go.port > UINT16_MAX)
		return false;
	daemon->start.master_port = (uint16_t)go.port;
	ls_status status = launcher_guard_start(&daemon->guard);
	daemon->start.guard_fd = daemon->guard.fd;
	if (status == LS_OK && daemon->start.first == 0) {
		input = launcher_daemon_input_open(&daemon->input);
		status = input < 0 ? LS_SYSTEM : LS_OK;
	}
	for (int i = 0; status == LS_OK && i < daemon->order.count; i++) {
		status = launcher_child_start(&daemon->start, daemon->start.first + i,
					      i == 0 ? input : -1, &daemon->ranks[i],
					      daemon->streams[i], &exit_status);
		if (status != LS_OK)
			break;
		started.pids[i] = daemon->ranks[i].pid;
		daemon->started++;
	}
	if (input >= 0)
		close(input);
	if (status != LS_OK)
		send_refused(daemon, exit_status); /* and the launcher ends the job */
	else
		launcher_channel_send(&daemon->channel, CHANNEL_STARTED, &started, sizeof started,
				      NULL, 0);
	return true;
}

static bool hear_signal(struct daemon *daemon, const struct channel_frame *frame)
{
	struct channel_signal told;

	if (!launcher_channel_copy(frame, &told, sizeof told) || told.number < 1 ||
	    told.number >= NSIG)
		return false;
	for (int i = 0; i < daemon->started; i++) {
		/* A process group outlives its leader. */
		if (told.groups)
			kill(-daemon->ranks[i].pid, told.number);
		else if (!daemon->ranks[i].ended)
			kill(daemon->ranks[i].pid, told.number);
	}
	return true;
}

static bool hear_shut(struct daemon *daemon, const struct channel_frame *frame)
{
	struct channel_output output;

	if (!launcher_channel_copy(frame, &output, sizeof output) ||
	    output.rank < daemon->start.first ||
	    output.rank >= daemon->start.first + daemon->started || output.stream > 1)
		return false;
	struct launcher_stream *stream =
		&daemon->streams[output.rank - daemon->start.first][output.stream];
	if (stream->fd >= 0)
		close(stream->fd);
	stream->fd = -1;
	launcher_channel_send(&daemon->channel, CHANNEL_OUTPUT, &output, sizeof output, NULL, 0);
	return true;
}

static bool hear_credit(struct daemon *daemon, const struct channel_frame *frame)
{
	struct channel_credit credit;

	if (!launcher_channel_copy(frame, &credit, sizeof credit) ||
	    credit.bytes > CHANNEL_CREDIT_BYTES - daemon->credit)
		return false;
	daemon->credit += credit.bytes;
	return true;
}

/* Ranks that wait for this one to meet them read it there. */
static bool hear_gone(const struct daemon *daemon, const struct channel_frame *frame)
{
	struct failure_run_note note = {.kind = FAILURE_NOTE_ENDED};
	struct channel_ended gone;

	if (!launcher_channel_copy(frame, &gone, sizeof gone) || gone.rank < 0 ||
	    gone.rank >= daemon->order.size || gone.signal < 0 || gone.signal >= NSIG ||
	    gone.exit_code < -1 || gone.exit_code > 255)
		return false;
	note.rank = gone.rank;
	note.status = (uint32_t)(gone.signal ? FAILURE_RUN_SIGNAL + gone.signal : gone.exit_code);
	ssize_t written = write(daemon->start.notes_fd, &note, sizeof note);
	(void)written; /* without it they wait until their deadline */
	return true;
}

static bool hear_evidence(struct daemon *daemon, const struct channel_frame *frame)
{
	struct channel_copy copy;

	switch (frame->type) {
	case CHANNEL_COPY:
		if (!launcher_channel_copy(frame, &copy, sizeof copy))
			return false;
		launcher_evidence_copy(&daemon->evidence, copy.last != 0);
		return true;
	case CHANNEL_FORGET:
		launcher_evidence_forget(&daemon->evidence);
		return true;
	case CHANNEL_ASK:
		launcher_evidence_tell(&daemon->evidence, &daemon->channel);
		return true;
	default:
		return false;
	}
}

static bool hear_frame(struct daemon *daemon, const struct channel_frame *frame)
{
	switch (frame->type) {
	case CHANNEL_ORDER:
		return hear_order(daemon, frame);
	case CHANNEL_GO:
		return hear_go(daemon, frame);
	case CHANNEL_SIGNAL:
		return hear_signal(daemon, frame);
	case CHANNEL_CREDIT:
		return hear_credit(daemon, frame);
	case CHANNEL_SHUT:
		return hear_shut(daemon, frame);
	case CHANNEL_INPUT:
		return launcher_daemon_input_hear(&daemon->input, frame);
	case CHANNEL_GONE:
		return daemon->is_ready && hear_gone(daemon, frame);
	case CHANNEL_PING:
		launcher_channel_send(&daemon->channel, CHANNEL_ALIVE, NULL, 0, NULL, 0);
		return true;
	case CHANNEL_END:
		daemon->is_over = true;
		return true;
	default:
		return daemon->started > 0 && hear_evidence(daemon, frame);
	}
}

static void send_notes(struct daemon *daemon)
{
	struct failure_run_note notes[256];
	off_t at = 0;
	ssize_t got;

	while (at < CHANNEL_NOTES_MAX * (off_t)sizeof notes[0] &&
	       (got = pread(daemon->start.notes_fd, notes, sizeof notes, at)) > 0) {
		size_t whole = (size_t)got - (size_t)got % sizeof notes[0];
		launcher_channel_send(&daemon->channel, CHANNEL_NOTES, notes, whole, NULL, 0);
		at += got;
	}
}

static void send_end(struct daemon *daemon, int i)
{
	const struct launcher_rank *rank = &daemon->ranks[i];
	struct channel_ended ended = {
		.rank = daemon->start.first + i,
		.exit_code = rank->exit_code,
		.signal = rank->signal,
		.dumped = rank->dumped,
	};

	if (rank->exit_code != 0) /* -1: by a signal */
		launcher_evidence_copy(&daemon->evidence, false);
	if (++daemon->ended == daemon->started)
		send_notes(daemon);
	launcher_channel_send(&daemon->channel, CHANNEL_ENDED, &ended, sizeof ended, NULL, 0);
}

static void send_output(struct daemon *daemon, int i, int which)
{
	struct launcher_stream *stream = &daemon->streams[i][which];
	struct channel_output output = {daemon->start.first + i, (uint32_t)which};
	char data[LAUNCHER_READ_BYTES];
	size_t room = daemon->credit < sizeof data ? (size_t)daemon->credit : sizeof data;

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
	daemon->credit -= (uint64_t)bytes;
	launcher_channel_send(&daemon->channel, CHANNEL_OUTPUT, &output, sizeof output, data,
			      (size_t)bytes);
}

/* ---- the loop ---- */

static void add_fd(struct launcher_poll *set, int fd, int *poll)
{
	*poll = set->count;
	set->fds[set->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static void fill_poll(struct daemon *daemon, struct launcher_poll *set)
{
	bool sends = daemon->credit > 0 &&
		     daemon->channel.to.end - daemon->channel.to.start < SEND_QUEUE_MAX;

	set->count = 0;
	launcher_channel_poll(&daemon->channel, set);
	launcher_daemon_input_poll(&daemon->input, set);
	if (daemon->is_ready)
		launcher_evidence_poll(&daemon->evidence, set);
	for (int i = 0; i < daemon->started; i++) {
		daemon->ranks[i].poll = -1;
		if (!daemon->ranks[i].ended)
			add_fd(set, daemon->ranks[i].pidfd, &daemon->ranks[i].poll);
		for (int which = 0; which < 2; which++) {
			struct launcher_stream *stream = &daemon->streams[i][which];
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

static void step_daemon(struct daemon *daemon, const struct launcher_poll *set)
{
	struct channel_frame frame;
	int started = daemon->started; /* how many ranks are in the set */

	if (daemon->is_ready && set->count > 0)
		launcher_evidence_step(&daemon->evidence, set);
	for (int i = 0; i < started; i++) {
		for (int which = 0; which < 2; which++)
			if (is_ready(set, daemon->streams[i][which].poll))
				send_output(daemon, i, which);
		if (is_ready(set, daemon->ranks[i].poll) && launcher_child_ended(&daemon->ranks[i]))
			send_end(daemon, i);
	}
	launcher_daemon_input_step(&daemon->input, set, &daemon->channel);
	launcher_channel_step(&daemon->channel, set);
	while (!daemon->is_over && launcher_channel_next(&daemon->channel, &frame)) {
		if (!hear_frame(daemon, &frame))
			daemon->channel.wrong = daemon->channel.ended = true;
	}
	launcher_evidence_send(&daemon->evidence, &daemon->channel);
}

static void run_loop(struct daemon *daemon)
{
	struct launcher_poll set;

	while (!daemon->is_over && !daemon->channel.ended) {
		bool runs = daemon->ended < daemon->started;
		fill_poll(daemon, &set);
		ls_status status = wait_fds(
			NULL, set.fds, set.count, -1,
			runs ? launcher_daemon_silence_deadline(&daemon->silence) : CLOCK_NEVER);
		if (status == LS_OK)
			step_daemon(daemon, &set);
		else if (status != LS_INTERRUPTED && status != LS_TIMED_OUT)
			return;
		if (runs && launcher_daemon_silence_look(&daemon->silence, &daemon->channel))
			return;
	}
}

/* The channel gets descriptors of its own: nothing else may read from it or write to it. */
static bool take_channel(struct daemon *daemon)
{
	int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	launcher_channel_init(&daemon->channel, in, out);
	return in >= 0 && out >= 0 && null >= 0 && fcntl(in, F_SETFL, O_NONBLOCK) == 0 &&
	       fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK) == 0 &&
	       dup2(null, STDIN_FILENO) >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
}

int launcher_daemon_run(void)
{
	struct daemon *daemon = calloc(1, sizeof *daemon);

	if (!daemon)
		return LAUNCHER_FAILED;
	daemon->guard.fd = daemon->start.secret_fd = daemon->start.notes_fd = daemon->input.fd = -1;
	daemon->evidence.poll = -1;
	daemon->credit = CHANNEL_CREDIT_BYTES;
	int status = LAUNCHER_FAILED;
	if (launcher_start_stack(&daemon->start) != LS_OK) {
		daemon->channel.ended = true;
	} else if (sigprocmask(SIG_BLOCK, NULL, &daemon->start.mask) != 0 ||
		   !launcher_start_signals(&daemon->start) || !take_channel(daemon)) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "fcntl", OPEN_LIMIT_TEXT(errno));
	} else {
		launcher_channel_greet(&daemon->channel);
		run_loop(daemon);
		if (daemon->channel.wrong)
			MESSAGE_SAY(MESSAGE_RUN_CHANNEL);
		status = daemon->is_over ? 0 : LAUNCHER_FAILED;
	}
	launcher_bury(daemon->ranks, daemon->started, &daemon->guard);
	if (daemon->is_ready)
		launcher_evidence_fini(&daemon->evidence);
	launcher_channel_fini(&daemon->channel);
	free(daemon->input.queue.data);
	free(daemon->command);
	free(daemon); /* not the strings: the environment points into them */
	return status;
}
