/* SPDX-License-Identifier: BSD-3-Clause
 * Memory and streams of a device: each rank computes gradients on its simulated device, all ranks
 * average them there, and a second stream copies the result to the host. The host waits only at
 * the end. To see it:
 *   lockstep run -n 4 ./device */
#include <lockstep/lockstep.h>
#include <lockstep/sim.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 18 };

static void must(ls_status status, const char *what)
{
	if (status == LS_OK)
		return;
	fprintf(stderr, "device: %s: %s\n", what, ls_status_text(status));
	exit(1);
}

/* Checks a call of the driver in the same way: for CUDA its status would be a cudaError_t. */
static void driver_must(enum sim_error error, const char *what)
{
	if (error == SIM_OK)
		return;
	fprintf(stderr, "device: %s: %s\n", what, sim_error_name(error));
	exit(1);
}

/* ---- a kernel, which the device runs ---- */

struct backward {
	float *gradients, *loss; /* memory of the device */
	int rank;
};

static enum sim_step run_backward(struct sim *sim, void *argument)
{
	const struct backward *backward = argument;
	float *gradients = sim_where(sim, backward->gradients);
	float *loss = sim_where(sim, backward->loss);
	for (int i = 0; i < COUNT; i++)
		gradients[i] = (float)(backward->rank + i % 2);
	*loss = (float)backward->rank;
	return SIM_STEP_DONE;
}

static const struct sim_kernel backward_kernel = {"backward", run_backward};

/* ---- what the rank does ---- */

struct rank {
	ls_group *group;
	int rank;
	struct sim_stream *compute, *copies;
};

static void *take(struct rank *rank, size_t bytes)
{
	void *block; /* it belongs to the stream `compute` */
	must(ls_device_alloc(rank->group, bytes, rank->compute, &block), "ls_device_alloc");
	return block;
}

/* Enqueues the work of a training step, and returns before the device has done it. */
static ls_request *enqueue_step(struct rank *rank, float *gradients, float *loss, float *on_host)
{
	struct backward backward = {gradients, loss, rank->rank};
	/* LOCKSTEP_CHECK=1 sees what the kernel touches, because its buffers are named. */
	const struct sim_use uses[] = {{gradients, COUNT * sizeof *gradients, true},
				       {loss, sizeof *loss, true}};
	driver_must(sim_launch_using(rank->compute, &backward_kernel, &backward, sizeof backward,
				     uses, 2),
		    "sim_launch_using");

	/* Both all-reduces belong together: no memory is given back to the driver in between. */
	ls_request *averaged;
	struct ls_call_options on = {.size = sizeof on, .stream = rank->compute};
	struct ls_call_options on_with_handle = on;
	on_with_handle.request = &averaged;
	must(ls_launch_begin(&rank->group, 1), "ls_launch_begin");
	must(ls_allreduce(rank->group, loss, loss, 1, LS_FLOAT32, LS_AVERAGE, &on), "the loss");
	must(ls_allreduce(rank->group, gradients, gradients, COUNT, LS_FLOAT32, LS_AVERAGE,
			  &on_with_handle),
	     "the gradients");
	must(ls_launch_end(), "ls_launch_end");

	/* The other stream copies once the all-reduce is done. Without ls_request_follow it could
	 * copy too early: LOCKSTEP_CHECK=1 finds that. */
	must(ls_request_follow(averaged, rank->copies), "ls_request_follow");
	driver_must(sim_copy(rank->copies, on_host, gradients, COUNT * sizeof *on_host), "sim_copy");
	return averaged;
}

/* Rank 0 prints how much memory it uses; the figures of the other ranks are the same. */
static void show_memory(struct rank *rank, const char *when)
{
	if (rank->rank != 0)
		return;
	struct ls_device_stats stats = {.size = sizeof stats};
	must(ls_device_stats(rank->group, &stats), "ls_device_stats");
	uint64_t free_bytes = stats.cached + stats.pending;
	printf("rank %d: %s: %llu bytes in use, %llu free, %llu reserved\n", rank->rank, when,
	       (unsigned long long)stats.live, (unsigned long long)free_bytes,
	       (unsigned long long)stats.reserved);
}

static void run(struct rank *rank, float *on_host)
{
	float *gradients = take(rank, COUNT * sizeof *gradients);
	float *loss = take(rank, sizeof *loss);
	ls_request *averaged = enqueue_step(rank, gradients, loss, on_host);
	show_memory(rank, "while the device works");
	/* The stream `copies` uses the block, too, so it is not reused before the copy is done. */
	must(ls_device_record(rank->group, gradients, rank->copies), "ls_device_record");
	must(ls_device_free(rank->group, gradients), "ls_device_free");
	must(ls_device_free(rank->group, loss), "ls_device_free");

	driver_must(sim_stream_sync(rank->copies), "sim_stream_sync");
	must(ls_wait(averaged, 0), "the gradients");
	ls_request_free(averaged);
}

static void open_streams(struct rank *rank)
{
	driver_must(sim_stream_open(lockstep_sim(), 0, &rank->compute), "sim_stream_open");
	driver_must(sim_stream_open(lockstep_sim(), 0, &rank->copies), "sim_stream_open");
}

/* A program tells Lockstep (ls_device_forget) before it destroys a stream. */
static void close_streams(struct rank *rank)
{
	must(ls_device_forget(rank->group, rank->copies), "ls_device_forget");
	must(ls_device_forget(rank->group, rank->compute), "ls_device_forget");
	driver_must(sim_stream_close(rank->copies), "sim_stream_close");
	driver_must(sim_stream_close(rank->compute), "sim_stream_close");
}

int main(void)
{
	struct rank rank;
	float *on_host = malloc(COUNT * sizeof *on_host);
	struct ls_group_options options = {.size = sizeof options, .device = "sim:0"};
	if (!on_host)
		return 1;
	must(ls_group_open(&options, &rank.group), "ls_group_open");
	rank.rank = ls_group_rank(rank.group);
	open_streams(&rank);
	run(&rank, on_host);
	close_streams(&rank);
	show_memory(&rank, "when all is done and freed");
	must(ls_device_trim(rank.group, 0), "ls_device_trim");
	show_memory(&rank, "trimmed");

	float expected = (float)(ls_group_size(rank.group) - 1) / 2;
	bool right = on_host[0] == expected && on_host[COUNT - 1] == expected + 1;
	printf("rank %d: the averages of %d ranks are %g and %g: %s\n", rank.rank,
	       ls_group_size(rank.group), (double)on_host[0], (double)on_host[COUNT - 1],
	       right ? "right" : "wrong");
	ls_group_close(rank.group);
	free(on_host);
	return !right;
}
