/* SPDX-License-Identifier: BSD-3-Clause
 * `lockstep run` as a function, for fork_server.py: a process that has imported PyTorch becomes the
 * launcher, and forks its ranks. Where the launcher's child would execute the program of a rank,
 * forked_run returns in this child instead, and the caller runs that program. */
#include <setjmp.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* The program of the rank: its words and its environment, both ended by NULL. */
struct forked_rank {
	char *const *words;
	char *const *environment;
};

int main(int argc, char **argv); /* of the program lockstep */
int execvpe(const char *file, char *const words[], char *const environment[]);
EXPORT int forked_run(int argc, char **argv, struct forked_rank *rank);

static jmp_buf begin;
static struct forked_rank *here;

/* In the place of the C library's, for the launcher alone: this library binds its own names. */
int execvpe(const char *file, char *const words[], char *const environment[])
{
	(void)file;
	*here = (struct forked_rank){words, environment};
	longjmp(begin, 1);
}

/* The launcher's exit status; in a rank, rank->words is not NULL. */
int forked_run(int argc, char **argv, struct forked_rank *rank)
{
	*rank = (struct forked_rank){NULL, NULL};
	here = rank;
	if (setjmp(begin) != 0)
		return 0;
	return main(argc, argv);
}
