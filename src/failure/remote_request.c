/* SPDX-License-Identifier: BSD-3-Clause
 * Snapshots of all hosts for other threads of this rank. Each request is the thread's and the
 * watch's: a thread that waits no longer leaves it to the watch. */
#include <stdlib.h>

#include "base/clock.h"
#include "failure/failure_private.h"
#include "failure/remote_look.h"

enum { REQUEST_MS = 4 * FAILURE_ANSWER_MS + 100 };

static void drop_request(struct failure_request *request)
{
	if (atomic_fetch_sub(&request->holders, 1) > 1)
		return;
	free(request->snapshot);
	free(request);
}

struct diagnose_snapshot *failure_remote_request(struct ls_group *group)
{
	struct world *world = group->world;
	struct failure_remote *remote = world->watch.remote;
	struct diagnose_snapshot *snapshot = NULL;
	if (atomic_load(&world->trace.wait_table->watch_tid) == trace_thread_id())
		return failure_remote_collect(world, &(struct diagnose_closing){1, &group->id});
	struct failure_request *request = calloc(1, sizeof *request);
	if (!request)
		return NULL;
	request->group = group->id;
	atomic_init(&request->holders, 2);
	request->next = atomic_load(&remote->requests);
	while (!atomic_compare_exchange_weak(&remote->requests, &request->next, request))
		;
	struct wait_word word = {.word = &request->given,
				 .edge = {.value = 1, .owner = -1, .peer = -1}};
	struct wait_call call = {
		.words = &word, .count = 1, .deadline_ns = clock_deadline_ns(REQUEST_MS)};
	int peer;
	ls_status status;
	failure_watch_serve(&world->watch);
	do
		status = wait_words(&group->quiet, &call, &peer);
	while (status == LS_INTERRUPTED);
	if (status == LS_OK) {
		snapshot = request->snapshot;
		request->snapshot = NULL;
	} /* otherwise the caller makes do with its own host */
	drop_request(request);
	return snapshot;
}

static void serve_request(struct world *world, struct failure_request *request)
{
	struct diagnose_closing closing = {1, &request->group};
	struct ranks answered;
	if (atomic_load(&request->holders) == 1)
		return; /* the other thread waits no longer */
	request->snapshot = failure_remote_collect(world, &closing);
	if (!request->snapshot) /* the rank that was asked may be stopped: this asks another one */
		request->snapshot = failure_remote_collect_some(world, &closing, false, &answered);
	wait_store(&request->given, 1);
	wait_wake(world->waiter.bell);
}

void failure_remote_serve(struct world *world)
{
	struct failure_remote *remote = world->watch.remote;
	struct failure_request *request = remote ? atomic_exchange(&remote->requests, NULL) : NULL;
	while (request) {
		struct failure_request *next = request->next;
		serve_request(world, request);
		drop_request(request);
		request = next;
	}
}

void failure_requests_close(struct failure_remote *remote)
{
	for (struct failure_request *request = atomic_load(&remote->requests), *next; request;
	     request = next) {
		next = request->next;
		drop_request(request);
	}
}
