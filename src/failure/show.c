/* SPDX-License-Identifier: BSD-3-Clause
 * Answers commands on this host that ask for the ranks of other hosts: see shown.h. */
#include "failure/shown.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "failure/failure_private.h"
#include "failure/remote_look.h"
#include "failure/traces.h"

enum {
	KEEP_MS = 5000, /* for how long an answer is kept */
	WAKE_MS = 50,
	TRIES = 2,
};

static struct transport_agent *agent_of(const struct world *world)
{
	struct ranks here = failure_ranks_here(world);
	return &world->transport.peers[ranks_first(&here)].segment->agent;
}

/* ---- the thread of heartbeats ---- */

static bool is_old(const struct failure_answer *answer, uint64_t now_ns)
{
	uint64_t since_ns = atomic_load(&answer->since_ns);
	return since_ns && now_ns - since_ns > KEEP_MS * UINT64_C(1000000);
}

void failure_show_poll(struct world *world, bool is_agent, uint64_t now_ns)
{
	struct failure_remote *remote = world->watch.remote;
	struct transport_agent *agent = agent_of(world);
	bool wakes = false;
	for (int i = 0; i < TRANSPORT_QUESTIONS; i++) {
		bool is_asked = atomic_load(&agent->asked[i]) != atomic_load(&agent->given[i]);
		if (is_asked && is_agent)
			atomic_store(&remote->answers[i].wanted, true);
		wakes |= (is_asked && is_agent) || is_old(&remote->answers[i], now_ns);
	}
	/* A watch that is looking takes no notice of a wake-up. */
	if (!wakes || now_ns - remote->woken_ns < WAKE_MS * UINT64_C(1000000))
		return;
	remote->woken_ns = now_ns;
	failure_watch_serve(&world->watch);
}

/* ---- the file ---- */

static void drop_answer(struct failure_answer *answer)
{
	struct stat status;
	if (answer->fd >= 0 && fstat(answer->fd, &status) == 0 && status.st_ino == answer->inode)
		close(answer->fd);
	answer->fd = -1;
	atomic_store(&answer->since_ns, 0);
}

/* A file of this length, and its memory; -1 on failure. */
static int make_file(const struct world *world, uint32_t question, size_t bytes, void **memory)
{
	char name[64];
	snprintf(name, sizeof name, FAILURE_SHOWN_NAME ":%" PRIu32 ":%016" PRIx64, question,
		 world->transport.job);
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	*memory = MAP_FAILED;
	/* All its memory is taken here, so that no write to it can end in SIGBUS. */
	if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fallocate(fd, 0, 0, (off_t)bytes) == 0)
		*memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (*memory != MAP_FAILED)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static void show_file(const struct world *world, int fd, struct failure_shown *shown)
{
	struct failure_answer *answer = &world->watch.remote->answers[shown->question];
	struct stat status;
	shown->now_ns = clock_now_ns();
	munmap(shown, shown->bytes);
	int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	if (fcntl(fd, F_ADD_SEALS, seals) != 0 || fstat(fd, &status) != 0) {
		close(fd);
		return;
	}
	drop_answer(answer);
	answer->fd = fd;
	answer->inode = status.st_ino;
	atomic_store(&answer->since_ns, clock_now_ns());
}

/* ---- the job ---- */

static struct failure_shown head_of(const struct world *world, enum transport_question question,
				    uint64_t number, const struct ranks *answered)
{
	struct failure_shown head = {.magic = FAILURE_SHOWN_MAGIC,
				     .job = world->transport.job,
				     .number = number,
				     .size = world->size,
				     .teller = world->rank,
				     .question = question,
				     .waited_ms = FAILURE_ANSWER_MS};
	memcpy(head.answered, answered->words, sizeof head.answered);
	return head;
}

static struct diagnose_snapshot *look_at_hosts(struct world *world, struct ranks *answered)
{
	struct diagnose_snapshot *snapshot =
		failure_remote_collect_some(world, NULL, false, answered);
	for (int i = 1; i < TRIES && failure_remote_may_try_again(world, answered); i++) {
		free(snapshot);
		snapshot = failure_remote_collect_some(world, NULL, false, answered);
	}
	return snapshot;
}

static void show_job(struct world *world, uint64_t number)
{
	struct ranks answered, all = ranks_below(world->size);
	struct diagnose_traffic *traffic = calloc((size_t)world->size, sizeof *traffic);
	struct diagnose_snapshot *snapshot = look_at_hosts(world, &answered);
	void *block = NULL, *memory;
	size_t bytes = 0;
	if (snapshot && traffic) {
		failure_add_sites(world, snapshot);
		block = diagnose_pack(snapshot, &all, traffic, &bytes);
	}
	free(snapshot);
	free(traffic);
	struct failure_shown head = head_of(world, TRANSPORT_QUESTION_JOB, number, &answered);
	head.block = (struct failure_shown_part){.offset = sizeof head, .bytes = bytes};
	head.bytes = sizeof head + bytes;
	int fd = block ? make_file(world, head.question, head.bytes, &memory) : -1;
	if (fd >= 0) {
		memcpy(memory, &head, sizeof head);
		memcpy((char *)memory + sizeof head, block, bytes);
		show_file(world, fd, memory);
	}
	free(block);
}

/* ---- traces ---- */

/* The blocks of all hosts, one after the other. */
struct gathered {
	const struct world *world;
	struct failure_shown head;
	char *copies;
	size_t bytes;
};

static void take_copies(void *context, const void *block, size_t bytes)
{
	struct gathered *all = context;
	struct failure_copies head;
	if (bytes < sizeof head)
		return;
	memcpy(&head, block, sizeof head);
	if (!failure_copies_are_good(all->world, &head, bytes))
		return;
	size_t more = bytes - sizeof head;
	char *copies = realloc(all->copies, all->bytes + more + 1);
	if (!copies)
		return;
	all->copies = copies;
	memcpy(copies + all->bytes, (const char *)block + sizeof head, more);
	uint64_t at = all->bytes;
	for (int q = 0; q < all->world->size; q++) {
		if (head.of[q] && !all->head.traces[q].bytes) {
			all->head.traces[q] = (struct failure_shown_part){
				.offset = failure_copies_align(sizeof all->head) + at,
				.bytes = head.of[q]};
			all->head.copied_ns[q] = head.now_ns;
		}
		at += failure_copies_align(head.of[q]);
	}
	all->bytes += more;
}

static void show_traces(struct world *world, uint64_t number)
{
	struct ranks none = {{0}};
	struct gathered all = {.world = world,
			       .head = head_of(world, TRANSPORT_QUESTION_TRACES, number, &none)};
	void *memory;
	struct ranks answered = failure_remote_copy(world, take_copies, &all);
	memcpy(all.head.answered, answered.words, sizeof all.head.answered);
	all.head.waited_ms = FAILURE_COPY_MS;
	all.head.bytes = failure_copies_align(sizeof all.head) + all.bytes;
	int fd = make_file(world, all.head.question, all.head.bytes, &memory);
	if (fd >= 0) {
		memcpy(memory, &all.head, sizeof all.head);
		if (all.bytes)
			memcpy((char *)memory + failure_copies_align(sizeof all.head), all.copies,
			       all.bytes);
		show_file(world, fd, memory);
	}
	free(all.copies);
}

/* ---- the watch ---- */

/* The question counts as answered also if there was no memory for the answer: a command that finds
 * none says so, and this host is not asked forever. */
static void tell_given(struct transport_agent *agent, unsigned question, uint64_t number)
{
	uint64_t given = atomic_load(&agent->given[question]);
	while (given < number &&
	       !atomic_compare_exchange_weak(&agent->given[question], &given, number))
		continue;
}

void failure_show_serve(struct world *world)
{
	struct failure_remote *remote = world->watch.remote;
	for (unsigned i = 0; remote && i < TRANSPORT_QUESTIONS; i++) {
		struct transport_agent *agent = agent_of(world);
		uint64_t number = atomic_load(&agent->asked[i]);
		if (is_old(&remote->answers[i], clock_now_ns()))
			drop_answer(&remote->answers[i]);
		if (!atomic_exchange(&remote->answers[i].wanted, false) ||
		    number == atomic_load(&agent->given[i]))
			continue;
		if (i == TRANSPORT_QUESTION_JOB)
			show_job(world, number);
		else
			show_traces(world, number);
		tell_given(agent, i, number);
	}
}

void failure_show_close(struct failure_remote *remote)
{
	for (int i = 0; i < TRANSPORT_QUESTIONS; i++)
		drop_answer(&remote->answers[i]);
}
