/* SPDX-License-Identifier: BSD-3-Clause
 * Strangers cannot disturb a server: random bytes, half a hello, silence, floods, uninvited
 * descriptors, and a process that is out of descriptors. */
#include "rendezvous/rendezvous_fixture.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { FLOOD = 2000, KEPT = 150 };

/* Says something random; now and then the beginning of a hello, or a hello with a flipped byte. */
static int say_garbage(const struct rendezvous_place *place)
{
	struct wire_hello hello = fixture_hello(place, 1);
	unsigned char bytes[2048];
	uint64_t kind = fixture_random() % 8;
	size_t count = fixture_random() % (sizeof bytes + 1);
	int fd = fixture_connect(place);

	assert_true(fd >= 0);
	assert_int_equal(getrandom(bytes, sizeof bytes, 0), sizeof bytes);
	if (kind == 0) {
		memcpy(bytes, &hello, sizeof hello);
		count %= sizeof hello;
	} else if (kind == 1) {
		/* In the magic or the byte order: elsewhere it could say something. */
		memcpy(bytes, &hello, sizeof hello);
		bytes[fixture_random() % 12] ^= 0x5a;
	}
	/* The server may have ended the connection already; that is no failure here. */
	(void)!rendezvous_send(fd, bytes, count, -1);
	return fd;
}

static void test_garbage_flood(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 4);
		struct fixture fixture = fixture_new(&place, false);
		int kept[KEPT];
		memset(kept, -1, sizeof kept);
		fixture.ranks[3].absent = true;
		fixture_start(&fixture);
		for (int i = 0; i < FLOOD; i++) {
			rendezvous_close_fd(&kept[i % KEPT]);
			kept[i % KEPT] = say_garbage(&place);
		}
		fixture.ranks[3].absent = false;
		fixture_start_rank(&fixture.ranks[3]);
		fixture_wait(&fixture);
		fixture_check_met(&fixture, false);
		for (int i = 0; i < KEPT; i++)
			rendezvous_close_fd(&kept[i]);
		fixture_free(&fixture);
	}
}

static struct rendezvous_server *open_server(bool tcp, int size, struct rendezvous_place *place)
{
	struct rendezvous_server *server;
	*place = (struct rendezvous_place){.tcp = tcp, .world_size = size};
	assert_int_equal(rendezvous_server_open(place, clock_deadline_ns(FIXTURE_LONG_MS), &server),
			 LS_OK);
	*place = *rendezvous_server_place(server);
	return server;
}

/* True once the server has ended the connection. */
static bool is_ended(int fd)
{
	char byte;
	int none = -1;
	ssize_t got = rendezvous_receive(fd, &byte, 1, &none);
	return got == 0 || (got < 0 && errno != EAGAIN);
}

/* More silent connections than there are places: the oldest go, and a rank still gets in. */
static void test_silent_crowd(void **state)
{
	(void)state;
	struct rendezvous_place place;
	struct rendezvous_server *server = open_server(false, 1, &place);
	int crowd[RENDEZVOUS_CONNECTION_MAX + 10];
	int count = sizeof crowd / sizeof crowd[0];
	struct pollfd fds[RENDEZVOUS_FDS_MAX];

	for (int i = 0; i < count; i++) {
		crowd[i] = fixture_connect(&place);
		assert_int_equal(rendezvous_server_step(server), LS_OK);
	}
	for (int i = 0; i < count; i++)
		assert_int_equal(is_ended(crowd[i]), i < 10);
	assert_int_equal(rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX),
			 1 + RENDEZVOUS_CONNECTION_MAX);
	assert_int_equal(rendezvous_server_fds(server, fds, 5), 5);
	struct wire_hello hello = fixture_hello(&place, 0);
	int fd = fixture_say(&place, &hello, sizeof hello);
	assert_int_equal(rendezvous_server_step(server), LS_OK);
	assert_true(rendezvous_server_complete(server));
	rendezvous_close_fd(&fd);
	for (int i = 0; i < count; i++)
		rendezvous_close_fd(&crowd[i]);
	rendezvous_server_close(server);
}

/* A hello that comes byte by byte is a hello; until then it is nobody. */
static void test_slow_hello(void **state)
{
	(void)state;
	struct rendezvous_place place;
	struct rendezvous_server *server = open_server(false, 2, &place);
	struct wire_hello hello = fixture_hello(&place, 1);
	int fd = fixture_connect(&place);

	for (size_t i = 0; i < sizeof hello; i++) {
		assert_int_equal(rendezvous_server_pid(server, 1), 0);
		assert_int_equal(rendezvous_send(fd, (char *)&hello + i, 1, -1), 1);
		assert_int_equal(rendezvous_server_step(server), LS_OK);
	}
	assert_int_equal(rendezvous_server_pid(server, 1), getpid());
	rendezvous_close_fd(&fd);
	rendezvous_server_close(server);
}

static int count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;
	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* Descriptors that nobody asked for are closed: with nonsense, within a hello, and after it. */
static void test_uninvited_descriptors(void **state)
{
	(void)state;
	struct rendezvous_place place;
	int before = count_fds();
	struct rendezvous_server *server = open_server(false, 2, &place);
	struct wire_hello hello = fixture_hello(&place, 1);
	int stranger = fixture_connect(&place), fd = fixture_connect(&place);

	assert_int_equal(rendezvous_send(stranger, "nonsense", 8, 0), 8);
	assert_int_equal(rendezvous_send(fd, &hello, 40, 0), 40);
	assert_int_equal(rendezvous_send(fd, (char *)&hello + 40, 40, 0), 40);
	assert_int_equal(rendezvous_send(fd, (char *)&hello + 80, sizeof hello - 80, 0),
			 sizeof hello - 80);
	assert_int_equal(rendezvous_server_step(server), LS_OK);
	assert_int_equal(rendezvous_server_pid(server, 1), getpid());
	for (int i = 0; i < 100; i++)
		assert_int_equal(rendezvous_send(fd, "more", 4, 0), 4);
	for (int i = 0; i < 20; i++)
		assert_int_equal(rendezvous_server_step(server), LS_OK);
	assert_true(is_ended(stranger));
	/* The listener, one trace, and both ends of one connection. */
	rendezvous_close_fd(&stranger);
	assert_int_equal(count_fds(), before + 4);
	rendezvous_close_fd(&fd);
	rendezvous_server_close(server);
	assert_int_equal(count_fds(), before);
}

/* A rank that has joined may send more, which the server does not read. */
static void test_rank_talks_on(void **state)
{
	(void)state;
	static const char noise[65536];
	struct rendezvous_place place;
	struct rendezvous_server *server = open_server(true, 2, &place);
	struct wire_hello hello = fixture_hello(&place, 0), other = fixture_hello(&place, 1);
	int fd = fixture_say(&place, &hello, sizeof hello);
	struct wire_head welcome;

	for (int i = 0; i < 1000; i++) {
		ssize_t sent = rendezvous_send(fd, noise, sizeof noise, -1);
		assert_true(sent > 0 || errno == EAGAIN);
		assert_int_equal(rendezvous_server_step(server), LS_OK);
	}
	assert_int_equal(fixture_read(fd, &welcome, sizeof welcome), sizeof welcome);
	int second = fixture_say(&place, &other, sizeof other);
	while (!rendezvous_server_complete(server))
		assert_int_equal(rendezvous_server_step(server), LS_OK);
	rendezvous_close_fd(&fd);
	rendezvous_close_fd(&second);
	rendezvous_server_close(server);
}

/* The report counts the connections that said nothing, because one may be of a rank that failed. */
static void test_strangers_are_reported(void **state)
{
	(void)state;
	struct rendezvous_place place = {.world_size = 3};
	struct rendezvous_server *server;
	uint64_t deadline_ns = clock_deadline_ns(100);
	assert_int_equal(rendezvous_server_open(&place, deadline_ns, &server), LS_OK);
	place = *rendezvous_server_place(server);
	struct wire_hello hello = fixture_hello(&place, 1);
	int rank = fixture_say(&place, &hello, sizeof hello);
	int nonsense = fixture_say(&place, "GET / HTTP/1.0\r\n\r\n", 18);
	int silent = fixture_connect(&place), gone = fixture_connect(&place);

	rendezvous_close_fd(&gone);
	ls_status status;
	do {
		status = rendezvous_server_step(server);
		assert_int_equal(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(5)), LS_TIMED_OUT);
	} while (status == LS_OK);
	assert_int_equal(status, LS_RANK_MISSING);
	struct wire_head welcome;
	assert_int_equal(fixture_read(rank, &welcome, sizeof welcome), sizeof welcome);
	fixture_check_answer(rank, LS_RANK_MISSING,
			     FIXTURE_WORDS("2 of 3 ranks", "ranks 0, 2 (here: 1)",
					   "3 connections said nothing that Lockstep understands"));
	rendezvous_close_fd(&nonsense);
	rendezvous_close_fd(&silent);
	rendezvous_server_close(server);
}

static void step_when_ready(struct rendezvous_server *server)
{
	struct pollfd fds[RENDEZVOUS_FDS_MAX];
	assert_true(rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX) > 0);
	assert_true(fixture_ready(fds[0].fd, POLLIN));
	assert_int_equal(rendezvous_server_step(server), LS_OK);
}

/* Installs a filter by which this process can open no netlink socket. */
static bool forbid_netlink(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

/* Where the kernel does not say whose a TCP socket is, its hello does; what is of another version
 * says no user, and is refused alone. */
static void refuse_unknown(void)
{
	struct rendezvous_place place;
	struct rendezvous_server *server = open_server(true, 2, &place);
	struct wire_hello hello = fixture_hello(&place, 1), other = hello;

	other.uid++;
	int fd = fixture_say(&place, &other, sizeof other);
	step_when_ready(server);
	fixture_check_answer(fd, LS_UNTRUSTED_PEER,
			     FIXTURE_WORDS("belongs to user", "this process runs as"));
	snprintf(other.head.version, sizeof other.head.version, "0.0.9");
	fd = fixture_say(&place, &other, sizeof other.head);
	step_when_ready(server);
	fixture_check_answer(fd, LS_WRONG_VERSION, FIXTURE_WORDS("rank 1", "runs Lockstep 0.0.9"));
	assert_int_equal(rendezvous_server_pid(server, 1), 0);
	fd = fixture_say(&place, &hello, sizeof hello);
	step_when_ready(server);
	assert_int_equal(rendezvous_server_pid(server, 1), getpid());
	rendezvous_close_fd(&fd);
	rendezvous_server_close(server);
}

static void test_kernel_says_no_users(void **state)
{
	(void)state;
	pid_t pid = fork();
	if (pid == 0) {
		if (!forbid_netlink())
			_exit(100);
		refuse_unknown();
		_exit(0);
	}
	int status = fixture_reap(pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 100)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The user that a hello names is ignored where the kernel tells the user. */
static void test_kernel_says_the_user(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place;
		struct rendezvous_server *server = open_server(tcp, 2, &place);
		struct wire_hello hello = fixture_hello(&place, 1);
		hello.uid = geteuid() + 1;
		int fd = fixture_say(&place, &hello, sizeof hello);
		step_when_ready(server);
		assert_int_equal(rendezvous_server_pid(server, 1), getpid());
		rendezvous_close_fd(&fd);
		rendezvous_server_close(server);
	}
}

/* A server with hardly any descriptors left sends silent ones away, and goes on. */
static void test_out_of_descriptors(void **state)
{
	(void)state;
	struct rendezvous_place place;
	struct rendezvous_server *server = open_server(false, 2, &place);
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit limit = {.rlim_cur = 12, .rlim_max = 12};
		struct pollfd fds[RENDEZVOUS_FDS_MAX];
		ls_status status = setrlimit(RLIMIT_NOFILE, &limit) == 0 ? LS_OK : LS_SYSTEM;
		while (status == LS_OK && !rendezvous_server_complete(server)) {
			int count = rendezvous_server_fds(server, fds, RENDEZVOUS_FDS_MAX);
			if (wait_fds(NULL, fds, count, -1, clock_deadline_ns(1000)) == LS_SYSTEM)
				_exit(100);
			status = rendezvous_server_step(server);
		}
		_exit(status);
	}
	int crowd[40];
	for (int i = 0; i < 40; i++)
		crowd[i] = fixture_connect(&place);
	struct wire_hello first = fixture_hello(&place, 0), second = fixture_hello(&place, 1);
	struct wire_head welcome;
	int fd = fixture_say(&place, &first, sizeof first);
	assert_int_equal(fixture_read(fd, &welcome, sizeof welcome), sizeof welcome);
	int other = fixture_say(&place, &second, sizeof second);
	assert_int_equal(fixture_read(other, &welcome, sizeof welcome), sizeof welcome);
	int status = fixture_reap(pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), LS_OK);
	for (int i = 0; i < 40; i++)
		rendezvous_close_fd(&crowd[i]);
	rendezvous_close_fd(&fd);
	rendezvous_close_fd(&other);
	rendezvous_server_close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_garbage_flood),
		cmocka_unit_test(test_silent_crowd),
		cmocka_unit_test(test_slow_hello),
		cmocka_unit_test(test_uninvited_descriptors),
		cmocka_unit_test(test_rank_talks_on),
		cmocka_unit_test(test_strangers_are_reported),
		cmocka_unit_test(test_kernel_says_no_users),
		cmocka_unit_test(test_kernel_says_the_user),
		cmocka_unit_test(test_out_of_descriptors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
