/* SPDX-License-Identifier: BSD-3-Clause
 * Standard input of rank 0 on another host than the launcher: frames become bytes in a pipe. */
#include "launcher/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/open_limit.h"

static void end_input(struct launcher_daemon_input *input)
{
	if (input->fd >= 0)
		close(input->fd);
	input->fd = -1;
	input->queue.start = input->queue.end;
}

static void send_taken(struct launcher_channel *channel, uint64_t bytes)
{
	struct channel_credit taken = {.bytes = bytes};

	launcher_channel_send(channel, CHANNEL_TAKEN, &taken, sizeof taken, NULL, 0);
}

bool launcher_daemon_input_hear(struct launcher_daemon_input *input,
				const struct channel_frame *frame)
{
	size_t waiting = input->queue.end - input->queue.start;

	if (frame->bytes > CHANNEL_INPUT_BYTES - waiting || input->ends)
		return false;
	if (input->fd < 0)
		return true; /* the launcher sent it before it knew that rank 0 takes no more */
	input->ends = frame->bytes == 0;
	if (input->ends && waiting == 0)
		end_input(input);
	return launcher_channel_put(&input->queue, frame->payload, frame->bytes);
}

void launcher_daemon_input_poll(struct launcher_daemon_input *input, struct launcher_poll *set)
{
	input->poll = -1;
	if (input->fd < 0)
		return;
	input->poll = set->count;
	/* Without text only the end of the reader is of interest. */
	short events = input->queue.start < input->queue.end ? POLLOUT : 0;
	set->fds[set->count++] = (struct pollfd){.fd = input->fd, .events = events};
}

void launcher_daemon_input_step(struct launcher_daemon_input *input,
				const struct launcher_poll *set, struct launcher_channel *channel)
{
	struct channel_queue *queue = &input->queue;
	ssize_t done = 0;

	if (input->poll < 0 || !set->fds[input->poll].revents)
		return;
	if (queue->start < queue->end)
		done = write(input->fd, queue->data + queue->start, queue->end - queue->start);
	bool gone = set->fds[input->poll].revents & (POLLERR | POLLNVAL);
	if (gone || (done < 0 && errno != EAGAIN && errno != EINTR)) {
		end_input(input);
		send_taken(channel, 0);
		return;
	}
	if (done > 0) {
		queue->start += (size_t)done;
		send_taken(channel, (uint64_t)done);
	}
	if (input->ends && queue->start == queue->end)
		end_input(input);
}

int launcher_daemon_input_open(struct launcher_daemon_input *input)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "pipe2", OPEN_LIMIT_TEXT(errno));
		return -1;
	}
	/* Only this end: the end from which the rank reads must block. */
	if (fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "fcntl", OPEN_LIMIT_TEXT(errno));
		close(ends[0]);
		close(ends[1]);
		return -1;
	}
	input->fd = ends[1];
	return ends[0];
}
