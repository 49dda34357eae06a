/* SPDX-License-Identifier: BSD-3-Clause
 * What the server sends: to one connection an answer without a table, and to all ranks the same
 * message, first the table, then, between several hosts, the cards or the error. To a rank of
 * another host each message is signed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/server.h"

/* Signs the first `bytes` of *answer for a rank on another host. */
static void sign_answer(const struct auth_session *session, struct wire_answer *answer, size_t bytes)
{
	struct auth_tag tag;

	memset(&answer->tag, 0, sizeof answer->tag);
	auth_sign(session, AUTH_SERVER, 1, answer, bytes, &tag);
	answer->tag = tag;
}

/* An answer without a table fits into the empty buffer of any socket, so one try is enough. */
void rendezvous_tell_answer(const struct rendezvous_server *server, int fd,
			    const struct auth_session *session, ls_status status, const char *text)
{
	/* On the heap: an answer takes much of a small stack. Without memory the rank learns only
	 * that the meeting failed. */
	struct wire_answer *answer = calloc(1, sizeof *answer);

	if (!answer)
		return;
	rendezvous_head_fill(&answer->head, WIRE_ANSWER, WIRE_ANSWER_BYTES(0), server->holder,
			     getpid());
	answer->status = status;
	rendezvous_copy_printable(answer->text, sizeof answer->text, text, RENDEZVOUS_TEXT_BYTES);
	if (session)
		sign_answer(session, answer, WIRE_ANSWER_BYTES(0));
	(void)rendezvous_send(fd, answer, WIRE_ANSWER_BYTES(0), -1);
	free(answer);
	(void)shutdown(fd, SHUT_WR);
	(void)rendezvous_drain(fd);
}

bool rendezvous_is_untold(const struct rendezvous_server *server, int rank)
{
	const struct server_rank *member = &server->ranks[rank];
	return member->fd >= 0 && member->sent < server->message.size;
}

/* Makes `bytes` the message that all ranks get next. number: of this message among the server's,
 * for its signature. */
static void begin_message(struct rendezvous_server *server, const void *bytes, size_t size,
			  size_t tag_at, uint64_t number)
{
	server->message = (struct server_message){.bytes = bytes, .size = size, .tag_at = tag_at};
	for (int i = 0; i < server->place.world_size; i++) {
		struct server_rank *member = &server->ranks[i];
		member->sent = 0;
		if (member->remote)
			auth_sign(&member->session, AUTH_SERVER, number, bytes, size, &member->tag);
	}
}

ls_status rendezvous_tell_table(struct rendezvous_server *server)
{
	int size = server->place.world_size;
	struct wire_answer *answer = &server->answer;

	server->table.size = size;
	while (server->table.job == 0)
		if (getrandom(&server->table.job, sizeof server->table.job, 0) < 0 &&
		    errno != EINTR) {
			rendezvous_text_add(server->text, "no random numbers from the system: %m");
			return LS_SYSTEM;
		}
	rendezvous_head_fill(&answer->head, WIRE_ANSWER, WIRE_ANSWER_BYTES(size), server->holder,
			     getpid());
	answer->status = LS_OK;
	answer->size = size;
	answer->job = server->table.job;
	memcpy(answer->ranks, server->table.ranks, (size_t)size * sizeof answer->ranks[0]);
	begin_message(server, answer, WIRE_ANSWER_BYTES(size), offsetof(struct wire_answer, tag), 1);
	server->state = rendezvous_has_hosts(&server->table) ? SERVER_GATHERING : SERVER_TELLING;
	return LS_OK;
}

void rendezvous_tell_cards(struct rendezvous_server *server)
{
	struct wire_cards *cards = &server->cards;
	size_t bytes = WIRE_CARDS_BYTES(cards->size);

	for (int i = 0; i < server->place.world_size; i++)
		if (rendezvous_is_untold(server, i))
			rendezvous_close_fd(&server->ranks[i].fd);
	rendezvous_head_fill(&cards->head, WIRE_CARDS, bytes, server->holder, getpid());
	begin_message(server, cards, bytes, offsetof(struct wire_cards, tag), 2);
}

/* Sends the next bytes of the message to a rank. The bytes for a rank on another host differ by the
 * tag. */
static ssize_t send_some(const struct server_message *message, const struct server_rank *member)
{
	size_t tag_end = message->tag_at + sizeof member->tag;
	char head[WIRE_ANSWER_BYTES(0)];

	if (!member->remote || member->sent >= tag_end)
		return rendezvous_send(member->fd, message->bytes + member->sent,
				       message->size - member->sent, -1);
	memcpy(head, message->bytes, tag_end);
	memcpy(head + message->tag_at, &member->tag, sizeof member->tag);
	return rendezvous_send(member->fd, head + member->sent, tag_end - member->sent, -1);
}

bool rendezvous_tell_more(struct rendezvous_server *server)
{
	bool all = true;

	for (int i = 0; i < server->place.world_size; i++) {
		struct server_rank *member = &server->ranks[i];
		ssize_t sent = 0;
		while (rendezvous_is_untold(server, i) && sent >= 0) {
			sent = send_some(&server->message, member);
			if (sent >= 0)
				member->sent += (size_t)sent;
			else if (errno != EAGAIN && errno != EINTR)
				member->sent = server->message.size;
		}
		all = all && !rendezvous_is_untold(server, i);
	}
	return all;
}

/* A message fits into the buffer of a socket that has taken all before, so one try is enough. */
void rendezvous_server_part(struct rendezvous_server *server, ls_status status, const char *reason)
{
	struct wire_parted parted;

	if (server->state != SERVER_COMPLETE)
		return;
	rendezvous_parted_fill(&parted, server->holder, getpid(), status, reason);
	for (int i = 0; i < server->place.world_size; i++) {
		struct server_rank *member = &server->ranks[i];
		struct wire_parted own = parted;
		if (member->fd < 0 || rendezvous_is_untold(server, i))
			continue;
		if (member->remote)
			auth_sign(&member->session, AUTH_SERVER, 3, &parted, sizeof parted,
				  &own.tag);
		(void)rendezvous_send(member->fd, &own, sizeof own, -1);
	}
}

void rendezvous_tell_failure(struct rendezvous_server *server)
{
	struct wire_cards *cards = &server->cards;

	memset(cards, 0, sizeof *cards);
	cards->status = server->status;
	rendezvous_copy_printable(cards->text, sizeof cards->text, server->text,
				  sizeof server->text);
	rendezvous_tell_cards(server);
	server->told = server->place.world_size;
	rendezvous_finish_telling(server);
}

/* The connections stay until the ranks have ended them: a rank may be sending its card, and closing
 * a socket with unread bytes would reset it. */
void rendezvous_finish_telling(struct rendezvous_server *server)
{
	(void)rendezvous_tell_more(server);
	for (int i = 0; i < server->place.world_size; i++) {
		struct server_rank *member = &server->ranks[i];
		if (member->fd < 0)
			continue;
		if (!rendezvous_is_untold(server, i))
			(void)shutdown(member->fd, SHUT_WR);
		if (rendezvous_drain(member->fd))
			rendezvous_close_fd(&member->fd);
	}
}
