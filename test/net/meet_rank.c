/* SPDX-License-Identifier: BSD-3-Clause
 * meet_rank SIZE PER_HOST PORT [open|forge|pose|tamper]: what tools/hosts runs on each host to
 * try how ranks of several hosts meet. PER_HOST ranks of this host go to PORT of the first host,
 * with the secret that LOCKSTEP_SECRET_FILE and LOCKSTEP_TRUST_NETWORK say; each prints what came
 * of it; on several hosts they gather cards, too. With `open` they open a group instead. With
 * `forge` the host has strangers instead, who say a proper hello and cannot prove it; with `pose` a
 * server without the secret, with `tamper` one that does not sign its table. MASTER: another
 * address than the first host's; KEY: what the ranks say of their host instead of the truth.
 * Between the rounds the rank BROKEN finds an error, the rank ENDED ends, the rank MUTE says
 * nothing, and the rank CHANGED signs as if it had another secret. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/clock.h"
#include "rendezvous/meet.h"

#define MUST(condition)                                                                     \
	do {                                                                                \
		if (!(condition)) {                                                         \
			fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
			_exit(1);                                                           \
		}                                                                           \
	} while (0)

enum { LIMIT_MS = 20000 }; /* unless LIMIT says another one */

static int number(const char *text)
{
	return text ? (int)strtol(text, NULL, 10) : 0;
}

static ls_status find(int rank, int size, int port, struct rendezvous_place *place)
{
	const struct settings_launch nothing = {
		.master_port = -1, .rank = -1, .world_size = -1, .local_world_size = -1};
	const char *file = getenv("LOCKSTEP_SECRET_FILE");
	const char *master = getenv("MASTER");
	char url[64];
	snprintf(url, sizeof url, "tcp:%s:%d", master ? master : "198.18.0.1", port);
	ls_status status = rendezvous_find(url, rank, size, &nothing, place);
	if (status == LS_OK)
		status = rendezvous_read_secret(file, getenv("LOCKSTEP_TRUST_NETWORK") != NULL,
						place);
	return status;
}

static void print_table(int rank, const struct rendezvous_table *table)
{
	int first[RANKS_WORLD_MAX];
	printf("rank %d: met", rank);
	for (int q = 0; q < table->size; q++)
		printf(" %s", table->ranks[q].ip);
	printf(", %d hosts, job %s\n", rendezvous_find_hosts(table, first),
	       table->job ? "set" : "0");
}

static bool is_told(const char *name, int rank)
{
	return getenv(name) && number(getenv(name)) == rank;
}

static void fill_card(int rank, unsigned char card[RENDEZVOUS_CARD_BYTES])
{
	for (int i = 0; i < RENDEZVOUS_CARD_BYTES; i++)
		card[i] = (unsigned char)(rank + i);
}

/* The second round, where there are several hosts. */
static ls_status gather(struct rendezvous_meeting *meeting, int rank, int size)
{
	static unsigned char cards[RANKS_WORLD_MAX][RENDEZVOUS_CARD_BYTES];
	unsigned char card[RENDEZVOUS_CARD_BYTES];
	ls_status mine = LS_OK;
	if (is_told("ENDED", rank))
		_exit(1);
	if (is_told("MUTE", rank))
		MUST(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(LIMIT_MS)) == LS_TIMED_OUT);
	if (is_told("CHANGED", rank))
		meeting->client.session.key[0] ^= 1;
	if (is_told("BROKEN", rank))
		mine = LS_UNSUPPORTED;
	fill_card(rank, card);
	ls_status status = rendezvous_gather(meeting, mine, "no UCX here", card, cards);
	for (int q = 0; q < size && status == LS_OK; q++) {
		fill_card(q, card);
		MUST(memcmp(card, cards[q], sizeof card) == 0);
	}
	return status;
}

static int meet(int rank, int size, int port)
{
	static struct wait_table wait_table;
	static struct wait_bell bell;
	static struct rendezvous_table table;
	struct rendezvous_place place;
	struct waiter waiter = {.wait_table = &wait_table, .bell = &bell, .look_fd = -1};
	struct rendezvous_self self = {
		.me = {.pid = getpid(), .uid = geteuid(), .host_key = rendezvous_host_key()},
		.trace_fd = -1};
	struct rendezvous_meeting *meeting = NULL;
	int control = -1, limit_ms = number(getenv("LIMIT"));
	if (getenv("KEY"))
		self.me.host_key = (uint64_t)number(getenv("KEY"));
	gethostname(self.me.host, sizeof self.me.host - 1);
	ls_status status = find(rank, size, port, &place);
	MUST(wait_open(&waiter) == LS_OK);
	if (status == LS_OK)
		status = rendezvous_join(&place, &self, &waiter,
					 clock_deadline_ns(limit_ms ? (uint64_t)limit_ms : LIMIT_MS),
					 &table, &meeting);
	bool met = status == LS_OK;
	if (met && rendezvous_has_hosts(&table))
		status = gather(meeting, rank, size);
	rendezvous_leave(meeting, &control);
	MUST(rank == 0 || control == -1);
	if (control >= 0)
		close(control);
	wait_close(&waiter);
	if (status == LS_OK)
		print_table(rank, &table);
	else if (met)
		printf("rank %d: met, then %s\n", rank, ls_status_name(status));
	else
		printf("rank %d: %s\n", rank, ls_status_name(status));
	fflush(stdout);
	return status != LS_OK;
}

static int open_group(int rank, int size, int port)
{
	char url[64];
	struct ls_group_options options = {.size = sizeof options};
	ls_group *group = NULL;
	snprintf(url, sizeof url, "tcp:198.18.0.1:%d", port);
	options.rendezvous = url;
	options.rank = rank;
	options.world_size = size;
	ls_status status = ls_group_open(&options, &group);
	if (status == LS_OK)
		status = ls_barrier(group, NULL);
	printf("rank %d: %s\n", rank, ls_status_name(status));
	fflush(stdout);
	ls_group_close(group);
	return 0;
}

/* ---- strangers ---- */

static bool is_ready(int fd, short events)
{
	struct pollfd fds = {.fd = fd, .events = events};
	return wait_fds(NULL, &fds, 1, -1, clock_deadline_ns(LIMIT_MS)) == LS_OK;
}

static int connect_there(const struct rendezvous_place *place)
{
	for (;;) {
		int fd, error = rendezvous_dial(place, &fd);
		if (error == EINPROGRESS && is_ready(fd, POLLOUT))
			error = rendezvous_dialled(place, fd);
		if (error == 0)
			return fd;
		rendezvous_close_fd(&fd);
		MUST(error == ECONNREFUSED);
		MUST(wait_fds(NULL, NULL, 0, -1, clock_deadline_ns(5)) == LS_TIMED_OUT);
	}
}

/* The bytes that come, at most `room`; fewer: the connection has ended. */
static size_t read_all(int fd, void *to, size_t room)
{
	size_t got = 0;
	int none = -1;
	while (got < room && is_ready(fd, POLLIN)) {
		ssize_t more = rendezvous_receive(fd, (char *)to + got, room - got, &none);
		if (more <= 0 && errno != EAGAIN)
			break;
		got += more > 0 ? (size_t)more : 0;
	}
	return got;
}

/* Whether the server ends the connection without another word. */
static bool is_ended(int fd)
{
	char more;
	return read_all(fd, &more, 1) == 0;
}

struct stranger {
	int fd;
	struct wire_hello hello;
	struct wire_challenge challenge;
};

static struct stranger say_hello(const struct rendezvous_place *place)
{
	struct rendezvous_self self = {.me = {.pid = getpid()}, .trace_fd = -1};
	struct stranger stranger = {.fd = connect_there(place)};
	rendezvous_hello_fill(&stranger.hello, place, &self, LIMIT_MS, 0);
	MUST(auth_nonce(stranger.hello.nonce));
	MUST(rendezvous_send(stranger.fd, &stranger.hello, sizeof stranger.hello, -1) ==
	     (ssize_t)sizeof stranger.hello);
	MUST(read_all(stranger.fd, &stranger.challenge, sizeof stranger.challenge) ==
	     sizeof stranger.challenge);
	MUST(stranger.challenge.head.kind == WIRE_CHALLENGE);
	return stranger;
}

static void prove(const struct stranger *stranger, const struct auth_tag *tag)
{
	struct wire_proof proof = {.tag = *tag};
	rendezvous_head_fill(&proof.head, WIRE_PROOF, sizeof proof, 1, getpid());
	MUST(rendezvous_send(stranger->fd, &proof, sizeof proof, -1) == (ssize_t)sizeof proof);
	MUST(is_ended(stranger->fd));
	close(stranger->fd);
}

/* As rank 1, before rank 1 comes. */
static int forge(int size, int port)
{
	struct rendezvous_place place;
	struct auth_token open;
	struct auth_tag tag = {{0}};
	struct auth_session session;
	MUST(find(1, size, port, &place) == LS_OK);

	struct stranger stranger = say_hello(&place);
	prove(&stranger, &tag);

	/* The server's own proof, sent back. */
	stranger = say_hello(&place);
	prove(&stranger, &stranger.challenge.tag);

	/* The proof that a job without a secret would accept. */
	stranger = say_hello(&place);
	MUST(auth_token_open(&open) == LS_OK);
	auth_session_begin(&open, &stranger.hello, sizeof stranger.hello, &stranger.challenge,
			   offsetof(struct wire_challenge, tag), &session);
	auth_sign(&session, AUTH_CLIENT, 0, "", 0, &tag);
	prove(&stranger, &tag);

	/* A hello where the proof should be, and silence. */
	stranger = say_hello(&place);
	MUST(rendezvous_send(stranger.fd, &stranger.hello, sizeof stranger.hello, -1) > 0);
	MUST(is_ended(stranger.fd));
	stranger = say_hello(&place);
	MUST(is_ended(stranger.fd));
	puts("5 strangers were sent away");
	return 0;
}

/* ---- a server that is none ---- */

static void answer_falsely(int fd, const struct wire_hello *hello)
{
	struct wire_head welcome;
	static struct wire_answer answer;
	size_t bytes = WIRE_ANSWER_BYTES(hello->world_size);
	rendezvous_head_fill(&welcome, WIRE_WELCOME, sizeof welcome, 0, getpid());
	rendezvous_head_fill(&answer.head, WIRE_ANSWER, bytes, 0, getpid());
	answer.size = hello->world_size;
	answer.job = 1;
	answer.tag.bytes[0] = 1;
	for (int q = 0; q < answer.size; q++)
		answer.ranks[q].pid = 1;
	memcpy(answer.ranks[hello->head.rank].address, hello->address, sizeof hello->address);
	MUST(rendezvous_send(fd, &welcome, sizeof welcome, -1) == (ssize_t)sizeof welcome);
	MUST(rendezvous_send(fd, &answer, bytes, -1) == (ssize_t)bytes);
	MUST(is_ended(fd));
}

/* Takes the place of rank 0 for one rank of another host. `knows`: it has the secret, and then
 * sends a table that it has not signed. */
static int pose_as_server(int size, int port, bool knows)
{
	struct rendezvous_place place, bound;
	char text[RENDEZVOUS_TEXT_BYTES] = "";
	struct wire_challenge challenge;
	struct auth_session session;
	struct wire_hello hello;
	struct wire_proof proof;
	int fd;
	MUST(find(0, size, port, &place) == LS_OK);
	MUST(rendezvous_listen(&place, &bound, &fd, text) == LS_OK);
	MUST(is_ready(fd, POLLIN));
	int rank = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	MUST(rank >= 0 && read_all(rank, &hello, sizeof hello) == sizeof hello);
	if (knows) {
		memset(&challenge, 0, sizeof challenge);
		rendezvous_head_fill(&challenge.head, WIRE_CHALLENGE, sizeof challenge, 0, getpid());
		auth_session_begin(&place.token, &hello, sizeof hello, &challenge,
				   offsetof(struct wire_challenge, tag), &session);
		auth_sign(&session, AUTH_SERVER, 0, "", 0, &challenge.tag);
		MUST(rendezvous_send(rank, &challenge, sizeof challenge, -1) > 0);
		MUST(read_all(rank, &proof, sizeof proof) == sizeof proof);
	}
	answer_falsely(rank, &hello);
	puts("the rank went away");
	return 0;
}

int main(int count, char **words)
{
	int host = number(getenv("HOST")), failed = 0;
	MUST(count >= 4);
	int size = number(words[1]), per_host = number(words[2]), port = number(words[3]);
	if (count > 4 && strcmp(words[4], "forge") == 0)
		return forge(size, port);
	if (count > 4 && strcmp(words[4], "open") != 0)
		return pose_as_server(size, port, strcmp(words[4], "tamper") == 0);
	for (int i = 0; i < per_host; i++)
		if (fork() == 0)
			_exit((count > 4 ? open_group : meet)(host * per_host + i, size, port));
	for (int i = 0, status; i < per_host; i++)
		failed += wait(&status) < 0 || status != 0;
	return failed != 0;
}
