/* SPDX-License-Identifier: BSD-3-Clause
 * What ranks have noted for the launcher (failure/run_notes.h): on one host in a file of the
 * launcher's own, on several in a file of each daemon, which sends it. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure/run_notes.h"
#include "launcher/daemons.h"

int launcher_notes_open(void)
{
	int fd = memfd_create("lockstep-notes", MFD_CLOEXEC);

	if (fd < 0 || (fchmod(fd, 0600) == 0 && fcntl(fd, F_SETFL, O_APPEND) == 0))
		return fd;
	close(fd);
	return -1;
}

/* ---- ranks that failed because of another one ---- */

/* The last note of a rank counts. */
static void hear_note(const struct failure_run_note *note, struct ranks *out)
{
	if (note->rank < 0 || note->rank >= RANKS_WORLD_MAX)
		return;
	if (note->kind == FAILURE_NOTE_FOLLOWED)
		ranks_add(out, note->rank);
	else if (note->kind == FAILURE_NOTE_OPENED)
		ranks_remove(out, note->rank);
}

void launcher_notes_followers(const struct launcher_job *job, struct ranks *out)
{
	struct failure_run_note note;

	*out = (struct ranks){{0}};
	for (off_t at = 0; !job->hosts && pread(job->start.notes_fd, &note, sizeof note, at) ==
						  (ssize_t)sizeof note;
	     at += (off_t)sizeof note)
		hear_note(&note, out);
	for (int i = 0; job->hosts && i < job->hosts->count; i++) {
		const struct channel_queue *notes = &job->hosts->hosts[i].notes;
		for (size_t at = notes->start; at < notes->end; at += sizeof note) {
			memcpy(&note, notes->data + at, sizeof note);
			hear_note(&note, out);
		}
	}
}

/* ---- failures that no call has returned ---- */

/* Whether a call of some rank returned that a rank has left this group. */
static bool is_returned(const struct launcher_hosts *hosts, uint32_t group)
{
	for (int i = 0; i < hosts->count; i++) {
		const struct channel_queue *notes = &hosts->hosts[i].notes;
		struct failure_run_note note;
		for (size_t at = notes->start; at < notes->end; at += sizeof note) {
			memcpy(&note, notes->data + at, sizeof note);
			if (note.kind == FAILURE_NOTE_RETURNED && note.group == group)
				return true;
		}
	}
	return false;
}

int launcher_notes_find_unreturned(const struct launcher_job *job)
{
	for (int i = 0; i < job->hosts->count; i++) {
		const struct channel_queue *notes = &job->hosts->hosts[i].notes;
		struct failure_run_note note;
		for (size_t at = notes->start; at < notes->end; at += sizeof note) {
			memcpy(&note, notes->data + at, sizeof note);
			if (note.kind == FAILURE_NOTE_UNRETURNED && note.rank >= 0 &&
			    note.rank < job->count &&
			    !(note.status == LS_PEER_LEFT && is_returned(job->hosts, note.group)))
				return note.rank;
		}
	}
	return -1;
}
