/* SPDX-License-Identifier: BSD-3-Clause
 * Failures that no call of this rank has returned; notes of them for `lockstep run --hosts`, see
 * run_notes.h. */
#include "failure/run_notes.h"

#include <fcntl.h>
#include <unistd.h>

#include "failure/far_look.h"

/* Opened for each note: the program may close all descriptors. If the agent has ended, nobody reads
 * the note, and this rank is about to be killed. */
static void write_note(const struct ls_group *group, enum failure_run_note_kind kind,
		       ls_status status)
{
	const struct world *world = group->world;
	struct failure_run_note text = {
		.kind = kind, .rank = world->rank, .group = group->id, .status = (uint32_t)status};
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
		write_note(group, FAILURE_NOTE_UNRETURNED, status);
}

void failure_note_returned(const struct ls_group *group)
{
	if (failure_status(group) == LS_PEER_LEFT)
		write_note(group, FAILURE_NOTE_RETURNED, LS_PEER_LEFT);
}
