/* SPDX-License-Identifier: BSD-3-Clause
 * What the files of this room share. */
#ifndef STACK_STACK_PRIVATE_H
#define STACK_STACK_PRIVATE_H

#include "stack/stack.h"

static inline bool stack_read_u64(const struct stack_memory *memory, uint64_t address, uint64_t *out)
{
	return memory->read(memory, address, out, sizeof *out);
}

static inline bool stack_read_u32(const struct stack_memory *memory, uint64_t address, uint32_t *out)
{
	return memory->read(memory, address, out, sizeof *out);
}

/* ---- process.c ---- */

/* The beginning of /proc/PID/task/TID/NAME, as text. */
bool stack_read_thread_file(int pid, uint32_t tid, const char *name, char *out, size_t bytes);

/* ---- symbol.c ---- */

/* The address of a symbol that the file mapped at `image` exports; 0: it exports none of this name.
 * False: it is no such file, or cannot be read. */
bool stack_find_symbol(const struct stack_memory *memory, uint64_t image, const char *name,
		       uint64_t *out);

/* ---- layout.c ---- */

/* The layout of the interpreter whose symbols lie in `image`. */
enum stack_answer stack_find_layout(const struct stack_memory *memory, uint64_t image,
				    uint64_t runtime, struct stack_layout *out);
/* The offset, from a pthread_t, at which the thread library keeps the kernel's number of the
 * thread; -1: not known. */
int stack_tid_offset(void);

/* ---- code.c ---- */

/* Function, file and line of an instruction of a code object. False: there is no code object.
 * `instruction` is as the frame has it. */
bool stack_describe_code(const struct stack_python *python, uint64_t code, uint64_t instruction,
			 struct stack_frame *out);
/* Whether there is an object of this type. */
bool stack_is_object(const struct stack_memory *memory, uint64_t object, uint64_t type);

/* ---- registers.c ---- */

enum { STACK_REGISTER_MAX = 33, STACK_COPY_BYTES = 256 * 1024 };

/* What unwinding begins with, in the numbering of DWARF, and the stack from its pointer on. */
struct stack_registers {
	uint64_t values[STACK_REGISTER_MAX];
	int count;
	uint64_t pc, sp;
	size_t bytes; /* of the stack that could be copied */
	unsigned char stack[STACK_COPY_BYTES];
};
enum stack_answer stack_copy_registers(const struct stack_memory *memory, uint32_t tid,
				       struct stack_registers *out);

#endif
