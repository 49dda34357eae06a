/* SPDX-License-Identifier: BSD-3-Clause
 * What a rank meets at an address that is not its job's: no listener, a silent one, a web server,
 * nonsense, another version, another user. And what rank 0 does when its address is taken. */
#include "base/ranks.h"
#include "rendezvous/rendezvous_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <lockstep/lockstep.h>

/* Ranks 1 and 2 of 3, which go to `place`. */
static struct fixture fixture_of_two(const struct rendezvous_place *place, uint64_t limit_ms)
{
	struct fixture fixture = fixture_new(place, false);
	fixture.ranks[0].absent = true;
	fixture.ranks[1].limit_ms = fixture.ranks[2].limit_ms = limit_ms;
	return fixture;
}

static void finish(struct fixture *fixture, ls_status status, uint64_t limit_ms,
		   const char *const *words)
{
	fixture_wait(fixture);
	fixture_check_failed(fixture, status, limit_ms, words);
	fixture_free(fixture);
}

static int listen_at(const struct rendezvous_place *place)
{
	struct rendezvous_place bound;
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	int fd;
	if (rendezvous_listen(place, &bound, &fd, text) != LS_OK)
		fail_msg("%s", text);
	return fd;
}

static void test_nobody_listens(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 3);
		struct fixture fixture = fixture_of_two(&place, FIXTURE_SHORT_MS);
		uint64_t began_ns = clock_now_ns();
		fixture_start(&fixture);
		finish(&fixture, LS_NO_MASTER, FIXTURE_QUICK_MS,
		       FIXTURE_WORDS("nobody listens at", "rank 0 (or the launcher)",
				     tcp ? "MASTER_ADDR and MASTER_PORT" : "rendezvous address"));
		/* They went on knocking to the end. */
		assert_true(clock_now_ns() - began_ns >= FIXTURE_SHORT_MS * UINT64_C(1000000));
	}
}

/* Every connection gets `bytes` and is then kept open until the ranks are done. */
static void answer_with(bool tcp, const void *bytes, size_t count, ls_status status,
			const char *const *words)
{
	struct rendezvous_place place = fixture_place(tcp, 3);
	struct fixture fixture = fixture_of_two(&place, FIXTURE_LONG_MS);
	int fd = listen_at(&place), connections[2];

	fixture_start(&fixture);
	for (int i = 0; i < 2; i++) {
		connections[i] = fixture_accept(fd);
		assert_int_equal(rendezvous_send(connections[i], bytes, count, -1), count);
	}
	fixture_wait(&fixture);
	fixture_check_failed(&fixture, status, FIXTURE_QUICK_MS, words);
	fixture_free(&fixture);
	rendezvous_close_fd(&connections[0]);
	rendezvous_close_fd(&connections[1]);
	rendezvous_close_fd(&fd);
}

static void test_nonsense_answers(void **state)
{
	(void)state;
	static const char web[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\n\r\n";
	struct wire_answer answer;
	memset(&answer, 0, sizeof answer);
	rendezvous_head_fill(&answer.head, WIRE_ANSWER, sizeof answer, 0, getpid());

	for (int tcp = 0; tcp < 2; tcp++) {
		answer_with(
			tcp, web, sizeof web - 1, LS_UNTRUSTED_PEER,
			FIXTURE_WORDS("not Lockstep", "\"HTTP/1.1 400 Bad Request", "web server"));
		answer_with(tcp, "SSH-2.0-x", 9, LS_UNTRUSTED_PEER,
			    FIXTURE_WORDS("not Lockstep", "SSH-2.0-x"));
		answer_with(tcp, "LSRDv", 5, LS_UNTRUSTED_PEER,
			    FIXTURE_WORDS("not Lockstep", "LSRDv"));
		answer_with(tcp, "\033[31m\0\377", 7, LS_UNTRUSTED_PEER, FIXTURE_WORDS("\"?[31m\""));
		/* A head that is right, and a table that cannot be. */
		answer.size = 1000000;
		answer_with(tcp, &answer, sizeof answer, LS_UNTRUSTED_PEER,
			    FIXTURE_WORDS("not Lockstep"));
		answer.size = RANKS_WORLD_MAX;
		answer_with(tcp, &answer, sizeof answer, LS_UNTRUSTED_PEER,
			    FIXTURE_WORDS("not Lockstep"));
	}
}

/* A well-formed table of another job. */
static void test_foreign_table(void **state)
{
	(void)state;
	struct wire_answer answer;
	memset(&answer, 0, sizeof answer);
	rendezvous_head_fill(&answer.head, WIRE_ANSWER, WIRE_ANSWER_BYTES(3), 0, getpid());
	answer.size = 3;
	answer.job = 1;
	for (int i = 0; i < 3; i++)
		answer.ranks[i].pid = 1;
	answer_with(true, &answer, WIRE_ANSWER_BYTES(3), LS_UNTRUSTED_PEER,
		    FIXTURE_WORDS("not of this job"));
}

static void test_mute(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 3);
		struct fixture fixture = fixture_of_two(&place, FIXTURE_SHORT_MS);
		int fd = listen_at(&place);
		fixture_start(&fixture);
		finish(&fixture, LS_UNTRUSTED_PEER, FIXTURE_QUICK_MS,
		       FIXTURE_WORDS("takes connections and says nothing", "another program"));
		rendezvous_close_fd(&fd);
	}
}

/* Ends every connection without a word: a server that does so may still be the right one, so ranks
 * go on. */
static void test_hangs_up(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 3);
		struct fixture fixture = fixture_of_two(&place, FIXTURE_COME_MS);
		int fd = listen_at(&place), slammed = 0;
		struct pollfd fds = {.fd = fd, .events = POLLIN};
		fixture_start(&fixture);
		while (!atomic_load(&fixture.ranks[1].done) || !atomic_load(&fixture.ranks[2].done)) {
			if (wait_fds(NULL, &fds, 1, -1, clock_deadline_ns(5)) != LS_OK)
				continue;
			int connection = fixture_accept(fd);
			rendezvous_close_fd(&connection);
			slammed++;
		}
		assert_true(slammed > 2);
		finish(&fixture, LS_UNTRUSTED_PEER, FIXTURE_QUICK_MS, FIXTURE_WORDS("says nothing"));
		rendezvous_close_fd(&fd);
	}
}

/* The kernel gives a silent host up before it tries more rarely than ranks do. */
static void test_dials_anew(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 2);
	int fd = -1, tries = 0, listen_fd = listen_at(&place);
	socklen_t length = sizeof tries;

	int error = rendezvous_dial(&place, &fd);
	assert_true(error == 0 || error == EINPROGRESS);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &tries, &length), 0);
	assert_in_range(tries, 1, 2);
	rendezvous_close_fd(&fd);
	rendezvous_close_fd(&listen_fd);
}

/* A connection that is broken before the client has looked at its ends is on no other host. */
static void test_broken_at_once(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 2), bound;
	struct linger none = {.l_onoff = 1, .l_linger = 0};
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	int listen_fd;
	bool remote = true;

	assert_int_equal(rendezvous_listen(&place, &bound, &listen_fd, text), LS_OK);
	int fd = fixture_connect(&bound), other = fixture_accept(listen_fd);
	assert_true(fd >= 0 && other >= 0);
	assert_true(rendezvous_find_remote(fd, &remote));
	assert_false(remote);
	assert_int_equal(setsockopt(other, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
	rendezvous_close_fd(&other);
	assert_true(fixture_ready(fd, POLLIN));
	assert_false(rendezvous_find_remote(fd, &remote));
	rendezvous_close_fd(&fd);
	rendezvous_close_fd(&listen_fd);
}

static void test_server_of_other_version(void **state)
{
	(void)state;
	struct wire_head head;
	char mine[64], swapped[64];
	snprintf(mine, sizeof mine, "Lockstep %s (protocol %d)", LOCKSTEP_VERSION, WIRE_PROTOCOL);
	snprintf(swapped, sizeof swapped, "protocol %d, another byte order", WIRE_PROTOCOL);
	rendezvous_head_fill(&head, WIRE_WELCOME, sizeof head, 0, 77);
	snprintf(head.version, sizeof head.version, "9.8.7");
	answer_with(true, &head, sizeof head, LS_WRONG_VERSION,
		    FIXTURE_WORDS(mine, "rank 0 (pid 77)", "runs 9.8.7", "same library"));
	head.protocol = 41;
	answer_with(false, &head, sizeof head, LS_WRONG_VERSION,
		    FIXTURE_WORDS("9.8.7 (protocol 41)"));
	head.protocol = __builtin_bswap32(WIRE_PROTOCOL);
	head.byte_order = __builtin_bswap32(WIRE_BYTE_ORDER);
	head.rank = 0;
	head.pid = (int32_t)__builtin_bswap32(77);
	answer_with(false, &head, sizeof head, LS_WRONG_VERSION,
		    FIXTURE_WORDS("rank 0 (pid 77)", swapped));
}

static void test_rank_of_other_version(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 3);
		struct fixture fixture = fixture_new(&place, false);
		struct wire_hello hello = fixture_hello(&place, 2);
		struct wire_head other;
		snprintf(hello.head.version, sizeof hello.head.version, "0.0.9");
		hello.head.bytes += 100;
		fixture.ranks[2].absent = true;
		fixture_start(&fixture);
		int fd = fixture_say(&place, &hello, sizeof hello);
		assert_int_equal(fixture_read(fd, &other, sizeof other), sizeof other);
		assert_string_equal(other.version, LOCKSTEP_VERSION);
		rendezvous_close_fd(&fd);
		finish(&fixture, LS_WRONG_VERSION, FIXTURE_QUICK_MS,
		       FIXTURE_WORDS("rank 2 (pid", "Lockstep 0.0.9", "rank 0 (pid",
				     "runs " LOCKSTEP_VERSION));
	}
}

/* Rank 0 alone, its address held by somebody. */
static struct fixture lone_server(const struct rendezvous_place *place)
{
	struct fixture fixture = fixture_new(place, false);
	fixture.ranks[1].absent = true;
	fixture_start(&fixture);
	return fixture;
}

static void test_port_taken(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 2);
		int fd = listen_at(&place);
		/* By somebody who says nothing. */
		struct fixture fixture = lone_server(&place);
		finish(&fixture, LS_PORT_TAKEN, FIXTURE_QUICK_MS,
		       FIXTURE_WORDS("in use by another program", place.address, "says nothing"));
		int connection = fixture_accept(fd);
		rendezvous_close_fd(&connection);
		/* By a web server: known at once. */
		fixture = lone_server(&place);
		connection = fixture_accept(fd);
		assert_int_equal(rendezvous_send(connection, "HTTP/1.1 400 No\r\n", 17, -1), 17);
		finish(&fixture, LS_PORT_TAKEN, FIXTURE_QUICK_MS,
		       FIXTURE_WORDS("in use by another program", "HTTP/1.1 400 No", "web server"));
		rendezvous_close_fd(&connection);
		rendezvous_close_fd(&fd);
	}
}

/* The port belongs to a socket that does not listen, such as the near end of somebody's
 * connection. */
static void test_port_becomes_free(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 2);
	struct fixture fixture = fixture_new(&place, false);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(place.port)};
	struct wait_slot_body body;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	fixture_start_rank(&fixture.ranks[0]);
	/* Rank 0 pauses before it tries again; a server would wait as long as its limit. */
	do
		fixture_look(&fixture.ranks[0], &body);
	while (body.state != WAIT_FDS || body.deadline_ns > clock_deadline_ns(1000));
	rendezvous_close_fd(&fd);
	fixture_start_rank(&fixture.ranks[1]);
	fixture_wait(&fixture);
	fixture_check_met(&fixture, false);
	fixture_free(&fixture);
}

/* A client that knocks at a port of its own machine may be given just this port for its near end,
 * and then it reaches itself. */
static void test_reaches_itself(void **state)
{
	(void)state;
	struct rendezvous_place place = fixture_place(true, 2);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(place.port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
		assert_int_equal(errno, EINPROGRESS);
	assert_true(fixture_ready(fd, POLLOUT));
	assert_int_equal(rendezvous_dialled(&place, fd), ECONNREFUSED);
	rendezvous_close_fd(&fd);
	/* Nothing of it stays: the server gets the port. */
	fd = listen_at(&place);
	rendezvous_close_fd(&fd);
}

/* Ends as rank 1 of 2 would at `place`, as another user. */
static pid_t fork_foreigner(const struct rendezvous_place *place)
{
	struct rendezvous_table table;
	struct rendezvous_meeting *meeting;
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	if (setuid(65534) != 0)
		_exit(1);
	struct rendezvous_place mine = *place;
	struct rendezvous_self self = {.me = {.pid = getpid(), .uid = 65534}, .trace_fd = -1};
	mine.rank = 1;
	ls_status status = rendezvous_meet(&mine, &self, NULL, clock_deadline_ns(FIXTURE_QUICK_MS),
					   &table, &meeting, text);
	_exit(status == LS_UNTRUSTED_PEER && strstr(text, "user 65534") != NULL ? 0 : 2);
}

/* Another user's rank is sent away, and the meeting goes on without it. */
static void test_rank_of_other_user(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 2);
		struct fixture fixture = fixture_new(&place, false);
		pid_t pid = fork_foreigner(&place);
		fixture_start_rank(&fixture.ranks[0]);
		assert_int_equal(fixture_reap(pid), 0);
		fixture_start_rank(&fixture.ranks[1]);
		fixture_wait(&fixture);
		fixture_check_met(&fixture, false);
		fixture_free(&fixture);
	}
}

/* Says `bytes` at the place as another user would: a socket is its maker's. The system call changes
 * this thread alone, and not the ranks. */
static int say_as_other_user(const struct rendezvous_place *place, const void *bytes, size_t count)
{
	assert_int_equal(syscall(SYS_setresuid, -1, 65534, -1), 0);
	int fd = fixture_say(place, bytes, count);
	assert_int_equal(syscall(SYS_setresuid, -1, 0, -1), 0);
	return fd;
}

/* Whatever another user says, as whom and however soon it hangs up, the meeting goes on. */
static void test_lies_of_other_user(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	for (int tcp = 0; tcp < 2; tcp++) {
		struct rendezvous_place place = fixture_place(tcp, 2), small = place;
		struct fixture fixture = fixture_new(&place, false);
		struct wire_hello twin = fixture_hello(&place, 0), sized, old = twin;
		struct wire_answer answer;
		small.world_size = 1;
		sized = fixture_hello(&small, 0);
		snprintf(old.head.version, sizeof old.head.version, "0.0.9");
		const struct wire_hello *lies[] = {&twin, &sized, &old};
		const size_t sizes[] = {sizeof twin, sizeof sized, sizeof old.head};

		fixture_start_rank(&fixture.ranks[0]);
		for (int i = 0; i < 3; i++) {
			int fd = say_as_other_user(&place, lies[i], sizes[i]);
			rendezvous_close_fd(&fd); /* then a TCP socket is nobody's any more */
			fd = say_as_other_user(&place, lies[i], sizes[i]);
			assert_int_equal(fixture_read(fd, &answer, WIRE_ANSWER_BYTES(0)),
					 WIRE_ANSWER_BYTES(0));
			assert_int_equal(answer.status, LS_UNTRUSTED_PEER);
			rendezvous_close_fd(&fd);
		}
		fixture_start_rank(&fixture.ranks[1]);
		fixture_wait(&fixture);
		fixture_check_met(&fixture, false);
		fixture_free(&fixture);
	}
}

/* An abstract name is whoever's was first, so a rank looks whose it is before it says anything. */
static void test_server_of_other_user(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	struct rendezvous_place place = fixture_place(false, 3);
	struct fixture fixture = fixture_of_two(&place, FIXTURE_LONG_MS);
	pid_t pid = fork();
	if (pid == 0) {
		if (setuid(65534) != 0)
			_exit(1);
		struct pollfd fds = {.fd = listen_at(&place)};
		_exit(wait_fds(NULL, &fds, 1, -1, clock_deadline_ns(FIXTURE_QUICK_MS)) !=
		      LS_TIMED_OUT);
	}
	fixture_start(&fixture);
	finish(&fixture, LS_UNTRUSTED_PEER, FIXTURE_QUICK_MS,
	       FIXTURE_WORDS("belongs to a process of user 65534", "choose another name"));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_true(WIFSIGNALED(fixture_reap(pid)));
}

/* On TCP before it believes anything; here in a process that says it is of another version. */
static void test_port_of_other_user(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	struct rendezvous_place place = fixture_place(true, 3);
	struct fixture fixture = fixture_of_two(&place, FIXTURE_LONG_MS);
	struct wire_head head;
	rendezvous_head_fill(&head, WIRE_WELCOME, sizeof head, 0, 77);
	snprintf(head.version, sizeof head.version, "9.8.7");
	pid_t pid = fork();
	if (pid == 0) {
		if (setuid(65534) != 0)
			_exit(1);
		int fd = listen_at(&place);
		for (int i = 0; i < 2; i++)
			if (rendezvous_send(fixture_accept(fd), &head, sizeof head, -1) < 0)
				_exit(2);
		_exit(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(FIXTURE_QUICK_MS)) !=
		      LS_TIMED_OUT);
	}
	fixture_start(&fixture);
	finish(&fixture, LS_UNTRUSTED_PEER, FIXTURE_QUICK_MS,
	       FIXTURE_WORDS("belongs to a process of user 65534", "choose another port"));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_true(WIFSIGNALED(fixture_reap(pid)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_listens),
		cmocka_unit_test(test_nonsense_answers),
		cmocka_unit_test(test_foreign_table),
		cmocka_unit_test(test_mute),
		cmocka_unit_test(test_hangs_up),
		cmocka_unit_test(test_dials_anew),
		cmocka_unit_test(test_broken_at_once),
		cmocka_unit_test(test_server_of_other_version),
		cmocka_unit_test(test_rank_of_other_version),
		cmocka_unit_test(test_port_taken),
		cmocka_unit_test(test_port_becomes_free),
		cmocka_unit_test(test_reaches_itself),
		cmocka_unit_test(test_rank_of_other_user),
		cmocka_unit_test(test_lies_of_other_user),
		cmocka_unit_test(test_server_of_other_user),
		cmocka_unit_test(test_port_of_other_user),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
