/* SPDX-License-Identifier: BSD-3-Clause
 * See evaluate.h. */
#include "evaluate.h"

#include <stdio.h>
#include <string.h>

bool failed(ls_group *group, const char *what, ls_status status)
{
	if (status != LS_OK)
		fprintf(stderr, "rank %d: %s: %s (%s)\n", ls_group_rank(group), what,
			ls_status_text(status), ls_status_name(status));
	return status != LS_OK;
}

bool evaluate_accuracy(ls_group *group, const struct digits *digits, const real *parameters,
		       double *accuracy)
{
	int64_t right = 0;
	size_t first = digits->count - DIGITS_TEST, size = (size_t)ls_group_size(group);
	for (size_t i = (size_t)ls_group_rank(group); i < DIGITS_TEST; i += size)
		right += mlp_predict(parameters, digits->pixels[first + i]) ==
			 digits->labels[first + i];
	ls_status status = ls_allreduce(group, &right, &right, 1, LS_INT64, LS_SUM, NULL);
	*accuracy = (double)right / DIGITS_TEST;
	return !failed(group, "all-reduce of the test results", status);
}

bool evaluate_equal(ls_group *group, const real *parameters, real *scratch)
{
	const size_t bytes = MLP_PARAMETERS * sizeof *scratch;
	ls_status status =
		ls_broadcast(group, parameters, scratch, MLP_PARAMETERS, REAL_DTYPE, 0, NULL);
	if (failed(group, "broadcast of rank 0's parameters", status))
		return false;
	int32_t equal = memcmp(scratch, parameters, bytes) == 0;
	status = ls_allreduce(group, &equal, &equal, 1, LS_INT32, LS_MIN, NULL);
	if (failed(group, "all-reduce of the comparison", status))
		return false;
	if (ls_group_rank(group) == 0)
		printf("parameters are %s on all %d ranks\n", equal ? "bitwise equal" : "NOT EQUAL",
		       ls_group_size(group));
	return equal;
}
