/* SPDX-License-Identifier: BSD-3-Clause
 * Words for the rendezvous' messages: places, holders and lists of ranks. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/messages.h"
#include "base/ranks.h"
#include "rendezvous/meet.h"

void rendezvous_text_add(char *text, const char *format, ...)
{
	size_t used = strnlen(text, RENDEZVOUS_TEXT_BYTES - 1);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + used, RENDEZVOUS_TEXT_BYTES - used, format, arguments);
	va_end(arguments);
}

void rendezvous_place_name(const struct rendezvous_place *place, char out[RENDEZVOUS_PLACE_BYTES])
{
	bool six = strchr(place->address, ':') != NULL;

	if (place->tcp)
		snprintf(out, RENDEZVOUS_PLACE_BYTES, six ? "tcp:[%s]:%u" : "tcp:%s:%u",
			 place->address, place->port);
	else
		snprintf(out, RENDEZVOUS_PLACE_BYTES, "unix:%s", place->address);
}

void rendezvous_text_holder(char *text, int rank, int pid)
{
	if (rank < 0)
		rendezvous_text_add(text, "the launcher (pid %d)", pid);
	else
		rendezvous_text_add(text, "rank %d (pid %d)", rank, pid);
}

void rendezvous_text_ranks(char *text, const bool *in, int size, bool value)
{
	const char *comma = "";

	for (int first = 0; first < size; first++) {
		if (in[first] != value)
			continue;
		int last = first;
		while (last + 1 < size && in[last + 1] == value)
			last++;
		if (last == first)
			rendezvous_text_add(text, "%s%d", comma, first);
		else
			rendezvous_text_add(text, "%s%d%s%d", comma, first,
					    last == first + 1 ? ", " : "-", last);
		comma = ", ";
		first = last;
	}
}

ls_status rendezvous_status_for_others(ls_status status)
{
	return status == LS_INTERRUPTED ? LS_RANK_MISSING : status;
}

bool rendezvous_place_is_valid(const struct rendezvous_place *place, bool server)
{
	if (place->world_size < 1 || place->world_size > RANKS_WORLD_MAX)
		return false;
	if (!server && (place->rank < 0 || place->rank >= place->world_size))
		return false;
	if (!rendezvous_is_printable(place->address, sizeof place->address))
		return false;
	return server || (place->address[0] != '\0' && (!place->tcp || place->port != 0));
}

void rendezvous_say(ls_status status, const char *text)
{
	switch (status) {
	case LS_WRONG_WORLD_SIZE:
		MESSAGE_SAY(MESSAGE_WRONG_WORLD_SIZE, text);
		break;
	case LS_DUPLICATE_RANK:
		MESSAGE_SAY(MESSAGE_DUPLICATE_RANK, text);
		break;
	case LS_RANK_MISSING:
		MESSAGE_SAY(MESSAGE_RANK_MISSING, text);
		break;
	case LS_PORT_TAKEN:
		MESSAGE_SAY(MESSAGE_PORT_TAKEN, text);
		break;
	case LS_NO_MASTER:
		MESSAGE_SAY(MESSAGE_NO_MASTER, text);
		break;
	case LS_UNTRUSTED_PEER:
		MESSAGE_SAY(MESSAGE_UNTRUSTED_PEER, text);
		break;
	case LS_WRONG_VERSION:
		MESSAGE_SAY(MESSAGE_WRONG_VERSION, text);
		break;
	case LS_INTERRUPTED:
		MESSAGE_SAY(MESSAGE_MEETING_INTERRUPTED, text);
		break;
	case LS_BAD_ARGUMENT:
	case LS_UNSUPPORTED:
		MESSAGE_SAY(MESSAGE_PLACE, text);
		break;
	default:
		MESSAGE_SAY(MESSAGE_RENDEZVOUS, text);
		break;
	}
}
