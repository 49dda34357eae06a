/* SPDX-License-Identifier: BSD-3-Clause
 * Steps by the trap flag: the processor raises SIGTRAP after each instruction of the thread that
 * has set it. So no other process is needed, nor its permission to trace. */
#include "count.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <ucontext.h>

static struct count counted;

/* Whether an instruction has a lock prefix, or exchanges with memory, which is locked without
 * one. */
static bool is_locked(const unsigned char *code)
{
	bool has_operand_prefix = *code == 0x66;
	code += has_operand_prefix;
	if (*code == 0xf0)
		return true;
	bool has_rex = (*code & 0xf0) == 0x40;
	code += has_rex;
	return (code[0] == 0x86 || code[0] == 0x87) && code[1] >> 6 != 3;
}

/* After one instruction, before the next. */
static void step(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *stopped = context;
	(void)signal;
	(void)info;
	counted.instructions++;
	counted.locked += is_locked((const unsigned char *)stopped->uc_mcontext.gregs[REG_RIP]);
}

bool count_init(void)
{
	struct sigaction action = {.sa_sigaction = step, .sa_flags = SA_SIGINFO | SA_RESTART};
	if (sigaction(SIGTRAP, &action, NULL) == 0)
		return true;
	perror("sigaction");
	return false;
}

/* The stack below its pointer may be in use (red zone), so the pointer is moved first. */
#define CHANGE_TRAP_FLAG(change)                                                        \
	__asm__ volatile("leaq -128(%%rsp), %%rsp\n\tpushfq\n\t" change ", (%%rsp)\n\t" \
			 "popfq\n\tleaq 128(%%rsp), %%rsp" ::                           \
				 : "memory", "cc")

void count_begin(void)
{
	counted = (struct count){0};
	CHANGE_TRAP_FLAG("orq $0x100");
}

struct count count_end(void)
{
	CHANGE_TRAP_FLAG("andq $-0x101");
	return counted;
}
