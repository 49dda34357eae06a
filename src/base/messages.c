/* SPDX-License-Identifier: BSD-3-Clause
 * Prints messages, each in one write, and knows their help. It needs no lock, because no write
 * tears that of another message. A reader who does not read holds nobody up: then messages are
 * lost, and the next one that is read says so. All threads share the level and the number of lost
 * messages. Each thread has a rank and a last error of its own. */
#include "base/messages.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/status.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/wait.h"

enum {
	TEXT_BYTES = 8192,
	LAST_BYTES = 1024,
	ROOM_MS = 300, /* a report is seen within a second all the same */
};

/* How many messages were lost since the last one that was written. */
static _Atomic uint32_t lost_count;
static _Atomic int least_level = SETTING_LOG_WARN;
static _Thread_local int rank_of_thread = -1;
/* Too long for the little room that a process keeps for variables of libraries it loads later. */
static _Thread_local __attribute__((tls_model("global-dynamic"))) char last_error[LAST_BYTES];
static _Thread_local const char *last_id = "";

#define FIRST_OF(id, level, format) id
#define SECOND_OF(id, level, format) level
#define ID_OF(...) FIRST_OF(__VA_ARGS__)
#define LEVEL_OF(...) SECOND_OF(__VA_ARGS__)
#define FORMAT_OF_3(id, level, format) format
#define FORMAT_OF(...) FORMAT_OF_3(__VA_ARGS__)

static const struct message_help helps[] = {
#define X(id, level, help) {ID_OF(MESSAGE_##id), SETTING_LOG_##level, help},
#include "base/messages.def"
#undef X
};
#define X(id, level, help) \
	_Static_assert(LEVEL_OF(MESSAGE_##id) == SETTING_LOG_##level, #id ": two levels");
#include "base/messages.def"
#undef X

/* A text that grows up to its buffer: size <= TEXT_BYTES, and what does not fit is cut. */
struct text {
	size_t size;
	char bytes[TEXT_BYTES];
};

static void append_bytes(struct text *text, const char *from, size_t size)
{
	size_t room = TEXT_BYTES - text->size;
	if (size > room)
		size = room;
	memcpy(text->bytes + text->size, from, size);
	text->size += size;
}

/* The id always fits: the text before it is cut to leave space. */
static void append_id(struct text *text, const char *id)
{
	size_t tail = strlen(id) + sizeof(" []\n") - 1;
	if (text->size > TEXT_BYTES - tail)
		text->size = TEXT_BYTES - tail;
	append_bytes(text, " [", 2);
	append_bytes(text, id, strlen(id));
	append_bytes(text, "]\n", 2);
}

struct writer {
	int fd;
	bool own;   /* to be closed */
	bool whole; /* a write never waits, whatever its size */
};

/* Where to write so that a full pipe, or a terminal that is stopped, is an error and no wait. The
 * flag for that belongs to the open file, which other processes share. So this opens pipe or
 * terminal anew. */
static struct writer open_writer(void)
{
	struct writer writer = {.fd = STDERR_FILENO};
	struct stat status;
	int flags = fcntl(STDERR_FILENO, F_GETFL);
	if (flags < 0 || fstat(STDERR_FILENO, &status) != 0)
		return writer;
	writer.whole = S_ISREG(status.st_mode) || flags & O_NONBLOCK;
	if (writer.whole || (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)))
		return writer;
	int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC |
						 (flags & (O_APPEND | O_DIRECT)));
	if (fd >= 0)
		writer = (struct writer){.fd = fd, .own = true, .whole = true};
	return writer;
}

/* If a write may wait: sends to a socket, or writes what a pipe that polls as writable takes,
 * unless another process is faster. */
static ssize_t write_some(const struct writer *writer, const char *from, size_t bytes)
{
	if (writer->whole)
		return write(writer->fd, from, bytes);
	ssize_t sent = send(writer->fd, from, bytes, MSG_DONTWAIT);
	if (sent >= 0 || errno != ENOTSOCK)
		return sent;
	if (wait_room(writer->fd, 0))
		return write(writer->fd, from, bytes < PIPE_BUF ? bytes : PIPE_BUF);
	errno = EAGAIN;
	return -1;
}

/* False for what could not be written: there is no place left to say why. */
static bool write_all(const struct text *text, uint64_t deadline_ns)
{
	struct writer writer = open_writer();
	size_t done = 0;
	while (done < text->size) {
		ssize_t wrote = write_some(&writer, text->bytes + done, text->size - done);
		if (wrote > 0)
			done += (size_t)wrote;
		else if (wrote == 0 || (errno != EINTR && errno != EAGAIN))
			break;
		else if (errno == EAGAIN && !wait_room(writer.fd, deadline_ns))
			break;
	}
	if (writer.own)
		close(writer.fd);
	return done == text->size;
}

/* Other threads may depend on this thread, for example if it is the watch. So it waits for a reader
 * only for a short time, and after a lost message not at all. */
static void print_text(const struct text *text)
{
	struct text notice;
	uint32_t before = atomic_exchange(&lost_count, 0);
	uint64_t deadline_ns = before ? 0 : clock_deadline_ns(ROOM_MS);
	if (before) {
		int size = snprintf(notice.bytes, TEXT_BYTES,
				    "\nlockstep: " FORMAT_OF(MESSAGE_MESSAGE_LOST), before);
		notice.size = size > 0 ? (size_t)size : 0;
		append_id(&notice, ID_OF(MESSAGE_MESSAGE_LOST));
	}
	if ((before && !write_all(&notice, deadline_ns)) || !write_all(text, deadline_ns))
		atomic_fetch_add(&lost_count, before + 1);
}

void message_say(const char *id, enum setting_log level, const char *format, ...)
{
	int saved = errno;
	if ((int)level > atomic_load_explicit(&least_level, memory_order_relaxed))
		return;
	struct text text;
	int head = rank_of_thread < 0
			   ? snprintf(text.bytes, TEXT_BYTES, "lockstep: ")
			   : snprintf(text.bytes, TEXT_BYTES, "lockstep: rank %d: ", rank_of_thread);
	text.size = head > 0 ? (size_t)head : 0;
	size_t start = text.size;
	va_list args;
	va_start(args, format);
	errno = saved;
	int body = vsnprintf(text.bytes + text.size, TEXT_BYTES - text.size, format, args);
	va_end(args);
	if (body > 0) {
		size_t room = TEXT_BYTES - text.size - 1;
		text.size += (size_t)body < room ? (size_t)body : room;
		text_clean(text.bytes, true); /* other processes wrote some of the text */
		text.size = strlen(text.bytes);
	}
	if (level == SETTING_LOG_ERROR) {
		snprintf(last_error, LAST_BYTES, "%.*s", (int)(text.size - start),
			 text.bytes + start);
		last_id = id;
	}
	append_id(&text, id);
	print_text(&text);
	errno = saved;
}

void message_report(const char *id, const char *report)
{
	int saved = errno;
	struct text text = {.size = 0};
	size_t size = strlen(report);
	while (size > 0 && report[size - 1] == '\n')
		size--;
	if (size > TEXT_BYTES - 1)
		size = TEXT_BYTES - 1;
	append_bytes(&text, report, size);
	text.bytes[text.size] = '\0';
	text_clean(text.bytes, true);
	text.size = strlen(text.bytes);
	append_id(&text, id);
	print_text(&text);
	errno = saved;
}

size_t ls_last_error(char *out, size_t bytes)
{
	size_t length = strlen(last_error);
	if (out && bytes)
		snprintf(out, bytes, "%s", last_error);
	last_error[0] = '\0';
	return length;
}

const char *message_last(void)
{
	return last_error;
}

bool message_last_was(const char *id, enum setting_log level, const char *format)
{
	(void)level;
	(void)format;
	return strcmp(last_id, id) == 0;
}

void message_set_rank(int rank)
{
	rank_of_thread = rank;
}

int message_rank(void)
{
	return rank_of_thread;
}

void message_set_level(enum setting_log level)
{
	atomic_store_explicit(&least_level, (int)level, memory_order_relaxed);
}

const struct message_help *message_help_at(size_t i)
{
	return i < sizeof helps / sizeof helps[0] ? &helps[i] : NULL;
}

const struct message_help *message_help_find(const char *id)
{
	for (size_t i = 0; i < sizeof helps / sizeof helps[0]; i++) {
		const char *full = helps[i].id;
		if (strcasecmp(id, full) == 0 || strcasecmp(id, full + strlen("LS-")) == 0)
			return &helps[i];
	}
	return NULL;
}
