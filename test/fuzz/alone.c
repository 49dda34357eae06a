/* SPDX-License-Identifier: BSD-3-Clause
 * Runs a fuzzer without the help of the compiler: X_fuzz [CORPUS] [--runs N] [--seconds N] [--seed
 * N]. CORPUS is a file with one input in each line, in hexadecimal digits. First runs all inputs of
 * CORPUS, and then N others, or as many as it can in N seconds. Half of these are drawn anew; the
 * others are changed inputs of the corpus. Prints an input that fails as a line of a corpus. With
 * --draw N it only prints N drawn inputs, as a first corpus. */
#include "fuzz.h"

#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CORPUS_MAX = 4096 };

struct input {
	uint8_t *data;
	size_t size;
};

static struct input corpus[CORPUS_MAX];
static size_t corpus_count;

/* The input that is being tried, for the handler. */
static uint8_t now[FUZZ_INPUT_MAX];
static volatile size_t now_size;

static bool print_line(int fd, const uint8_t *data, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	char text[2 * FUZZ_INPUT_MAX + 1];
	for (size_t i = 0; i < size; i++) {
		text[2 * i] = digits[data[i] >> 4];
		text[2 * i + 1] = digits[data[i] & 15];
	}
	text[2 * size] = '\n';
	return write(fd, text, 2 * size + 1) == (ssize_t)(2 * size + 1);
}

static void print_and_end(int number)
{
	if (write(STDERR_FILENO, "the input:\n", 11) < 0 ||
	    !print_line(STDERR_FILENO, now, now_size))
		_exit(2);
	signal(number, SIG_DFL);
	raise(number);
}

static void try_input(const uint8_t *data, size_t size)
{
	/* On the heap, and exactly as long as it says, so that a sanitizer sees a read beyond its
	 * end. */
	uint8_t *copy = malloc(size ? size : 1);
	MUST(copy && size <= FUZZ_INPUT_MAX);
	memcpy(now, data, size);
	memcpy(copy, data, size);
	now_size = size;
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static int digit(char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;
	return at ? (int)(at - digits) : -1;
}

static bool add_line(const char *line)
{
	size_t size = strcspn(line, "\n") / 2;
	if (size > FUZZ_INPUT_MAX || corpus_count == CORPUS_MAX)
		return false;
	struct input *input = &corpus[corpus_count++];
	*input = (struct input){.data = malloc(size ? size : 1), .size = size};
	for (size_t i = 0; input->data && i < size; i++) {
		int high = digit(line[2 * i]), low = digit(line[2 * i + 1]);
		if (high < 0 || low < 0)
			return false;
		input->data[i] = (uint8_t)(high * 16 + low);
	}
	return input->data != NULL;
}

static bool read_corpus(const char *path)
{
	char line[2 * FUZZ_INPUT_MAX + 2];
	FILE *file = fopen(path, "re");
	bool good = file != NULL;
	while (good && fgets(line, sizeof line, file))
		good = line[0] == '#' || add_line(line);
	if (file)
		fclose(file);
	return good;
}

/* One change: of a bit, or of a byte; some bytes less, or twice; or the end of another input. */
static size_t change(uint64_t *random, uint8_t *data, size_t size)
{
	size_t at = size ? fuzz_random(random) % size : 0;
	size_t length = 1 + fuzz_random(random) % 8;
	const struct input *other = &corpus[fuzz_random(random) % corpus_count];
	switch (size ? fuzz_random(random) % 5 : 4) {
	case 0:
		data[at] ^= (uint8_t)(1u << fuzz_random(random) % 8);
		return size;
	case 1:
		data[at] = (uint8_t)fuzz_random(random);
		return size;
	case 2:
		length = length < size - at ? length : size - at;
		memmove(data + at, data + at + length, size - at - length);
		return size - length;
	case 3:
		if (size + length > FUZZ_INPUT_MAX || at + length > size)
			return size;
		memmove(data + at + length, data + at, size - at);
		return size + length;
	default:
		if (at >= other->size)
			return size;
		memcpy(data + at, other->data + at, other->size - at);
		return other->size;
	}
}

static void try_another(uint64_t *random, unsigned long run)
{
	uint8_t data[FUZZ_INPUT_MAX];
	size_t size;
	if (run % 2 == 0 || corpus_count == 0) {
		size = fuzz_draw(random, data);
	} else {
		const struct input *from = &corpus[fuzz_random(random) % corpus_count];
		size = from->size;
		memcpy(data, from->data, size);
		for (uint64_t left = 1 + fuzz_random(random) % 4; left; left--)
			size = change(random, data, size);
	}
	try_input(data, size);
}

static int draw(unsigned long count, uint64_t random)
{
	uint8_t data[FUZZ_INPUT_MAX];
	for (; count; count--) {
		size_t size = fuzz_draw(&random, data);
		if (!print_line(STDOUT_FILENO, data, size))
			return 2;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"runs", required_argument, NULL, 'r'},
		{"seconds", required_argument, NULL, 's'},
		{"seed", required_argument, NULL, 'd'},
		{"draw", required_argument, NULL, 'w'},
		{NULL, 0, NULL, 0},
	};
	unsigned long runs = 20000, run = 0;
	time_t end = 0;
	uint64_t random = UINT64_C(0x9e3779b97f4a7c15);
	int option;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'r')
			runs = strtoul(optarg, NULL, 10);
		else if (option == 's')
			end = time(NULL) + strtol(optarg, NULL, 10);
		else if (option == 'd')
			random ^= strtoull(optarg, NULL, 10) << 1;
		else if (option == 'w')
			return draw(strtoul(optarg, NULL, 10), random);
		else
			return 2;
	}
	if (optind < argc && !read_corpus(argv[optind])) {
		fprintf(stderr, "%s cannot be read\n", argv[optind]);
		return 2;
	}
	signal(SIGABRT, print_and_end);
	signal(SIGSEGV, print_and_end);
	signal(SIGBUS, print_and_end);
	for (size_t i = 0; i < corpus_count; i++)
		try_input(corpus[i].data, corpus[i].size);
	for (; end ? time(NULL) < end : run < runs; run++)
		try_another(&random, run);
	for (size_t i = 0; i < corpus_count; i++)
		free(corpus[i].data);
	printf("# figure: %lu inputs, and %zu of the corpus: nothing wrong\n", run, corpus_count);
	return 0;
}
