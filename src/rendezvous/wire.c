/* SPDX-License-Identifier: BSD-3-Clause
 * Parsers and writers of the structs in wire.h. Every byte from a socket passes through here before
 * anything else looks at it. */
#include "rendezvous/wire.h"

#include <limits.h>
#include <string.h>

#include <lockstep/lockstep.h>

#include "base/fork.h"
#include "base/ranks.h"

static const char magic[WIRE_MAGIC_BYTES] = "LSRDV";

bool rendezvous_is_printable(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (text[i] == '\0')
			return true;
		if (text[i] < ' ' || text[i] > '~')
			return false;
	}
	return false;
}

void rendezvous_copy_printable(char *out, size_t bytes, const void *from, size_t length)
{
	const char *in = from;
	size_t i = 0;
	for (; i < length && i + 1 < bytes && in[i] != '\0'; i++)
		out[i] = in[i] < ' ' || in[i] > '~' ? '?' : in[i];
	memset(out + i, 0, bytes - i);
}

void rendezvous_head_fill(struct wire_head *out, enum wire_kind kind, size_t bytes, int rank,
			  int pid)
{
	memset(out, 0, sizeof *out);
	memcpy(out->magic, magic, sizeof magic);
	out->byte_order = WIRE_BYTE_ORDER;
	out->protocol = WIRE_PROTOCOL;
	out->kind = kind;
	out->bytes = (uint32_t)bytes;
	out->rank = rank;
	out->pid = pid;
	rendezvous_copy_printable(out->version, sizeof out->version, LOCKSTEP_VERSION,
				  sizeof LOCKSTEP_VERSION);
}

void rendezvous_card_fill(struct wire_card *out, int rank, int pid, ls_status status,
			  const char *reason, const void *card)
{
	memset(out, 0, sizeof *out);
	rendezvous_head_fill(&out->head, WIRE_CARD, sizeof *out, rank, pid);
	out->status = status;
	if (status == LS_OK)
		memcpy(out->card, card, sizeof out->card);
	else
		rendezvous_copy_printable(out->reason, sizeof out->reason, reason,
					  sizeof out->reason);
}

void rendezvous_parted_fill(struct wire_parted *out, int rank, int pid, ls_status status,
			    const char *reason)
{
	memset(out, 0, sizeof *out);
	rendezvous_head_fill(&out->head, WIRE_PARTED, sizeof *out, rank, pid);
	out->status = status;
	if (status != LS_OK)
		rendezvous_copy_printable(out->reason, sizeof out->reason, reason,
					  sizeof out->reason);
}

void rendezvous_secret_tag(const struct rendezvous_place *place, struct auth_tag *out)
{
	static const char label[] = "lockstep: of which job a rank is";
	struct auth_session session;

	memset(out, 0, sizeof *out);
	if (!place->has_token)
		return;
	auth_session_begin(&place->token, label, sizeof label, "", 0, &session);
	auth_sign(&session, AUTH_CLIENT, 0, "", 0, out);
}

void rendezvous_hello_fill(struct wire_hello *out, const struct rendezvous_place *place,
			   const struct rendezvous_self *self, uint64_t remaining_ms,
			   uint64_t waited_ms)
{
	const struct rendezvous_rank *me = &self->me;

	memset(out, 0, sizeof *out);
	rendezvous_head_fill(&out->head, WIRE_HELLO, sizeof *out, place->rank, me->pid);
	out->world_size = place->world_size;
	out->uid = me->uid;
	out->remaining_ms = remaining_ms;
	out->waited_ms = waited_ms;
	out->pid_space = fork_pid_space();
	out->flags = self->trace_fd >= 0 && !place->tcp ? WIRE_FLAG_TRACE : 0;
	out->host_key = me->host_key;
	rendezvous_copy_printable(out->host, sizeof out->host, me->host, sizeof me->host);
	rendezvous_copy_printable(out->ip, sizeof out->ip, me->ip, sizeof me->ip);
	rendezvous_copy_printable(out->address, sizeof out->address, me->address,
				  sizeof me->address);
	out->launch = place->launch;
	rendezvous_secret_tag(place, &out->secret);
}

static enum wire_check head_parse(const void *bytes, size_t got, struct wire_head *out)
{
	size_t known = got < sizeof magic ? got : sizeof magic;
	if (memcmp(bytes, magic, known) != 0)
		return WIRE_NONSENSE;
	if (got < sizeof *out)
		return WIRE_MORE;

	memcpy(out, bytes, sizeof *out);
	rendezvous_copy_printable(out->version, sizeof out->version,
				  (const char *)bytes + offsetof(struct wire_head, version),
				  sizeof out->version);
	if (out->byte_order == __builtin_bswap32(WIRE_BYTE_ORDER)) {
		out->protocol = __builtin_bswap32(out->protocol);
		out->rank = (int32_t)__builtin_bswap32((uint32_t)out->rank);
		out->pid = (int32_t)__builtin_bswap32((uint32_t)out->pid);
		return WIRE_OTHER;
	}
	if (out->byte_order != WIRE_BYTE_ORDER)
		return WIRE_NONSENSE;
	/* Shared memory is laid out as the library likes, so its version counts, not only the
	 * wire's. */
	if (out->protocol != WIRE_PROTOCOL ||
	    strncmp(out->version, LOCKSTEP_VERSION, sizeof out->version) != 0)
		return WIRE_OTHER;
	return WIRE_WHOLE;
}

enum wire_check rendezvous_hello_parse(const void *bytes, size_t got, struct wire_hello *out)
{
	enum wire_check check = head_parse(bytes, got, &out->head);
	if (check != WIRE_WHOLE)
		return check;
	if (out->head.kind != WIRE_HELLO || out->head.bytes != sizeof *out)
		return WIRE_NONSENSE;
	if (got < sizeof *out)
		return WIRE_MORE;

	struct wire_head head = out->head;
	memcpy(out, bytes, sizeof *out);
	out->head = head;
	if (out->world_size < 1 || head.rank < 0 || head.rank >= out->world_size || head.pid < 1)
		return WIRE_NONSENSE;
	if (!rendezvous_is_printable(out->host, sizeof out->host) ||
	    !rendezvous_is_printable(out->ip, sizeof out->ip) ||
	    !rendezvous_is_printable(out->address, sizeof out->address))
		return WIRE_NONSENSE;
	return WIRE_WHOLE;
}

enum wire_check rendezvous_proof_parse(const void *bytes, size_t got, struct wire_proof *out)
{
	enum wire_check check = head_parse(bytes, got, &out->head);
	if (check != WIRE_WHOLE)
		return check;
	if (out->head.kind != WIRE_PROOF || out->head.bytes != sizeof *out)
		return WIRE_NONSENSE;
	if (got < sizeof *out)
		return WIRE_MORE;
	memcpy(&out->tag, (const char *)bytes + offsetof(struct wire_proof, tag), sizeof out->tag);
	return WIRE_WHOLE;
}

static bool is_failure(int32_t status)
{
	return status > LS_OK && status <= LS_UNREACHABLE;
}

static bool answer_is_valid(const struct wire_answer *answer)
{
	if (!rendezvous_is_printable(answer->text, sizeof answer->text))
		return false;
	if (answer->status != LS_OK)
		return answer->size == 0 && is_failure(answer->status);
	if (answer->size < 1 || answer->job == 0)
		return false;
	for (int i = 0; i < answer->size; i++) {
		const struct rendezvous_rank *rank = &answer->ranks[i];
		if (rank->pid < 1 || !rendezvous_is_printable(rank->host, sizeof rank->host) ||
		    !rendezvous_is_printable(rank->ip, sizeof rank->ip) ||
		    !rendezvous_is_printable(rank->address, sizeof rank->address))
			return false;
	}
	return true;
}

enum wire_check rendezvous_reply_parse(const void *bytes, size_t got, struct wire_answer *out)
{
	enum wire_check check = head_parse(bytes, got, &out->head);
	if (check != WIRE_WHOLE)
		return check;

	struct wire_head head = out->head;
	if (head.rank < WIRE_LAUNCHER || head.pid < 1)
		return WIRE_NONSENSE;
	if (head.kind == WIRE_WELCOME)
		return head.bytes == sizeof head ? WIRE_WHOLE : WIRE_NONSENSE;
	if (head.kind == WIRE_CHALLENGE && head.bytes == sizeof(struct wire_challenge))
		return got < head.bytes ? WIRE_MORE : WIRE_WHOLE;
	if (head.kind != WIRE_ANSWER || head.bytes < WIRE_ANSWER_BYTES(0) ||
	    head.bytes > sizeof *out)
		return WIRE_NONSENSE;
	if (got < head.bytes)
		return WIRE_MORE;

	memcpy(out, bytes, head.bytes);
	out->head = head;
	if (out->size < 0 || out->size > RANKS_WORLD_MAX ||
	    head.bytes != WIRE_ANSWER_BYTES(out->size) || !answer_is_valid(out))
		return WIRE_NONSENSE;
	return WIRE_WHOLE;
}

/* Copies a message of fixed size, which begins with its head, whole. */
static enum wire_check fixed_parse(const void *bytes, size_t got, unsigned kind, void *out,
				   size_t size)
{
	/* In `out` in any case, as the caller reports the head of another version. */
	enum wire_check check = head_parse(bytes, got, out);
	if (check != WIRE_WHOLE)
		return check;
	struct wire_head head = *(struct wire_head *)out;
	if (head.kind != kind || head.bytes != size)
		return WIRE_NONSENSE;
	if (got < size)
		return WIRE_MORE;

	memcpy(out, bytes, size);
	memcpy(out, &head, sizeof head);
	return WIRE_WHOLE;
}

/* LS_OK has no reason; a failure has a printable one, or none. */
static bool is_outcome(int32_t status, const char *reason, size_t bytes)
{
	return rendezvous_is_printable(reason, bytes) &&
	       (status == LS_OK ? reason[0] == '\0' : is_failure(status));
}

enum wire_check rendezvous_card_parse(const void *bytes, size_t got, struct wire_card *out)
{
	enum wire_check check = fixed_parse(bytes, got, WIRE_CARD, out, sizeof *out);
	if (check != WIRE_WHOLE)
		return check;
	bool good = is_outcome(out->status, out->reason, sizeof out->reason) && out->zero == 0;
	return good ? WIRE_WHOLE : WIRE_NONSENSE;
}

enum wire_check rendezvous_parted_parse(const void *bytes, size_t got, struct wire_parted *out)
{
	enum wire_check check = fixed_parse(bytes, got, WIRE_PARTED, out, sizeof *out);
	if (check != WIRE_WHOLE)
		return check;
	bool good = is_outcome(out->status, out->reason, sizeof out->reason) && out->zero == 0;
	return good ? WIRE_WHOLE : WIRE_NONSENSE;
}

enum wire_check rendezvous_cards_parse(const void *bytes, size_t got, struct wire_cards *out)
{
	enum wire_check check = head_parse(bytes, got, &out->head);
	if (check != WIRE_WHOLE)
		return check;

	struct wire_head head = out->head;
	if (head.kind != WIRE_CARDS || head.rank < WIRE_LAUNCHER || head.pid < 1 ||
	    head.bytes < WIRE_CARDS_BYTES(0) || head.bytes > sizeof *out)
		return WIRE_NONSENSE;
	if (got < head.bytes)
		return WIRE_MORE;

	memcpy(out, bytes, head.bytes);
	out->head = head;
	if (out->size < 0 || out->size > RANKS_WORLD_MAX ||
	    head.bytes != WIRE_CARDS_BYTES(out->size) ||
	    !rendezvous_is_printable(out->text, sizeof out->text))
		return WIRE_NONSENSE;
	if (out->status == LS_OK ? out->size < 1 : out->size != 0 || !is_failure(out->status))
		return WIRE_NONSENSE;
	return WIRE_WHOLE;
}
