/* SPDX-License-Identifier: BSD-3-Clause
 * What fails the meeting for all, and the words for it. hello.c decides of one connection, gather.c
 * of a card. */
#include <unistd.h>

#include "base/open_limit.h"
#include "base/ranks.h"
#include "rendezvous/server.h"

void rendezvous_fail(struct rendezvous_server *server, ls_status status)
{
	bool gathers = server->state == SERVER_GATHERING;

	server->state = SERVER_FAILED;
	server->status = status;
	if (gathers) {
		rendezvous_tell_failure(server);
		return;
	}
	for (int i = 0; i < server->place.world_size; i++) {
		struct server_rank *member = &server->ranks[i];
		if (member->fd >= 0)
			rendezvous_tell_answer(server, member->fd,
					       member->remote ? &member->session : NULL, status,
					       server->text);
		server->told += member->said_hello;
		rendezvous_close_fd(&member->fd);
	}
}

static void say_ranks(struct rendezvous_server *server, bool said_hello)
{
	bool in[RANKS_WORLD_MAX];
	for (int i = 0; i < server->place.world_size; i++)
		in[i] = server->ranks[i].said_hello;
	rendezvous_text_ranks(server->text, in, server->place.world_size, said_hello);
}

static void say_count(char *text, uint64_t count, const char *what)
{
	if (count != 0)
		rendezvous_text_add(text, ". %llu connection%s %s", (unsigned long long)count,
				    count == 1 ? "" : "s", what);
}

int rendezvous_count_hellos(const struct rendezvous_server *server)
{
	int count = 0;
	for (int i = 0; i < server->place.world_size; i++)
		count += server->ranks[i].said_hello;
	return count;
}

void rendezvous_fail_missing(struct rendezvous_server *server, uint64_t now_ns)
{
	int missing = server->place.world_size - rendezvous_count_hellos(server);
	uint64_t silent = server->incomplete;
	char *text = server->text;

	for (int i = 0; i < RENDEZVOUS_CONNECTION_MAX; i++)
		silent += server->connections[i].fd >= 0;
	rendezvous_text_add(text, "%d of %d ranks did not come to %s within %.1f s: rank%s ",
			    missing, server->place.world_size, server->where,
			    (double)(now_ns - server->began_ns) * 1e-9, missing == 1 ? "" : "s");
	say_ranks(server, false);
	if (missing < server->place.world_size) {
		rendezvous_text_add(text, " (here: ");
		say_ranks(server, true);
		rendezvous_text_add(text, ")");
	}
	say_count(text, silent, "said nothing that Lockstep understands");
	say_count(text, server->other_users, "came from processes of another user");
	say_count(text, server->other_versions, "came from another version of Lockstep");
	say_count(text, server->other_jobs, "came from ranks of another job at the same address");
	say_count(text, server->unproved, "did not prove that they know the secret of this job");
	say_count(text, server->unasked,
		  "came from other hosts, while this process has no secret (LOCKSTEP_SECRET_FILE)");
	if (server->place.name[0] != '\0' && rendezvous_place_is_loopback(&server->place))
		rendezvous_text_add(text, ". The name %s is %s here, which no other host can reach",
				    server->place.name, server->place.address);
	rendezvous_text_add(text, ". See whether those ranks were started and what they printed; if "
				  "they need longer, raise LOCKSTEP_OPEN_TIMEOUT_MS");
	rendezvous_fail(server, LS_RANK_MISSING);
}

void rendezvous_fail_ended(struct rendezvous_server *server, int rank)
{
	int missing = server->place.world_size - rendezvous_count_hellos(server);

	rendezvous_text_add(server->text,
			    "rank %d (pid %d) ended before all ranks had %s %s: see what it printed",
			    rank, server->table.ranks[rank].pid, missing ? "come to" : "met at",
			    server->where);
	if (missing) {
		rendezvous_text_add(server->text, ". Not yet here: rank%s ",
				    missing == 1 ? "" : "s");
		say_ranks(server, false);
	}
	rendezvous_fail(server, LS_RANK_MISSING);
}

void rendezvous_fail_accepting(struct rendezvous_server *server, int error)
{
	rendezvous_text_holder(server->text, server->holder, getpid());
	rendezvous_text_add(server->text, " cannot accept connections at %s: %s", server->where,
			    OPEN_LIMIT_TEXT(error));
	rendezvous_fail(server, rendezvous_is_exhaustion(error) ? LS_OUT_OF_MEMORY : LS_SYSTEM);
}
