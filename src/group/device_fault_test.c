/* SPDX-License-Identifier: BSD-3-Clause
 * Devices that fail, stand still, or are taken away. A call ends only when the device no longer
 * uses its buffers; the report of the operation has the driver's error, and what a call waits for.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/mman.h>

#include "group/device_fixture.h"

/* Rank 0's device stands still in the call; rank 1 ends the group, and only then lets it go on. */
static void abort_it(struct rank *rank)
{
	struct late *late = rank->late;
	struct job *job = rank->job;
	if (rank->rank == 0) {
		late_hold(late, true);
		atomic_store(&job->step, 1);
	}
	if (rank->rank == 1) {
		while (atomic_load(&job->step) < 1 || is_idle(job->ranks[0].late))
			sched_yield();
		struct late *other = job->ranks[0].late;
		ls_status status = ls_group_abort(rank->group, "the device is late");
		MUST(status == LS_OK && !is_idle(other));
		late_hold(other, false);
		return;
	}
	ls_status status = ls_allreduce(rank->group, late->device, late->device, 1000, LS_FLOAT32,
					LS_SUM, NULL);
	MUST(status == LS_ABORTED && is_idle(late));
}

static void an_abort_waits_for_the_device(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++)
		run(abort_it, seed);
}

/* Memory stays while an operation is in flight on it, although it is removed; the operation that
 * uses it ends well. */
static void remove_it(struct rank *rank)
{
	struct late *late = rank->late;
	struct memory *memory = &rank->group->world->memory;
	ls_request *op;
	struct ls_call_options options = {.size = sizeof options, .request = &op};
	late_hold(late, true);
	MUST(ls_allreduce(rank->group, late->device, late->device, 1000, LS_FLOAT32, LS_SUM,
			  &options) == LS_OK);
	while (is_idle(late)) /* the progress thread begins it */
		sched_yield();
	MUST(!memory_region_remove(memory, late->device));
	MUST(has_said("in flight"));
	late_hold(late, false);
	MUST(ls_wait(op, 0) == LS_OK);
	ls_request_free(op);
}

static void memory_in_use_is_not_removed(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++)
		run(remove_it, seed);
}

/* Standard error, as the ranks are threads of this process. */
static bool was_said(int file, const char *text)
{
	char said[1 << 14];
	ssize_t size = pread(file, said, sizeof said - 1, 0);
	MUST(size >= 0);
	said[size] = '\0';
	return strstr(said, text) != NULL;
}

/* Prints that after all. */
static void say_again(int file)
{
	char said[1 << 14];
	ssize_t size = pread(file, said, sizeof said, 0);
	MUST(size >= 0 && write(STDERR_FILENO, said, (size_t)size) == size);
}

/* Rank 0's device never does what it was given. The time limit ends the call for all others, and
 * what keeps rank 0 in it is said; only then rank 1 lets the device go on. */
static void stand_still(struct rank *rank)
{
	struct late *late = rank->late;
	struct job *job = rank->job;
	struct ls_call_options options = {.size = sizeof options, .timeout_ms = 700};
	if (rank->rank == 0) {
		late_hold(late, true);
		atomic_store(&job->step, 1);
	}
	ls_status status = ls_allreduce(rank->group, late->device, late->device, 1000, LS_FLOAT32,
					LS_SUM, &options);
	MUST(status == LS_TIMED_OUT && (rank->rank != 0 || is_idle(late)));
	struct ls_failure failure = {.size = sizeof failure};
	MUST(ls_group_failure(rank->group, &failure) == LS_OK);
	MUST(strstr(failure.text, "all-reduce #2"));
	if (rank->rank != 1)
		return;
	while (atomic_load(&job->step) < 1 || !was_said(job->stderr_fd, "[LS-GROUP-DEVICE]"))
		sched_yield();
	MUST(was_said(job->stderr_fd, "all-reduce #2, called from device_fault_test.c:"));
	MUST(!is_idle(job->ranks[0].late));
	late_hold(job->ranks[0].late, false);
}

static void a_device_that_never_ends_is_named(void **state)
{
	(void)state;
	int said = memfd_create("said", MFD_CLOEXEC),
	    saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	MUST(said >= 0 && saved >= 0 && fcntl(said, F_SETFL, O_APPEND) == 0);
	MUST(dup2(said, STDERR_FILENO) == STDERR_FILENO);
	run_capturing(stand_still, 1, said);
	MUST(dup2(saved, STDERR_FILENO) == STDERR_FILENO);
	say_again(said);
	close(said);
	close(saved);
}

static void fail_it(struct rank *rank)
{
	struct late *late = rank->late;
	if (rank->rank == 0)
		late->fail_at = rank->job->seed;
	if (rank->rank == 0 && rank->job->seed == 5) {
		late->fail_at = 0;
		late->break_at = 1;
	}
	ls_status status = ls_allreduce(rank->group, late->device, late->device, 1000, LS_FLOAT32,
					LS_SUM, NULL);
	if (rank->rank != 0 && status == LS_OK) /* it was the last that this rank has done for it */
		status = ls_barrier(rank->group, NULL);
	struct ls_failure failure = {.size = sizeof failure};
	MUST(ls_group_failure(rank->group, &failure) == LS_OK);
	MUST(status == LS_ABORTED && failure.rank == 0);
	MUST(strstr(failure.text, "all-reduce #2") && strstr(failure.text, "device_fault_test.c"));
	MUST(rank->rank != 0 || is_idle(late) || atomic_load(&late->driver.broken));
}

/* A copy or a store, on the way to the host or back; and a device that breaks. The rank could not
 * continue, which is an abort to all. */
static void a_failure_is_told_with_its_operation(void **state)
{
	(void)state;
	for (uint64_t call = 1; call <= 5; call++)
		run(fail_it, call);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_in_use_is_not_removed),
		cmocka_unit_test(a_device_that_never_ends_is_named),
		cmocka_unit_test(an_abort_waits_for_the_device),
		cmocka_unit_test(a_failure_is_told_with_its_operation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
