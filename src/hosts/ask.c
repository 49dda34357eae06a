/* SPDX-License-Identifier: BSD-3-Clause
 * Questions and answers of ranks on different hosts, outside all groups: a few words, and blocks of
 * any length. The room above knows what they mean. transport_traffic does not count them, so its
 * counters stand still while ranks ask about them. */
#include <stdlib.h>
#include <string.h>

#include "hosts/hosts_private.h"

/* A block that is sent or received. */
struct block {
	struct hosts_transfer transfer; /* the first member, because events name it */
	int peer;
	uint64_t round, bytes;
	void *memory;
};

bool hosts_ask(struct transport *transport, int rank, const uint64_t words[HOSTS_ASK_WORDS])
{
	struct hosts *hosts = transport->hosts;
	struct link_note note = {.words = {HOSTS_NOTE_ASK, words[0], words[1]}};
	hosts_progress_begin(hosts);
	bool posted = hosts->link->ops->post(hosts->link, rank, &note, NULL, 0, NULL);
	hosts->due[rank / 64] |= ranks_bit(rank);
	hosts_progress_end(hosts);
	return posted;
}

bool hosts_tell_failed(struct transport *transport, int rank, const struct hosts_failure *failure)
{
	struct hosts *hosts = transport->hosts;
	struct link_note note = {.words = {HOSTS_NOTE_FAILED, failure->group, failure->status,
					   (uint64_t)(int64_t)failure->culprit, failure->operation}};
	struct hosts_path path = {
		.hosts = hosts, .link = hosts->link, .peer = rank, .mine = transport->segment};
	hosts_progress_begin(hosts);
	bool posted = hosts_path_post(
		&path, HOSTS_KEEP_NOT, &note, failure->groups,
		sizeof failure->groups + strnlen(failure->text, sizeof failure->text), NULL);
	hosts_progress_end(hosts);
	return posted;
}

bool hosts_tell(struct transport *transport, int rank, uint64_t round, void *block, uint64_t bytes)
{
	struct hosts *hosts = transport->hosts;
	struct link_note note = {.words = {HOSTS_NOTE_TELL, round}};
	struct block *told = calloc(1, sizeof *told);
	if (!told)
		return false;
	told->transfer.kind = HOSTS_TRANSFER_TELL;
	told->memory = block;
	hosts_progress_begin(hosts);
	bool posted = hosts->link->ops->post(hosts->link, rank, &note, block, bytes,
					     &told->transfer.link_transfer);
	hosts_progress_end(hosts);
	if (!posted)
		free(told);
	return posted;
}

static void take_block(struct hosts *hosts, int peer, const struct link_message *message)
{
	struct block *heard = NULL;
	if (message->handle && message->bytes <= HOSTS_TELL_MAX && hosts->events.told)
		heard = calloc(1, sizeof *heard);
	if (heard)
		heard->memory = malloc(message->bytes);
	if (!heard || !heard->memory) {
		free(heard);
		if (message->handle)
			hosts->link->ops->fetch(hosts->link, peer, message, NULL, NULL);
		return;
	}
	heard->transfer.kind = HOSTS_TRANSFER_HEAR;
	heard->peer = peer;
	heard->round = message->note.words[1];
	heard->bytes = message->bytes;
	hosts->link->ops->fetch(hosts->link, peer, message, heard->memory,
				&heard->transfer.link_transfer);
}

bool hosts_groupless_arrived(struct hosts *hosts, int peer, const struct link_message *message)
{
	uint64_t kind = message->note.words[0];
	bool parts = kind == HOSTS_NOTE_LEAVES || kind == HOSTS_NOTE_HEARD;
	if (kind == HOSTS_NOTE_TELL) {
		take_block(hosts, peer, message);
		return true;
	}
	if (kind == HOSTS_NOTE_ASK && hosts->events.asked)
		hosts->events.asked(hosts->events.context, peer, message->note.words + 1);
	if (parts)
		hosts_parting_arrived(hosts, peer, kind == HOSTS_NOTE_LEAVES);
	if (parts || kind == HOSTS_NOTE_ASK)
		hosts_return_offer(hosts, peer, message);
	return parts || kind == HOSTS_NOTE_ASK;
}

void hosts_tell_ended(struct hosts *hosts, struct hosts_transfer *transfer)
{
	struct block *block = (struct block *)transfer;
	bool heard =
		transfer->kind == HOSTS_TRANSFER_HEAR && transfer->link_transfer.status == LS_OK;
	if (heard)
		hosts->events.told(hosts->events.context, block->peer, block->round, block->memory,
				   block->bytes);
	else
		free(block->memory);
	free(block);
}
