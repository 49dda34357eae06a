/* SPDX-License-Identifier: BSD-3-Clause
 * How a message is printed, and where its help is. The messages themselves: messages.h. */
#ifndef BASE_MESSAGE_H
#define BASE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/settings.h"

/* Prints "lockstep: TEXT [ID]" on standard error in one write, with the rank in front if one was
 * set for this thread. If nobody reads, it waits 0.3 s and no longer: the message is lost, and the
 * next one that is read says that. Example: MESSAGE_SAY(MESSAGE_LOCK_ORDER, "rank", "memory"). */
#define MESSAGE_SAY(...) message_say(__VA_ARGS__)
void message_say(const char *id, enum setting_log level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Prints a report of several lines (a verdict) as it is, in one write. */
void message_report(const char *id, const char *text);

/* The last error that the calling thread has printed, without rank and id; "": none. Unlike
 * ls_last_error this call keeps the error. Valid until the thread prints another one. */
const char *message_last(void);
/* Whether that error was this message, as in message_last_was(MESSAGE_LOCK_ORDER). ls_last_error
 * does not forget it. */
bool message_last_was(const char *id, enum setting_log level, const char *format);

/* Rank that the messages of the calling thread speak for; -1: none. */
void message_set_rank(int rank);
int message_rank(void);
/* Messages less severe than `level` are dropped from now on, in the whole process. */
void message_set_level(enum setting_log level);

struct message_help {
	const char *id;
	enum setting_log level;
	const char *help;
};
/* The i-th message, NULL past the end; and the one with this id (any case, with or without
 * "LS-"). */
const struct message_help *message_help_at(size_t i);
const struct message_help *message_help_find(const char *id);

#endif
