/* SPDX-License-Identifier: BSD-3-Clause
 * Where the threads of another process are: Python frames, read from its memory while it runs, and
 * C frames, for which each thread is stopped for a moment to copy its registers. Others wrote all
 * that is read, and it may change meanwhile: none of it bounds a loop, and what is inconsistent is
 * not reported. */
#ifndef STACK_STACK_H
#define STACK_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	STACK_IMAGE_MAX = 16,   /* files of a process that are searched for an interpreter */
	STACK_THREAD_MAX = 256, /* threads of a process */
	STACK_CHAIN_MAX = 256,  /* frames of a thread that are read */
	STACK_TEXT_BYTES = 256,
};

/* Lists of frames begin with the innermost. Texts have only printable characters. */
struct stack_frame {
	char function[STACK_TEXT_BYTES];
	char file[STACK_TEXT_BYTES]; /* "" if it is not known; of a long path the end */
	int line;                    /* 0: not known */
};

enum stack_answer {
	STACK_FOUND,
	STACK_NOTHING, /* no interpreter is in the process */
	STACK_REFUSED, /* the system forbids reading */
	STACK_UNKNOWN, /* a version of Python that layout.c does not have */
	STACK_MOVED,   /* it changed during every attempt */
	STACK_HANGS,   /* a thread hangs in the kernel, and a reader might hang as well */
	STACK_GONE,    /* the process or the thread has ended */
};
/* The text for the user: what an answer means, and what to do. Empty for STACK_FOUND and
 * STACK_NOTHING. */
const char *stack_answer_text(enum stack_answer answer);

/* Memory of a process, or of a test. */
struct stack_memory {
	/* Copies all bytes. False: they do not exist, or must not be read. */
	bool (*read)(const struct stack_memory *memory, uint64_t address, void *to, size_t bytes);
	int pid;
	int pidfd; /* of the process that had this number at the time of opening; -1: unknown */
	bool gone; /* there was no such process */
};

/* Copies a text. If it does not fit, copies its beginning (or its end if `tail`), with "..." where
 * it is cut. */
void stack_cut_text(const char *text, bool tail, char *out, size_t bytes);

/* ---- process.c ---- */

void stack_memory_open(int pid, struct stack_memory *out);
void stack_memory_close(struct stack_memory *memory);
/* Whether that process still exists, or at least its number was not reused: then all that was read
 * since opening is its memory. Always true if the system has no pidfds. */
bool stack_memory_is_there(const struct stack_memory *memory);
/* The addresses of mapped files that may contain an interpreter: the program, and libraries with
 * "python" in their names. STACK_HANGS: the process has a thread in an uninterruptible sleep, other
 * than for a file, so its memory is not read, because a reader might sleep as well. */
enum stack_answer stack_find_images(const struct stack_memory *memory,
				    uint64_t images[STACK_IMAGE_MAX], int *count);
/* The threads of a process, at most `max`, as the kernel numbers them: the first is the main
 * thread. */
int stack_list_threads(int pid, uint32_t *tids, int max);
/* The state of a thread: "S", "R", …; 0: it cannot be seen. And the name of a thread. */
char stack_thread_state(int pid, uint32_t tid);
void stack_thread_name(int pid, uint32_t tid, char *out, size_t bytes);

/* ---- locks.c ---- */

/* A thread that waits, without a time limit, for a mutex of the C library, and the thread that
 * holds it. */
struct stack_lock_wait {
	uint32_t tid, owner;
	uint64_t mutex; /* its address */
	/* proved: this thread and others wait for each other's mutexes in a cycle */
	bool is_deadlock;
	/* proved: no thread of the process has this number. The owner has ended, or this process is
	 * a copy of one that forked while the owner, which was not copied, held the mutex. */
	bool owner_is_gone;
};
/* Which of these threads wait so, at most `max`. All is read twice. A wait counts if both readings
 * agree, the thread slept all the time between them, and the owner is one of these threads or is
 * gone. Other locks (of Python, of a condition variable, spin locks) do not name their owner. */
int stack_lock_waits(const struct stack_memory *memory, const uint32_t *tids, int count,
		     struct stack_lock_wait *out, int max);

/* ---- python.c ---- */

/* The members that are read; their offsets differ between versions of Python: layout.c. */
enum stack_member {
	STACK_RUNTIME_INTERPRETERS,
	STACK_INTERPRETER_NEXT,
	STACK_INTERPRETER_THREADS,
	STACK_THREAD_NEXT,
	STACK_THREAD_FRAME,
	STACK_THREAD_ID, /* the kernel's, or the thread library's: stack_layout.own_ids */
	STACK_FRAME_PREVIOUS,
	STACK_FRAME_CODE,
	STACK_FRAME_INSTRUCTION,
	STACK_FRAME_OWNER,
	STACK_CODE_FILE,
	STACK_CODE_NAME,
	STACK_CODE_LINES,
	STACK_CODE_FIRST_LINE,
	STACK_CODE_BYTES,
	STACK_BYTES_DATA,
	STACK_TEXT_ASCII, /* the size of a string's head, if it is of ASCII */
	STACK_MEMBER_COUNT
};

enum stack_lines { STACK_LINES_DELTAS, STACK_LINES_RANGES, STACK_LINES_LOCATIONS };

struct stack_layout {
	uint32_t version;                     /* 0x030b: 3.11 */
	uint64_t members[STACK_MEMBER_COUNT]; /* offsets */
	/* a thread points at a structure that points at the frame, at this offset; -1: at the
	 * frame */
	int holder;
	bool own_ids;           /* a thread knows its number in the kernel */
	enum stack_lines lines; /* how a code object says which line an instruction is of */
	uint64_t text_more;     /* how much longer the head of a string is that is not ASCII */
};

struct stack_python {
	const struct stack_memory *memory;
	uint64_t runtime;
	uint64_t code_type, text_type, bytes_type;
	size_t frame_bytes;
	struct stack_layout layout;
};

struct stack_thread {
	uint64_t state; /* address of its PyThreadState */
	uint32_t tid;   /* 0: not known */
};

/* Finds the interpreter in one of these files. `memory` must outlive *out. */
enum stack_answer stack_find_python(const struct stack_memory *memory, const uint64_t *images,
				    int count, struct stack_python *out);
/* The threads that the interpreter has, at most `max`. */
int stack_python_threads(const struct stack_python *python, struct stack_thread *out, int max);

struct stack_depth {
	int count;   /* frames in the list */
	bool more;   /* there are more, further out */
	bool moving; /* frames further in changed, while these stayed */
};
/* The innermost `max` Python frames of a thread: STACK_FOUND, also without any; STACK_MOVED. */
enum stack_answer stack_python_frames(const struct stack_python *python, uint64_t state,
				      struct stack_frame *out, int max, struct stack_depth *depth);

/* The innermost Python frame of one thread of a process; STACK_GONE if it ended meanwhile. */
enum stack_answer stack_python_top(const struct stack_memory *memory, uint32_t tid,
				   struct stack_frame *out);

/* ---- native.c ---- */

struct stack_native; /* the files of a process, with their information about C frames */

/* Reads the list of files of a process; NULL if that fails. `memory` must outlive it. */
struct stack_native *stack_native_open(const struct stack_memory *memory);
void stack_native_close(struct stack_native *native); /* NULL is allowed */
/* The innermost `max` C frames of a thread, which is stopped for some 100 us while registers and
 * stack are copied. It interrupts system calls as a debugger does. Only the thread that has opened
 * `native` may call it. */
enum stack_answer stack_native_frames(struct stack_native *native, uint32_t tid,
				      struct stack_frame *out, int max, struct stack_depth *depth);
/* The name of the variable at an address, "" if it is not known. */
void stack_native_variable(struct stack_native *native, uint64_t address, char *out, size_t bytes);

#endif
