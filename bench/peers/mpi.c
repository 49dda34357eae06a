/* SPDX-License-Identifier: BSD-3-Clause
 * An MPI as a runtime to be timed: mpicc peers/mpi.c collectives.c beside.c
 * ../src/bench/measure.c ../src/bench/message.c ../src/bench/operations.c ../src/coll/coll.c
 * MPI_COPY=1: all-reduces are not in place, and what they send is a copy that they make first.
 * Open MPI 4.1's HAN reads wild addresses if it cuts an all-reduce in place into segments. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

static MPI_Request request, requests[BENCH_OUTSTANDING_MAX];

static bool copies;
static float *copy;
static int copy_count;

static bool good(int error)
{
	return error == MPI_SUCCESS; /* errors end the job anyway, with MPI's own message */
}

static bool allreduce(float *buffer, int count)
{
	if (copies && count > copy_count) {
		free(copy);
		copy = malloc((size_t)count * sizeof *copy);
		if (!copy) {
			perror("mpi: malloc");
			return false;
		}
		copy_count = count;
	}
	if (copies)
		memcpy(copy, buffer, (size_t)count * sizeof *copy);
	return good(MPI_Allreduce(copies ? (void *)copy : MPI_IN_PLACE, buffer, count, MPI_FLOAT,
				  MPI_SUM, MPI_COMM_WORLD));
}

static bool run(void *state, enum bench_op op, float *send, float *recv, size_t elements)
{
	const struct bench_runtime *runtime = (const struct bench_runtime *)state;
	const MPI_Comm world = MPI_COMM_WORLD;
	const int count = (int)elements;
	const void *mine = runtime->rank == 0 ? MPI_IN_PLACE : send;

	switch (op) {
	case BENCH_ALLREDUCE:
		return allreduce(recv, count);
	case BENCH_REDUCE:
		return good(MPI_Reduce(mine, recv, count, MPI_FLOAT, MPI_SUM, 0, world));
	case BENCH_BROADCAST:
		return good(MPI_Bcast(send, count, MPI_FLOAT, 0, world));
	case BENCH_ALLGATHER:
		return good(MPI_Allgather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, world));
	case BENCH_GATHER:
		return good(MPI_Gather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, 0, world));
	case BENCH_SCATTER:
		return good(MPI_Scatter(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, 0, world));
	case BENCH_REDUCE_SCATTER:
		return good(MPI_Reduce_scatter_block(send, recv, count, MPI_FLOAT, MPI_SUM, world));
	case BENCH_ALLTOALL:
		return good(MPI_Alltoall(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, world));
	case BENCH_BARRIER:
		return good(MPI_Barrier(world));
	default:
		return false;
	}
}

static bool combine(void *state, enum bench_combine how, double *value)
{
	MPI_Op op = how == BENCH_MAX ? MPI_MAX : MPI_SUM;
	(void)state;
	return good(MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_DOUBLE, op, MPI_COMM_WORLD));
}

static bool send(void *state, const float *buffer, size_t count, int peer, int tag)
{
	(void)state;
	return good(MPI_Send(buffer, (int)count, MPI_FLOAT, peer, tag, MPI_COMM_WORLD));
}

static bool recv(void *state, float *buffer, size_t count, int peer, int tag)
{
	(void)state;
	return good(MPI_Recv(buffer, (int)count, MPI_FLOAT, peer, tag, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE));
}

static bool isend(void *state, int number, const float *buffer, size_t count, int peer, int tag)
{
	(void)state;
	return good(MPI_Isend(buffer, (int)count, MPI_FLOAT, peer, tag, MPI_COMM_WORLD,
			      &requests[number]));
}

static bool irecv(void *state, int number, float *buffer, size_t count, int peer, int tag)
{
	(void)state;
	return good(MPI_Irecv(buffer, (int)count, MPI_FLOAT, peer, tag, MPI_COMM_WORLD,
			      &requests[number]));
}

static bool finish(void *state, int count)
{
	(void)state;
	return good(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
}

static bool regroup(void *state)
{
	const struct bench_runtime *runtime = (const struct bench_runtime *)state;
	MPI_Comm all;

	return good(MPI_Comm_split(MPI_COMM_WORLD, 0, runtime->rank, &all)) &&
	       good(MPI_Comm_free(&all));
}

int bench_rank(void)
{
	const char *rank = getenv("OMPI_COMM_WORLD_RANK");
	if (!rank)
		rank = getenv("PMI_RANK");
	return rank ? (int)strtol(rank, NULL, 10) : -1;
}

bool bench_open(struct bench_runtime *out, bool threads)
{
	static const struct bench_messages messages = {send, recv, isend, irecv, finish, regroup};
	int wanted = threads ? MPI_THREAD_SERIALIZED : MPI_THREAD_SINGLE, got;
	if (!good(MPI_Init_thread(NULL, NULL, wanted, &got)))
		return false;
	if (got < wanted) {
		fprintf(stderr, "mpi: this library is not made for threads\n");
		return false;
	}
	copies = getenv("MPI_COPY") != NULL;
	MPI_Comm_rank(MPI_COMM_WORLD, &out->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &out->size);
	out->state = out;
	out->run = run;
	out->combine = combine;
	out->messages = &messages;
	return true;
}

void bench_close(struct bench_runtime *runtime)
{
	(void)runtime;
	MPI_Finalize();
}

void *bench_allocate(struct bench_runtime *runtime, size_t bytes, bool plain)
{
	(void)runtime;
	(void)plain;
	void *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!out)
		perror("aligned_alloc");
	return out;
}

bool bench_begin(struct bench_runtime *runtime, float *buffer, size_t count)
{
	(void)runtime;
	return good(MPI_Iallreduce(MPI_IN_PLACE, buffer, (int)count, MPI_FLOAT, MPI_SUM,
				   MPI_COMM_WORLD, &request));
}

bool bench_finish(struct bench_runtime *runtime)
{
	(void)runtime;
	return good(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

size_t bench_trace_bytes(void)
{
	return 0;
}
