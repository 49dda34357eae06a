/* SPDX-License-Identifier: BSD-3-Clause
 * Frames over two descriptors that do not block, and the line before them. */
#include "launcher/daemon_channel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <lockstep/lockstep.h>

enum { READ_BYTES = 1 << 16 };

static const char greeting[] = "\nlockstep daemon ";

struct head {
	uint32_t type, bytes;
};

void launcher_channel_init(struct launcher_channel *channel, int in, int out)
{
	*channel = (struct launcher_channel){.in = in, .out = out, .poll_in = -1, .poll_out = -1};
}

void launcher_channel_fini(struct launcher_channel *channel)
{
	free(channel->from.data);
	free(channel->to.data);
	channel->from = channel->to = (struct channel_queue){0};
}

/* ---- queues ---- */

static bool queue_reserve(struct channel_queue *queue, size_t more)
{
	if (queue->start > 0) {
		memmove(queue->data, queue->data + queue->start, queue->end - queue->start);
		queue->end -= queue->start;
		queue->start = 0;
	}
	size_t capacity = queue->capacity ? queue->capacity : READ_BYTES;
	while (capacity < queue->end + more)
		capacity *= 2;
	if (capacity == queue->capacity)
		return true;
	char *moved = realloc(queue->data, capacity);
	if (!moved)
		return false;
	queue->data = moved;
	queue->capacity = capacity;
	return true;
}

static void queue_add(struct channel_queue *queue, const void *bytes, size_t count)
{
	if (count > 0)
		memcpy(queue->data + queue->end, bytes, count);
	queue->end += count;
}

bool launcher_channel_put(struct channel_queue *queue, const void *bytes, size_t count)
{
	if (!queue_reserve(queue, count))
		return false;
	queue_add(queue, bytes, count);
	return true;
}

static size_t queue_bytes(const struct channel_queue *queue)
{
	return queue->end - queue->start;
}

/* ---- the loop's view ---- */

void launcher_channel_poll(struct launcher_channel *channel, struct launcher_poll *set)
{
	channel->poll_in = channel->poll_out = -1;
	if (channel->ended)
		return;
	channel->poll_in = set->count;
	set->fds[set->count++] = (struct pollfd){.fd = channel->in, .events = POLLIN};
	if (queue_bytes(&channel->to) == 0)
		return;
	channel->poll_out = set->count;
	set->fds[set->count++] = (struct pollfd){.fd = channel->out, .events = POLLOUT};
}

static bool is_for_later(int error)
{
	return error == EAGAIN || error == EINTR;
}

void launcher_channel_flush(struct launcher_channel *channel)
{
	struct channel_queue *to = &channel->to;

	while (queue_bytes(to) > 0) {
		ssize_t done = write(channel->out, to->data + to->start, queue_bytes(to));
		if (done < 0 && is_for_later(errno))
			return;
		if (done > 0)
			to->start += (size_t)done;
		else
			to->start = to->end; /* the process that has closed this end closes both */
	}
}

void launcher_channel_step(struct launcher_channel *channel, const struct launcher_poll *set)
{
	if (channel->poll_out >= 0 && set->fds[channel->poll_out].revents)
		launcher_channel_flush(channel);
	if (channel->poll_in < 0 || !set->fds[channel->poll_in].revents)
		return;
	if (!queue_reserve(&channel->from, READ_BYTES)) {
		channel->ended = true;
		return;
	}
	ssize_t got = read(channel->in, channel->from.data + channel->from.end, READ_BYTES);
	if (got > 0) {
		channel->from.end += (size_t)got;
		channel->received += (uint64_t)got;
	} else if (got == 0 || !is_for_later(errno)) {
		channel->ended = true;
	}
}

/* ---- frames ---- */

void launcher_channel_send(struct launcher_channel *channel, enum channel_type type,
			   const void *head, size_t head_bytes, const void *tail, size_t tail_bytes)
{
	struct head own = {(uint32_t)type, (uint32_t)(head_bytes + tail_bytes)};

	if (channel->ended)
		return;
	if (head_bytes + tail_bytes > CHANNEL_FRAME_MAX ||
	    !queue_reserve(&channel->to, sizeof own + head_bytes + tail_bytes)) {
		channel->ended = true;
		return;
	}
	queue_add(&channel->to, &own, sizeof own);
	queue_add(&channel->to, head, head_bytes);
	queue_add(&channel->to, tail, tail_bytes);
}

bool launcher_channel_next(struct launcher_channel *channel, struct channel_frame *out)
{
	struct channel_queue *from = &channel->from;
	struct head head;

	if (channel->wrong || queue_bytes(from) < sizeof head)
		return false;
	memcpy(&head, from->data + from->start, sizeof head);
	if (head.type < CHANNEL_ORDER || head.type > CHANNEL_LAST || head.bytes > CHANNEL_FRAME_MAX) {
		channel->wrong = channel->ended = true;
		return false;
	}
	if (queue_bytes(from) < sizeof head + head.bytes)
		return false;
	*out = (struct channel_frame){
		.type = head.type,
		.bytes = head.bytes,
		.payload = from->data + from->start + sizeof head,
	};
	from->start += sizeof head + head.bytes;
	return true;
}

bool launcher_channel_copy(const struct channel_frame *frame, void *out, size_t bytes)
{
	if (frame->bytes < bytes)
		return false;
	memcpy(out, frame->payload, bytes);
	return true;
}

/* ---- the greeting ---- */

void launcher_channel_greet(struct launcher_channel *channel)
{
	char line[64 + CHANNEL_VERSION_BYTES];

	int length = snprintf(line, sizeof line, "%s%s\n", greeting, LOCKSTEP_VERSION);
	if (!launcher_channel_put(&channel->to, line, (size_t)length))
		channel->ended = true;
}

static int end_wrong(struct launcher_channel *channel)
{
	channel->wrong = channel->ended = true;
	return -1;
}

int launcher_channel_hear_greeting(struct launcher_channel *channel,
				   char version[CHANNEL_VERSION_BYTES])
{
	struct channel_queue *from = &channel->from;
	size_t bytes = queue_bytes(from);
	const char *text = from->data + from->start;
	const char *found = bytes ? memmem(text, bytes, greeting, sizeof greeting - 1) : NULL;

	if (!found)
		return bytes > CHANNEL_NOISE_MAX ? end_wrong(channel) : 0;
	const char *word = found + sizeof greeting - 1;
	size_t rest = bytes - (size_t)(word - text);
	const char *newline = memchr(word, '\n', rest);
	size_t length = newline ? (size_t)(newline - word) : rest;
	if (length == 0 && newline)
		return end_wrong(channel);
	if (length >= CHANNEL_VERSION_BYTES)
		return end_wrong(channel);
	for (size_t i = 0; i < length; i++)
		if (word[i] <= ' ' || word[i] > '~')
			return end_wrong(channel);
	if (!newline)
		return 0;
	memcpy(version, word, length);
	version[length] = '\0';
	from->start += (size_t)(newline + 1 - text);
	return 1;
}
