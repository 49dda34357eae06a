/* SPDX-License-Identifier: BSD-3-Clause
 * Failures that no call of this rank has returned; notes for `lockstep run --hosts`, see
 * run_notes.h. */
#include "failure/run_notes.h"

#include <fcntl.h>
#include <unistd.h>

#include "failure/far_look.h"

/* Opened for each note: the program may close all descriptors. If the daemon has ended, nobody
 * reads the note, and this rank is about to be killed. */
static void write_note(const struct world *world, enum failure_run_note_kind kind, uint32_t group,
		       ls_status status)
{
	struct failure_run_note text = {.kind = kind,
					.rank = world->rank,
					.group = group,
					.status = (uint32_t)status,
					.pid = getpid(),
					.job = world->transport.job};
	if (!world->run_notes[0])
		return;
	int fd = open(world->run_notes, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
	if (fd < 0)
		return;
	ssize_t written = write(fd, &text, sizeof text);
	(void)written;
	close(fd);
}

bool failure_is_unreturned(const struct ls_group *group)
{
	struct failure_far *far = group->world->watch.far;
	return far && atomic_load(&far->raised[group->area / 64]) & failure_area_bit(group->area) &&
	       failure_status(group) != LS_OK && !atomic_load(&group->has_failed);
}

void failure_note_unreturned(struct ls_group *group)
{
	ls_status status = trace_report_unreturned(&group->world->trace, group->id);
	if (status != LS_OK)
		write_note(group->world, FAILURE_NOTE_UNRETURNED, group->id, status);
}

void failure_note_returned(const struct ls_group *group)
{
	if (failure_status(group) == LS_PEER_LEFT)
		write_note(group->world, FAILURE_NOTE_RETURNED, group->id, LS_PEER_LEFT);
}

void failure_note_met(const struct world *world)
{
	write_note(world, FAILURE_NOTE_MET, TRACE_GROUP_WORLD, LS_OK);
}
