/* SPDX-License-Identifier: BSD-3-Clause
 * What ranks write: read from their pipes, cut into lines, marked with the rank, and written whole,
 * so that lines of two ranks are never mixed. Nothing here blocks: when the reader of the
 * launcher's output is slow, the queue fills up, then the ranks' pipes, and then the ranks wait. */
#include "launcher/launcher_private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/wait.h"
#include "print/print.h"

enum {
	LINE_FIRST_BYTES = 4096,
	PREFIX_MAX = 32,
	/* What a pipe that polls as writable takes without blocking: PIPE_BUF, see pipe(7). */
	CHUNK_BYTES = 4096,
	CHUNKS_A_STEP = 64, /* then the other descriptors get their turn */
};

static bool same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

static void sink_init(struct launcher_sink *sink, const struct settings *settings, int fd)
{
	struct stat status;

	*sink = (struct launcher_sink){
		.fd = fd,
		.poll = -1,
		.regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode),
		.color = settings_use_color(settings, fd),
	};
}

static ls_status say_log(const char *path)
{
	MESSAGE_SAY(MESSAGE_RUN_LOG, path, strerror(errno));
	return LS_SYSTEM;
}

static ls_status open_logs(struct launcher_output *output, const char *directory)
{
	if (mkdir(directory, 0777) != 0 && errno != EEXIST)
		return say_log(directory);

	int place = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place < 0)
		return say_log(directory);
	for (int rank = 0; rank < output->ranks; rank++) {
		for (int i = 0; i < 2; i++) {
			char name[32];
			snprintf(name, sizeof name, "rank-%d.%s", rank, i == 0 ? "out" : "err");
			const char *why;
			int fd = print_create(place, name, true, 0666, &why);
			if (fd < 0) {
				char path[PATH_MAX];
				snprintf(path, sizeof path, "%s/%s", directory, name);
				MESSAGE_SAY(MESSAGE_RUN_LOG, path, why);
				close(place);
				return LS_SYSTEM;
			}
			output->streams[rank][i].log_fd = fd;
		}
	}
	close(place);
	return LS_OK;
}

ls_status launcher_output_init(struct launcher_output *output, const struct settings *settings,
			       int ranks, bool prefix, const char *log_dir)
{
	memset(output, 0, sizeof *output);
	output->ranks = ranks;
	sink_init(&output->sinks[0], settings, STDOUT_FILENO);
	sink_init(&output->sinks[1], settings, STDERR_FILENO);
	/* One queue where both are one file: else a line of one could cut a line of the other. */
	int second = same_file(STDOUT_FILENO, STDERR_FILENO) ? 0 : 1;
	for (int rank = 0; rank < ranks; rank++) {
		for (int i = 0; i < 2; i++) {
			output->streams[rank][i] = (struct launcher_stream){
				.fd = -1,
				.log_fd = -1,
				.rank = rank,
				.poll = -1,
				.prefix = prefix,
				.sink = &output->sinks[i == 0 ? 0 : second],
			};
		}
	}
	if (!log_dir)
		return LS_OK;
	ls_status status = open_logs(output, log_dir);
	if (status != LS_OK)
		launcher_output_fini(output);
	return status;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void launcher_output_fini(struct launcher_output *output)
{
	for (int rank = 0; rank < output->ranks; rank++) {
		for (int i = 0; i < 2; i++) {
			struct launcher_stream *stream = &output->streams[rank][i];
			close_fd(&stream->fd);
			close_fd(&stream->log_fd);
			free(stream->line);
			stream->line = NULL;
		}
	}
	for (int i = 0; i < 2; i++) {
		free(output->sinks[i].data);
		output->sinks[i].data = NULL;
	}
}

/* ---- sinks ---- */

static void drop_sink(struct launcher_sink *sink)
{
	sink->start = sink->end = 0;
}

static bool reserve_bytes(char **data, size_t *capacity, size_t needed)
{
	size_t more = *capacity ? *capacity : LINE_FIRST_BYTES;

	if (needed <= *capacity)
		return true;
	while (more < needed)
		more *= 2;
	char *moved = realloc(*data, more);
	if (!moved)
		return false;
	*data = moved;
	*capacity = more;
	return true;
}

/* Without memory the line is lost, and a message says so: a launcher that gave up would end the
 * job. */
static void put_line(struct launcher_stream *stream, const char *line, size_t bytes)
{
	struct launcher_sink *sink = stream->sink;
	char prefix[PREFIX_MAX] = "";

	if (sink->closed)
		return;
	if (stream->label)
		snprintf(prefix, sizeof prefix, "[%.*s] ", PREFIX_MAX - 4, stream->label);
	else if (stream->prefix && sink->color)
		snprintf(prefix, sizeof prefix, "\033[3%dm[%d]\033[0m ", 1 + stream->rank % 6,
			 stream->rank);
	else if (stream->prefix)
		snprintf(prefix, sizeof prefix, "[%d] ", stream->rank);
	size_t prefix_bytes = strlen(prefix);

	if (sink->start > 0 && sink->start == sink->end)
		sink->start = sink->end = 0;
	if (!reserve_bytes(&sink->data, &sink->capacity, sink->end + prefix_bytes + bytes + 1)) {
		MESSAGE_SAY(MESSAGE_RUN_LINE_LOST, stream->rank, bytes);
		stream->lost = true;
		return;
	}
	memcpy(sink->data + sink->end, prefix, prefix_bytes);
	memcpy(sink->data + sink->end + prefix_bytes, line, bytes);
	sink->end += prefix_bytes + bytes;
	/* Without a prefix the bytes of a rank pass unchanged. */
	if (prefix_bytes > 0 && (bytes == 0 || line[bytes - 1] != '\n'))
		sink->data[sink->end++] = '\n';
}

/* One write that does not block; false when there is no more to do for now. */
static bool write_chunk(struct launcher_sink *sink)
{
	size_t bytes = sink->end - sink->start;
	if (bytes == 0)
		return false;
	if (!sink->regular && bytes > CHUNK_BYTES)
		bytes = CHUNK_BYTES;

	ssize_t written = write(sink->fd, sink->data + sink->start, bytes);
	if (written < 0) {
		if (errno == EAGAIN || errno == EINTR)
			return false;
		sink->lost = errno != EPIPE;
		if (sink->lost)
			MESSAGE_SAY(MESSAGE_RUN_LOG,
				    sink->fd == STDOUT_FILENO ? "standard output" : "standard error",
				    strerror(errno));
		sink->closed = true;
		drop_sink(sink);
		return false;
	}
	sink->start += (size_t)written;
	return true;
}

static void write_sink(struct launcher_sink *sink)
{
	for (int i = 0; i < CHUNKS_A_STEP && write_chunk(sink); i++) {
		struct pollfd room = {.fd = sink->fd, .events = POLLOUT};
		if (!sink->regular && wait_fds(NULL, &room, 1, -1, 0) != LS_OK)
			break;
	}
	/* What has been written makes room for what will come. */
	if (sink->start == sink->end) {
		drop_sink(sink);
	} else if (sink->start > LAUNCHER_QUEUE_MAX / 2) {
		memmove(sink->data, sink->data + sink->start, sink->end - sink->start);
		sink->end -= sink->start;
		sink->start = 0;
	}
}

/* ---- streams ---- */

static void end_stream(struct launcher_stream *stream)
{
	if (stream->used > 0)
		put_line(stream, stream->line, stream->used);
	free(stream->line);
	stream->line = NULL;
	stream->used = stream->capacity = 0;
	close_fd(&stream->fd);
	close_fd(&stream->log_fd);
	stream->fed = false;
}

static void write_log(struct launcher_stream *stream, const char *data, size_t bytes)
{
	while (stream->log_fd >= 0 && bytes > 0) {
		ssize_t written = write(stream->log_fd, data, bytes);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0) {
			char what[32];
			snprintf(what, sizeof what, "the log of rank %d", stream->rank);
			MESSAGE_SAY(MESSAGE_RUN_LOG, what, strerror(errno));
			stream->lost = true;
			close_fd(&stream->log_fd);
			return;
		}
		data += written;
		bytes -= (size_t)written;
	}
}

/* Keeps the beginning of a line; a line that is too long is written in pieces. */
static void keep_part(struct launcher_stream *stream, const char *data, size_t bytes)
{
	if (bytes == 0)
		return;
	if (stream->used + bytes > LAUNCHER_LINE_MAX ||
	    !reserve_bytes(&stream->line, &stream->capacity, stream->used + bytes)) {
		if (stream->used > 0)
			put_line(stream, stream->line, stream->used);
		put_line(stream, data, bytes);
		stream->used = 0;
		return;
	}
	memcpy(stream->line + stream->used, data, bytes);
	stream->used += bytes;
}

static void cut_lines(struct launcher_stream *stream, const char *data, size_t bytes)
{
	while (bytes > 0) {
		const char *newline = memchr(data, '\n', bytes);
		if (!newline) {
			keep_part(stream, data, bytes);
			return;
		}
		size_t length = (size_t)(newline - data) + 1;
		if (stream->used > 0) {
			/* keep_part() may have put the line out in pieces, with its end. */
			keep_part(stream, data, length);
			if (stream->used > 0)
				put_line(stream, stream->line, stream->used);
			stream->used = 0;
		} else {
			put_line(stream, data, length);
		}
		data += length;
		bytes -= length;
	}
}

static void read_stream(struct launcher_stream *stream)
{
	char data[LAUNCHER_READ_BYTES];
	ssize_t bytes = read(stream->fd, data, sizeof data);

	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (bytes <= 0) {
		end_stream(stream);
		return;
	}
	write_log(stream, data, (size_t)bytes);
	cut_lines(stream, data, (size_t)bytes);
	/* If nobody reads the sink any more, the rank learns it as if it had written there
	 * itself. */
	if (stream->sink->closed && stream->log_fd < 0)
		end_stream(stream);
}

bool launcher_output_feed(struct launcher_stream *stream, const char *data, size_t bytes)
{
	if (bytes == 0) {
		end_stream(stream);
		return true;
	}
	write_log(stream, data, bytes);
	cut_lines(stream, data, bytes);
	return !stream->sink->closed || stream->log_fd >= 0;
}

/* ---- the loop's view ---- */

static int add_fd(struct launcher_poll *set, int fd, short events)
{
	set->fds[set->count] = (struct pollfd){.fd = fd, .events = events};
	return set->count++;
}

void launcher_output_poll(struct launcher_output *output, struct launcher_poll *set)
{
	for (int i = 0; i < 2; i++) {
		struct launcher_sink *sink = &output->sinks[i];
		sink->poll = -1;
		if (!sink->closed && sink->start < sink->end)
			sink->poll = add_fd(set, sink->fd, POLLOUT);
	}
	for (int rank = 0; rank < output->ranks; rank++) {
		for (int i = 0; i < 2; i++) {
			struct launcher_stream *stream = &output->streams[rank][i];
			size_t queued = stream->sink->end - stream->sink->start;
			stream->poll = -1;
			if (stream->fd >= 0 && queued < LAUNCHER_QUEUE_MAX)
				stream->poll = add_fd(set, stream->fd, POLLIN);
		}
	}
}

void launcher_output_step(struct launcher_output *output, const struct launcher_poll *set)
{
	for (int rank = 0; rank < output->ranks; rank++) {
		for (int i = 0; i < 2; i++) {
			struct launcher_stream *stream = &output->streams[rank][i];
			if (stream->poll >= 0 && set->fds[stream->poll].revents)
				read_stream(stream);
		}
	}
	for (int i = 0; i < 2; i++) {
		struct launcher_sink *sink = &output->sinks[i];
		if (sink->poll >= 0 && set->fds[sink->poll].revents)
			write_sink(sink);
	}
}

bool launcher_output_ended(const struct launcher_output *output)
{
	for (int rank = 0; rank < output->ranks; rank++)
		for (int i = 0; i < 2; i++)
			if (output->streams[rank][i].fd >= 0 || output->streams[rank][i].fed)
				return false;
	return true;
}

bool launcher_output_lost(const struct launcher_output *output)
{
	bool lost = output->sinks[0].lost || output->sinks[1].lost;
	for (int rank = 0; rank < output->ranks; rank++)
		lost |= output->streams[rank][0].lost || output->streams[rank][1].lost;
	return lost;
}

bool launcher_output_written(const struct launcher_output *output)
{
	return output->sinks[0].start == output->sinks[0].end &&
	       output->sinks[1].start == output->sinks[1].end;
}

void launcher_output_close(struct launcher_output *output)
{
	for (int rank = 0; rank < output->ranks; rank++)
		for (int i = 0; i < 2; i++)
			if (output->streams[rank][i].fd >= 0 || output->streams[rank][i].fed)
				end_stream(&output->streams[rank][i]);
}

void launcher_output_drop(struct launcher_output *output)
{
	for (int i = 0; i < 2; i++)
		drop_sink(&output->sinks[i]);
}

bool launcher_output_has_room(const struct launcher_output *output)
{
	for (int i = 0; i < 2; i++)
		if (output->sinks[i].end - output->sinks[i].start >= LAUNCHER_QUEUE_MAX)
			return false;
	return true;
}
