/* SPDX-License-Identifier: BSD-3-Clause
 * hosts_rank RANKS FILE: what tools/hosts runs on each host. RANKS ranks of this host exchange
 * short and long payloads with all ranks of the others, over the link of the room net. They find
 * each other through FILE, which all hosts can write. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "net/rank_fixture.h"

static int number(const char *text)
{
	return text ? (int)strtol(text, NULL, 10) : 0;
}

static void run(struct shared *shared, int rank, int size, int per_host)
{
	struct rank self;
	unsigned mine = ((1U << per_host) - 1) << rank / per_host * per_host;
	rank_open(&self, shared, rank, size, getenv("ADDRESS"), ((1U << size) - 1) & ~mine);
	int sockets = rank_sockets();
	rank_exchange(&self, self.peers, 0, 300);
	rank_exchange_long(&self, 300, 16 << 20);
	rank_exchange(&self, self.peers, 301, 300);
	rank_exchange_long(&self, 601, 1);
	MUST(rank_sockets() == sockets);
	MUST(net_dropped(self.link) == 0);
	rank_meet(&self, 2);
	printf("rank %d: 602 messages from each of %d ranks, %d sockets\n", rank,
	       __builtin_popcount(self.peers), sockets);
	rank_close(&self);
}

int main(int count, char **words)
{
	int host = number(getenv("HOST")), hosts = number(getenv("HOSTS"));
	int per_host = count == 3 ? number(words[1]) : 0, failed = 0;
	MUST(per_host > 0 && hosts * per_host <= RANK_MAX);
	int file = open(words[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	MUST(file >= 0 && ftruncate(file, sizeof(struct shared)) == 0);
	struct shared *shared =
		mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	MUST(shared != MAP_FAILED);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < per_host; i++) {
		pid_t child = fork();
		MUST(child >= 0);
		if (child == 0) {
			run(shared, host * per_host + i, hosts * per_host, per_host);
			exit(0);
		}
	}
	for (int status, i = 0; i < per_host; i++) {
		MUST(wait(&status) > 0);
		failed += status != 0;
	}
	printf("%d passed, %d failed\n", per_host - failed, failed);
	return failed != 0;
}
