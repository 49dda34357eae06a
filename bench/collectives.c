/* SPDX-License-Identifier: BSD-3-Clause
 * Times collectives, messages and groups of the runtime that it is linked with, started by that
 * runtime's launcher:
 *   collectives [OPTIONS] OP:BYTES…   one line each on rank 0: "op bytes microseconds
 *                                     [cpu_microseconds]"
 * The other modes, --check, --open and --beside, are told in the table below. */
#include <dirent.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "beside.h"
#include "runtime.h"

enum { POINTS_MAX = 512, EXCHANGE_BYTES = 2 << 20 };

static const struct option options[] = {
	{"fresh", no_argument, NULL, 'f'},  /* each rank rewrites its data before each operation */
	{"plain", no_argument, NULL, 'p'},  /* memory of the C library, in whole pages */
	{"free", no_argument, NULL, 'u'},   /* ranks are not bound to processors */
	{"thread", no_argument, NULL, 't'}, /* with --beside: see beside.h */
	{"repeats", required_argument, NULL, 'r'},
	{"repeat-ms", required_argument, NULL, 'm'},
	{"limit-ms", required_argument, NULL, 'l'},
	{"check", no_argument, NULL, 'c'}, /* runs and compares each once, times nothing */
	/* "open 0 MICROSECONDS TRACE_BYTES GROUP SOCKETS SOCKETS": to join, and to open and close a
	 * first group; all ranks' sockets then, and after all have exchanged data with all */
	{"open", no_argument, NULL, 'o'},
	{"beside", no_argument, NULL, 'b'}, /* "beside BYTES COMPUTE ALL-REDUCE STEP SLOWED" */
	{NULL, 0, NULL, 0},
};

struct choices {
	bool fresh, plain, unbound, thread, check, open, beside;
	struct bench_effort effort;
	struct bench_case points[POINTS_MAX];
	int count;
};

static bool read_point(const char *text, struct bench_case *out)
{
	char name[32], *end = NULL;
	size_t length = strcspn(text, ":");
	snprintf(name, sizeof name, "%.*s", (int)(length < 31 ? length : 31), text);
	int op = bench_op_from(name);
	unsigned long long bytes = text[length] ? strtoull(text + length + 1, &end, 10) : 0;
	if (op < 0 || (end && *end)) {
		fprintf(stderr, "collectives: '%s' is no OP:BYTES\n", text);
		return false;
	}
	*out = (struct bench_case){.op = (enum bench_op)op, .bytes = bytes};
	return true;
}

static bool parse(int argc, char **argv, struct choices *out)
{
	int option;
	*out = (struct choices){.effort = {.repeat_s = 0.02, .limit_s = 0.5, .repeats = 7}};
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'f':
			out->fresh = true;
			break;
		case 'p':
			out->plain = true;
			break;
		case 'u':
			out->unbound = true;
			break;
		case 't':
			out->thread = true;
			break;
		case 'r':
			out->effort.repeats = (int)strtol(optarg, NULL, 10);
			break;
		case 'm':
			out->effort.repeat_s = strtod(optarg, NULL) * 1e-3;
			break;
		case 'l':
			out->effort.limit_s = strtod(optarg, NULL) * 1e-3;
			break;
		case 'c':
			out->check = true;
			break;
		case 'o':
			out->open = true;
			break;
		case 'b':
			out->beside = true;
			break;
		default:
			return false;
		}
	}
	for (int i = optind; i < argc && out->count < POINTS_MAX; i++)
		if (!read_point(argv[i], &out->points[out->count++]))
			return false;
	return true;
}

static double now(void)
{
	struct timespec time;
	if (clock_gettime(CLOCK_MONOTONIC, &time) != 0)
		abort();
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool time_beside(struct bench_runtime *runtime, const struct choices *choices,
			const struct bench_case *what)
{
	struct beside_times times;
	if (!beside_measure(runtime, what->send, what->bytes, choices->thread, &times))
		return false;
	if (runtime->rank == 0)
		printf("beside %zu %.3f %.3f %.3f %.3f\n", what->bytes, times.compute * 1e6,
		       times.allreduce * 1e6, times.step * 1e6, times.slowed * 1e6);
	return true;
}

static bool time_point(struct bench_runtime *runtime, const struct choices *choices,
		       const struct bench_case *what)
{
	const char *name = bench_op_name(what->op);
	struct bench_time taken;
	char wrong[256];
	if (!bench_check(runtime, what, wrong, sizeof wrong)) {
		fprintf(stderr, "collectives: %s of %zu bytes failed: %s\n", name, what->bytes,
			wrong);
		return false;
	}
	if (choices->check) {
		if (runtime->rank == 0)
			printf("%s %zu good\n", name, what->bytes);
		return true;
	}
	if (!bench_time(runtime, what, &choices->effort, &taken))
		return false;
	if (runtime->rank == 0 && taken.cpu_seconds >= 0)
		printf("%s %zu %.4f %.4f\n", name, what->bytes, taken.seconds * 1e6,
		       taken.cpu_seconds * 1e6);
	else if (runtime->rank == 0)
		printf("%s %zu %.4f\n", name, what->bytes, taken.seconds * 1e6);
	fflush(stdout);
	return true;
}

static bool time_points(struct bench_runtime *runtime, const struct choices *choices)
{
	size_t bytes = 64;
	for (int i = 0; i < choices->count; i++) {
		const struct bench_case *what = &choices->points[i];
		size_t here = bench_elements(what->op, what->bytes, runtime->size) * sizeof(float);
		bytes = here > bytes ? here : bytes;
	}
	float *send = bench_allocate(runtime, bytes, choices->plain);
	float *recv = bench_allocate(runtime, bytes, choices->plain);
	bool good = send && recv;
	for (int i = 0; good && i < choices->count; i++) {
		struct bench_case what = choices->points[i];
		what.fresh = choices->fresh;
		what.send = send;
		what.recv = recv;
		good = choices->beside ? time_beside(runtime, choices, &what)
				       : time_point(runtime, choices, &what);
	}
	return good;
}

/* A group of all ranks that none has had before: whatever it needs is made anew. Seconds of the
 * slowest rank; 0 if the runtime has no groups. */
static bool time_first_group(struct bench_runtime *runtime, double *out)
{
	double nothing = 0;
	*out = 0;
	if (!runtime->messages || !runtime->messages->regroup)
		return true;
	if (!runtime->combine(runtime->state, BENCH_MAX, &nothing)) /* all are there */
		return false;
	double begin = now();
	if (!runtime->messages->regroup(runtime->state))
		return false;
	*out = now() - begin;
	return runtime->combine(runtime->state, BENCH_MAX, out);
}

/* The sockets of this process. */
static double sockets(void)
{
	char path[300], target[8];
	double count = 0;
	DIR *folder = opendir("/proc/self/fd");
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
		ssize_t length = readlink(path, target, sizeof target);
		count += length >= 7 && strncmp(target, "socket:", 7) == 0;
	}
	if (folder)
		closedir(folder);
	return count;
}

static bool exchange(struct bench_runtime *runtime)
{
	struct bench_case what = {.op = BENCH_ALLTOALL, .bytes = EXCHANGE_BYTES};
	size_t bytes = bench_elements(what.op, what.bytes, runtime->size) * sizeof(float);
	char wrong[256] = "";
	what.send = bench_allocate(runtime, bytes, false);
	what.recv = bench_allocate(runtime, bytes, false);
	if (!what.send || !what.recv)
		return false;
	bool good = bench_check(runtime, &what, wrong, sizeof wrong);
	if (!good)
		fprintf(stderr, "collectives: an exchange failed: %s\n", wrong);
	return good;
}

/* To join: from the last entry to the last return. */
static bool tell_open(struct bench_runtime *runtime, double entered, double returned)
{
	double group, before = sockets(), after;
	if (!runtime->combine(runtime->state, BENCH_MAX, &entered) ||
	    !runtime->combine(runtime->state, BENCH_MAX, &returned) ||
	    !time_first_group(runtime, &group) || !exchange(runtime))
		return false;
	after = sockets();
	if (!runtime->combine(runtime->state, BENCH_SUM, &before) ||
	    !runtime->combine(runtime->state, BENCH_SUM, &after))
		return false;
	if (runtime->rank == 0)
		printf("open 0 %.3f %zu %.3f %.0f %.0f\n", (returned - entered) * 1e6,
		       bench_trace_bytes(), group * 1e6, before, after);
	return true;
}

int main(int argc, char **argv)
{
	struct bench_runtime runtime;
	struct choices choices;
	if (!parse(argc, argv, &choices))
		return 2;
	if (!choices.unbound)
		bench_bind(bench_rank());
	double entered = now();
	if (!bench_open(&runtime, choices.thread))
		return 1;
	double returned = now();
	bool good = choices.open ? tell_open(&runtime, entered, returned)
				 : time_points(&runtime, &choices);
	fflush(stdout);
	if (!good)
		return 1; /* without a word to the others: their runtime tells them */
	bench_close(&runtime);
	return 0;
}
