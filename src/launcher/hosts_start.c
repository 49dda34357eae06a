/* SPDX-License-Identifier: BSD-3-Clause
 * How a job on several hosts begins: names to addresses, a daemon on each host, the order, and when
 * all have what they need, the start. Every error that can be found is said before the
 * launcher gives up. */
#include "launcher/daemons.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/wait.h"

enum {
	LOOK_MS = 1000, /* the longest wait for answers */
	LATE_MS = 5000, /* answers are late */
};

/* ---- names ---- */

static bool is_here(const char *address)
{
	struct rendezvous_place own = {.tcp = true};
	struct ifaddrs *all = NULL;
	bool found = false;

	if (getifaddrs(&all) != 0)
		return false;
	for (const struct ifaddrs *one = all; one && !found; one = one->ifa_next) {
		int family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;
		if (family != AF_INET && family != AF_INET6)
			continue;
		const void *bytes =
			family == AF_INET
				? (const void *)&((struct sockaddr_in *)(void *)one->ifa_addr)->sin_addr
				: (const void *)&((struct sockaddr_in6 *)(void *)one->ifa_addr)
					  ->sin6_addr;
		found = inet_ntop(family, bytes, own.address, sizeof own.address) &&
			strcmp(own.address, address) == 0;
	}
	freeifaddrs(all);
	return found;
}

static bool find_address(struct launcher_host *host, bool several)
{
	struct rendezvous_place place = {0};
	char from[LAUNCHER_HOST_BYTES + 16], text[RENDEZVOUS_TEXT_BYTES] = "";
	const char *at = strrchr(host->name, '@');
	const char *name = at ? at + 1 : host->name;

	snprintf(from, sizeof from, "in --hosts, %s", host->name);
	if (rendezvous_set_address(&place, name, from, text) != LS_OK) {
		MESSAGE_SAY(MESSAGE_RUN_HOST, host->name, text);
		return false;
	}
	snprintf(host->address, sizeof host->address, "%.63s", place.address);
	bool loops = rendezvous_place_is_loopback(&place);
	host->is_here = loops || is_here(place.address);
	if (!loops || !several)
		return true;
	snprintf(text, sizeof text,
		 "this host takes the name for %s, which every host has for itself, so the others "
		 "could not reach it: correct /etc/hosts (Debian gives a host's own name 127.0.1.1), "
		 "or give its address in numbers",
		 host->address);
	MESSAGE_SAY(MESSAGE_RUN_HOST, host->name, text);
	return false;
}

/* Whether this host is in the list twice; then a message has said so. */
static bool is_twice(const struct launcher_hosts *hosts, int i)
{
	const struct launcher_host *host = &hosts->hosts[i];
	char text[512];

	for (int j = 0; j < i; j++) {
		const struct launcher_host *other = &hosts->hosts[j];
		bool same = host->address[0] && strcmp(host->address, other->address) == 0;
		bool same_key = host->host_key != 0 && host->host_key == other->host_key;
		if (!same && !same_key)
			continue;
		snprintf(text, sizeof text,
			 "is in --hosts twice (as %s, and as %s): name it once, with the number of all "
			 "its ranks",
			 other->name, host->name);
		MESSAGE_SAY(MESSAGE_RUN_HOST, host->name, text);
		return true;
	}
	return false;
}

static bool find_hosts(struct launcher_hosts *hosts, const struct launcher_list *list)
{
	bool good = true;
	int first = 0;

	hosts->count = list->count;
	for (int i = 0; i < list->count; i++) {
		struct launcher_host *host = &hosts->hosts[i];
		*host = (struct launcher_host){
			.name = list->hosts[i].name,
			.first = first,
			.count = list->hosts[i].ranks,
			.pidfd = -1,
			.words_fd = -1,
			.words_poll = -1,
		};
		launcher_channel_init(&host->channel, -1, -1);
		host->channel.ended = true;
		first += host->count;
		if (!find_address(host, list->count > 1) || is_twice(hosts, i)) {
			host->state = LAUNCHER_HOST_BAD;
			good = false;
		} else {
			host->state = LAUNCHER_HOST_STARTED;
		}
	}
	return good;
}

/* ---- the order ---- */

static void send_order(const struct launcher_hosts *hosts, struct launcher_host *host,
		       const struct channel_order *common, const char *strings, size_t bytes)
{
	struct channel_order order = *common;

	order.host = (int)(host - hosts->hosts);
	order.first = host->first;
	order.count = host->count;
	launcher_channel_send(&host->channel, CHANNEL_ORDER, &order, sizeof order, strings, bytes);
}

/* ---- until all have answered ---- */

struct beginning {
	struct launcher_job *job;
	struct channel_order order;
	char *strings;
	size_t bytes;
	uint64_t waited_ns; /* for answers, without the time in which this process was stopped */
	bool was_said;      /* that answers are late */
	int signal;         /* a signal that asks to end the job; 0: none has come */
};

static void hear_answer(struct launcher_host *host)
{
	struct channel_frame frame;
	struct channel_ready ready;
	struct channel_refused refused;

	if (!launcher_channel_next(&host->channel, &frame))
		return;
	if (frame.type == CHANNEL_READY && launcher_channel_copy(&frame, &ready, sizeof ready) &&
	    ready.port <= UINT16_MAX) {
		host->state = LAUNCHER_HOST_READY;
		host->host_key = ready.host_key;
		host->port = ready.port;
	} else if (frame.type == CHANNEL_REFUSED &&
		   launcher_channel_copy(&frame, &refused, sizeof refused) &&
		   refused.exit_status >= 1 && refused.exit_status <= 255) {
		host->state = LAUNCHER_HOST_REFUSED;
		host->exit_status = refused.exit_status;
	} else {
		host->channel.wrong = host->channel.ended = true;
	}
}

static void hear_host(struct beginning *begin, struct launcher_host *host,
		      const struct launcher_poll *set)
{
	if (host->words_poll >= 0 && set->fds[host->words_poll].revents)
		launcher_host_read_words(host);
	launcher_channel_step(&host->channel, set);
	if (host->state == LAUNCHER_HOST_STARTED &&
	    launcher_channel_hear_greeting(&host->channel, host->version) == 1) {
		host->state = LAUNCHER_HOST_OTHER;
		if (strcmp(host->version, LOCKSTEP_VERSION) == 0) {
			host->state = LAUNCHER_HOST_ASKED;
			send_order(begin->job->hosts, host, &begin->order, begin->strings,
				   begin->bytes);
		}
	}
	if (host->state == LAUNCHER_HOST_ASKED)
		hear_answer(host);
	if (host->channel.ended &&
	    (host->state == LAUNCHER_HOST_STARTED || host->state == LAUNCHER_HOST_ASKED))
		host->state = LAUNCHER_HOST_GONE;
}

static bool is_awaited(const struct launcher_host *host)
{
	return host->state == LAUNCHER_HOST_STARTED || host->state == LAUNCHER_HOST_ASKED;
}

static void hear_signals(struct beginning *begin)
{
	struct signalfd_siginfo info;

	while (read(begin->job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
		int number = (int)info.ssi_signo;
		if (number == SIGTSTP)
			raise(SIGSTOP);
		else if (number != SIGCONT && number != SIGUSR1 && number != SIGUSR2)
			begin->signal = number;
	}
}

/* A wait has ended that began then. False: the hosts have had their time. */
static bool count_wait(struct beginning *begin, uint64_t since_ns)
{
	const uint64_t look_ns = LOOK_MS * UINT64_C(1000000);
	uint64_t passed_ns = clock_now_ns() - since_ns;

	begin->waited_ns += passed_ns < 2 * look_ns ? passed_ns : 2 * look_ns;
	bool says = !begin->was_said && begin->waited_ns >= LATE_MS * UINT64_C(1000000);
	begin->was_said |= says;
	for (int i = 0; says && i < begin->job->hosts->count; i++)
		if (is_awaited(&begin->job->hosts->hosts[i]))
			MESSAGE_SAY(MESSAGE_RUN_HOST_AWAITED, begin->job->hosts->hosts[i].name,
				    LATE_MS / 1000, LAUNCHER_HOST_START_MS / 1000);
	return begin->waited_ns < LAUNCHER_HOST_START_MS * UINT64_C(1000000);
}

static void await_answers(struct beginning *begin)
{
	struct launcher_hosts *hosts = begin->job->hosts;
	struct launcher_poll set;

	for (;;) {
		bool waits = false;
		set.count = 1;
		set.fds[0] = (struct pollfd){.fd = begin->job->signal_fd, .events = POLLIN};
		for (int i = 0; i < hosts->count; i++) {
			struct launcher_host *host = &hosts->hosts[i];
			waits |= is_awaited(host);
			host->words_poll = -1;
			launcher_channel_poll(&host->channel, &set);
			if (host->words_fd < 0)
				continue;
			host->words_poll = set.count;
			set.fds[set.count++] =
				(struct pollfd){.fd = host->words_fd, .events = POLLIN};
		}
		if (!waits || begin->signal)
			return;
		uint64_t since_ns = clock_now_ns();
		ls_status status =
			wait_fds(NULL, set.fds, set.count, -1, clock_deadline_ns(LOOK_MS));
		if (!wait_fds_continues(status) || !count_wait(begin, since_ns))
			return;
		if (status != LS_OK)
			continue;
		if (set.fds[0].revents)
			hear_signals(begin);
		for (int i = 0; i < hosts->count; i++)
			hear_host(begin, &hosts->hosts[i], &set);
	}
}

/* ---- what was wrong ---- */

static void say_gone(struct launcher_host *host, const struct launcher_options *options)
{
	char how[96], text[512], last[256] = "";
	siginfo_t info = {0};

	launcher_host_await(host, 2000);
	launcher_host_end_text(host, how, sizeof how);
	if (waitid(P_PIDFD, (id_t)host->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	    info.si_pid != 0 && info.si_code == CLD_EXITED && !host->is_here &&
	    (info.si_status == LAUNCHER_EXIT_NOT_FOUND ||
	     info.si_status == LAUNCHER_EXIT_CANNOT_EXECUTE)) {
		snprintf(last, sizeof last,
			 "lockstep cannot be run there: install it at the same "
			 "path as here, or say where it is with --lockstep PATH");
	} else if (info.si_status == 255 && !host->is_here) {
		snprintf(last, sizeof last, "'%.64s %.100s true' has to work without a question",
			 options->ssh ? options->ssh : "ssh", host->name);
	} else {
		snprintf(last, sizeof last, "%s",
			 host->channel.wrong ? "what came from it is not lockstep's"
					     : "nothing came that says why");
	}
	launcher_host_say_words(host);
	snprintf(text, sizeof text, "%s before it was ready: %s", how, last);
	MESSAGE_SAY(MESSAGE_RUN_HOST, host->name, text);
}

/* Says what is wrong with this host. False: nothing is wrong. */
static bool say_wrong(struct launcher_hosts *hosts, int i, const struct launcher_options *options)
{
	struct launcher_host *host = &hosts->hosts[i];
	char text[256];

	switch (host->state) {
	case LAUNCHER_HOST_READY:
		return is_twice(hosts, i);
	case LAUNCHER_HOST_OTHER:
		snprintf(text, sizeof text,
			 "has lockstep %s, and this host %s: install one version on all",
			 host->version, LOCKSTEP_VERSION);
		MESSAGE_SAY(MESSAGE_RUN_HOST, host->name, text);
		return true;
	case LAUNCHER_HOST_REFUSED:
		/* The daemon wrote its reasons before this frame, but they come another way. */
		launcher_channel_send(&host->channel, CHANNEL_END, NULL, 0, NULL, 0);
		launcher_channel_flush(&host->channel);
		launcher_host_await(host, 2000);
		launcher_host_say_words(host);
		return true;
	case LAUNCHER_HOST_GONE:
		say_gone(host, options);
		return true;
	case LAUNCHER_HOST_STARTED:
	case LAUNCHER_HOST_ASKED:
		launcher_host_say_words(host);
		snprintf(text, sizeof text, "has not answered within %d s",
			 LAUNCHER_HOST_START_MS / 1000);
		MESSAGE_SAY(MESSAGE_RUN_HOST, host->name, text);
		return true;
	default: /* a message was printed before */
		return true;
	}
}

/* Says all errors of all hosts. Returns 0, or the exit status. */
static int find_wrong(struct launcher_hosts *hosts, const struct launcher_options *options)
{
	int wrong = 0, exit_status = 0;
	char which[1024] = "";

	for (int i = 0; i < hosts->count; i++) {
		struct launcher_host *host = &hosts->hosts[i];
		if (!say_wrong(hosts, i, options))
			continue;
		size_t used = strlen(which);
		snprintf(which + used, sizeof which - used, "%s%s", wrong++ ? ", " : "", host->name);
		if (exit_status == 0)
			exit_status = host->exit_status ? host->exit_status : LAUNCHER_FAILED;
	}
	if (wrong > 0)
		MESSAGE_SAY(MESSAGE_RUN_HOSTS, wrong, hosts->count, which);
	return exit_status;
}

/* ---- the start ---- */

static ls_status begin_init(struct beginning *begin, struct launcher_job *job,
			    const struct launcher_options *options)
{
	uint64_t fresh;

	*begin = (struct beginning){
		.job = job,
		.order = {.size = job->count, .hosts = job->hosts->count},
	};
	if (getrandom(begin->order.secret, CHANNEL_SECRET_BYTES, 0) != CHANNEL_SECRET_BYTES ||
	    getrandom(&fresh, sizeof fresh, 0) != (ssize_t)sizeof fresh) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "getrandom", strerror(errno));
		return LS_SYSTEM;
	}
	snprintf(begin->order.run_id, sizeof begin->order.run_id, "%016llx",
		 (unsigned long long)fresh);
	snprintf(begin->order.address, sizeof begin->order.address, "%s",
		 job->hosts->hosts[0].address);
	begin->strings = launcher_order_strings(options, &begin->order, &begin->bytes);
	return begin->strings ? LS_OK : LS_SYSTEM;
}

static void start_ranks(struct launcher_job *job)
{
	struct launcher_hosts *hosts = job->hosts;
	struct channel_go go = {.port = hosts->hosts[0].port};

	for (int i = 0; i < hosts->count; i++) {
		struct launcher_host *host = &hosts->hosts[i];
		host->state = LAUNCHER_HOST_RUNS;
		host->stream = (struct launcher_stream){
			.fd = -1,
			.log_fd = -1,
			.poll = -1,
			.label = host->name,
			.sink = job->output.streams[0][1].sink,
		};
		launcher_channel_send(&host->channel, CHANNEL_GO, &go, sizeof go, NULL, 0);
		for (int rank = host->first; rank < host->first + host->count; rank++)
			job->output.streams[rank][0].fed = job->output.streams[rank][1].fed = true;
	}
	job->started = job->count;
}

ls_status launcher_hosts_start(struct launcher_job *job, const struct launcher_options *options,
			       int *exit_status)
{
	struct beginning begin;

	*exit_status = LAUNCHER_FAILED;
	job->hosts = calloc(1, sizeof *job->hosts);
	if (job->hosts)
		job->hosts->input_fd = -1;
	if (!job->hosts) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "calloc", strerror(ENOMEM));
		return LS_OUT_OF_MEMORY;
	}
	/* All hosts that can be asked are asked, so that all errors are known at once. To look a
	 * name up may take long, and nothing has been started yet: a signal ends this process. */
	sigset_t blocked;
	sigprocmask(SIG_SETMASK, &job->start.mask, &blocked);
	bool good = find_hosts(job->hosts, options->hosts);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	ls_status status = begin_init(&begin, job, options);
	for (int i = 0; status == LS_OK && i < job->hosts->count; i++)
		if (job->hosts->hosts[i].state == LAUNCHER_HOST_STARTED)
			good &= launcher_host_call(job, &job->hosts->hosts[i], options);
	if (status == LS_OK)
		await_answers(&begin);
	explicit_bzero(begin.order.secret, sizeof begin.order.secret);
	free(begin.strings);
	if (status != LS_OK)
		return status;
	if (begin.signal) {
		*exit_status = 128 + begin.signal;
		return LS_INTERRUPTED;
	}
	*exit_status = find_wrong(job->hosts, options);
	if (*exit_status != 0 || !good)
		return LS_BAD_ARGUMENT;
	/* As a rank of this host would get it: from a terminal only what is typed for this job. */
	status = launcher_input_init(&job->input, &job->hosts->input_fd);
	job->hosts->input_room = CHANNEL_INPUT_BYTES;
	if (status == LS_OK)
		start_ranks(job);
	else
		*exit_status = LAUNCHER_FAILED;
	return status;
}
