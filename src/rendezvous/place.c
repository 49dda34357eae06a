/* SPDX-License-Identifier: BSD-3-Clause
 * Where to meet, and as which rank: from the arguments of ls_group_open, or from what a launcher
 * put into the environment. If only a part of the settings is there, the error names the one that
 * is missing. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/ranks.h"
#include "rendezvous/meet.h"

enum { SLURM_PORT_FIRST = 20000, SLURM_PORTS = 12000 };
enum { NAME_BYTES_MAX = sizeof((struct sockaddr_un *)0)->sun_path - 1 };

/* Why other ranks could not find rank 0 by this address in numbers; NULL: they can. */
static const char *find_fault(const char *address)
{
	struct in_addr four;
	struct in6_addr six;

	if (inet_pton(AF_INET, address, &four) == 1)
		return four.s_addr == INADDR_ANY ? "stands for all addresses of a host" : NULL;
	if (inet_pton(AF_INET6, address, &six) != 1 || IN6_IS_ADDR_LINKLOCAL(&six)) /* with %eth0 */
		return "is valid on one link only, whose name differs between hosts";
	return IN6_IS_ADDR_UNSPECIFIED(&six) ? "stands for all addresses of a host" : NULL;
}

/* Finds the first usable address of a name, in the order of the system's resolver; if none is
 * usable, the last. */
static ls_status resolve_name(struct rendezvous_place *out, const char *name, const char *from,
			      char *text)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
	struct addrinfo *found = NULL;
	int error = getaddrinfo(name, NULL, &hints, &found);

	for (struct addrinfo *one = found; error == 0 && one; one = one->ai_next) {
		error = getnameinfo(one->ai_addr, one->ai_addrlen, out->address,
				    sizeof out->address, NULL, 0, NI_NUMERICHOST);
		if (error == 0 && !find_fault(out->address))
			break;
	}
	if (found)
		freeaddrinfo(found);
	if (error == 0) {
		snprintf(out->name, sizeof out->name, "%s", name);
		return LS_OK;
	}
	rendezvous_text_add(text,
			    "%s is '%s', a name for which this host finds no address (%s): correct "
			    "it, or give the address of that host in numbers",
			    from, name, gai_strerror(error));
	return LS_BAD_ARGUMENT;
}

ls_status rendezvous_set_address(struct rendezvous_place *out, const char *address,
				 const char *from, char *text)
{
	char bare[RENDEZVOUS_NAME_BYTES];
	size_t length = strnlen(address, sizeof bare);
	bool brackets = length >= 2 && address[0] == '[' && address[length - 1] == ']';
	struct in6_addr any;

	out->tcp = true;
	if (length == 0 || length >= sizeof bare) {
		rendezvous_text_add(text, "%s is '%.64s', which is no address or name of a host",
				    from, address);
		return LS_BAD_ARGUMENT;
	}
	snprintf(bare, sizeof bare, "%.*s", (int)(brackets ? length - 2 : length),
		 brackets ? address + 1 : address);
	if (strcmp(bare, "localhost") == 0)
		snprintf(bare, sizeof bare, "127.0.0.1");
	if (inet_pton(AF_INET, bare, &any) == 1 || inet_pton(AF_INET6, bare, &any) == 1) {
		snprintf(out->address, sizeof out->address, "%.63s", bare);
	} else {
		ls_status status = resolve_name(out, bare, from, text);
		if (status != LS_OK)
			return status;
	}
	const char *fault = find_fault(out->address);
	if (!fault)
		return LS_OK;
	rendezvous_text_add(text,
			    "%s is '%s', and %s %s: give an address at which all ranks reach the host "
			    "of rank 0 (127.0.0.1 if all are on it)",
			    from, address, out->address, fault);
	return LS_BAD_ARGUMENT;
}

static ls_status set_port(struct rendezvous_place *out, int64_t port, const char *from, char *text)
{
	if (port >= 1 && port <= UINT16_MAX) {
		out->port = (uint16_t)port;
		return LS_OK;
	}
	rendezvous_text_add(text, "%s is no port number: it must be from 1 to 65535", from);
	return LS_BAD_ARGUMENT;
}

/* -1 unless `digits` is a decimal number of at most five digits and nothing else. */
static int64_t parse_port(const char *digits)
{
	int64_t port = 0;
	size_t i = 0;

	for (; i < 5 && digits[i] >= '0' && digits[i] <= '9'; i++)
		port = port * 10 + (digits[i] - '0');
	return i > 0 && digits[i] == '\0' ? port : -1;
}

static ls_status set_ranks(struct rendezvous_place *out, int64_t rank, int64_t world_size,
			   const char *rank_name, const char *world_size_name, char *text)
{
	if (world_size < 1 || world_size > RANKS_WORLD_MAX) {
		rendezvous_text_add(text, "%s is %lld: it must be from 1 to %d", world_size_name,
				    (long long)world_size, RANKS_WORLD_MAX);
		return LS_BAD_ARGUMENT;
	}
	if (rank < 0 || rank >= world_size) {
		rendezvous_text_add(text, "%s is %lld: with %lld ranks it must be from 0 to %lld",
				    rank_name, (long long)rank, (long long)world_size,
				    (long long)world_size - 1);
		return LS_BAD_ARGUMENT;
	}
	out->rank = (int)rank;
	out->world_size = (int)world_size;
	return LS_OK;
}

/* "unix:NAME" or "tcp:ADDRESS:PORT"; `from` names the variable or argument. */
static ls_status set_url(struct rendezvous_place *out, const char *url, const char *from, char *text)
{
	if (strncmp(url, "unix:", 5) == 0) {
		const char *name = url + 5;
		size_t bytes = strnlen(name, NAME_BYTES_MAX + 1);
		if (bytes >= 1 && bytes <= NAME_BYTES_MAX &&
		    rendezvous_is_printable(name, bytes + 1)) {
			memcpy(out->address, name, bytes + 1);
			return LS_OK;
		}
		rendezvous_text_add(text,
				    "%s is '%.40s': after unix: there must be a name of 1 to %d "
				    "printable characters",
				    from, url, NAME_BYTES_MAX);
		return LS_BAD_ARGUMENT;
	}
	const char *colon = strncmp(url, "tcp:", 4) == 0 ? strrchr(url + 4, ':') : NULL;
	if (colon && colon - (url + 4) < RENDEZVOUS_NAME_BYTES) {
		char address[RENDEZVOUS_NAME_BYTES];
		rendezvous_copy_printable(address, sizeof address, url + 4,
					  (size_t)(colon - (url + 4)));
		ls_status status = set_port(out, parse_port(colon + 1), from, text);
		return status == LS_OK ? rendezvous_set_address(out, address, from, text) : status;
	}
	rendezvous_text_add(text, "%s is '%.40s': it must be unix:NAME or tcp:ADDRESS:PORT", from,
			    url);
	return LS_BAD_ARGUMENT;
}

static ls_status say_unset(const char *name, const char *because, char *text)
{
	rendezvous_text_add(text,
			    "%s is not set in the environment, but %s: start all ranks with lockstep "
			    "run or torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
			    name, because);
	return LS_BAD_ARGUMENT;
}

static ls_status find_ranks(const struct settings_launch *launch, const char *because,
			    struct rendezvous_place *out, char *text)
{
	if (launch->rank == -1)
		return say_unset("RANK", launch->world_size == -1 ? because : "WORLD_SIZE is", text);
	if (launch->world_size == -1)
		return say_unset("WORLD_SIZE", "RANK is", text);
	return set_ranks(out, launch->rank, launch->world_size, "RANK", "WORLD_SIZE", text);
}

uint64_t rendezvous_hash(const char *string)
{
	uint64_t value = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
	for (; *string != '\0'; string++)
		value = (value ^ (unsigned char)*string) * UINT64_C(0x100000001b3);
	return value;
}

/* Ranks on several hosts meet at the port after torchrun's own. A restart meets at the same port:
 * all agents have ended their ranks before the next ranks begin. */
static ls_status find_torchrun_hosts(const struct settings_launch *launch,
				     struct rendezvous_place *out, char *text)
{
	if (!launch->master_addr)
		return say_unset("MASTER_ADDR", "LOCAL_WORLD_SIZE is less than WORLD_SIZE", text);
	if (launch->master_port >= UINT16_MAX) {
		rendezvous_text_add(text, "MASTER_PORT is 65535, which is torchrun's own, and "
					  "ranks on several hosts meet at the port after it: give "
					  "torchrun a lower one");
		return LS_BAD_ARGUMENT;
	}
	out->port = (uint16_t)(launch->master_port + 1);
	/* The number of the restart may differ from host to host. */
	out->launch = rendezvous_hash(launch->run_id ? launch->run_id : "");
	return rendezvous_set_address(out, launch->master_addr, "MASTER_ADDR", text);
}

/* torchrun's own store listens on MASTER_PORT, so the port only helps to name the job. */
static ls_status find_torchrun(const struct settings_launch *launch, struct rendezvous_place *out,
			       char *text)
{
	ls_status status = find_ranks(launch, "TORCHELASTIC_USE_AGENT_STORE is", out, text);
	if (status != LS_OK)
		return status;
	if (launch->master_port == -1)
		return say_unset("MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE is", text);
	status = set_port(out, launch->master_port, "MASTER_PORT", text);
	if (status != LS_OK)
		return status;
	out->serve = out->rank == 0;
	if (launch->local_world_size != -1 && launch->local_world_size != launch->world_size)
		return find_torchrun_hosts(launch, out, text);
	long long restart = launch->restart_count == -1 ? 0 : (long long)launch->restart_count;
	snprintf(out->address, sizeof out->address, "lockstep-%u-%u-%016llx-%lld",
		 (unsigned)geteuid(), out->port,
		 (unsigned long long)rendezvous_hash(launch->run_id ? launch->run_id : ""), restart);
	out->port = 0;
	return LS_OK;
}

static ls_status find_master(const struct settings_launch *launch, struct rendezvous_place *out,
			     char *text)
{
	bool address = launch->master_addr != NULL, port = launch->master_port != -1;
	const char *because = address ? "MASTER_ADDR is" : "MASTER_PORT is";
	ls_status status = find_ranks(launch, because, out, text);

	if (status != LS_OK)
		return status;
	out->serve = out->rank == 0;
	if (!address && !port && out->world_size == 1)
		return LS_OK;
	because = "WORLD_SIZE is more than 1";
	if (!address)
		return say_unset("MASTER_ADDR", port ? "MASTER_PORT is" : because, text);
	if (!port)
		return say_unset("MASTER_PORT", "MASTER_ADDR is", text);
	out->by_hand = true;
	status = set_port(out, launch->master_port, "MASTER_PORT", text);
	return status == LS_OK
		       ? rendezvous_set_address(out, launch->master_addr, "MASTER_ADDR", text)
		       : status;
}

/* One port for all tasks of a step, below the ports that systems give to clients. If it is taken,
 * the job fails with an error that names it. */
static uint16_t slurm_port(uint64_t launch)
{
	return (uint16_t)(SLURM_PORT_FIRST + launch % SLURM_PORTS);
}

/* Task 0 is on the first host of its step, unless the distribution is arbitrary. */
static ls_status find_slurm_hosts(const struct settings_launch *launch,
				  struct rendezvous_place *out, char *text)
{
	static const char from[] = "the first node of SLURM_STEP_NODELIST";
	const char *list = launch->slurm.nodes ? launch->slurm.nodes : "";
	char first[RENDEZVOUS_NAME_BYTES], step[64];

	snprintf(step, sizeof step, "%lld.%lld", (long long)launch->slurm.job,
		 (long long)launch->slurm.step);
	out->launch = rendezvous_hash(step);
	out->port =
		launch->master_port != -1 ? (uint16_t)launch->master_port : slurm_port(out->launch);
	if (launch->master_addr)
		return rendezvous_set_address(out, launch->master_addr, "MASTER_ADDR", text);
	if (!rendezvous_first_host(list, first)) {
		rendezvous_text_add(text,
				    "SLURM_STEP_NODELIST is '%.64s', which is no list of hosts: set "
				    "MASTER_ADDR to an address of the host of task 0",
				    list);
		return LS_BAD_ARGUMENT;
	}
	ls_status status = rendezvous_set_address(out, first, from, text);
	if (status != LS_OK || !out->has_hosts || !rendezvous_place_is_loopback(out))
		return status;
	rendezvous_text_add(
		text,
		"%s is '%s', which this host takes for %s, so other hosts could not reach "
		"it: correct /etc/hosts (Debian gives a host's own name 127.0.1.1), or set "
		"MASTER_ADDR to an address of the host of task 0",
		from, first, out->address);
	return LS_BAD_ARGUMENT;
}

static ls_status find_slurm(const struct settings_launch *launch, struct rendezvous_place *out,
			    char *text)
{
	const struct settings_slurm *slurm = &launch->slurm;
	ls_status status = set_ranks(out, slurm->rank, slurm->size, "SLURM_PROCID",
				     "SLURM_STEP_NUM_TASKS", text);

	if (status != LS_OK)
		return status;
	out->serve = out->rank == 0;
	if (out->world_size == 1)
		return LS_OK;
	out->has_hosts = slurm->hosts > 1;
	if (slurm->hosts != 1 || launch->master_addr || launch->master_port != -1)
		return find_slurm_hosts(launch, out, text);
	snprintf(out->address, sizeof out->address, "lockstep-slurm-%u-%lld-%lld",
		 (unsigned)geteuid(), (long long)slurm->job, (long long)slurm->step);
	return LS_OK;
}

static ls_status find_place(const char *rendezvous, int rank, int world_size,
			    const struct settings_launch *launch, struct rendezvous_place *out,
			    char *text)
{
	if (rendezvous) {
		ls_status status = set_ranks(out, rank, world_size, "the option rank",
					     "the option world_size", text);
		out->serve = out->rank == 0;
		return status == LS_OK ? set_url(out, rendezvous, "the option rendezvous", text)
				       : status;
	}
	if (launch->rendezvous) {
		ls_status status = find_ranks(launch, "LOCKSTEP_RENDEZVOUS is", out, text);
		return status == LS_OK
			       ? set_url(out, launch->rendezvous, "LOCKSTEP_RENDEZVOUS", text)
			       : status;
	}
	if (launch->agent_owns_port)
		return find_torchrun(launch, out, text);
	if (launch->slurm.is_task && launch->rank == -1 && launch->world_size == -1)
		return find_slurm(launch, out, text);
	if (launch->master_addr || launch->master_port != -1 || launch->rank != -1 ||
	    launch->world_size != -1)
		return find_master(launch, out, text);
	out->world_size = 1;
	out->serve = true;
	return LS_OK;
}

ls_status rendezvous_read_secret(const char *file, bool trusts, struct rendezvous_place *place)
{
	ls_status status = LS_OK;

	if (!file && !trusts && place->has_hosts) {
		rendezvous_say(
			LS_UNTRUSTED_PEER,
			"Slurm has started the ranks on several hosts, and there is no secret by "
			"which they could know each other: make a file with head -c 32 "
			"/dev/urandom, chmod 600 it, and set LOCKSTEP_SECRET_FILE to its path on "
			"all hosts; or set LOCKSTEP_TRUST_NETWORK=1 if nobody else can reach "
			"this network");
		return LS_UNTRUSTED_PEER;
	}
	if (!place->tcp || (!file && (!trusts || rendezvous_place_is_loopback(place))))
		return LS_OK;
	status = file ? auth_token_read(file, &place->token) : auth_token_open(&place->token);
	place->has_token = status == LS_OK;
	return status;
}

ls_status rendezvous_find(const char *rendezvous, int rank, int world_size,
			  const struct settings_launch *launch, struct rendezvous_place *out)
{
	char text[RENDEZVOUS_TEXT_BYTES] = "";

	memset(out, 0, sizeof *out);
	ls_status status = find_place(rendezvous, rank, world_size, launch, out, text);
	if (status != LS_OK) {
		memset(out, 0, sizeof *out);
		rendezvous_say(status, text);
	}
	return status;
}
