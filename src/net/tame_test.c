/* SPDX-License-Identifier: BSD-3-Clause
 * What loading UCX must leave as it is: the C library's code, signal handlers, the environment,
 * standard output; and what its threads must not get: signals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/rank_fixture.h"

/* The functions that UCX would patch, and some more. */
static const char *const patched[] = {"mmap",  "munmap", "mremap", "madvise", "shmat",
				      "shmdt", "sbrk",   "brk",    "malloc",  "free"};
enum { PATCHED = sizeof patched / sizeof patched[0], CODE = 32, SIGNALS = 65 };

struct state {
	unsigned char code[PATCHED][CODE];
	struct sigaction actions[SIGNALS];
	char *variable;
};

static void look(struct state *out)
{
	memset(out, 0, sizeof *out);
	for (int i = 0; i < PATCHED; i++) {
		const void *code = dlsym(RTLD_DEFAULT, patched[i]);
		assert_non_null(code);
		memcpy(out->code[i], code, CODE);
	}
	for (int s = 1; s < SIGNALS; s++)
		(void)sigaction(s, NULL, &out->actions[s]); /* 32 and 33 are the C library's */
	out->variable = getenv("UCX_MEM_EVENTS");
}

/* Counts the threads of the process, and those that could get a signal. */
static int threads_with_signals(int *threads)
{
	DIR *folder = opendir("/proc/self/task");
	int count = 0;
	*threads = 0;
	assert_non_null(folder);
	for (struct dirent *entry; (entry = readdir(folder));) {
		char path[300], line[200];
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
		FILE *status = fopen(path, "re");
		unsigned long long blocked = 0;
		assert_non_null(status);
		while (fgets(line, sizeof line, status))
			if (strncmp(line, "SigBlk:", 7) == 0)
				blocked = strtoull(line + 7, NULL, 16);
		fclose(status);
		++*threads;
		count += !(blocked >> (SIGTERM - 1) & 1) || !(blocked >> (SIGCHLD - 1) & 1);
	}
	closedir(folder);
	return count;
}

static void open_pair(struct link *links[2])
{
	bool done[2] = {false, false};
	for (int r = 0; r < 2; r++) {
		const struct net_options options = {
			.rank = r, .size = 2, .job = 1, .host = "127.0.0.1", .transports = "tcp"};
		assert_int_equal(net_open(&options, &links[r]), LS_OK);
	}
	static struct rank ranks[2];
	for (int r = 0; r < 2; r++) {
		struct net_address address;
		net_address(links[r], &address);
		assert_int_equal(net_set_address(links[!r], r, &address), LS_OK);
		links[r]->events = (struct link_events){&ranks[r], rank_arrived, rank_word,
							rank_done, rank_lost};
	}
	uint64_t deadline_ns = clock_deadline_ns(RANK_LIMIT_MS);
	while (!done[0] || !done[1]) {
		for (int r = 0; r < 2; r++) {
			assert_int_equal(links[r]->ops->connect(links[r], &done[r]), LS_OK);
			links[r]->ops->advance(links[r]);
		}
		assert_true(clock_now_ns() < deadline_ns);
	}
}

static void close_pair(struct link *links[2])
{
	for (int r = 0; r < 2; r++)
		links[r]->ops->cut(links[r], !r);
	for (int r = 0; r < 2; r++)
		links[r]->ops->close(links[r]);
}

static void nothing_is_changed(void **unused)
{
	static struct state before, after;
	struct link *links[2];
	int threads;
	(void)unused;
	sigset_t mask, mask_after;
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	assert_null(dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD));
	setenv("UCX_HANDLE_ERRORS", "bt", 1);
	unsetenv("UCX_MEM_EVENTS");
	look(&before);
	open_pair(links);
	assert_non_null(dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD));
	look(&after);
	for (int i = 0; i < PATCHED; i++)
		if (memcmp(before.code[i], after.code[i], CODE) != 0)
			fail_msg("%s is patched", patched[i]);
	for (int s = 1; s < SIGNALS; s++)
		assert_ptr_equal(before.actions[s].sa_sigaction, after.actions[s].sa_sigaction);
	assert_null(after.variable);
	assert_string_equal(getenv("UCX_HANDLE_ERRORS"), "bt");
	assert_int_equal(threads_with_signals(&threads), 1); /* this one */
	assert_true(threads > 1);
	pthread_sigmask(SIG_SETMASK, NULL, &mask_after);
	for (int s = 1; s < SIGNALS; s++)
		assert_int_equal(sigismember(&mask, s), sigismember(&mask_after, s));
	close_pair(links);
}

/* UCX logs there. */
static void nothing_is_printed(void **unused)
{
	int ends[2], status;
	char text[100];
	(void)unused;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid_t child = fork();
	if (child == 0) {
		struct link *link;
		const struct net_options options = {
			.size = 1, .host = "127.0.0.1", .transports = "none_such"};
		unsetenv("UCX_LOG_LEVEL");
		dup2(ends[1], STDOUT_FILENO);
		_exit(net_open(&options, &link) != LS_SYSTEM || link);
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], text, sizeof text), 0);
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* ---- errors of net_open and connect ---- */

static void wrong_options(void **unused)
{
	struct link *link;
	struct net_options options = {.size = 1, .host = "localhost", .transports = "tcp"};
	(void)unused;
	assert_int_equal(net_open(&options, &link), LS_BAD_ARGUMENT);
	assert_null(link);
	options.host = "203.0.113.77"; /* of nobody */
	assert_int_equal(net_open(&options, &link), LS_SYSTEM);
	assert_null(link);
	options.host = "127.0.0.1";
	assert_int_equal(net_open(&options, &link), LS_OK);
	struct net_address address;
	net_address(link, &address);
	assert_int_equal(net_set_address(link, 1, &address), LS_BAD_ARGUMENT);
	assert_int_equal(net_set_address(link, -1, &address), LS_BAD_ARGUMENT);
	assert_int_equal(net_set_address(link, 0, &address), LS_BAD_ARGUMENT);
	link->ops->close(link);
}

/* Ranks without an address are on this host. */
static void without_peers(void **unused)
{
	static struct rank rank;
	struct link *link;
	bool done;
	struct net_options options = {.size = 2, .host = "127.0.0.1", .transports = "tcp"};
	struct link_note note = {.words = {1}};
	struct link_transfer transfer = {.status = LS_PENDING};
	(void)unused;
	assert_int_equal(net_open(&options, &link), LS_OK);
	struct net_address address = {.bytes = 0};
	assert_int_equal(net_set_address(link, 1, &address), LS_BAD_ARGUMENT);
	address.bytes = NET_ADDRESS_BYTES + 1;
	assert_int_equal(net_set_address(link, 1, &address), LS_BAD_ARGUMENT);
	link->events = (struct link_events){&rank, rank_arrived, rank_word, rank_done, rank_lost};
	assert_int_equal(link->ops->connect(link, &done), LS_OK);
	assert_true(done);
	for (int q = 0; q < 2; q++) {
		assert_true(link->ops->store(link, q, 1, 2));
		assert_true(link->ops->post(link, q, &note, &note, sizeof note, &transfer));
		while (rank.done == q)
			link->ops->advance(link);
		assert_int_equal(transfer.status, LS_ABORTED);
		link->ops->cut(link, q);
	}
	link->ops->close(link);
}

/* Connects rank 0 of one job to rank 1 of another, until one of them fails. */
static ls_status connect_strangers(uint64_t job, uint32_t epoch, uint64_t *dropped)
{
	struct link *links[2];
	struct net_address address;
	static struct rank ranks[2];
	ls_status status = LS_OK;
	uint64_t deadline_ns = clock_deadline_ns(RANK_LIMIT_MS);
	for (int r = 0; r < 2; r++) {
		const struct net_options options = {.rank = r,
						    .size = 2,
						    .job = r ? job : 1,
						    .epoch = r ? epoch : 1,
						    .host = "127.0.0.1",
						    .transports = "tcp"};
		assert_int_equal(net_open(&options, &links[r]), LS_OK);
		links[r]->events = (struct link_events){&ranks[r], rank_arrived, rank_word,
							rank_done, rank_lost};
	}
	net_address(links[1], &address);
	assert_int_equal(net_set_address(links[0], 1, &address), LS_OK);
	assert_int_equal(net_set_address(links[1], 0, &address), LS_OK); /* it waits for rank 0 */
	while (status == LS_OK) {
		bool done;
		status = links[0]->ops->connect(links[0], &done);
		assert_false(done);
		assert_int_equal(links[1]->ops->connect(links[1], &done), LS_OK);
		assert_false(done);
		for (int r = 0; r < 2; r++)
			links[r]->ops->advance(links[r]);
		assert_true(clock_now_ns() < deadline_ns);
	}
	*dropped = net_dropped(links[1]);
	for (int r = 0; r < 2; r++)
		links[r]->ops->close(links[r]);
	return status;
}

static void strangers_do_not_connect(void **unused)
{
	uint64_t dropped;
	(void)unused;
	assert_int_equal(connect_strangers(2, 1, &dropped), LS_NO_MASTER); /* another job */
	assert_int_equal(dropped, 1);
	assert_int_equal(connect_strangers(1, 2, &dropped), LS_NO_MASTER); /* another epoch */
	assert_int_equal(dropped, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_printed), /* first: its child loads UCX */
		cmocka_unit_test(nothing_is_changed), cmocka_unit_test(wrong_options),
		cmocka_unit_test(without_peers),      cmocka_unit_test(strangers_do_not_connect),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
