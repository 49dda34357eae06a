/* SPDX-License-Identifier: BSD-3-Clause
 * Answers for commands, right and damaged: one of the two ranks is on another host. The answers lie
 * in files of this process, where the search of /proc finds them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "failure/shown.h"
#include "inspect/ask_hosts.h"

enum { SIZE = 2, HERE = 0, REMOTE = 1, REMOTE_PID = 77 };

struct hosts_fixture {
	uint64_t job;
	struct transport transport;
	struct trace trace, remote_trace;
	struct inspect_view *view;
	struct inspect_hosts *hosts;
	struct failure_shown *shown; /* with room for what follows it */
	size_t room;
	int fd; /* the answer; -1: none */
};

static void fill_place(struct hosts_fixture *fixture, int rank, const char *host, int pid)
{
	struct transport_location *location =
		transport_location_of(fixture->transport.segment, fixture->transport.size, rank);
	snprintf(location->host, sizeof location->host, "%s", host);
	location->pid = pid;
	location->first = rank;
}

static int duplicate(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static void begin_trace(struct trace *trace, uint64_t job, int rank)
{
	struct trace_options options = {.job = job, .rank = rank, .world_size = SIZE, .records = 16};
	assert_int_equal(trace_init(trace, &options), LS_OK);
}

static int set_up(void **state)
{
	struct hosts_fixture *fixture = calloc(1, sizeof *fixture);
	assert_non_null(fixture);
	fixture->fd = -1;
	fixture->job = (uint64_t)getpid() << 32 | 0x51;
	assert_int_equal(transport_init(&fixture->transport, fixture->job, HERE, SIZE), LS_OK);
	begin_trace(&fixture->trace, fixture->job, HERE);
	begin_trace(&fixture->remote_trace, fixture->job, REMOTE);
	fill_place(fixture, HERE, "a", getpid());
	fill_place(fixture, REMOTE, "b", REMOTE_PID);
	/* It was asked before this command comes, so nobody has to answer. */
	for (int i = 0; i < TRANSPORT_QUESTIONS; i++)
		atomic_store(&fixture->transport.segment->agent.given[i], 1000);
	fixture->view = inspect_view_new(fixture->job, SIZE);
	assert_non_null(fixture->view);
	assert_true(inspect_view_add_trace(fixture->view, HERE, duplicate(fixture->trace.fd)));
	assert_true(inspect_view_add_segment(fixture->view, HERE,
					     duplicate(fixture->transport.segment_fd)));
	fixture->hosts = inspect_hosts_new(fixture->view);
	assert_non_null(fixture->hosts);
	*state = fixture;
	return 0;
}

static void drop_answer(struct hosts_fixture *fixture)
{
	if (fixture->fd >= 0)
		close(fixture->fd);
	fixture->fd = -1;
}

static int tear_down(void **state)
{
	struct hosts_fixture *fixture = *state;
	drop_answer(fixture);
	inspect_hosts_free(fixture->hosts);
	inspect_view_free(fixture->view);
	trace_fini(&fixture->trace);
	trace_fini(&fixture->remote_trace);
	transport_fini(&fixture->transport);
	free(fixture->shown);
	free(fixture);
	return 0;
}

/* Shows what is in fixture->shown. */
static void publish(struct hosts_fixture *fixture, size_t bytes, int seals)
{
	char name[64];
	drop_answer(fixture);
	snprintf(name, sizeof name, FAILURE_SHOWN_NAME ":%" PRIu32 ":%016" PRIx64,
		 fixture->shown->question, fixture->job);
	fixture->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fixture->fd >= 0);
	assert_int_equal(write(fixture->fd, fixture->shown, bytes), (ssize_t)bytes);
	assert_int_equal(fcntl(fixture->fd, F_ADD_SEALS, seals), 0);
}

static const int all_seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static void fill_head(struct hosts_fixture *fixture, uint32_t question, size_t more)
{
	free(fixture->shown);
	fixture->room = (sizeof *fixture->shown + 63) / 64 * 64 + more;
	fixture->shown = calloc(1, fixture->room);
	assert_non_null(fixture->shown);
	*fixture->shown = (struct failure_shown){.magic = FAILURE_SHOWN_MAGIC,
						 .bytes = fixture->room,
						 .job = fixture->job,
						 .number = 1000,
						 .answered = {3},
						 .size = SIZE,
						 .question = question,
						 .waited_ms = 300};
}

static void *behind(struct hosts_fixture *fixture)
{
	return (char *)fixture->shown + (sizeof *fixture->shown + 63) / 64 * 64;
}

/* An answer with both ranks. */
static void fill_snapshot(struct hosts_fixture *fixture)
{
	struct diagnose_snapshot *snapshot = diagnose_snapshot_new(SIZE);
	struct diagnose_traffic *traffic = calloc(RANKS_WORLD_MAX, sizeof *traffic);
	struct ranks all = ranks_below(SIZE);
	size_t bytes;
	assert_true(snapshot && traffic);
	snapshot->job = fixture->job;
	snapshot->now_ns = clock_now_ns();
	for (int r = 0; r < SIZE; r++) {
		snapshot->ranks[r].rank = r;
		snapshot->ranks[r].known = true;
		snapshot->ranks[r].pid = 100 + r;
		snapshot->ranks[r].signal = snapshot->ranks[r].exit_code = -1;
	}
	void *block = diagnose_pack(snapshot, &all, traffic, &bytes);
	assert_non_null(block);
	fill_head(fixture, TRANSPORT_QUESTION_JOB, bytes);
	memcpy(behind(fixture), block, bytes);
	fixture->shown->block = (struct failure_shown_part){
		.offset = (uint64_t)((char *)behind(fixture) - (char *)fixture->shown),
		.bytes = bytes};
	free(block);
	free(traffic);
	free(snapshot);
}

static bool is_taken(struct hosts_fixture *fixture)
{
	struct diagnose_snapshot *snapshot = inspect_hosts_ask(fixture->hosts, fixture->view);
	bool taken = snapshot != NULL;
	assert_int_equal(fixture->hosts->has_told, taken);
	if (taken)
		assert_true(snapshot->ranks[REMOTE].known &&
			    snapshot->ranks[REMOTE].pid == 100 + REMOTE);
	free(snapshot);
	return taken;
}

static void test_an_answer(void **state)
{
	struct hosts_fixture *fixture = *state;
	uint64_t asked = atomic_load(&fixture->transport.segment->agent.asked[0]);
	assert_false(is_taken(fixture)); /* there is none */
	fill_snapshot(fixture);
	publish(fixture, fixture->room, all_seals);
	assert_true(is_taken(fixture));
	assert_int_equal(fixture->hosts->answered.words[0], 3);
	assert_int_equal(ranks_count(&fixture->hosts->answered), 2);
	assert_int_equal(fixture->hosts->waited_ms, 300);
	assert_string_equal(fixture->hosts->locations[REMOTE].host, "b");
	assert_int_equal(atomic_load(&fixture->transport.segment->agent.asked[0]), asked + 2);
}

static void test_damaged(void **state)
{
	struct hosts_fixture *fixture = *state;
	fill_snapshot(fixture);
	struct failure_shown good = *fixture->shown;
	struct failure_shown *shown = fixture->shown;
	publish(fixture, fixture->room - 1, all_seals); /* its end is missing */
	assert_false(is_taken(fixture));
	publish(fixture, fixture->room, F_SEAL_SHRINK); /* it may change */
	assert_false(is_taken(fixture));
#define BROKEN(field, value)                                \
	do {                                                \
		shown->field = value;                       \
		publish(fixture, fixture->room, all_seals); \
		assert_false(is_taken(fixture));            \
		*shown = good;                              \
	} while (0)
	BROKEN(magic, 1);
	BROKEN(job, 1);
	BROKEN(number, 0); /* of an earlier question */
	BROKEN(size, SIZE + 1);
	BROKEN(bytes, good.bytes + 1);
	BROKEN(block.offset, 8);
	BROKEN(block.offset, good.bytes + 8);
	BROKEN(block.bytes, good.block.bytes + 1);
	BROKEN(block.bytes, good.block.bytes - 8);
	publish(fixture, fixture->room, all_seals);
	assert_true(is_taken(fixture));
}

static void fill_traces(struct hosts_fixture *fixture)
{
	struct trace_view view;
	const char *why;
	assert_true(trace_map(fixture->remote_trace.fd, &view, &why));
	fill_head(fixture, TRANSPORT_QUESTION_TRACES, view.bytes);
	memcpy(behind(fixture), view.header, view.bytes);
	fixture->shown->traces[REMOTE] = (struct failure_shown_part){
		.offset = (uint64_t)((char *)behind(fixture) - (char *)fixture->shown),
		.bytes = view.bytes};
	trace_unmap(&view);
}

/* The clock of the other host is ahead; the copy was made between question and answer, unless
 * heartbeats know more. */
static void test_clocks(void **state)
{
	struct hosts_fixture *fixture = *state;
	struct transport_remote_host *remote = &fixture->transport.segment->agent.hosts[1];
	enum { AHEAD_NS = 1000000000 };
	fill_traces(fixture);
	uint64_t now_ns = clock_now_ns();
	fixture->shown->copied_ns[REMOTE] = now_ns + 10000000 + AHEAD_NS;
	fixture->shown->now_ns = now_ns + 60000000000;
	publish(fixture, fixture->room, all_seals);
	assert_true(inspect_hosts_copy(fixture->hosts, fixture->view));
	assert_non_null(fixture->hosts->traces[REMOTE].header);
	assert_null(fixture->hosts->traces[HERE].header);
	int64_t off_ns = fixture->hosts->offset_ns[REMOTE] - AHEAD_NS;
	uint64_t error_ns = fixture->hosts->error_ns[REMOTE];
	assert_true(error_ns > 0 && error_ns <= 30000000001);
	assert_true((uint64_t)(off_ns < 0 ? -off_ns : off_ns) <= error_ns);
	assert_int_equal(fixture->hosts->error_ns[HERE], 0);
	remote->clock = (struct transport_remote_clock){AHEAD_NS - 5, 40000, clock_now_ns()};
	assert_true(inspect_hosts_copy(fixture->hosts, fixture->view));
	assert_int_equal(fixture->hosts->offset_ns[REMOTE], AHEAD_NS - 5);
	assert_true(fixture->hosts->error_ns[REMOTE] >= 40000);
	assert_true(fixture->hosts->error_ns[REMOTE] < 30000000);
}

static void test_damaged_traces(void **state)
{
	struct hosts_fixture *fixture = *state;
	fill_traces(fixture);
	struct failure_shown good = *fixture->shown;
	struct failure_shown_part *part = &fixture->shown->traces[REMOTE];
	const struct failure_shown_part parts[] = {
		{good.traces[REMOTE].offset + 64, good.traces[REMOTE].bytes},
		{good.traces[REMOTE].offset, good.traces[REMOTE].bytes - 4096},
		{good.traces[REMOTE].offset + 8, good.traces[REMOTE].bytes - 64},
		{0, 64},
		{UINT64_MAX, 64},
		{0, 0}};
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		*part = parts[i];
		publish(fixture, fixture->room, all_seals);
		assert_true(inspect_hosts_copy(fixture->hosts, fixture->view));
		assert_null(fixture->hosts->traces[REMOTE].header);
	}
	*part = good.traces[REMOTE];
	((struct trace_header *)behind(fixture))->rank = HERE; /* it is another rank's */
	publish(fixture, fixture->room, all_seals);
	assert_true(inspect_hosts_copy(fixture->hosts, fixture->view));
	assert_null(fixture->hosts->traces[REMOTE].header);
}

/* The locations of hosts in a segment are checked before they are used. */
static void test_places(void **state)
{
	struct hosts_fixture *fixture = *state;
	struct transport_location *locations =
		transport_location_of(fixture->transport.segment, fixture->transport.size, 0);
	memset(locations[REMOTE].host, 'x', sizeof locations[REMOTE].host);
	locations[REMOTE].first = 1000;
	struct inspect_hosts *hosts = inspect_hosts_new(fixture->view);
	assert_non_null(hosts);
	assert_int_equal(strlen(hosts->locations[REMOTE].host), sizeof locations[REMOTE].host - 1);
	assert_int_equal(hosts->locations[REMOTE].first, REMOTE);
	inspect_hosts_free(hosts);
	locations[REMOTE].first = HERE; /* then it is one host */
	assert_null(inspect_hosts_new(fixture->view));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(test_an_answer), TEST(test_damaged),        TEST(test_clocks),
		TEST(test_places),    TEST(test_damaged_traces),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
