/* SPDX-License-Identifier: BSD-3-Clause
 * How random programs with devices are drawn, run and checked: see device_program.h. */
#include "device_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "pool/gate.h"
#include "pool/pool.h"
#include "sim_driver.h"

enum {
	DEVICES = 2,
	/* of a device: for collectives and receives; for the two threads; for sends */
	STREAMS = 4,
	SENDS = 3,
	COLLECTIVES = 4,
	EXCHANGES = 4, /* in place of one collective */
	BLOCKS = 6,    /* that a thread may have at once */
	MEMORY = 16 << 20,
	LIMIT = 8 << 20, /* of the pools of a rank, if it has one */
	MEMBERS = DEVICE_PROGRAM_RANKS * DEVICES,
};

struct block {
	void *address;
	size_t bytes;
	uint64_t mark; /* what the block holds */
	int device;
};

struct thread {
	uint64_t random;
	struct block blocks[BLOCKS];
	int count;
	uint64_t serial;
};

struct rank {
	struct sim *sim;
	struct wait_bell bell;
	struct waiter waiter;
	struct pool_gate gate;
	struct sim_driver drivers[DEVICES];
	struct pool *pools[DEVICES];
	struct sim_stream *streams[DEVICES][STREAMS];
	struct pool_inflight *inflight[DEVICES], *sends_inflight;
	struct sim_event *events[DEVICES][DEVICE_PROGRAM_THREADS];
	struct thread threads[DEVICE_PROGRAM_THREADS];
	bool limited;
};

struct device_program {
	int ranks, devices, collectives;
	/* In place of collectives: each rank receives from its neighbour, then sends. */
	bool exchanges;
	struct sim_board board;
	_Atomic uint64_t words[COLLECTIVES * EXCHANGES][MEMBERS];
	/* blocks that others have written to; allocations beyond the limit */
	_Atomic uint64_t wrong;
	struct rank all[DEVICE_PROGRAM_RANKS];
};

static uint64_t draw(uint64_t *random, uint64_t limit)
{
	*random = *random * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (*random >> 33) % limit;
}

static void must(enum sim_error error)
{
	if (error == SIM_OK)
		return;
	fprintf(stderr, "device program: %s\n", sim_error_name(error));
	abort();
}

static void must_be(ls_status status, ls_status expected)
{
	if (status == expected)
		return;
	fprintf(stderr, "device program: %s\n", ls_status_name(status));
	abort();
}

/* ---- kernels ---- */

struct meeting {
	struct device_program *program;
	int collective, member, members;
};

static enum sim_step meet(struct sim *sim, void *argument)
{
	const struct meeting *meeting = argument;
	_Atomic uint64_t *words = meeting->program->words[meeting->collective];
	if (atomic_load(&words[meeting->member]) == 0)
		sim_board_store(sim, &words[meeting->member], 1);
	for (int i = 0; i < meeting->members; i++)
		if (atomic_load(&words[i]) == 0)
			return SIM_STEP_SPINS;
	return SIM_STEP_DONE;
}
static const struct sim_kernel collective = {"collective", meet};

static enum sim_step receive(struct sim *sim, void *argument)
{
	const struct meeting *meeting = argument;
	(void)sim;
	return atomic_load(&meeting->program->words[meeting->collective][meeting->member])
		       ? SIM_STEP_DONE
		       : SIM_STEP_SPINS;
}
static const struct sim_kernel receives = {"receive", receive};

static enum sim_step send(struct sim *sim, void *argument)
{
	const struct meeting *meeting = argument;
	sim_board_store(sim, &meeting->program->words[meeting->collective][meeting->member], 1);
	return SIM_STEP_DONE;
}
static const struct sim_kernel sends = {"send", send};

struct access {
	struct device_program *program;
	void *address;
	size_t bytes;
	uint64_t mark;
};

static uint64_t *last_of(const struct sim *sim, const struct access *access)
{
	size_t at = (access->bytes - sizeof(uint64_t)) / sizeof(uint64_t);
	return (uint64_t *)sim_where(sim, access->address) + at;
}

static enum sim_step write_marks(struct sim *sim, void *argument)
{
	const struct access *access = argument;
	*(uint64_t *)sim_where(sim, access->address) = access->mark;
	*last_of(sim, access) = access->mark;
	return SIM_STEP_DONE;
}
static const struct sim_kernel writes = {"write", write_marks};

static enum sim_step check_marks(struct sim *sim, void *argument)
{
	const struct access *access = argument;
	if (*(uint64_t *)sim_where(sim, access->address) != access->mark ||
	    *last_of(sim, access) != access->mark)
		atomic_fetch_add(&access->program->wrong, 1);
	return SIM_STEP_DONE;
}
static const struct sim_kernel checks = {"check", check_marks};

static void launch_access(struct device_program *program, struct sim_stream *stream,
			  const struct sim_kernel *kernel, const struct block *block)
{
	struct access access = {program, block->address, block->bytes, block->mark};
	must(sim_launch(stream, kernel, &access, sizeof access));
}

/* ---- what a thread does ---- */

static size_t draw_bytes(struct thread *thread)
{
	switch (draw(&thread->random, 3)) {
	case 0:
		return 8 + draw(&thread->random, 4096);
	case 1:
		return (1 << 20) + draw(&thread->random, 4 << 20);
	default:
		return (size_t)64 << draw(&thread->random, 12);
	}
}

static void alloc_block(struct device_program *program, struct rank *rank, int number)
{
	struct thread *thread = &rank->threads[number];
	if (thread->count == BLOCKS)
		return;
	struct block *block = &thread->blocks[thread->count];
	*block = (struct block){.bytes = draw_bytes(thread),
				.mark = ++thread->serial * 2 + (uint64_t)number,
				.device = (int)draw(&thread->random, (uint64_t)program->devices)};
	struct sim_stream *stream = rank->streams[block->device][1 + number];
	ls_status status = pool_alloc(rank->pools[block->device], block->bytes, stream, CLOCK_NEVER,
				      &block->address);
	if (rank->limited && sim_bytes_used(rank->sim, block->device) > LIMIT)
		atomic_fetch_add(&program->wrong, 1);
	if (status == LS_OUT_OF_MEMORY)
		return;
	must_be(status, LS_OK);
	launch_access(program, stream, &writes, block);
	thread->count++;
}

/* Another stream reads the block, after all that the block's own stream has. */
static void use_elsewhere(struct device_program *program, struct rank *rank, int number)
{
	struct thread *thread = &rank->threads[number];
	if (thread->count == 0)
		return;
	const struct block *block = &thread->blocks[draw(&thread->random, (uint64_t)thread->count)];
	struct sim_stream *own = rank->streams[block->device][1 + number];
	struct sim_stream *other =
		rank->streams[block->device][draw(&thread->random, 2) ? 0 : 2 - number];
	struct sim_event *event = rank->events[block->device][number];
	must(sim_record(event, own));
	must(sim_follow(other, event));
	must_be(pool_record(rank->pools[block->device], block->address, other, NULL), LS_OK);
	launch_access(program, other, &checks, block);
}

static void free_block(struct device_program *program, struct rank *rank, int number)
{
	struct thread *thread = &rank->threads[number];
	if (thread->count == 0)
		return;
	int which = (int)draw(&thread->random, (uint64_t)thread->count);
	struct block block = thread->blocks[which];
	launch_access(program, rank->streams[block.device][1 + number], &checks, &block);
	must_be(pool_free(rank->pools[block.device], block.address, NULL), LS_OK);
	thread->blocks[which] = thread->blocks[--thread->count];
}

static void begin(struct rank *rank)
{
	must_be(pool_gate_begin(&rank->gate, &rank->waiter, CLOCK_NEVER), LS_OK);
}

static void launch(struct rank *rank, struct pool_inflight *inflight, int device, int stream,
		   const struct sim_kernel *kernel, const struct meeting *meeting)
{
	struct driver *driver = &rank->drivers[device].driver;
	struct sim_stream *behind = rank->streams[device][stream];
	uint64_t number = pool_gate_issue(inflight);
	must(sim_launch(behind, kernel, meeting, sizeof *meeting));
	must_be(driver->ops->store(driver, behind, &inflight->done, number), LS_OK);
}

/* All devices of the rank take part, and are launched one after the other. */
static void launch_collective(struct device_program *program, struct rank *rank, int which)
{
	begin(rank);
	for (int i = 0; i < program->devices; i++) {
		struct meeting meeting = {program, which,
					  (int)(rank - program->all) * program->devices + i,
					  program->ranks * program->devices};
		launch(rank, rank->inflight[i], i, 0, &collective, &meeting);
	}
	pool_gate_end(&rank->gate);
}

/* Two launches. No rank's receive ends before another rank's second launch. */
static void exchange(struct device_program *program, struct rank *rank, int which)
{
	int here = (int)(rank - program->all);
	struct meeting from = {program, which, (here + 1) % program->ranks, 0};
	struct meeting to = {program, which, here, 0};
	begin(rank);
	launch(rank, rank->inflight[0], 0, 0, &receives, &from);
	pool_gate_end(&rank->gate);
	begin(rank);
	launch(rank, rank->sends_inflight, 0, SENDS, &sends, &to);
	pool_gate_end(&rank->gate);
}

static void step(struct device_program *program, struct rank *rank, int number)
{
	struct thread *thread = &rank->threads[number];
	switch (draw(&thread->random, 6)) {
	case 0:
	case 1:
		alloc_block(program, rank, number);
		break;
	case 2:
	case 3:
		free_block(program, rank, number);
		break;
	case 4:
		use_elsewhere(program, rank, number);
		break;
	default:
		pool_trim(rank->pools[draw(&thread->random, (uint64_t)program->devices)], 0);
		break;
	}
}

void device_program_run(struct device_program *program, int rank, int number)
{
	struct rank *here = &program->all[rank];
	struct thread *thread = &here->threads[number];
	for (int i = 0; i < program->collectives; i++) {
		for (uint64_t steps = draw(&thread->random, 6); steps > 0; steps--)
			step(program, here, number);
		for (int j = 0; number == 0 && program->exchanges && j < EXCHANGES; j++)
			exchange(program, here, EXCHANGES * i + j);
		if (number == 0 && !program->exchanges)
			launch_collective(program, here, i);
	}
	while (thread->count > 0)
		free_block(program, here, number);
}

/* ---- before and after ---- */

int device_program_ranks(uint64_t seed)
{
	uint64_t random = seed;
	return 1 + (int)draw(&random, DEVICE_PROGRAM_RANKS);
}

static bool open_device(struct rank *rank, int device)
{
	if (!sim_driver_open(&rank->drivers[device], rank->sim, device, &rank->bell))
		return false;
	rank->inflight[device] = pool_inflight_open(&rank->gate, &rank->drivers[device].driver);
	for (int i = 0; i < STREAMS; i++)
		must(sim_stream_open(rank->sim, device, &rank->streams[device][i]));
	for (int i = 0; i < DEVICE_PROGRAM_THREADS; i++)
		must(sim_event_open(rank->sim, &rank->events[device][i]));
	struct pool_options options = {.driver = &rank->drivers[device].driver,
				       .gate = &rank->gate,
				       .waiter = &rank->waiter,
				       .limit_bytes = rank->limited ? LIMIT : 0,
				       .name = device ? "sim:1" : "sim:0"};
	return pool_open(&rank->pools[device], &options) == LS_OK;
}

static bool open_rank(struct device_program *program, int number, uint64_t *random)
{
	struct rank *rank = &program->all[number];
	struct sim_options options = {
		.seed = *random,
		.board = &program->board,
		.devices = program->devices,
		.bytes = MEMORY,
		.resident = 2 + (int)draw(random, 3),
		.queues = program->exchanges ? 2 + STREAMS : 1 + (int)draw(random, SIM_QUEUES),
		.free = (enum sim_free_mode)draw(random, 3),
		.loads_lazily = false};
	/* In a shared hardware queue, what is behind a receive waits for it, and a send must not.
	 * Collectives may share a queue, because all ranks launch them in the same order. */
	rank->sim = sim_open(&options);
	rank->waiter = (struct waiter){.bell = &rank->bell, .look_fd = -1};
	rank->limited = options.seed >> 40 & 1; /* not drawn: old seeds draw the same programs */
	pool_gate_init(&rank->gate);
	for (int i = 0; i < DEVICE_PROGRAM_THREADS; i++)
		rank->threads[i].random = *random * 2 + (uint64_t)i + 1;
	bool opened = rank->sim != NULL;
	for (int i = 0; opened && i < program->devices; i++)
		opened = open_device(rank, i);
	if (opened)
		rank->sends_inflight = pool_inflight_open(&rank->gate, &rank->drivers[0].driver);
	return opened;
}

struct device_program *device_program_open(uint64_t seed)
{
	struct device_program *program = calloc(1, sizeof *program);
	uint64_t random = seed;
	if (!program)
		return NULL;
	program->ranks = 1 + (int)draw(&random, DEVICE_PROGRAM_RANKS);
	program->devices = 1 + (int)draw(&random, DEVICES);
	program->collectives = 1 + (int)draw(&random, COLLECTIVES);
	program->exchanges = draw(&random, 2) == 0;
	for (int i = 0; i < program->ranks; i++)
		if (!open_rank(program, i, &random))
			return NULL;
	return program;
}

static bool close_rank(struct device_program *program, struct rank *rank)
{
	bool empty = true;
	for (int i = 0; i < program->devices; i++)
		must_be(pool_close(rank->pools[i], CLOCK_NEVER), LS_OK);
	for (int i = 0; i < program->devices; i++) {
		for (int j = 0; j < STREAMS; j++)
			must(sim_stream_close(rank->streams[i][j])); /* once its work is done */
		pool_inflight_close(rank->inflight[i]);
	}
	pool_inflight_close(rank->sends_inflight);
	for (int i = 0; i < program->devices; i++) {
		sim_driver_close(&rank->drivers[i]);
		empty &= sim_bytes_used(rank->sim, i) == 0;
	}
	pool_gate_fini(&rank->gate);
	sim_close(rank->sim);
	return empty;
}

bool device_program_close(struct device_program *program)
{
	bool right = true;
	for (int i = 0; i < program->ranks; i++)
		right &= close_rank(program, &program->all[i]);
	right &= atomic_load(&program->wrong) == 0;
	free(program);
	return right;
}
