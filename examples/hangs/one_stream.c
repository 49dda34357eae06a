/* SPDX-License-Identifier: BSD-3-Clause
 * Two groups use one stream, and the ranks put their operations there in opposite orders, on a
 * simulated device. */
#include <lockstep/lockstep.h>
#include <lockstep/sim.h>

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

static ls_status train_step(ls_group *data, ls_group *tensor, int rank, float *block,
			    struct ls_call_options *on)
{
	ls_request *requests[2];
	for (int i = 0; i < 2; i++) {
		on->request = &requests[i]; /* the calls do not wait */
		ls_status status = ls_allreduce(i == rank ? data : tensor, block, block, COUNT,
						LS_FLOAT32, LS_SUM, on);
		if (status != LS_OK)
			return status;
	}
	ls_status status = ls_wait(requests[0], 0);
	if (status == LS_OK)
		status = ls_wait(requests[1], 0);
	ls_request_free(requests[0]);
	ls_request_free(requests[1]);
	return status;
}

int main(void)
{
	ls_group *world, *data, *tensor;
	struct ls_group_options options = {.size = sizeof options, .device = "sim:0"};
	struct sim_stream *stream;
	struct ls_call_options on = {.size = sizeof on};
	void *block;
	if (ls_group_open(&options, &world) != LS_OK)
		return 2;
	int rank = ls_group_rank(world);
	if (ls_group_split(world, 0, rank, &data) != LS_OK ||
	    ls_group_split(world, 0, rank, &tensor) != LS_OK ||
	    sim_stream_open(lockstep_sim(), 0, &stream) != SIM_OK ||
	    ls_device_alloc(world, BYTES, stream, &block) != LS_OK)
		return 2;
	on.stream = stream;
	ls_status status = train_step(data, tensor, rank, block, &on);
	ls_group_close(world);
	return status != LS_OK;
}
