/* SPDX-License-Identifier: BSD-3-Clause
 * A stream uses a sum that another stream has yet to compute, on a simulated device. */
#include <lockstep/lockstep.h>
#include <lockstep/sim.h>
#include <stdlib.h>
#include <time.h>

enum { COUNT = 1000, BYTES = COUNT * sizeof(float), STREAMS = 2 };

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* It computes until the time that is its argument. */
static enum sim_step run_backward(struct sim *sim, void *argument)
{
	(void)sim;
	while (now_s() < *(const double *)argument)
		;
	return SIM_STEP_DONE;
}
static const struct sim_kernel backward = {"backward", run_backward};

static ls_status train_step(ls_group *group, const void *gradients, void *sum, void *norm,
			    const struct ls_call_options on[STREAMS])
{
	ls_status status = ls_allreduce(group, gradients, sum, COUNT, LS_FLOAT32, LS_SUM, &on[0]);
	if (status == LS_OK) /* the second stream does not wait for the first one */
		status = ls_allreduce(group, sum, norm, COUNT, LS_FLOAT32, LS_MAX, &on[1]);
	return status;
}

int main(void)
{
	const char *slow = getenv("SLOW_S");
	double busy_s = (slow ? strtod(slow, NULL) : 1) / 10;
	ls_group *group;
	struct ls_group_options options = {.size = sizeof options, .device = "sim:0"};
	struct ls_call_options on[STREAMS] = {{.size = sizeof on[0]}, {.size = sizeof on[1]}};
	void *gradients, *sum, *norm;
	if (ls_group_open(&options, &group) != LS_OK)
		return 2;
	for (int i = 0; i < STREAMS; i++) {
		struct sim_stream *stream;
		if (sim_stream_open(lockstep_sim(), 0, &stream) != SIM_OK)
			return 2;
		on[i].stream = stream;
	}
	if (ls_device_alloc(group, BYTES, on[0].stream, &gradients) != LS_OK ||
	    ls_device_alloc(group, BYTES, on[0].stream, &sum) != LS_OK ||
	    ls_device_alloc(group, BYTES, on[1].stream, &norm) != LS_OK)
		return 2;
	double end_s = now_s() + busy_s;
	if (sim_launch(on[0].stream, &backward, &end_s, sizeof end_s) != SIM_OK)
		return 2;
	ls_status status = train_step(group, gradients, sum, norm, on);
	if (sim_device_sync(lockstep_sim(), 0) != SIM_OK)
		return 2;
	ls_group_close(group);
	return status != LS_OK;
}
