/* SPDX-License-Identifier: BSD-3-Clause
 * Opening the world: meet the other ranks, share memory with each, start the watch.
 * When ls_group_open returns, all that operations need exists, except the progress thread. */
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fork.h"
#include "base/messages.h"
#include "base/option_size.h"
#include "engine/plan_file.h"
#include "rendezvous/rendezvous.h"
#include "world/registry.h"
#include "failure/failure.h"
#include "failure/run_notes.h"
#include "progress/progress.h"
#include "p2p/p2p.h"
#include "group/group_private.h"
#include "group/open_hosts.h"
#include "group/arguments.h"
#include "group/group.h"

/* Arguments of ls_group_open after defaults. */
struct opening {
	struct settings settings;
	struct plan_table table;
	struct rendezvous_place place;
	uint64_t deadline_ns;
	uint32_t timeout_ms;
	bool resumes, keeps_memory;
	const char *device;    /* NULL: none */
	const char *run_notes; /* NULL: none */
	bool is_served;        /* the launcher lets the ranks meet, and holds their traces */
	bool is_launched;      /* as this rank of these ranks it was started */
};

static ls_status read_opening(const struct ls_group_options *options, struct opening *out)
{
	struct ls_group_options all = {0};
	struct settings_launch launch;
	if (options && !option_size_is_right(options->size, sizeof all))
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
	out->run_notes = launch.run_notes;
	out->is_served = launch.rendezvous != NULL;
	status = rendezvous_find(all.rendezvous, all.rank, all.world_size, &launch, &out->place);
	if (status == LS_OK)
		status = rendezvous_read_secret(out->settings.secret_file,
						out->settings.trust_network != 0, &out->place);
	out->is_launched =
		launch.rank == out->place.rank && launch.world_size == out->place.world_size;
	if (status == LS_OK && out->place.rank == 0)
		settings_warn_of_unknown(NULL);
	return status;
}

/* Before its segment exists, a rank waits on a bell of its own, and other ranks see only its
 * trace. */
static ls_status early_waiter(struct world *world)
{
	world->waiter = (struct waiter){.wait_table = world->trace.wait_table,
					.bell = &world->early_bell,
					.look_fd = -1,
					.spin_ns = 0,
					.resumes = world->resumes};
	return wait_open(&world->waiter);
}

/* On how many processors the ranks of a host together may run. *ranks: how many ranks it has. */
static int count_cores(const struct world *world, uint16_t host, int *ranks)
{
	uint64_t cpus[TRANSPORT_CPU_WORDS] = {0};
	int cores = 0;
	*ranks = 0;
	for (int q = 0; q < world->size; q++) {
		if (world->transport.peers[q].host != host)
			continue;
		++*ranks;
		for (int i = 0; i < TRANSPORT_CPU_WORDS; i++)
			cpus[i] |= world->transport.peers[q].segment->cpus[i];
	}
	for (int i = 0; i < TRANSPORT_CPU_WORDS; i++)
		cores += __builtin_popcountll(cpus[i]);
	return cores;
}

/* Whether some host has fewer processors than ranks. All ranks find the same. */
static bool is_oversubscribed(const struct world *world)
{
	int ranks;
	for (int q = 0; q < world->size; q++)
		if (count_cores(world, world->transport.peers[q].host, &ranks) < ranks)
			return true;
	return false;
}

/* A peer on another host is some ten times as far away as one on this host, so waits spin ten times
 * as long before they sleep; and they yield, as a step of the link costs more than a yield. But
 * where ranks share processors a spinning rank takes the time of others, although it yields. */
enum { SPIN_BETWEEN_HOSTS = 10 };

static void final_waiter(struct world *world)
{
	const struct settings *settings = &world->settings;
	const struct wait_pump *pump = hosts_pump(&world->transport);
	uint32_t spin_ns = (uint32_t)settings->spin_us * 1000;
	world->host_cores =
		count_cores(world, world->transport.peers[world->rank].host, &world->host_ranks);
	if (pump && world->host_cores >= world->host_ranks)
		spin_ns = spin_ns < UINT32_MAX / SPIN_BETWEEN_HOSTS ? spin_ns * SPIN_BETWEEN_HOSTS
								    : UINT32_MAX;
	if (is_oversubscribed(world))
		plan_table_oversubscribe(&world->table);
	world->waiter = (struct waiter){
		.wait_table = world->waiter.wait_table,
		.registry = world->waiter.registry,
		.bell = &world->transport.segment->bell,
		.spin_ns = settings->wait == SETTING_WAIT_SLEEP ? 0 : spin_ns,
		.yield = settings->wait == SETTING_WAIT_YIELD ||
			 (settings->wait == SETTING_WAIT_AUTO &&
			  (pump || world->host_cores < world->host_ranks)),
		.look_ns = settings->look_ms * 1000000,
		.look_fd = world->watch.event_fd,
		.resumes = world->resumes,
		.pump = pump,
	};
}

/* What this rank learns of the others while it opens the world. */
struct job_map {
	struct rendezvous_table table;
	struct open_hosts hosts;
	struct open_facts facts;
	struct transport_exchange exchange;
	struct rendezvous_meeting *meeting; /* until all are connected; NULL on one host */
	struct failure_run_ends ends;       /* until all have met */
};

/* Finds the hosts. With several hosts all ranks exchange addresses in the second round of the
 * meeting. */
static ls_status share_addresses(struct world *world, struct rendezvous_meeting *meeting,
				 const char *address, struct job_map *map)
{
	struct transport_exchange *exchange = &map->exchange;
	group_hosts_place(&map->table, world->rank, &map->hosts);
	ls_status status = group_hosts_check(&map->table, &map->hosts, world->rank);
	if (status != LS_OK)
		return status;
	exchange->here = map->hosts.here;
	exchange->address = map->table.ranks[0].address;
	if (map->hosts.count == 1)
		return LS_OK;
	status = group_hosts_gather(world, &map->table, &map->facts, address, meeting, &map->hosts,
				    &exchange->listen_fd);
	exchange->address = group_hosts_root_address(&map->hosts);
	return status;
}

/* Meets the other ranks. Afterwards job, size and pids are known. */
static ls_status meet_ranks(struct world *world, const struct opening *opening, struct job_map *map)
{
	bool listens = opening->is_launched && !opening->is_served;
	failure_run_ends_open(listens ? opening->run_notes : NULL, &map->ends);
	struct rendezvous_ends ends = {failure_run_ends_find, &map->ends};
	struct rendezvous_self self = {
		.me = {.pid = getpid(), .uid = geteuid(), .host_key = rendezvous_host_key()},
		.trace_fd = world->trace.fd,
		.ends = map->ends.fd < 0 ? NULL : &ends};
	struct transport_exchange *exchange = &map->exchange;
	struct rendezvous_meeting *meeting = NULL;
	ls_status status = LS_OK;
	if (gethostname(self.me.host, sizeof self.me.host - 1))
		self.me.host[0] = '\0';
	if (world->rank == 0 && world->size > 1)
		status = transport_listen(self.me.address, sizeof self.me.address,
					  &exchange->listen_fd);
	if (status == LS_OK)
		status = rendezvous_join(&opening->place, &self, &world->waiter,
					 opening->deadline_ns, &map->table, &meeting);
	if (status == LS_OK)
		status = share_addresses(world, meeting, self.me.address, map);
	failure_run_ends_close(&map->ends);
	if (status == LS_OK && map->hosts.count > 1)
		map->meeting = meeting;
	else
		rendezvous_leave(meeting, &world->control_fd);
	if (status != LS_OK)
		return status;
	trace_set_job(&world->trace, map->table.job, world->size);
	for (int q = 0; q < world->size; q++)
		if (ranks_have(&map->hosts.here, q)) {
			world->pids[q] = map->table.ranks[q].pid;
		} else {
			world->remote_pids[q] = map->table.ranks[q].pid;
			memcpy(world->remote_hosts[q], map->table.ranks[q].host,
			       sizeof world->remote_hosts[q]);
		}
	exchange->pids = world->pids;
	return LS_OK;
}

static void open_views(struct world *world)
{
	const char *why;
	for (int q = 0; q < world->size; q++) {
		if (world->transport.peers[q].mirror)
			continue;
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

/* The process from which all ranks descend: the launcher at the other end of the control
 * connection; otherwise the parent process, as under torchrun and mpirun. */
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

/* Memory is shared within each host; other hosts have mirrors. */
static ls_status share_memory(struct world *world, struct job_map *map)
{
	struct transport_exchange *exchange = &map->exchange;
	exchange->waiter = &world->waiter;
	ls_status status = memory_init(&world->memory, world->settings.arena_bytes, map->table.job,
				       world->rank);
	if (status == LS_OK)
		status = map->hosts.count > 1
				 ? transport_init_mirrors(&world->transport, map->table.job,
							  world->rank, world->size)
				 : transport_init(&world->transport, map->table.job, world->rank,
						  world->size);
	if (status == LS_OK && map->hosts.count > 1)
		status = group_hosts_mirror(world, &map->table, &map->hosts);
	if (status != LS_OK) {
		transport_decline(exchange, map->table.job, world->rank, world->size, status);
		return status;
	}
	group_facts_publish(world->transport.segment, &map->facts);
	exchange->arena_fd = world->memory.fd;
	exchange->trace_fd = world->trace.fd;
	exchange->no_cma = world->settings.cma == SETTING_CMA_OFF;
	exchange->launcher = launcher_pid(world);
	return transport_connect(&world->transport, exchange);
}

static ls_status connect_world(struct world *world, const struct opening *opening,
			       struct job_map *map)
{
	struct transport_exchange *exchange = &map->exchange;
	exchange->deadline_ns = opening->deadline_ns;
	exchange->listen_fd = -1;
	map->facts = group_facts_find(&opening->settings, &opening->table);
	ls_status status = meet_ranks(world, opening, map);
	if (status == LS_OK)
		status = share_memory(world, map);
	if (exchange->listen_fd >= 0)
		close(exchange->listen_fd);
	return status;
}

/* Makes the world group. */
static ls_status fill_first(struct world *world, uint32_t timeout_ms)
{
	struct group_making making = {.id = WORLD_GROUP_ID,
				      .timeout_ms = timeout_ms,
				      .rank = world->rank,
				      .size = world->size};
	struct ls_group *group = group_alloc(world, "ls_group_open");
	if (!group)
		return LS_OUT_OF_MEMORY;
	for (int q = 0; q < world->size; q++)
		making.members[q] = (uint16_t)q;
	group_init(group, &making);
	return LS_OK;
}

static ls_status complete_world(struct world *world, const struct opening *opening,
				const struct job_map *map)
{
	world->watch.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (world->watch.event_fd < 0) {
		MESSAGE_SAY(MESSAGE_GROUP_THREAD, strerror(errno));
		return LS_OUT_OF_MEMORY;
	}
	ls_status status = group_facts_compare(world);
	if (status != LS_OK)
		return status;
	final_waiter(world);
	status = group_device_register(world);
	if (status != LS_OK)
		return status;
	if (world->races)
		memory_inspect_buffers(&world->memory);
	open_views(world);
	transport_hold(&world->transport);
	status = fill_first(world, opening->timeout_ms);
	if (status == LS_OK && world->link)
		status = group_hosts_connect(world, &map->table, map->meeting, opening->deadline_ns);
	if (status == LS_OK && world->link)
		status = group_hosts_beat(world, &map->table, &map->hosts,
					  opening->settings.secret_file ? &opening->place.token
									: NULL);
	return status == LS_OK ? failure_watch_start(world) : status;
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
		status = group_races_open(world);
	if (status != LS_OK)
		return status;
	struct job_map *map = calloc(1, sizeof *map);
	if (!map) {
		MESSAGE_SAY(MESSAGE_GROUP_MEMORY, "ls_group_open", sizeof *map);
		return LS_OUT_OF_MEMORY;
	}
	status = connect_world(world, opening, map);
	if (status == LS_OK)
		status = complete_world(world, opening, map);
	/* An interruption has no message: the last one is of another call. */
	rendezvous_part(map->meeting, status, status == LS_INTERRUPTED ? "" : message_last());
	if (map->meeting)
		rendezvous_leave(map->meeting, &world->control_fd);
	/* No other job is to meet here while this one runs, but at once when this process has
	 * ended, whatever it has forked. */
	if (opening->place.serve && world->control_fd >= 0)
		world->control_mark = fork_close_in_child(world->control_fd);
	free(map);
	return status;
}

static ls_status world_open(const struct opening *opening, struct world **out)
{
	struct world *world = calloc(1, sizeof *world);
	*out = NULL;
	if (!world) {
		MESSAGE_SAY(MESSAGE_GROUP_MEMORY, "ls_group_open", sizeof *world);
		return LS_OUT_OF_MEMORY;
	}
	world->settings = opening->settings;
	world->fork_generation = fork_generation();
	world->rank = opening->place.rank;
	world->size = opening->place.world_size;
	world->control_fd = world->control_mark = -1;
	world->resumes = opening->resumes;
	world->keeps_memory = opening->keeps_memory;
	world->table = opening->table;
	if (opening->run_notes && !opening->is_served)
		snprintf(world->run_notes, sizeof world->run_notes, "%s", opening->run_notes);
	lock_rank_init_unbiased(&world->lock);
	failure_watch_init(&world->watch);
	p2p_init(world);
	world->watch.show = p2p_show;
	world->progress.act = p2p_thread_run;
	ls_status status = world_fill(world, opening);
	if (status != LS_OK) {
		group_close_world(world, opening->timeout_ms);
		return status;
	}
	failure_note_met(world);
	*out = world;
	return LS_OK;
}

ls_status ls_group_open(const struct ls_group_options *options, ls_group **out)
{
	struct opening opening;
	struct world *world;
	if (!out)
		return group_bad_state("ls_group_open", "out", "NULL", "not NULL");
	*out = NULL;
	ls_status status = group_check_may_wait("ls_group_open");
	if (status == LS_OK)
		status = read_opening(options, &opening);
	if (status != LS_OK)
		return status;
	int outer_rank = message_rank();
	message_set_rank(opening.place.rank);
	status = world_open(&opening, &world);
	message_set_rank(outer_rank);
	failure_note_open(opening.is_launched ? opening.run_notes : NULL, opening.place.rank,
			  status);
	if (status != LS_OK)
		return status;
	*out = world_hold(world, WORLD_GROUP_ID);
	world_release(*out);
	return LS_OK;
}
