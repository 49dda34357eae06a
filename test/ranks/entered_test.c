/* SPDX-License-Identifier: BSD-3-Clause
 * A short collective publishes its entry before its record. Here a rank ends or stops in between:
 * its records are made read-only, so that the store of the next one is a signal. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "caught.h"
#include "process.h"
#include "tests.h"
#include "trace/trace.h"

static struct {
	void *memory; /* of the records: only threads that call store there */
	size_t bytes;
	int then; /* SIGKILL, SIGSTOP */
} records;

static void find_records(int rank)
{
	char line[512], name[64];
	struct trace_view view = {0};
	const char *why = "no trace";
	FILE *maps = fopen("/proc/self/maps", "re");
	snprintf(name, sizeof name, ":%d ", rank);
	CHECK(maps);
	while (fgets(line, sizeof line, maps)) {
		uintptr_t begin, end;
		char access[8];
		const char *at = strstr(line, "lockstep-trace:");
		if (at && strstr(at, name) &&
		    sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3 &&
		    strcmp(access, "rw-s") == 0)
			CHECK_THAT(trace_check((void *)begin, end - begin, &view, &why), "%s", why);
	}
	fclose(maps);
	CHECK_THAT(view.ring, "%s", why);
	records.memory = (void *)(uintptr_t)view.ring;
	records.bytes = view.ring_records * sizeof *view.ring;
	CHECK((uintptr_t)records.memory % (size_t)sysconf(_SC_PAGESIZE) == 0);
}

static void at_the_record(int number)
{
	(void)number;
	/* The store is done again when this returns. */
	if (mprotect(records.memory, records.bytes, PROT_READ | PROT_WRITE) != 0)
		_exit(1);
	raise(records.then);
}

/* The next call of this thread ends or stops its process where it would write its record. */
static void stop_at_the_record(const struct runner_rank *self, int then)
{
	struct sigaction action = {.sa_handler = at_the_record, .sa_flags = SA_RESETHAND};
	find_records(self->rank);
	records.then = then;
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	CHECK(mprotect(records.memory, records.bytes, PROT_READ) == 0);
}

enum { USUAL = 3 }; /* calls, so that the next one is like the one before */

static void reduce(ls_group *group, int times)
{
	for (int i = 0; i < times; i++) {
		int64_t value = 1;
		OK(ls_allreduce(group, &value, &value, 1, LS_INT64, LS_SUM, NULL));
		CHECK(value == ls_group_size(group));
	}
}

void a_rank_killed_before_its_record_is_named(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int64_t value = 1;
	reduce(group, USUAL);
	if (self->rank == 1)
		stop_at_the_record(self, SIGKILL);
	reduce(group, 1); /* its entry is all that the others wait for */
	GIVES(LS_PEER_DIED, ls_allreduce(group, &value, &value, 1, LS_INT64, LS_SUM, NULL));
	struct ls_failure failure = {.size = sizeof failure};
	OK(ls_group_failure(group, &failure));
	CHECK_THAT(failure.rank == 1, "rank %d is blamed: %s", failure.rank, failure.text);
	SAYS(failure.text, "was killed by SIGKILL (9) in all-reduce #4");
	SAYS(failure.text, "called from (not recorded)");
	ls_group_close(group);
}

void a_rank_stopped_before_its_record_is_named(struct runner_rank *self)
{
	ls_group *group = runner_open(self);
	int64_t value = 1;
	reduce(group, USUAL);
	if (self->rank == 1) {
		atomic_store(&self->shared->words[0], (uint64_t)getpid());
		stop_at_the_record(self, SIGSTOP);
		/* The group has failed when it goes on. */
		GIVES(LS_TIMED_OUT, ls_allreduce(group, &value, &value, 1, LS_INT64, LS_SUM, NULL));
	} else {
		uint64_t pid;
		struct ls_failure failure = {.size = sizeof failure};
		struct ls_call_options options = {.size = sizeof options, .timeout_ms = 300};
		reduce(group, 1);
		while ((pid = atomic_load(&self->shared->words[0])) == 0 ||
		       process_state((int)pid) != 'T')
			;
		GIVES(LS_TIMED_OUT,
		      ls_allreduce(group, &value, &value, 1, LS_INT64, LS_SUM, &options));
		OK(ls_group_failure(group, &failure));
		CHECK(kill((pid_t)pid, SIGCONT) == 0);
		CHECK_THAT(failure.rank == 1, "rank %d is blamed: %s", failure.rank, failure.text);
		SAYS(failure.text, "is stopped");
		SAYS(failure.text, "in all-reduce #4");
		SAYS(failure.text, "called from (not recorded)");
	}
	ls_group_close(group);
}
