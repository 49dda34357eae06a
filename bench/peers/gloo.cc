/* SPDX-License-Identifier: BSD-3-Clause
 * Gloo over TCP as a runtime to be timed, on this machine or between the hosts whose ADDRESS says so. Ranks
 * find each other in the folder GLOO_STORE; GLOO_ALGORITHM is that of all-reduce: ring, bcube or halving. RANK
 * and WORLD_SIZE are the launcher's. */
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime.h"

namespace
{

using Reduction = gloo::AllreduceOptions::Func;

struct State {
	std::shared_ptr<gloo::rendezvous::Context> context;
	std::string algorithm;
	/* Algorithms of Gloo's older kind are made once for a buffer and a count. */
	std::map<std::pair<float *, size_t>, std::unique_ptr<gloo::Algorithm>> halving, scattering;
};

template <typename T> void sum(void *c, const void *a, const void *b, size_t n)
{
	gloo::sum<T>(c, a, b, n);
}

template <typename T> void maximum(void *c, const void *a, const void *b, size_t n)
{
	gloo::max<T>(c, a, b, n);
}

void allreduce(State *state, float *buffer, size_t count)
{
	if (state->algorithm == "halving") {
		auto &algorithm = state->halving[{buffer, count}];
		if (!algorithm)
			algorithm.reset(new gloo::AllreduceHalvingDoubling<float>(
				state->context, std::vector<float *>{buffer}, (int)count));
		algorithm->run();
		return;
	}
	gloo::AllreduceOptions options(state->context);
	options.setAlgorithm(state->algorithm == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
							 : gloo::AllreduceOptions::Algorithm::RING);
	options.setOutput(buffer, count);
	options.setReduceFunction(Reduction(sum<float>));
	gloo::allreduce(options);
}

/* In place, so the caller's own part is copied to where it is wanted. */
void reduce_scatter(State *state, float *send, float *recv, size_t count)
{
	int size = state->context->size;
	auto &algorithm = state->scattering[{send, count}];
	if (!algorithm)
		algorithm.reset(new gloo::ReduceScatterHalvingDoubling<float>(
			state->context, std::vector<float *>{send}, (int)(count * size),
			std::vector<int>(size, (int)count)));
	algorithm->run();
	memcpy(recv, send, count * sizeof *recv);
}

void reduce(State *state, float *buffer, size_t count)
{
	gloo::ReduceOptions options(state->context);
	options.setInput(buffer, count);
	options.setOutput(buffer, count);
	options.setRoot(0);
	options.setReduceFunction(gloo::ReduceOptions::Func(sum<float>));
	gloo::reduce(options);
}

void broadcast(State *state, float *buffer, size_t count)
{
	gloo::BroadcastOptions options(state->context);
	options.setOutput(buffer, count);
	options.setRoot(0);
	gloo::broadcast(options);
}

void allgather(State *state, float *send, float *recv, size_t count)
{
	gloo::AllgatherOptions options(state->context);
	options.setInput(send, count);
	options.setOutput(recv, count * state->context->size);
	gloo::allgather(options);
}

void gather(State *state, float *send, float *recv, size_t count)
{
	gloo::GatherOptions options(state->context);
	options.setInput(send, count);
	if (state->context->rank == 0)
		options.setOutput(recv, count * state->context->size);
	options.setRoot(0);
	gloo::gather(options);
}

void scatter(State *state, float *send, float *recv, size_t count)
{
	gloo::ScatterOptions options(state->context);
	std::vector<float *> parts;
	for (int rank = 0; rank < state->context->size; rank++)
		parts.push_back(send + rank * count);
	if (state->context->rank == 0)
		options.setInputs(parts, count);
	options.setOutput(recv, count);
	options.setRoot(0);
	gloo::scatter(options);
}

void alltoall(State *state, float *send, float *recv, size_t count)
{
	gloo::AlltoallOptions options(state->context);
	options.setInput(send, count * state->context->size);
	options.setOutput(recv, count * state->context->size);
	gloo::alltoall(options);
}

void barrier(State *state)
{
	gloo::BarrierOptions options(state->context);
	gloo::barrier(options);
}

void run_op(State *state, bench_op op, float *send, float *recv, size_t count)
{
	switch (op) {
	case BENCH_ALLREDUCE:
		return allreduce(state, send, count);
	case BENCH_REDUCE:
		return reduce(state, send, count);
	case BENCH_BROADCAST:
		return broadcast(state, send, count);
	case BENCH_ALLGATHER:
		return allgather(state, send, recv, count);
	case BENCH_GATHER:
		return gather(state, send, recv, count);
	case BENCH_SCATTER:
		return scatter(state, send, recv, count);
	case BENCH_REDUCE_SCATTER:
		return reduce_scatter(state, send, recv, count);
	case BENCH_ALLTOALL:
		return alltoall(state, send, recv, count);
	default:
		return barrier(state);
	}
}

bool run(void *state, bench_op op, float *send, float *recv, size_t count)
{
	try {
		run_op((State *)state, op, send, recv, count);
		return true;
	} catch (const std::exception &error) {
		fprintf(stderr, "gloo: %s\n", error.what());
		return false;
	}
}

bool combine(void *state, bench_combine how, double *value)
{
	try {
		gloo::AllreduceOptions options(((State *)state)->context);
		options.setOutput(value, 1);
		options.setReduceFunction(
			Reduction(how == BENCH_MAX ? maximum<double> : sum<double>));
		gloo::allreduce(options);
		return true;
	} catch (const std::exception &error) {
		fprintf(stderr, "gloo: %s\n", error.what());
		return false;
	}
}

int number(const char *name)
{
	const char *text = getenv(name);
	return text ? (int)strtol(text, nullptr, 10) : -1;
}

} // namespace

int bench_rank(void)
{
	return number("RANK");
}

bool bench_open(bench_runtime *out, bool threads)
{
	const char *folder = getenv("GLOO_STORE"), *algorithm = getenv("GLOO_ALGORITHM");
	const char *address = getenv("ADDRESS");
	(void)threads;
	try {
		auto state = new State;
		std::shared_ptr<gloo::transport::Device> device =
			gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address ? address : "127.0.0.1"));
		gloo::rendezvous::FileStore store(folder ? folder : ".");
		state->algorithm = algorithm ? algorithm : "ring";
		state->context = std::make_shared<gloo::rendezvous::Context>(number("RANK"),
									     number("WORLD_SIZE"));
		state->context->connectFullMesh(store, device);
		*out = {number("RANK"), number("WORLD_SIZE"), state, run, combine, nullptr};
		return true;
	} catch (const std::exception &error) {
		fprintf(stderr, "gloo: %s\n", error.what());
		return false;
	}
}

void bench_close(bench_runtime *runtime)
{
	barrier((State *)runtime->state); /* a rank that leaves early fails those that still read */
}

void *bench_allocate(bench_runtime *runtime, size_t bytes, bool plain)
{
	(void)runtime;
	(void)plain;
	void *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!out)
		perror("aligned_alloc");
	return out;
}

bool bench_begin(bench_runtime *runtime, float *buffer, size_t count)
{
	(void)runtime;
	(void)buffer;
	(void)count;
	fprintf(stderr, "gloo: nothing runs beside the caller but a thread: say --thread\n");
	return false;
}

bool bench_finish(bench_runtime *runtime)
{
	(void)runtime;
	return false;
}

size_t bench_trace_bytes(void)
{
	return 0;
}
