/* SPDX-License-Identifier: BSD-3-Clause
 * A report in a file: struct file_head, the job as it was judged, where its ranks were if they were
 * on several hosts, then a raw copy of each rank's trace. The reader trusts nothing: every offset
 * is checked against the length, every text is ended. */
#include "base/ranks.h"
#include "inspect/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "inspect/ask_hosts.h"
#include "inspect/phase_report.h"

static const char magic[8] = "LSSNAP";

enum {
	SNAPSHOT_VERSION = 13,
	SNAPSHOT_BYTES_MAX = 256 << 20, /* no larger file is written */
};

struct part {
	uint64_t offset, bytes; /* bytes 0: not there */
};

/* One for each rank of a job on several hosts; see struct inspect_hosts. */
struct host_entry {
	struct transport_location location;
	int64_t offset_ns;
	uint64_t error_ns, copied_ns;
	uint64_t answered; /* 1: its host has told of its ranks */
};

/* All parts lie in [sizeof(struct file_head), total_bytes). */
struct file_head {
	char magic[8];
	uint32_t version;
	uint32_t head_bytes;
	uint64_t total_bytes;
	uint64_t written_s;
	uint64_t job;
	int32_t size;
	uint32_t failure; /* as in struct inspect_report */
	int32_t culprit;
	uint32_t cause; /* of the verdict, as are the next four */
	uint64_t operation;
	struct ranks culprits, waiting;
	uint64_t since_ns;
	uint32_t status;
	uint32_t ended_well; /* 0: no, or the file does not say it */
	struct part report, hosts;
	struct part traces[INSPECT_RANK_MAX];
	char ended[INSPECT_ENDED_BYTES];
	char text[TRANSPORT_TEXT_BYTES];
};

/* ---- writing ---- */

static bool write_all(int fd, const void *data, size_t bytes)
{
	const char *next = data;

	while (bytes > 0) {
		ssize_t written = write(fd, next, bytes);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return false;
		next += written;
		bytes -= (size_t)written;
	}
	return true;
}

static uint64_t place_part(struct part *part, uint64_t offset, uint64_t bytes)
{
	part->offset = offset;
	part->bytes = bytes;
	return offset + bytes;
}

static const struct trace_view *trace_of(const struct inspect_view *view,
					 const struct inspect_report *report, int rank)
{
	return view ? &view->ranks[rank].trace : &report->hosts->traces[rank];
}

static void fill_head(struct file_head *head, const struct inspect_view *view,
		      const struct inspect_report *report, const char *ended, bool ended_well)
{
	memset(head, 0, sizeof *head);
	memcpy(head->magic, magic, sizeof magic);
	head->version = SNAPSHOT_VERSION;
	head->head_bytes = sizeof *head;
	head->written_s = (uint64_t)time(NULL);
	head->job = report->snapshot->job;
	head->size = report->snapshot->size;
	head->failure = report->failure;
	head->culprit = report->culprit;
	head->operation = report->operation;
	head->cause = report->verdict.cause;
	head->status = report->verdict.status;
	head->culprits = report->verdict.culprits;
	head->waiting = report->verdict.waiting;
	head->since_ns = report->verdict.since_ns;
	head->ended_well = ended_well;
	snprintf(head->ended, sizeof head->ended, "%s", ended);
	memcpy(head->text, report->text, sizeof head->text);

	/* Traces may be as long as their ranks were told; the report is whole without them. */
	uint64_t next = place_part(&head->report, sizeof *head, diagnose_snapshot_bytes(head->size));
	if (!view)
		next = place_part(&head->hosts, next,
				  (uint64_t)head->size * sizeof(struct host_entry));
	for (int i = 0; i < head->size; i++) {
		const struct trace_view *trace = trace_of(view, report, i);
		uint64_t bytes = trace->header ? trace->bytes : 0;
		if (bytes > 0 && bytes % 8 == 0 && bytes <= SNAPSHOT_BYTES_MAX - next)
			next = place_part(&head->traces[i], next, bytes);
	}
	head->total_bytes = next;
}

static bool write_hosts(int fd, const struct inspect_report *report)
{
	const struct inspect_hosts *hosts = report->hosts;

	for (int i = 0; i < report->snapshot->size; i++) {
		struct host_entry entry = {
			.location = hosts->locations[i],
			.offset_ns = hosts->offset_ns[i],
			.error_ns = hosts->error_ns[i],
			.copied_ns = hosts->copied_ns[i],
			.answered = ranks_have(&hosts->answered, i),
		};
		if (!write_all(fd, &entry, sizeof entry))
			return false;
	}
	return true;
}

int inspect_save_to(int fd, const struct inspect_view *view, const struct inspect_report *report,
		    const char *ended, bool ended_well)
{
	struct file_head *head = malloc(sizeof *head);
	if (!head)
		return ENOMEM;
	fill_head(head, view, report, ended, ended_well);
	bool good = write_all(fd, head, sizeof *head) &&
		    write_all(fd, report->snapshot, head->report.bytes);
	if (good && !view)
		good = write_hosts(fd, report);
	for (int i = 0; good && i < head->size; i++)
		if (head->traces[i].bytes > 0)
			good = write_all(fd, trace_of(view, report, i)->header,
					 head->traces[i].bytes);
	int error = good ? 0 : errno;
	free(head);
	return error;
}

int inspect_save(const char *path, const struct inspect_view *view,
		 const struct inspect_report *report, const char *ended)
{
	/* In a folder that all users may write to, a name may be a trap. */
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno;
	int error = inspect_save_to(fd, view, report, ended, false);
	if (close(fd) != 0 && error == 0)
		error = errno;
	if (error != 0)
		unlink(path);
	return error;
}

/* ---- reading ---- */

static bool is_inside(const struct part *part, uint64_t total)
{
	return part->offset >= sizeof(struct file_head) && part->offset <= total &&
	       part->bytes <= total - part->offset && part->offset % 8 == 0;
}

static const char *check_head(const struct file_head *head, size_t bytes)
{
	if (bytes < sizeof *head || memcmp(head->magic, magic, sizeof magic) != 0)
		return "it is no snapshot or trace of lockstep run";
	if (head->version != SNAPSHOT_VERSION || head->head_bytes != sizeof *head)
		return "another version of Lockstep wrote it";
	if (head->total_bytes < bytes)
		return "more follows than Lockstep has written";
	if (head->total_bytes > bytes)
		return "its end is missing";
	if (head->size < 1 || head->size > INSPECT_RANK_MAX || head->failure > LS_INTERNAL ||
	    head->status > LS_INTERNAL || head->cause > DIAGNOSE_ABORTED)
		return "its head is damaged";
	if (!is_inside(&head->report, bytes) ||
	    head->report.bytes != diagnose_snapshot_bytes(head->size))
		return "its report is damaged";
	if (head->hosts.bytes > 0 &&
	    (!is_inside(&head->hosts, bytes) ||
	     head->hosts.bytes != (uint64_t)head->size * sizeof(struct host_entry)))
		return "its hosts are damaged";
	for (int i = 0; i < INSPECT_RANK_MAX; i++)
		if (head->traces[i].bytes > 0 && !is_inside(&head->traces[i], bytes))
			return "its traces are damaged";
	return NULL;
}

static const char *copy_report(const struct file_head *head, const char *data,
			       struct inspect_saved *out)
{
	struct inspect_report *report = &out->report;

	report->snapshot = diagnose_snapshot_new(head->size);
	if (!report->snapshot)
		return "there is not enough memory";
	memcpy(report->snapshot, data + head->report.offset, head->report.bytes);
	if (report->snapshot->size != head->size ||
	    !diagnose_snapshot_is_valid(report->snapshot, head->report.bytes))
		return "its report is damaged";
	report->failure = (ls_status)head->failure;
	report->culprit = head->culprit;
	report->operation = head->operation;
	memcpy(report->text, head->text, sizeof report->text - 1);
	memcpy(out->ended, head->ended, sizeof out->ended - 1);
	out->written_s = head->written_s;
	out->ended_well = head->ended_well != 0;
	report->snapshot->job = head->job;
	report->verdict = (struct diagnose_verdict){
		.cause = (enum diagnose_cause)head->cause,
		.status = (ls_status)head->status,
		.culprit = head->culprit,
		.culprits = head->culprits,
		.waiting = head->waiting,
		.seq = head->operation,
		.since_ns = head->since_ns,
	};
	return NULL;
}

/* Copies what a job on several hosts has in the file. */
static const char *copy_hosts(const struct file_head *head, const char *data,
			      struct inspect_saved *out)
{
	struct inspect_hosts *hosts;

	if (head->hosts.bytes == 0)
		return NULL;
	hosts = out->report.hosts = calloc(1, sizeof *hosts);
	if (!hosts)
		return "there is not enough memory";
	hosts->here = -1;
	hosts->has_told = hosts->has_copied = true;
	for (int i = 0; i < head->size; i++) {
		struct host_entry entry;
		memcpy(&entry, data + head->hosts.offset + (size_t)i * sizeof entry, sizeof entry);
		entry.location.host[sizeof entry.location.host - 1] = '\0';
		if (entry.location.first < 0 || entry.location.first > i)
			return "its hosts are damaged";
		hosts->locations[i] = entry.location;
		hosts->offset_ns[i] = entry.offset_ns;
		hosts->error_ns[i] = entry.error_ns;
		hosts->copied_ns[i] = entry.copied_ns;
		if (entry.answered)
			ranks_add(&hosts->answered, i);
	}
	hosts->copied = hosts->answered;
	return NULL;
}

static void take_trace(struct inspect_saved *out, int rank)
{
	struct inspect_report *report = &out->report;
	uint64_t now_ns = report->snapshot->now_ns;

	if (report->hosts) {
		report->hosts->traces[rank] = out->traces[rank];
		now_ns = report->hosts->copied_ns[rank];
	}
	if (report->phases)
		inspect_phases_add(report->phases, &report->snapshot->ranks[rank], now_ns,
				   &out->traces[rank]);
}

/* Leaves out traces that are damaged, or for which there is no memory. */
static void copy_traces(const struct file_head *head, const char *data, struct inspect_saved *out)
{
	out->report.phases = ddp_phases_new(head->size);
	for (int i = 0; i < head->size; i++) {
		const struct part *part = &head->traces[i];
		const char *why;
		out->memory[i] =
			part->bytes ? aligned_alloc(64, (part->bytes + 63) / 64 * 64) : NULL;
		if (!out->memory[i])
			continue;
		memcpy(out->memory[i], data + part->offset, part->bytes);
		if (trace_check(out->memory[i], part->bytes, &out->traces[i], &why))
			take_trace(out, i);
	}
}

static const char *read_all(int fd, char **data, size_t *bytes)
{
	struct stat status;
	size_t got = 0;

	if (fstat(fd, &status) != 0)
		return strerror(errno);
	if (!S_ISREG(status.st_mode) || status.st_size < (off_t)sizeof(struct file_head) ||
	    status.st_size > SNAPSHOT_BYTES_MAX)
		return "it is no snapshot or trace of lockstep run";
	*bytes = (size_t)status.st_size;
	*data = malloc(*bytes);
	if (!*data)
		return "there is not enough memory";
	while (got < *bytes) {
		ssize_t part = read(fd, *data + got, *bytes - got);
		if (part < 0 && errno == EINTR)
			continue;
		if (part < 0)
			return strerror(errno);
		if (part == 0)
			return "its end is missing";
		got += (size_t)part;
	}
	return NULL;
}

struct inspect_saved *inspect_saved_read(const char *path, const char **why)
{
	char *data = NULL;
	size_t bytes = 0;
	struct inspect_saved *out = NULL;

	/* Not blocking: the name may be a pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		*why = strerror(errno);
		return NULL;
	}
	*why = read_all(fd, &data, &bytes);
	close(fd);
	if (!*why)
		*why = check_head((const struct file_head *)(const void *)data, bytes);
	if (!*why) {
		out = calloc(1, sizeof *out);
		*why = out ? copy_report((const struct file_head *)(const void *)data, data, out)
			   : "there is not enough memory";
	}
	if (!*why)
		*why = copy_hosts((const struct file_head *)(const void *)data, data, out);
	if (!*why)
		copy_traces((const struct file_head *)(const void *)data, data, out);
	free(data);
	if (*why) {
		inspect_saved_free(out);
		out = NULL;
	}
	return out;
}

void inspect_saved_free(struct inspect_saved *saved)
{
	if (!saved)
		return;
	free(saved->report.snapshot);
	free(saved->report.phases);
	inspect_hosts_free(saved->report.hosts);
	for (int i = 0; i < INSPECT_RANK_MAX; i++)
		free(saved->memory[i]);
	free(saved);
}
