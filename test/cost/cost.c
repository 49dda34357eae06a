/* SPDX-License-Identifier: BSD-3-Clause
 * Compares counts with their limits. */
#include "cost.h"

#include <linux/membarrier.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

bool cost_has_membarrier(void)
{
	long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
	return commands >= 0 && (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void cost_must(ls_status status)
{
	if (status == LS_OK)
		return;
	fprintf(stderr, "%s\n", ls_status_text(status));
	_exit(1);
}

int cost_judge(const char *const *names, const struct cost_limit *limits,
	       const struct count *counts, int name_count, int each)
{
	int passed = 0;
	for (int i = 0; i < name_count; i++) {
		struct count least = counts[i * each];
		for (int k = 1; k < each; k++) {
			const struct count *count = &counts[i * each + k];
			least = count->instructions < least.instructions ? *count : least;
		}
		bool good = least.instructions <= limits[i].instructions &&
			    least.locked <= limits[i].locked;
		printf("%s - %s: %ld instructions (at most %ld), %ld locked (at most %ld)\n",
		       good ? "ok" : "not ok", names[i], least.instructions, limits[i].instructions,
		       least.locked, limits[i].locked);
		passed += good;
	}
	printf("%d passed, %d failed\n", passed, name_count - passed);
	return passed == name_count ? 0 : 1;
}
