/* SPDX-License-Identifier: BSD-3-Clause
 * The limit of an all-reduce on two hosts: TCP that carries as many bytes as each host has, once
 * each way at the same time, with nothing around it: nothing is added up, checked or recorded.
 *   tcp_limit [OPTIONS] PLACE ADDRESS OP:BYTES...   OP: all-reduce, or ping-pong for one way of one
 * On both hosts, with HOST=0 and HOST=1: host 0 prints "op bytes microseconds". PLACE is a named
 * pipe that both see; through it host 1 learns at which port of ADDRESS host 0 listens. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS_MAX = 8, REPEATS_MAX = 99 };

enum way {
	WAY_BLOCKING, /* a thread that sends and one that receives, for each stream */
	WAY_SLEEPING, /* one thread for each stream, which sleeps in poll() */
	WAY_POLLING,  /* one thread for each stream, which tries again and again */
};
static const char *const ways[] = {"blocking", "sleeping", "polling", NULL};

struct stream {
	int fd;
	char *send, *recv;
};

/* What both hosts do next; rounds 0: nothing more. */
struct command {
	uint64_t bytes, rounds, is_ping_pong;
};

struct limit {
	enum way way;
	int host, repeats, count; /* streams */
	double repeat_s, limit_s;
	struct stream streams[STREAMS_MAX];
};

/* One thread's part of a loop. `both`: sender and receiver of a stream meet after each round. */
struct part {
	pthread_t thread;
	const struct stream *stream;
	enum way way;
	bool sends, receives;
	size_t bytes;
	uint64_t rounds;
	pthread_barrier_t *both;
};

static _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "tcp_limit: %s: %s\n", what, errno ? strerror(errno) : "the peer has left");
	exit(1);
}

static double now(void)
{
	struct timespec time;
	if (clock_gettime(CLOCK_MONOTONIC, &time) != 0)
		abort();
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---- moving bytes ---- */

/* What one call moved; 0 if it would have had to wait. */
static size_t moved(ssize_t count, const char *what)
{
	if (count > 0)
		return (size_t)count;
	if (count < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (count == 0)
		errno = 0;
	give_up(what);
}

static void send_all(int fd, const char *data, size_t bytes, int flags)
{
	for (size_t done = 0; done < bytes;)
		done += moved(send(fd, data + done, bytes - done, flags | MSG_NOSIGNAL), "send");
}

static void recv_all(int fd, char *data, size_t bytes, int flags)
{
	for (size_t done = 0; done < bytes;)
		done += moved(recv(fd, data + done, bytes - done, flags), "recv");
}

/* Both directions by one thread. */
static void exchange(const struct stream *stream, size_t bytes, enum way way)
{
	for (size_t sent = 0, got = 0; sent < bytes || got < bytes;) {
		size_t before = sent + got;
		if (sent < bytes)
			sent += moved(send(stream->fd, stream->send + sent, bytes - sent,
					   MSG_DONTWAIT | MSG_NOSIGNAL),
				      "send");
		if (got < bytes)
			got += moved(recv(stream->fd, stream->recv + got, bytes - got, MSG_DONTWAIT),
				     "recv");
		if (sent + got > before)
			continue;
		struct pollfd ready = {.fd = stream->fd,
				       .events = (short)((sent < bytes ? POLLOUT : 0) |
							 (got < bytes ? POLLIN : 0))};
		if (way == WAY_POLLING)
			sched_yield(); /* there may be more threads than processors */
		else if (poll(&ready, 1, -1) < 0 && errno != EINTR)
			give_up("poll");
	}
}

static void *run_part(void *argument)
{
	const struct part *part = argument;
	const struct stream *stream = part->stream;

	for (uint64_t i = 0; i < part->rounds; i++) {
		if (part->sends && part->receives)
			exchange(stream, part->bytes, part->way);
		else if (part->sends)
			send_all(stream->fd, stream->send, part->bytes, 0);
		else
			recv_all(stream->fd, stream->recv, part->bytes, 0);
		if (part->both)
			pthread_barrier_wait(part->both);
	}
	return NULL;
}

static void run_allreduce(const struct limit *limit, const struct command *command)
{
	struct part parts[2 * STREAMS_MAX];
	pthread_barrier_t both[STREAMS_MAX];
	bool blocking = limit->way == WAY_BLOCKING;
	int each = blocking ? 2 : 1;

	for (int i = 0; i < limit->count * each; i++) {
		int stream = i / each;
		if (blocking && i % 2 == 0 && pthread_barrier_init(&both[stream], NULL, 2) != 0)
			give_up("pthread_barrier_init");
		parts[i] = (struct part){.stream = &limit->streams[stream],
					 .way = limit->way,
					 .sends = !blocking || i % 2 == 0,
					 .receives = !blocking || i % 2 == 1,
					 .bytes = command->bytes / (size_t)limit->count,
					 .rounds = command->rounds,
					 .both = blocking ? &both[stream] : NULL};
		errno = pthread_create(&parts[i].thread, NULL, run_part, &parts[i]);
		if (errno)
			give_up("pthread_create");
	}
	for (int i = 0; i < limit->count * each; i++)
		pthread_join(parts[i].thread, NULL);
	for (int i = 0; blocking && i < limit->count; i++)
		pthread_barrier_destroy(&both[i]);
}

static void run_ping_pong(const struct limit *limit, const struct command *command)
{
	const struct stream *stream = &limit->streams[0];
	int flags = limit->way == WAY_POLLING ? MSG_DONTWAIT : 0;

	for (uint64_t i = 0; i < command->rounds; i++) {
		if (limit->host == 0)
			send_all(stream->fd, stream->send, command->bytes, flags);
		recv_all(stream->fd, stream->recv, command->bytes, flags);
		if (limit->host != 0)
			send_all(stream->fd, stream->send, command->bytes, flags);
	}
}

static void run(const struct limit *limit, const struct command *command)
{
	if (command->is_ping_pong)
		run_ping_pong(limit, command);
	else
		run_allreduce(limit, command);
}

/* ---- timing, by host 0 ---- */

static double loop(const struct limit *limit, const struct command *command)
{
	double begin = now();

	send_all(limit->streams[0].fd, (const char *)command, sizeof *command, 0);
	run(limit, command);
	return now() - begin;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Seconds of a round: the median of several loops. */
static double measure(const struct limit *limit, struct command command)
{
	double seconds[REPEATS_MAX], spent = 0;
	int done = 0;

	/* The first loops also open the windows of the connections. */
	command.rounds = 1;
	for (double took = 0; took < limit->repeat_s / 2; command.rounds *= 2)
		took = loop(limit, &command);
	while (done < limit->repeats && (done == 0 || spent < limit->limit_s)) {
		double took = loop(limit, &command);
		spent += took;
		seconds[done++] = took / (double)command.rounds;
	}
	qsort(seconds, (size_t)done, sizeof *seconds, compare);
	return seconds[done / 2] / (command.is_ping_pong ? 2 : 1);
}

static bool read_case(const char *text, struct command *out)
{
	char *end = NULL;
	const char *colon = strchr(text, ':');

	*out = (struct command){.is_ping_pong = strncmp(text, "ping-pong:", 10) == 0};
	if (!out->is_ping_pong && strncmp(text, "all-reduce:", 11) != 0)
		return false;
	out->bytes = strtoull(colon + 1, &end, 10);
	return out->bytes > 0 && *end == '\0';
}

/* ---- meeting ---- */

static int new_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* NOLINT: meant to block */

	if (fd < 0)
		give_up("socket");
	return fd;
}

static struct sockaddr_in address_of(const char *text)
{
	struct sockaddr_in out = {.sin_family = AF_INET};

	errno = EINVAL;
	if (inet_pton(AF_INET, text, &out.sin_addr) != 1)
		give_up(text);
	return out;
}

static void meet_as_first(struct limit *limit, const char *place, const char *address)
{
	struct sockaddr_in here = address_of(address);
	socklen_t bytes = sizeof here;
	int listener = new_socket();

	if (bind(listener, (struct sockaddr *)&here, sizeof here) != 0 ||
	    listen(listener, STREAMS_MAX) != 0 ||
	    getsockname(listener, (struct sockaddr *)&here, &bytes) != 0)
		give_up("bind");
	FILE *pipe = fopen(place, "we"); /* waits for the reader */
	if (!pipe || fprintf(pipe, "%u\n", ntohs(here.sin_port)) < 0 || fclose(pipe) != 0)
		give_up(place);
	for (int i = 0; i < limit->count; i++) {
		limit->streams[i].fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (limit->streams[i].fd < 0)
			give_up("accept4");
	}
	close(listener);
}

static void meet_as_second(struct limit *limit, const char *place, const char *address)
{
	struct sockaddr_in there = address_of(address);
	char line[16] = "";
	FILE *pipe = fopen(place, "re");

	if (!pipe || !fgets(line, sizeof line, pipe) || fclose(pipe) != 0)
		give_up(place);
	there.sin_port = htons((uint16_t)strtoul(line, NULL, 10));
	for (int i = 0; i < limit->count; i++) {
		limit->streams[i].fd = new_socket();
		if (connect(limit->streams[i].fd, (struct sockaddr *)&there, sizeof there) != 0)
			give_up("connect");
	}
}

static void prepare(struct limit *limit, size_t bytes)
{
	int yes = 1;

	for (int i = 0; i < limit->count; i++) {
		struct stream *stream = &limit->streams[i];
		if (setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0)
			give_up("TCP_NODELAY");
		stream->send = malloc(bytes);
		stream->recv = malloc(bytes);
		if (!stream->send || !stream->recv)
			give_up("malloc");
		memset(stream->send, 1, bytes);
		memset(stream->recv, 1, bytes);
	}
}

/* ---- */

/* Host 1 does what host 0 says. */
static void serve(const struct limit *limit)
{
	struct command command;

	for (;;) {
		recv_all(limit->streams[0].fd, (char *)&command, sizeof command, 0);
		if (command.rounds == 0)
			return;
		run(limit, &command);
	}
}

static bool parse(int argc, char **argv, struct limit *out)
{
	static const struct option options[] = {
		{"way", required_argument, NULL, 'w'}, /* blocking, sleeping or polling */
		{"streams", required_argument, NULL, 's'},
		{"repeats", required_argument, NULL, 'r'},
		{"repeat-ms", required_argument, NULL, 'm'},
		{"limit-ms", required_argument, NULL, 'l'},
		{NULL, 0, NULL, 0},
	};
	const char *host = getenv("HOST");
	int option, way = 0;

	*out = (struct limit){.repeats = 7, .count = 2, .repeat_s = 0.02, .limit_s = 0.5};
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'w')
			for (way = 0; ways[way] && strcmp(ways[way], optarg) != 0;)
				way++;
		else if (option == 's')
			out->count = (int)strtol(optarg, NULL, 10);
		else if (option == 'r')
			out->repeats = (int)strtol(optarg, NULL, 10);
		else if (option == 'm')
			out->repeat_s = strtod(optarg, NULL) * 1e-3;
		else if (option == 'l')
			out->limit_s = strtod(optarg, NULL) * 1e-3;
		else
			return false;
	}
	if (!ways[way] || out->count < 1 || out->count > STREAMS_MAX || out->repeats < 1 ||
	    out->repeats > REPEATS_MAX || !host || argc - optind < 3)
		return false;
	out->way = (enum way)way;
	out->host = (int)strtol(host, NULL, 10);
	return out->host == 0 || out->host == 1;
}

int main(int argc, char **argv)
{
	struct limit limit;
	struct command command = {0};
	size_t most = sizeof command;

	bool good = parse(argc, argv, &limit);
	for (int i = optind + 2; good && i < argc; i++) {
		good = read_case(argv[i], &command);
		most = command.bytes > most ? command.bytes : most;
	}
	if (!good) {
		fprintf(stderr, "usage: HOST=0|1 tcp_limit [--way blocking|sleeping|polling] "
				"[--streams N] PLACE ADDRESS all-reduce:BYTES|ping-pong:BYTES...\n");
		return 2;
	}
	(limit.host == 0 ? meet_as_first : meet_as_second)(&limit, argv[optind], argv[optind + 1]);
	prepare(&limit, most);
	if (limit.host != 0) {
		serve(&limit);
		return 0;
	}
	for (int i = optind + 2; i < argc && read_case(argv[i], &command); i++) {
		printf("%.*s %zu %.4f\n", (int)strcspn(argv[i], ":"), argv[i],
		       (size_t)command.bytes, measure(&limit, command) * 1e6);
		fflush(stdout);
	}
	command.rounds = 0;
	send_all(limit.streams[0].fd, (const char *)&command, sizeof command, 0);
	return 0;
}
