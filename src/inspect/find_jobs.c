/* SPDX-License-Identifier: BSD-3-Clause
 * Finds jobs through the memory that their processes hold: memfds have no names in any file system,
 * but /proc/PID/fd shows them, also those of ended ranks as long as a peer or the launcher holds
 * them. Traces are made before the job has a number, so this reads the number inside them. */
#include "inspect/inspect.h"

#include "failure/shown.h"
#include "inspect/ask_hosts.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/messages.h"

enum { JOB_MAX = 256, LINK_BYTES = 96 };

struct search {
	struct shown *shown;       /* look for this answer, and for nothing else */
	uint64_t job;              /* 0: any */
	struct inspect_view *only; /* add segments to this view, and look for nothing else */
	struct inspect_jobs *jobs;
	bool out_of_memory;
};

/* The newest answer of the ranks of a job: failure/shown.h. */
struct shown {
	uint64_t job, number; /* number: that of the file */
	unsigned question;
	int fd; /* -1: none yet */
};

struct name {
	bool is_trace;
	uint64_t job; /* 0 for a trace */
	int rank;
};

/* "/memfd:lockstep-trace:JOB:RANK (deleted)" */
static bool parse_name(const char *link, struct name *out)
{
	static const char trace[] = "/memfd:lockstep-trace:";
	static const char segment[] = "/memfd:lockstep-segment:";
	char *end;

	if (strncmp(link, trace, sizeof trace - 1) == 0) {
		out->is_trace = true;
		link += sizeof trace - 1;
	} else if (strncmp(link, segment, sizeof segment - 1) == 0) {
		out->is_trace = false;
		link += sizeof segment - 1;
	} else {
		return false;
	}
	if (!isxdigit((unsigned char)link[0]))
		return false;
	out->job = strtoull(link, &end, 16);
	if (end[0] != ':' || !isdigit((unsigned char)end[1]))
		return false;
	unsigned long rank = strtoul(end + 1, &end, 10);
	out->rank = (int)rank;
	return rank < INSPECT_RANK_MAX && (*end == '\0' || *end == ' ');
}

/* ---- answers ---- */

static void visit_shown(struct shown *shown, int directory, const char *entry, const char *link)
{
	char name[LINK_BYTES];
	struct failure_shown head;

	snprintf(name, sizeof name, "/memfd:" FAILURE_SHOWN_NAME ":%u:%016" PRIx64 " ",
		 shown->question, shown->job);
	if (strncmp(link, name, strlen(name)) != 0)
		return;
	int fd = openat(directory, entry, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int seals = fd < 0 ? -1 : fcntl(fd, F_GET_SEALS);
	bool newer = seals >= 0 && seals & F_SEAL_WRITE && seals & F_SEAL_SHRINK &&
		     pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
		     head.magic == FAILURE_SHOWN_MAGIC && head.job == shown->job &&
		     head.question == shown->question && head.number >= shown->number;
	if (!newer) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (shown->fd >= 0)
		close(shown->fd);
	shown->fd = fd;
	shown->number = head.number;
}

/* ---- traces and segments ---- */

static struct inspect_view *find_view(const struct inspect_jobs *jobs, uint64_t job)
{
	for (size_t i = 0; i < jobs->count; i++)
		if (jobs->views[i]->job == job)
			return jobs->views[i];
	return NULL;
}

static struct inspect_view *make_view(struct search *search, uint64_t job, int size)
{
	struct inspect_jobs *jobs = search->jobs;

	if (jobs->count == JOB_MAX)
		return NULL;
	struct inspect_view *view = inspect_view_new(job, size);
	if (!view) {
		search->out_of_memory = true;
		return NULL;
	}
	jobs->views[jobs->count++] = view;
	return view;
}

static bool is_known_trace(const struct inspect_jobs *jobs, int rank, uint64_t inode)
{
	for (size_t i = 0; i < jobs->count; i++)
		if (jobs->views[i]->ranks[rank].trace.header &&
		    jobs->views[i]->ranks[rank].trace_inode == inode)
			return true;
	return false;
}

/* Takes `fd` over if it returns true. */
static bool add_trace(struct search *search, int rank, int fd)
{
	struct trace_view trace;
	const char *why;

	if (!trace_map(fd, &trace, &why))
		return false;
	uint64_t job = __atomic_load_n(&trace.header->job, __ATOMIC_ACQUIRE);
	int size = __atomic_load_n(&trace.header->world_size, __ATOMIC_RELAXED);
	bool right = trace.header->rank == rank;
	trace_unmap(&trace);
	/* Job 0 has not met yet: there are no peers to wait for. */
	if (!right || job == 0 || size < 1 || size > INSPECT_RANK_MAX || rank >= size ||
	    (search->job != 0 && search->job != job))
		return false;
	struct inspect_view *view = find_view(search->jobs, job);
	if (!view)
		view = make_view(search, job, size);
	return view && inspect_view_add_trace(view, rank, fd);
}

/* Segments say to which job they belong, but not its size. So they are only added to jobs that are
 * known. */
static void visit_file(struct search *search, int directory, const char *entry,
		       const struct name *name, bool traces)
{
	struct stat status;
	struct inspect_view *view = search->only;

	if (name->is_trace != traces)
		return;
	if (traces) {
		if (fstatat(directory, entry, &status, 0) != 0 ||
		    is_known_trace(search->jobs, name->rank, status.st_ino))
			return;
	} else {
		if (!view)
			view = find_view(search->jobs, name->job);
		if (!view || view->job != name->job || view->ranks[name->rank].segment)
			return;
	}
	int fd = openat(directory, entry, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return;
	if (!(traces ? add_trace(search, name->rank, fd)
		     : inspect_view_add_segment(view, name->rank, fd)))
		close(fd);
}

/* False if the process may not be looked into. */
static bool visit_process(struct search *search, pid_t pid, bool traces)
{
	char path[32];
	char link[LINK_BYTES];
	struct name name;
	struct dirent *entry;

	snprintf(path, sizeof path, "/proc/%d/fd", pid);
	DIR *directory = opendir(path);
	if (!directory)
		return errno != EACCES;
	while ((entry = readdir(directory))) {
		ssize_t length = readlinkat(dirfd(directory), entry->d_name, link, sizeof link - 1);
		if (length <= 0)
			continue;
		link[length] = '\0';
		if (search->shown)
			visit_shown(search->shown, dirfd(directory), entry->d_name, link);
		else if (parse_name(link, &name))
			visit_file(search, dirfd(directory), entry->d_name, &name, traces);
	}
	closedir(directory);
	return true;
}

static bool is_mine(int proc, const char *entry)
{
	struct stat status;

	return fstatat(proc, entry, &status, 0) == 0 && status.st_uid == geteuid();
}

static ls_status visit_all(struct search *search, bool traces)
{
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	if (!proc) {
		MESSAGE_SAY(MESSAGE_DIAGNOSE_PROC, strerror(errno));
		return LS_SYSTEM;
	}
	while ((entry = readdir(proc))) {
		char *end;
		long pid = strtol(entry->d_name, &end, 10);
		if (*end != '\0' || pid <= 0)
			continue;
		if (!visit_process(search, (pid_t)pid, traces) && search->jobs &&
		    is_mine(dirfd(proc), entry->d_name))
			search->jobs->unreadable = true;
	}
	closedir(proc);
	return LS_OK;
}

/* Lists in `ids` the jobs of which process `pid` knows. Only these are kept. */
static size_t list_jobs(struct search *search, pid_t pid, uint64_t ids[JOB_MAX])
{
	visit_process(search, pid, true);
	for (size_t i = 0; i < search->jobs->count; i++)
		ids[i] = search->jobs->views[i]->job;
	return search->jobs->count;
}

static void keep_listed(struct inspect_jobs *jobs, const uint64_t *ids, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < jobs->count; i++) {
		bool listed = false;
		for (size_t j = 0; j < count; j++)
			listed = listed || ids[j] == jobs->views[i]->job;
		if (listed)
			jobs->views[kept++] = jobs->views[i];
		else
			inspect_view_free(jobs->views[i]);
	}
	jobs->count = kept;
}

ls_status inspect_find_jobs(uint64_t job, pid_t pid, struct inspect_jobs *out)
{
	uint64_t ids[JOB_MAX];
	size_t listed = 0;
	struct search search = {.job = job, .jobs = out};

	*out = (struct inspect_jobs){.views = calloc(JOB_MAX, sizeof(struct inspect_view *))};
	if (!out->views)
		search.out_of_memory = true;
	else if (pid != 0)
		listed = list_jobs(&search, pid, ids);
	ls_status status = LS_OK;
	/* Traces first: they say how large a job is. */
	if (!search.out_of_memory && (pid == 0 || listed > 0))
		status = visit_all(&search, true);
	if (!search.out_of_memory && status == LS_OK && out->count > 0)
		status = visit_all(&search, false);
	if (search.out_of_memory) {
		MESSAGE_SAY(MESSAGE_DIAGNOSE_MEMORY);
		status = LS_OUT_OF_MEMORY;
	}
	if (status != LS_OK)
		inspect_jobs_free(out);
	else if (pid != 0)
		keep_listed(out, ids, listed);
	return status;
}

void inspect_jobs_free(struct inspect_jobs *jobs)
{
	for (size_t i = 0; i < jobs->count; i++)
		inspect_view_free(jobs->views[i]);
	free(jobs->views);
	*jobs = (struct inspect_jobs){0};
}

void inspect_find_segments(struct inspect_view *view, pid_t pid)
{
	struct search search = {.only = view};

	visit_process(&search, pid, false);
}

int inspect_find_shown(uint64_t job, unsigned question, uint64_t number)
{
	struct shown shown = {.job = job, .question = question, .number = number, .fd = -1};
	struct search search = {.shown = &shown};

	if (visit_all(&search, false) != LS_OK && shown.fd >= 0) {
		close(shown.fd);
		shown.fd = -1;
	}
	return shown.fd;
}
