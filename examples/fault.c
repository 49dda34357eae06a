/* SPDX-License-Identifier: BSD-3-Clause
 * The faults of train_digits --fault. */
#include "fault.h"

#include <signal.h>
#include <string.h>

static const char *const names[] = {
	[FAULT_NONE] = "none",       [FAULT_LEAVE] = "leave", [FAULT_KILLED] = "killed",
	[FAULT_STOPPED] = "stopped", [FAULT_SLOW] = "slow",   [FAULT_OPERATION] = "operation",
	[FAULT_COUNT] = "count",     [FAULT_DTYPE] = "dtype", [FAULT_REDUCE] = "reduce",
	[FAULT_ROOT] = "root",       [FAULT_CYCLE] = "cycle",
};
enum { NAMES = sizeof names / sizeof names[0] };

int fault_from(const char *name)
{
	for (int i = 0; i < NAMES; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

void fault_print_names(FILE *out)
{
	for (int i = 0; i < NAMES; i++)
		fprintf(out, "%s%s", i ? ", " : "", names[i]);
	fprintf(out, "\n");
}

/* Computes until another process ends this one. */
static void compute_forever(void)
{
	volatile double x = 1;
	for (;;)
		x = x * 1.0000001;
}

/* Each rank receives from its right neighbour, and no rank has sent. */
static ls_status receive_in_a_circle(ls_group *group, real *buffer)
{
	int right = (ls_group_rank(group) + 1) % ls_group_size(group);
	int left = (ls_group_rank(group) + ls_group_size(group) - 1) % ls_group_size(group);
	ls_status status = ls_recv(group, buffer, 1, REAL_DTYPE, right, NULL);
	return status == LS_OK ? ls_send(group, buffer, 1, REAL_DTYPE, left, NULL) : status;
}

ls_status fault_strike(enum fault_kind kind, bool faulty, ls_group *group, real *buffer,
		       uint64_t count, bool *done)
{
	*done = true;
	if (kind == FAULT_CYCLE)
		return receive_in_a_circle(group, buffer);
	if (kind == FAULT_ROOT) {
		int root = faulty ? ls_group_rank(group) : 0;
		return ls_broadcast(group, buffer, buffer, count, REAL_DTYPE, root, NULL);
	}
	if (faulty) {
		switch (kind) {
		case FAULT_KILLED:
			raise(SIGKILL);
			break;
		case FAULT_STOPPED:
			raise(SIGSTOP);
			break;
		case FAULT_SLOW:
			compute_forever();
			break;
		case FAULT_OPERATION:
			return ls_broadcast(group, buffer, buffer, count, REAL_DTYPE, 0, NULL);
		case FAULT_COUNT:
			return ls_allreduce(group, buffer, buffer, count - 1, REAL_DTYPE,
					    LS_AVERAGE, NULL);
		case FAULT_DTYPE:
			return ls_allreduce(group, buffer, buffer, count, LS_INT32, LS_AVERAGE,
					    NULL);
		case FAULT_REDUCE:
			return ls_allreduce(group, buffer, buffer, count, REAL_DTYPE, LS_MAX, NULL);
		default:
			break;
		}
	}
	*done = false;
	return LS_OK;
}
