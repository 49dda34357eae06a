/* SPDX-License-Identifier: BSD-3-Clause
 * Which processes are on one host: those of one boot of one kernel, in one network namespace. Where
 * a process cannot find out its kernel or namespace: the processes that other hosts reach at one
 * address. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/meet.h"

bool rendezvous_share_host(const struct rendezvous_rank *one, const struct rendezvous_rank *other)
{
	if (one->host_key != 0 && other->host_key != 0)
		return one->host_key == other->host_key;
	return one->ip[0] == '\0' || other->ip[0] == '\0' || strcmp(one->ip, other->ip) == 0;
}

int rendezvous_find_hosts(const struct rendezvous_table *table, int first[RANKS_WORLD_MAX])
{
	int hosts = 0;

	for (int q = 0; q < table->size; q++) {
		first[q] = q;
		/* Compares only with the lowest rank of each host: if some key is not known, a rank
		 * could share a host with two that share none. */
		for (int p = 0; p < q && first[q] == q; p++)
			if (first[p] == p &&
			    rendezvous_share_host(&table->ranks[p], &table->ranks[q]))
				first[q] = p;
		hosts += first[q] == q;
	}
	return hosts;
}

bool rendezvous_has_hosts(const struct rendezvous_table *table)
{
	int first[RANKS_WORLD_MAX];
	return rendezvous_find_hosts(table, first) > 1;
}

uint64_t rendezvous_host_key(void)
{
	char boot[64] = "";
	struct stat net;
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd >= 0 ? read(fd, boot, sizeof boot - 1) : -1;
	if (fd >= 0)
		close(fd);
	if (got <= 0 || stat("/proc/self/ns/net", &net) != 0)
		return 0;
	return rendezvous_hash(boot) ^ (uint64_t)net.st_ino * UINT64_C(0x9e3779b97f4a7c15);
}
