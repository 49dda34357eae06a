/* SPDX-License-Identifier: BSD-3-Clause
 * For tests: a view of a job, and the traces of its ranks, which are all in this process. */
#ifndef INSPECT_VIEW_FIXTURE_H
#define INSPECT_VIEW_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "inspect/inspect.h"

enum { SIZE = 3, JOB = 0x1234 };

struct view_fixture {
	struct trace traces[SIZE];
	struct inspect_view *view;    /* it has no trace yet */
	char directory[64], path[96]; /* for a snapshot */
	char text[16384];             /* for a report */
};

static inline int view_set_up(void **state)
{
	struct view_fixture *fixture = calloc(1, sizeof *fixture);

	assert_non_null(fixture);
	fixture->view = inspect_view_new(JOB, SIZE);
	assert_non_null(fixture->view);
	for (int rank = 0; rank < SIZE; rank++) {
		struct trace_options options = {
			.job = JOB, .rank = rank, .world_size = SIZE, .records = 16};
		assert_int_equal(trace_init(&fixture->traces[rank], &options), LS_OK);
	}
	snprintf(fixture->directory, sizeof fixture->directory, "/tmp/lockstep-test-XXXXXX");
	assert_non_null(mkdtemp(fixture->directory));
	snprintf(fixture->path, sizeof fixture->path, "%s/snapshot", fixture->directory);
	*state = fixture;
	return 0;
}

static inline int view_tear_down(void **state)
{
	struct view_fixture *fixture = *state;

	inspect_view_free(fixture->view);
	for (int rank = 0; rank < SIZE; rank++)
		trace_fini(&fixture->traces[rank]);
	unlink(fixture->path);
	rmdir(fixture->directory);
	free(fixture);
	return 0;
}

/* Shows the view the trace of `rank` as that of rank `as`. */
static inline bool view_add(struct view_fixture *fixture, int rank, int as)
{
	int fd = fcntl(fixture->traces[rank].fd, F_DUPFD_CLOEXEC, 3);

	assert_true(fd >= 0);
	if (inspect_view_add_trace(fixture->view, as, fd))
		return true;
	close(fd);
	return false;
}

#endif
