/* SPDX-License-Identifier: BSD-3-Clause
 * What comes from the other end of a launcher's channel: the greeting and frames, in pieces whose
 * length the first byte gives. Also lists of hosts, of a command line and of Slurm. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "launcher/daemon_channel.h"
#include "rendezvous/meet.h"

static void take_frames(struct launcher_channel *channel, uint64_t *taken)
{
	struct channel_frame frame;
	struct channel_ended ended;

	while (launcher_channel_next(channel, &frame)) {
		MUST(frame.bytes <= CHANNEL_FRAME_MAX);
		*taken += frame.bytes + 8;
		for (uint32_t i = 0; i < frame.bytes; i++)
			*taken += frame.payload[i] & 0; /* the fuzzer reads all of it */
		MUST(launcher_channel_copy(&frame, &ended, sizeof ended) ==
		     (frame.bytes >= sizeof ended));
	}
}

static void read_channel(const uint8_t *data, size_t size, size_t piece)
{
	struct launcher_poll set = {.fds = {{.revents = POLLIN}}, .count = 1};
	struct launcher_channel channel;
	char version[CHANNEL_VERSION_BYTES];
	uint64_t taken = 0;
	int ends[2], greeted = 0;

	MUST(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
	launcher_channel_init(&channel, ends[0], -1);
	for (size_t at = 0; at < size && !channel.ended; at += piece) {
		size_t bytes = size - at < piece ? size - at : piece;
		MUST(write(ends[1], data + at, bytes) == (ssize_t)bytes);
		channel.poll_in = 0;
		launcher_channel_step(&channel, &set);
		if (greeted == 0)
			greeted = launcher_channel_hear_greeting(&channel, version);
		MUST(greeted <= 0 || memchr(version, '\0', sizeof version));
		if (greeted > 0)
			take_frames(&channel, &taken);
	}
	MUST(taken <= size);
	launcher_channel_fini(&channel);
	close(ends[0]);
	close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct launcher_list list;
	char first[RENDEZVOUS_NAME_BYTES], why[256];
	char *text = malloc(size + 1);

	MUST(text != NULL);
	if (size > 0) {
		size_t piece = 1 + data[0];
		read_channel(data + 1, size - 1, piece);
		memcpy(text, data, size);
	}
	text[size] = '\0';
	if (launcher_list_parse(text, &list, why))
		MUST(list.count >= 1 && list.ranks >= list.count && list.ranks <= RANKS_WORLD_MAX);
	MUST(rendezvous_first_host(text, first) == (first[0] != '\0'));
	free(text);
	return 0;
}

size_t fuzz_draw(uint64_t *state, uint8_t *data)
{
	static const char *const texts[] = {
		"node[1-3,07]", "a:4,b:2", "me@[fd00::1]:3,x", "rack[2]n[1],q", "[1", "a:65",
	};
	static const char greeting[] = "\nlockstep daemon 0.1.0\n";
	size_t size = 0;

	if (fuzz_random(state) % 4 == 0) {
		const char *text = texts[fuzz_random(state) % (sizeof texts / sizeof texts[0])];
		memcpy(data, text, strlen(text));
		return strlen(text);
	}
	data[size++] = (uint8_t)fuzz_random(state);
	if (fuzz_random(state) % 4 == 0)
		data[size++] = 'x';
	memcpy(data + size, greeting, sizeof greeting - 1);
	size += sizeof greeting - 1;
	for (uint64_t frames = fuzz_random(state) % 8; frames > 0; frames--) {
		uint32_t head[2] = {(uint32_t)(fuzz_random(state) % (CHANNEL_TAKEN + 2)),
				    (uint32_t)(fuzz_random(state) % 64)};
		if (fuzz_random(state) % 32 == 0)
			head[1] = (uint32_t)fuzz_random(state);
		memcpy(data + size, head, sizeof head);
		size += sizeof head;
		for (uint32_t i = 0; i < head[1] % 64; i++)
			data[size++] = (uint8_t)fuzz_random(state);
	}
	return size;
}
