/* SPDX-License-Identifier: BSD-3-Clause
 * The shortest program: every rank adds its number. lockstep run -n 4 ./hello */
#include <lockstep/lockstep.h>
#include <stdio.h>

int main(void)
{
	ls_group *group;
	if (ls_group_open(NULL, &group) != LS_OK)
		return 1;
	float value = (float)ls_group_rank(group), sum = 0;
	ls_status status = ls_allreduce(group, &value, &sum, 1, LS_FLOAT32, LS_SUM, NULL);
	if (status == LS_OK)
		printf("rank %d of %d: the sum of all ranks is %g\n", ls_group_rank(group),
		       ls_group_size(group), (double)sum);
	else
		fprintf(stderr, "all-reduce: %s\n", ls_status_text(status));
	ls_group_close(group);
	return status != LS_OK;
}
