/* SPDX-License-Identifier: BSD-3-Clause
 * Carries what is typed on a terminal to rank 0 through a pipe. Standard input that is no terminal
 * goes to rank 0 as it is. */
#include "launcher/launcher_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/open_limit.h"

ls_status launcher_input_init(struct launcher_input *input, int *child)
{
	int ends[2];

	*input = (struct launcher_input){.fd = -1, .out = -1, .poll_in = -1, .poll_out = -1};
	*child = STDIN_FILENO;
	if (!isatty(STDIN_FILENO))
		return LS_OK;
	if (pipe2(ends, O_CLOEXEC) != 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "pipe2", OPEN_LIMIT_TEXT(errno));
		return LS_SYSTEM;
	}
	/* Only this end: the end from which the rank reads must block. */
	if (fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "fcntl", OPEN_LIMIT_TEXT(errno));
		close(ends[0]);
		close(ends[1]);
		return LS_SYSTEM;
	}
	input->fd = STDIN_FILENO;
	input->out = ends[1];
	*child = ends[0];
	return LS_OK;
}

void launcher_input_fini(struct launcher_input *input)
{
	if (input->out >= 0)
		close(input->out);
	input->out = -1;
	input->fd = -1;
}

void launcher_input_poll(struct launcher_input *input, struct launcher_poll *set)
{
	input->poll_in = input->poll_out = -1;
	if (input->out < 0)
		return;
	/* In the background the terminal belongs to another process group; SIGCONT wakes the loop
	 * when that changes. */
	if (input->start == input->end && tcgetpgrp(input->fd) == getpgrp()) {
		input->poll_in = set->count;
		set->fds[set->count++] = (struct pollfd){.fd = input->fd, .events = POLLIN};
	}
	/* Without text to write only the end of the reader is of interest, which poll always
	 * reports. */
	input->poll_out = set->count;
	set->fds[set->count++] = (struct pollfd){
		.fd = input->out,
		.events = input->start < input->end ? POLLOUT : 0,
	};
}

void launcher_input_step(struct launcher_input *input, const struct launcher_poll *set)
{
	if (input->poll_in >= 0 && set->fds[input->poll_in].revents) {
		ssize_t bytes = read(input->fd, input->data, sizeof input->data);
		if (bytes > 0) {
			input->start = 0;
			input->end = (size_t)bytes;
		} else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
			launcher_input_fini(input);
			return;
		}
	}
	if (input->poll_out >= 0 && set->fds[input->poll_out].revents & (POLLERR | POLLNVAL)) {
		launcher_input_fini(input);
		return;
	}
	if (input->start < input->end) {
		ssize_t written =
			write(input->out, input->data + input->start, input->end - input->start);
		if (written > 0)
			input->start += (size_t)written;
		else if (errno != EAGAIN && errno != EINTR)
			launcher_input_fini(input);
	}
}
