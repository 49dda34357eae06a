/* SPDX-License-Identifier: BSD-3-Clause
 * Opening and closing the world: meet the other ranks, share memory with each, start the watch.
 * Everything that operations will need exists when ls_group_open returns, except the progress
 * thread. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/messages.h"
#include "engine/plan_file.h"
#include "rendezvous/rendezvous.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "progress/progress.h"
#include "p2p/p2p.h"
#include "group_private.h"
#include "attend.h"
#include "arguments.h"

/* Arguments of ls_group_open after defaults. */
struct opening {
	struct settings settings;
	struct plan_table table;
	struct rendezvous_place place;
	uint64_t deadline_ns;
	uint32_t timeout_ms;
	bool resumes, keeps_memory;
	const char *device; /* NULL: none */
};

static ls_status read_opening(const struct ls_group_options *options, struct opening *out)
{
	struct ls_group_options all = {0};
	struct settings_launch launch;
	if (options && (options->size < sizeof options->size || options->size > sizeof all))
		return group_bad("ls_group_open", "options->size", options->size,
				 "sizeof(struct ls_group_options)");
	if (options)
		memcpy(&all, options, options->size);
	ls_status status = settings_read(NULL, &out->settings);
	if (status != LS_OK)
		return status;
	message_set_level((enum setting_log)out->settings.log);
	status = engine_table_read(out->settings.table, &out->table);
	if (status != LS_OK)
		return status;
	status = settings_read_launch(NULL, &launch);
	if (status != LS_OK)
		return status;
	uint64_t open_ms = all.open_timeout_ms ? all.open_timeout_ms : out->settings.open_timeout_ms;
	out->deadline_ns = clock_deadline_ns(open_ms);
	out->timeout_ms = all.timeout_ms ? all.timeout_ms : (uint32_t)out->settings.timeout_ms;
	out->resumes = all.resume_after_signals != 0;
	out->keeps_memory = all.keep_memory != 0;
	out->device = all.device;
	status = rendezvous_find(all.rendezvous, all.rank, all.world_size, &launch, &out->place);
	if (status == LS_OK)
		status = rendezvous_read_secret(out->settings.secret_file,
						out->settings.trust_network != 0, &out->place);
	if (status == LS_OK && out->place.rank == 0)
		settings_warn_of_unknown(NULL);
	return status;
}

/* Before its segment exists, a rank waits on a bell of its own, and others see only its trace. */
static ls_status early_waiter(struct world *world)
{
	world->waiter = (struct waiter){.wait_table = world->trace.wait_table,
					.bell = &world->early_bell,
					.look_fd = -1,
					.spin_ns = 0,
					.resumes = world->resumes};
	return wait_open(&world->waiter);
}

/* The number of processors on which the ranks together may run. */
static int count_cores(const struct world *world)
{
	uint64_t cpus[TRANSPORT_CPU_WORDS] = {0};
	int cores = 0;
	for (int q = 0; q < world->size; q++)
		for (int i = 0; i < TRANSPORT_CPU_WORDS; i++)
			cpus[i] |= world->transport.peers[q].segment->cpus[i];
	for (int i = 0; i < TRANSPORT_CPU_WORDS; i++)
		cores += __builtin_popcountll(cpus[i]);
	return cores;
}

static void publish_facts(struct transport_segment *segment, const struct opening *opening)
{
	cpu_set_t set;
	segment->table = plan_table_hash(&opening->table);
	segment->algorithm = opening->settings.algorithm;
	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof set, &set) == 0)
		memcpy(segment->cpus, &set, sizeof segment->cpus);
}

/* Ranks that choose different plans would wait for each other. Every rank compares all ranks with
 * rank 0, so all find the same difference. */
static ls_status compare_facts(const struct world *world)
{
	const struct transport_segment *first = world->transport.peers[0].segment;
	for (int q = 1; q < world->size; q++) {
		const struct transport_segment *other = world->transport.peers[q].segment;
		const char *what = other->table != first->table           ? "LOCKSTEP_TABLE"
				   : other->algorithm != first->algorithm ? "LOCKSTEP_ALGORITHM"
									  : NULL;
		if (what) {
			MESSAGE_SAY(MESSAGE_GROUP_SETTINGS, q, what);
			return LS_INCONSISTENT;
		}
	}
	return LS_OK;
}

static void final_waiter(struct world *world)
{
	const struct settings *settings = &world->settings;
	world->cores = count_cores(world);
	if (world->cores < world->size) /* all ranks count the same processors */
		plan_table_crowd(&world->table);
	world->waiter = (struct waiter){
		.wait_table = world->waiter.wait_table,
		.registry = world->waiter.registry,
		.bell = &world->transport.segment->bell,
		.spin_ns = settings->wait == SETTING_WAIT_SLEEP ? 0
								: (uint32_t)settings->spin_us * 1000,
		.yield = settings->wait == SETTING_WAIT_YIELD ||
			 (settings->wait == SETTING_WAIT_AUTO && world->cores < world->size),
		.look_ns = settings->look_ms * 1000000,
		.look_fd = world->watch.event_fd,
		.resumes = world->resumes,
	};
}

/* Every rank compares with rank 0, so all that are not on its host, and rank 0, find the same. */
static ls_status refuse_other_hosts(const struct rendezvous_table *table)
{
	const struct rendezvous_rank *first = &table->ranks[0];
	for (int q = 1; q < table->size; q++) {
		const struct rendezvous_rank *other = &table->ranks[q];
		if (other->host_key == first->host_key || !other->host_key || !first->host_key)
			continue;
		MESSAGE_SAY(MESSAGE_GROUP_HOSTS, first->host, first->ip, q, other->host, other->ip);
		return LS_UNSUPPORTED;
	}
	return LS_OK;
}

/* Meets the others; afterwards job, size and pids are known. */
static ls_status meet(struct world *world, const struct opening *opening,
		      struct transport_exchange *exchange, struct rendezvous_table *table)
{
	struct rendezvous_self self = {
		.me = {.pid = getpid(), .uid = geteuid(), .host_key = rendezvous_host_key()},
		.trace_fd = world->trace.fd};
	exchange->listen_fd = -1;
	ls_status status = LS_OK;
	if (gethostname(self.me.host, sizeof self.me.host - 1))
		self.me.host[0] = '\0';
	if (world->rank == 0 && world->size > 1)
		status = transport_listen(self.me.address, sizeof self.me.address,
					  &exchange->listen_fd);
	struct rendezvous_meeting *meeting = NULL;
	if (status == LS_OK)
		status = rendezvous_join(&opening->place, &self, &world->waiter,
					 opening->deadline_ns, table, &meeting);
	if (status == LS_OK)
		status = refuse_other_hosts(table);
	rendezvous_leave(meeting, &world->control_fd);
	if (status != LS_OK)
		return status;
	trace_set_job(&world->trace, table->job, table->size);
	for (int q = 0; q < table->size; q++)
		world->pids[q] = table->ranks[q].pid;
	exchange->address = table->ranks[0].address;
	exchange->pids = world->pids;
	return LS_OK;
}

static void open_views(struct world *world)
{
	const char *why;
	for (int q = 0; q < world->size; q++) {
		bool ok = q == world->rank ? trace_check(world->trace.header, world->trace.bytes,
							 &world->views[q], &why)
					   : trace_map(world->transport.peers[q].trace_fd,
						       &world->views[q], &why);
		if (!ok) {
			MESSAGE_SAY(MESSAGE_GROUP_TRACE, q, why);
			world->views[q] = (struct trace_view){0};
		}
	}
}

/* The process that all ranks descend from: the launcher at the other end of the control connection;
 * otherwise the parent process, as under torchrun and mpirun. */
static int launcher_pid(const struct world *world)
{
	struct ucred launcher = {0};
	socklen_t length = sizeof launcher;
	if (world->control_fd >= 0 &&
	    getsockopt(world->control_fd, SOL_SOCKET, SO_PEERCRED, &launcher, &length) == 0 &&
	    launcher.pid > 0)
		return launcher.pid;
	return getppid();
}

static ls_status connect_world(struct world *world, const struct opening *opening)
{
	struct transport_exchange exchange = {.deadline_ns = opening->deadline_ns};
	struct rendezvous_table *table = calloc(1, sizeof *table);
	if (!table)
		return LS_OUT_OF_MEMORY;
	ls_status status = meet(world, opening, &exchange, table);
	if (status == LS_OK)
		status = memory_init(&world->memory, world->settings.arena_bytes, table->job,
				     world->rank);
	if (status == LS_OK)
		status = transport_init(&world->transport, table->job, world->rank, world->size);
	if (status == LS_OK) {
		publish_facts(world->transport.segment, opening);
		exchange.arena_fd = world->memory.fd;
		exchange.trace_fd = world->trace.fd;
		exchange.waiter = &world->waiter;
		exchange.no_remote = world->settings.remote == SETTING_REMOTE_OFF;
		exchange.launcher = launcher_pid(world);
		status = transport_connect(&world->transport, &exchange);
	}
	if (exchange.listen_fd >= 0)
		close(exchange.listen_fd);
	free(table);
	return status;
}

static void world_close(struct world *world)
{
	failure_watch_stop(world);
	progress_thread_stop(world);
	failure_watch_fini(&world->watch);
	p2p_fini(world);
	group_device_close(world);
	wait_close(&world->waiter);
	group_free_all(world);
	for (int q = 0; q < world->size; q++)
		trace_unmap(&world->views[q]);
	transport_fini(&world->transport);
	if (world->keeps_memory)
		memory_keep(&world->memory);
	else
		memory_fini(&world->memory);
	trace_fini(&world->trace);
	if (world->control_fd >= 0)
		close(world->control_fd);
	lock_group_fini(&world->lock);
	free(world);
}

/* The group of all ranks. */
static ls_status fill_first(struct world *world, uint32_t timeout_ms)
{
	struct group_making making = {.id = WORLD_GROUP_ID,
				      .timeout_ms = timeout_ms,
				      .rank = world->rank,
				      .size = world->size};
	struct ls_group *group = group_alloc(world);
	if (!group)
		return LS_OUT_OF_MEMORY;
	for (int q = 0; q < world->size; q++)
		making.members[q] = (uint8_t)q;
	group_init(group, &making);
	return LS_OK;
}

static ls_status world_fill(struct world *world, const struct opening *opening)
{
	struct trace_options options = {.rank = world->rank,
					.world_size = world->size,
					.serial = world->settings.p2p == SETTING_P2P_SERIAL,
					.records = world->settings.trace_records};
	ls_status status = trace_init(&world->trace, &options);
	if (status != LS_OK)
		return status;
	status = early_waiter(world);
	if (status == LS_OK)
		status = group_device_open(world, opening->device);
	if (status == LS_OK)
		status = connect_world(world, opening);
	if (status != LS_OK)
		return status;
	world->watch.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (world->watch.event_fd < 0) {
		MESSAGE_SAY(MESSAGE_GROUP_THREAD, strerror(errno));
		return LS_OUT_OF_MEMORY;
	}
	status = compare_facts(world);
	if (status != LS_OK)
		return status;
	final_waiter(world);
	status = group_device_register(world);
	if (status != LS_OK)
		return status;
	open_views(world);
	transport_hold(&world->transport);
	status = fill_first(world, opening->timeout_ms);
	return status == LS_OK ? failure_watch_start(world) : status;
}

static ls_status world_open(const struct opening *opening, struct world **out)
{
	struct world *world = calloc(1, sizeof *world);
	*out = NULL;
	if (!world)
		return LS_OUT_OF_MEMORY;
	world->settings = opening->settings;
	world->fork_generation = fork_generation();
	world->rank = opening->place.rank;
	world->size = opening->place.world_size;
	world->control_fd = -1;
	world->resumes = opening->resumes;
	world->keeps_memory = opening->keeps_memory;
	world->table = opening->table;
	lock_group_init(&world->lock);
	failure_watch_init(&world->watch);
	p2p_init(world);
	world->watch.show = p2p_show;
	world->progress.act = group_attend;
	ls_status status = world_fill(world, opening);
	if (status != LS_OK) {
		world_close(world);
		return status;
	}
	*out = world;
	return LS_OK;
}

ls_status ls_group_open(const struct ls_group_options *options, ls_group **out)
{
	struct opening opening;
	struct world *world;
	if (!out)
		return group_bad("ls_group_open", "out", 0, "not NULL");
	*out = NULL;
	ls_status status = read_opening(options, &opening);
	if (status != LS_OK)
		return status;
	int outer_rank = message_rank();
	message_set_rank(opening.place.rank);
	status = world_open(&opening, &world);
	message_set_rank(outer_rank);
	if (status != LS_OK)
		return status;
	*out = world_hold(world, WORLD_GROUP_ID);
	world_release(*out);
	return LS_OK;
}

void ls_group_close(ls_group *group)
{
	if (!group)
		return;
	struct world *world = group->world;
	if (world->fork_generation != fork_generation())
		return; /* a child has no arena and no watch, and nothing to release */
	bool all = group->id == WORLD_GROUP_ID;
	if (all) {
		failure_warn_open(world);
		group_leave_all(world);
		/* calls have returned the failure, so the job continues */
	} else if (failure_status(group) != LS_OK) {
		trace_report(&world->trace, group->id, LS_OK, -1, 0, "");
	}
	group_leave(group);
	if (all)
		world_close(world);
}
