/* SPDX-License-Identifier: BSD-3-Clause
 * Prints messages, each in one write, and knows their help. No lock: one write of a message is
 * not torn by another's, and no lock may be held across a write that a full pipe can block. The
 * level is the one word of this file that all threads share; rank and last error are each thread's own. */
#include "messages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/status.h>

#include "text.h"

enum { TEXT_BYTES = 8192, LAST_BYTES = 1024 };

static _Atomic int least = SETTING_LOG_WARN;
static _Thread_local int rank_of_thread = -1;
/* Too long for the little room that a process keeps for variables of libraries it loads later. */
static _Thread_local __attribute__((tls_model("global-dynamic"))) char last_error[LAST_BYTES];

#define FIRST_OF(id, level, format) id
#define SECOND_OF(id, level, format) level
#define ID_OF(...) FIRST_OF(__VA_ARGS__)
#define LEVEL_OF(...) SECOND_OF(__VA_ARGS__)

static const struct message_help helps[] = {
#define X(id, level, help) {ID_OF(MESSAGE_##id), SETTING_LOG_##level, help},
#include "messages.def"
#undef X
};
#define X(id, level, help) \
	_Static_assert(LEVEL_OF(MESSAGE_##id) == SETTING_LOG_##level, #id ": two levels");
#include "messages.def"
#undef X

/* A text that grows up to its buffer: size <= TEXT_BYTES, and what does not fit is cut. */
struct text {
	size_t size;
	char bytes[TEXT_BYTES];
};

static void append(struct text *text, const char *from, size_t size)
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
	append(text, " [", 2);
	append(text, id, strlen(id));
	append(text, "]\n", 2);
}

/* A message that cannot be written is lost: there is no place left to say so. */
static void put(const struct text *text)
{
	for (size_t done = 0; done < text->size;) {
		ssize_t wrote = write(STDERR_FILENO, text->bytes + done, text->size - done);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			return;
		done += (size_t)wrote;
	}
}

void message_say(const char *id, enum setting_log level, const char *format, ...)
{
	int saved = errno;
	if ((int)level > atomic_load_explicit(&least, memory_order_relaxed))
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
		text_clean(text.bytes, true); /* others wrote some of it */
		text.size = strlen(text.bytes);
	}
	if (level == SETTING_LOG_ERROR)
		snprintf(last_error, LAST_BYTES, "%.*s", (int)(text.size - start),
			 text.bytes + start);
	append_id(&text, id);
	put(&text);
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
	append(&text, report, size);
	text.bytes[text.size] = '\0';
	text_clean(text.bytes, true);
	text.size = strlen(text.bytes);
	append_id(&text, id);
	put(&text);
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
	atomic_store_explicit(&least, (int)level, memory_order_relaxed);
}

const struct message_help *message_help_at(size_t i)
{
	return i < sizeof(helps) / sizeof(helps[0]) ? &helps[i] : NULL;
}

const struct message_help *message_help_find(const char *id)
{
	for (size_t i = 0; i < sizeof(helps) / sizeof(helps[0]); i++) {
		const char *full = helps[i].id;
		if (strcasecmp(id, full) == 0 || strcasecmp(id, full + strlen("LS-")) == 0)
			return &helps[i];
	}
	return NULL;
}
