/* SPDX-License-Identifier: BSD-3-Clause
 * Finds out which ranks keep the others waiting, and in what: some ranks decode each image several
 * times, as if theirs were larger. lockstep run -n 4 ./straggler; --slow R,R… --times N --steps N
 * change it. */
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lockstep/lockstep.h>

enum { SIDE = 256, IMAGES = 2, WEIGHTS = 4096, PACKED_MAX = 2 * SIDE * SIDE };

struct training {
	ls_group *group;
	int steps, times; /* how often this rank decodes each image */
	uint8_t packed[PACKED_MAX];
	size_t packed_bytes;
	uint8_t pixels[SIDE * SIDE];
	float weights[WEIGHTS];
	float *gradients;
};

/* Run lengths: a count, and a grey value. */
static void pack_image(struct training *t)
{
	for (int i = 0; i < SIDE * SIDE; i++) {
		int x = i % SIDE - SIDE / 2, y = i / SIDE - SIDE / 2;
		uint8_t grey = (uint8_t)((x * x + y * y) / 64);
		uint8_t *last = &t->packed[t->packed_bytes];
		if (t->packed_bytes && last[-1] == grey && last[-2] < 255) {
			last[-2]++;
		} else {
			last[0] = 1;
			last[1] = grey;
			t->packed_bytes += 2;
		}
	}
}

/* Unpacks an image, and smooths its steps. Returns the sum of all pixels. */
static uint32_t decode_image(struct training *t)
{
	size_t used = 0;
	for (size_t i = 0; i < t->packed_bytes; i += 2)
		for (int run = 0; run < t->packed[i]; run++)
			t->pixels[used++] = t->packed[i + 1];
	uint32_t sum = 0;
	for (int pass = 0; pass < 4; pass++)
		for (int i = SIDE; i < SIDE * (SIDE - 1); i++) {
			t->pixels[i] = (uint8_t)((t->pixels[i - SIDE] + t->pixels[i - 1] +
						  t->pixels[i + 1] + t->pixels[i + SIDE]) /
						 4);
			sum += t->pixels[i];
		}
	return sum;
}

static bool begin(struct training *t, const char *phase)
{
	return ls_phase_begin(t->group, phase) == LS_OK;
}

static bool end(struct training *t, const char *phase)
{
	return ls_phase_end(t->group, phase) == LS_OK;
}

static bool load(struct training *t, float *input)
{
	uint32_t sum = 0;
	if (!begin(t, "data") || !begin(t, "data/image"))
		return false;
	for (int i = 0; i < IMAGES * t->times; i++)
		sum += decode_image(t);
	*input = (float)(sum % 1000) / 1000;
	return end(t, "data/image") && end(t, "data");
}

/* Stands for a model: all ranks have the same work. */
static float propagate(struct training *t, float input)
{
	for (int layer = 0; layer < 40; layer++)
		for (int i = 0; i < WEIGHTS; i++)
			t->gradients[i] = t->gradients[i] * 0.5f + t->weights[i] * input;
	return t->gradients[WEIGHTS - 1];
}

static bool step(struct training *t)
{
	float input, output;
	if (!load(t, &input) || !begin(t, "forward"))
		return false;
	output = propagate(t, input);
	if (!end(t, "forward") || !begin(t, "backward"))
		return false;
	propagate(t, output);
	if (ls_allreduce(t->group, t->gradients, t->gradients, WEIGHTS, LS_FLOAT32, LS_AVERAGE,
			 NULL) != LS_OK)
		return false;
	if (!end(t, "backward") || !begin(t, "optimizer"))
		return false;
	for (int i = 0; i < WEIGHTS; i++)
		t->weights[i] -= 0.01f * t->gradients[i];
	return end(t, "optimizer");
}

/* Only rank 0 asks for the report: the others need not take part. The barrier lets all ranks end
 * their step first. */
static bool report(struct training *t)
{
	char text[4096];
	if (ls_barrier(t->group, NULL) != LS_OK)
		return false;
	if (ls_group_rank(t->group) == 0) {
		if (ls_phase_report(t->group, text, sizeof text) != LS_OK)
			return false;
		fputs(text, stdout);
	}
	return true;
}

static bool train(struct training *t)
{
	void *gradients;
	if (ls_alloc(t->group, WEIGHTS * sizeof *t->gradients, &gradients) != LS_OK)
		return false;
	t->gradients = gradients;
	memset(gradients, 0, WEIGHTS * sizeof *t->gradients);
	for (int i = 0; i < WEIGHTS; i++)
		t->weights[i] = (float)i / WEIGHTS;
	pack_image(t);
	for (int i = 0; i < t->steps; i++)
		if (!step(t))
			return false;
	return report(t);
}

/* Whether `rank` is in a list such as "1,3". */
static bool is_listed(const char *list, int rank)
{
	for (char *end; *list; list = *end ? end + 1 : end) {
		if (strtol(list, &end, 10) == rank && end != list)
			return true;
		if (end == list)
			return false;
	}
	return false;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {{"slow", 1, NULL, 'l'},
					      {"times", 1, NULL, 't'},
					      {"steps", 1, NULL, 's'},
					      {NULL, 0, NULL, 0}};
	static struct training t = {.steps = 100};
	const char *slow = "1,3";
	int option, times = 6;
	while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		int number = optarg ? (int)strtol(optarg, NULL, 10) : 0;
		if (option == 'l')
			slow = optarg;
		else if (option == 't' && number > 0)
			times = number;
		else if (option == 's' && number > 0)
			t.steps = number;
		else
			return 2;
	}
	if (ls_group_open(NULL, &t.group) != LS_OK)
		return 1;
	t.times = is_listed(slow, ls_group_rank(t.group)) ? times : 1;
	bool good = train(&t);
	if (!good)
		fprintf(stderr, "rank %d could not go on\n", ls_group_rank(t.group));
	ls_group_close(t.group);
	return !good;
}
