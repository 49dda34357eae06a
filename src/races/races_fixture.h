/* SPDX-License-Identifier: BSD-3-Clause
 * For tests of this room: uses of one buffer, named after who makes them. */
#ifndef RACES_FIXTURE_H
#define RACES_FIXTURE_H

#include "races/races.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static char buffer[4096], other[4096];
static const char first[1], second[1], third[1]; /* streams */

struct fixture {
	struct races *races;
	_Atomic uint64_t broken, done;
	struct races_conflict conflict;
};

static inline void begin_test(struct fixture *fixture)
{
	*fixture = (struct fixture){0};
	fixture->races = races_open(&fixture->broken);
	assert_non_null(fixture->races);
	races_watch(fixture->races);
}

/* The ticket; 0: it races. */
static inline uint64_t touch(struct fixture *fixture, const char *name, const void *stream,
			     char *at, uint64_t bytes, bool writes)
{
	const struct races_use use = {.who = {.name = name, .stream = stream},
				      .parts = {{.address = at, .bytes = bytes, .writes = writes}}};
	uint64_t ticket;
	bool fine = races_begin(fixture->races, &use, &ticket, &fixture->conflict);
	assert_true(fine == (ticket != 0));
	return ticket;
}

static inline uint64_t writes(struct fixture *fixture, const char *name, const void *stream)
{
	return touch(fixture, name, stream, buffer, 100, true);
}

static inline uint64_t reads(struct fixture *fixture, const char *name, const void *stream)
{
	return touch(fixture, name, stream, buffer, 100, false);
}

static inline bool is_first(const struct fixture *fixture, const char *name)
{
	return strcmp(fixture->conflict.earlier.name, name) == 0;
}

/* gives, gets: it reads the buffer, it writes it. */
static inline bool collective(struct fixture *fixture, uint32_t group, const void *stream,
			      bool gives, bool gets)
{
	const struct races_use use = {
		.who = {.name = "c", .group = group, .stream = stream},
		.parts = {{.address = gives ? buffer : NULL, .bytes = gives ? 100 : 0},
			  {.address = gets ? buffer : NULL, .bytes = gets ? 100 : 0, .writes = true}},
		.is_collective = true};
	uint64_t ticket;
	return races_begin(fixture->races, &use, &ticket, &fixture->conflict);
}

#endif
