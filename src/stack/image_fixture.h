/* SPDX-License-Identifier: BSD-3-Clause
 * Memory as that of a process with an interpreter, of any version that layout.c knows, for tests:
 * main calls leaf in one thread, and another one is in main. */
#ifndef STACK_IMAGE_FIXTURE_H
#define STACK_IMAGE_FIXTURE_H

#include <elf.h>
#include <link.h>
#include <string.h>

#include "stack/stack_private.h"

enum {
	IMAGE_BYTES = 64 * 1024,
	IMAGE_TID = 4711,
	IMAGE_VERSIONS = 7, /* 3.9 to 3.15 */
	IMAGE_FIRST_LINE = 10,
	IMAGE_DEPTH = 2,
};
#define IMAGE_BASE UINT64_C(0x400000)

/* The symbols that are looked for. */
enum image_symbol {
	IMAGE_RUNTIME,
	IMAGE_VERSION,
	IMAGE_CODE,
	IMAGE_TEXT,
	IMAGE_DATA,
	IMAGE_SYMBOLS
};

struct image {
	struct stack_memory memory;
	unsigned char bytes[IMAGE_BYTES];
	uint64_t used;
	long reads;      /* so far */
	long fails_at;   /* that read finds nothing; 0: none does */
	long changes_at; /* before that read `change` is called; 0: before none */
	void (*change)(struct image *image);
	/* at each read of this address, what lies there becomes the other of these; 0: none does */
	uint64_t toggles;
	uint64_t other[2];
	uint64_t symbols[IMAGE_SYMBOLS];
	uint64_t threads[2], frames[IMAGE_DEPTH], codes[IMAGE_DEPTH], texts[2], tables[IMAGE_DEPTH];
	struct stack_python python; /* as it is found in here */
};

static inline void *image_at(struct image *image, uint64_t address)
{
	return image->bytes + (address - IMAGE_BASE);
}

static inline void image_put(struct image *image, uint64_t address, uint64_t value)
{
	memcpy(image_at(image, address), &value, sizeof value);
}

static inline void image_put_32(struct image *image, uint64_t address, uint32_t value)
{
	memcpy(image_at(image, address), &value, sizeof value);
}

static bool image_read(const struct stack_memory *memory, uint64_t address, void *to, size_t bytes)
{
	struct image *image = (struct image *)(uintptr_t)memory;
	if (++image->reads == image->fails_at)
		return false;
	if (image->reads == image->changes_at)
		image->change(image);
	if (address < IMAGE_BASE || bytes > IMAGE_BYTES ||
	    address - IMAGE_BASE > IMAGE_BYTES - bytes)
		return false;
	if (image->toggles && address == image->toggles)
		image_put(image, address, image->other[image->reads & 1]);
	memcpy(to, image_at(image, address), bytes);
	return true;
}

static inline uint64_t image_take(struct image *image, uint64_t bytes)
{
	uint64_t address = IMAGE_BASE + image->used;
	image->used += (bytes + 15) / 16 * 16;
	return address;
}

/* ---- a file with its symbols, all in one bucket ---- */

static inline uint32_t image_hash(const char *name)
{
	uint32_t hash = 5381;
	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

static inline void image_add_file(struct image *image, const char *const *names, int count)
{
	ElfW(Ehdr) *head = image_at(image, image_take(image, sizeof *head));
	memcpy(head->e_ident, ELFMAG, SELFMAG);
	head->e_ident[EI_CLASS] = ELFCLASS64;
	head->e_phoff = sizeof *head;
	head->e_phentsize = sizeof(ElfW(Phdr));
	head->e_phnum = 2;
	ElfW(Phdr) *segments = image_at(image, image_take(image, 2 * sizeof *segments));
	segments[0].p_type = PT_LOAD;
	segments[1].p_type = PT_DYNAMIC;
	uint64_t dynamic = image_take(image, 4 * sizeof(ElfW(Dyn)));
	uint64_t hash = image_take(image, 16 + 8 + 4 + (uint64_t)count * 4);
	uint64_t table = image_take(image, (uint64_t)(count + 1) * sizeof(ElfW(Sym)));
	uint64_t text = image_take(image, (uint64_t)count * 32);
	segments[1].p_vaddr = dynamic - IMAGE_BASE;
	ElfW(Dyn) *entry = image_at(image, dynamic);
	/* One as the file has it, and the others as the linker leaves them. */
	entry[0] = (ElfW(Dyn)){.d_tag = DT_GNU_HASH, .d_un.d_ptr = hash - IMAGE_BASE};
	entry[1] = (ElfW(Dyn)){.d_tag = DT_SYMTAB, .d_un.d_ptr = table};
	entry[2] = (ElfW(Dyn)){.d_tag = DT_STRTAB, .d_un.d_ptr = text};
	const uint32_t first[] = {1, 1, 1, 0,
				  0, 0, 1}; /* buckets, first, bloom, shift; bloom; bucket */
	memcpy(image_at(image, hash), first, sizeof first);
	ElfW(Sym) *symbols = image_at(image, table);
	for (int i = 0; i < count; i++) {
		image_put_32(image, hash + sizeof first + (uint64_t)i * 4,
			     (image_hash(names[i]) & ~1u) | (i == count - 1));
		memcpy(image_at(image, text + (uint64_t)i * 32), names[i], strlen(names[i]) + 1);
		symbols[i + 1].st_name = (uint32_t)i * 32;
		symbols[i + 1].st_shndx = 1;
		symbols[i + 1].st_value = image->symbols[i < IMAGE_SYMBOLS ? i : 0];
	}
}

/* ---- objects ---- */

static inline uint64_t image_add_text(struct image *image, uint32_t width, bool ascii,
				      const void *units, uint64_t count)
{
	const struct stack_layout *layout = &image->python.layout;
	uint64_t head = layout->members[STACK_TEXT_ASCII] + (ascii ? 0 : layout->text_more);
	uint64_t text = image_take(image, head + count * width);
	image_put(image, text + 8, image->python.text_type);
	image_put(image, text + 16, count);
	image_put_32(image, text + 32, width << 2 | 1u << 5 | (uint32_t)ascii << 6);
	memcpy(image_at(image, text + head), units, count * width);
	return text;
}

static inline uint64_t image_add_ascii(struct image *image, const char *text)
{
	return image_add_text(image, 1, true, text, strlen(text));
}

static inline uint64_t image_add_bytes(struct image *image, const void *bytes, uint64_t count)
{
	uint64_t object = image_take(image, image->python.layout.members[STACK_BYTES_DATA] + count);
	image_put(image, object + 8, image->python.bytes_type);
	image_put(image, object + 16, count);
	memcpy(image_at(image, object + image->python.layout.members[STACK_BYTES_DATA]), bytes,
	       count);
	return object;
}

/* The first four bytes of code are in line 10, the next in 12, the next in 11, and more in none. */
static inline uint64_t image_add_table(struct image *image)
{
	static const unsigned char deltas[] = {4, 2, 4, 0xff, 4, 0};
	static const unsigned char ranges[] = {4, 0, 4, 2, 4, 0xff, 4, 0x80};
	/* A short one; a long one, +2; one without columns, -1; none. */
	static const unsigned char locations[] = {0x81, 0, 0xf1, 4, 0, 65, 1, 2, 0xe9, 3, 0xf9};
	switch (image->python.layout.lines) {
	case STACK_LINES_DELTAS:
		return image_add_bytes(image, deltas, sizeof deltas);
	case STACK_LINES_RANGES:
		return image_add_bytes(image, ranges, sizeof ranges);
	default:
		return image_add_bytes(image, locations, sizeof locations);
	}
}

static inline uint64_t image_add_code(struct image *image, uint64_t name, uint64_t file,
				      uint64_t table)
{
	const uint64_t *members = image->python.layout.members;
	uint64_t code = image_take(image, 1024);
	image_put(image, code + 8, image->python.code_type);
	image_put(image, code + members[STACK_CODE_NAME], name);
	image_put(image, code + members[STACK_CODE_FILE], file);
	image_put(image, code + members[STACK_CODE_LINES], table);
	image_put_32(image, code + members[STACK_CODE_FIRST_LINE], IMAGE_FIRST_LINE);
	return code;
}

/* Returns the instruction pointer of a frame that is this many bytes into its code. */
static inline uint64_t image_instruction(const struct image *image, uint64_t code, uint64_t offset)
{
	const struct stack_layout *layout = &image->python.layout;
	if (layout->lines == STACK_LINES_LOCATIONS)
		return code + layout->members[STACK_CODE_BYTES] + offset;
	return layout->lines == STACK_LINES_RANGES ? offset / 2 : offset;
}

static inline uint64_t image_add_frame(struct image *image, uint64_t code, uint64_t offset,
				       uint64_t previous)
{
	const uint64_t *members = image->python.layout.members;
	uint64_t frame = image_take(image, 512);
	image_put(image, frame + members[STACK_FRAME_INSTRUCTION],
		  image_instruction(image, code, offset));
	image_put(image, frame + members[STACK_FRAME_CODE], code);
	image_put(image, frame + members[STACK_FRAME_PREVIOUS], previous);
	return frame;
}

/* The address that points at the innermost frame of a thread. */
static inline uint64_t image_frame_place(struct image *image, uint64_t thread)
{
	const struct stack_layout *layout = &image->python.layout;
	uint64_t at = thread + layout->members[STACK_THREAD_FRAME], holder;
	if (layout->holder < 0)
		return at;
	memcpy(&holder, image_at(image, at), sizeof holder);
	return holder + (uint64_t)layout->holder;
}

static inline uint64_t image_add_thread(struct image *image, uint32_t tid, uint64_t frame,
					uint64_t next)
{
	const struct stack_layout *layout = &image->python.layout;
	uint64_t thread = image_take(image, 1024), id = tid;
	if (!layout->own_ids) {
		id = image_take(image, 2048);
		image_put_32(image, id + (uint64_t)stack_tid_offset(), tid);
	}
	if (layout->holder >= 0)
		image_put(image, thread + layout->members[STACK_THREAD_FRAME],
			  image_take(image, 64));
	image_put(image, thread + layout->members[STACK_THREAD_ID], id);
	image_put(image, thread + layout->members[STACK_THREAD_NEXT], next);
	image_put(image, image_frame_place(image, thread), frame);
	return thread;
}

/* ---- all of it ---- */

/* `minor`: 9 for 3.9. */
static inline void image_init(struct image *image, int minor)
{
	static const char *const names[] = {"_PyRuntime",     "Py_Version",   "PyCode_Type",
					    "PyUnicode_Type", "PyBytes_Type", "PyFrame_GetCode",
					    "Py_NewRef"};
	const char *used[7];
	int count = minor == 9 ? 6 : 7;
	*image = (struct image){.memory = {.read = image_read}};
	memcpy(used, names, sizeof used);
	if (minor < 11)
		used[IMAGE_VERSION] = "PyNothing";
	image->used = 8192; /* symbols have values as the file has them */
	for (int i = 0; i < IMAGE_SYMBOLS; i++)
		image->symbols[i] = image_take(image, 1024) - IMAGE_BASE;
	uint64_t after = image->used, runtime = IMAGE_BASE + image->symbols[IMAGE_RUNTIME];
	image->used = 0;
	image_add_file(image, used, count);
	image->used = after;
	image_put(image, IMAGE_BASE + image->symbols[IMAGE_VERSION],
		  (uint64_t)(0x03000000 | minor << 16 | 0x02f0));
	if (minor >=
	    13) { /* what lies at offset 8, 16, …, of whatever it is the offset, is that number */
		memcpy(image_at(image, runtime), "xdebugpy", 8);
		for (uint64_t at = 24; at < 1000; at += 8)
			image_put(image, runtime + at, at);
	}
	uint64_t where = IMAGE_BASE;
	if (stack_find_python(&image->memory, &where, 1, &image->python) != STACK_FOUND)
		return;
	const uint64_t *members = image->python.layout.members;
	image->texts[0] = image_add_ascii(image, "leaf");
	image->texts[1] = image_add_ascii(image, "main");
	uint64_t file = image_add_ascii(image, "/home/me/train.py"), previous = 0;
	for (int i = IMAGE_DEPTH - 1; i >= 0; i--) {
		image->tables[i] = image_add_table(image);
		image->codes[i] = image_add_code(image, image->texts[i], file, image->tables[i]);
		image->frames[i] = previous =
			image_add_frame(image, image->codes[i], i == 0 ? 4 : 8, previous);
	}
	image->threads[1] = image_add_thread(image, IMAGE_TID + 1, image->frames[1], 0);
	image->threads[0] = image_add_thread(image, IMAGE_TID, image->frames[0], image->threads[1]);
	uint64_t interpreter = image_take(image, 8192);
	image_put(image, interpreter + members[STACK_INTERPRETER_THREADS], image->threads[0]);
	/* The offsets themselves stand where the list begins. */
	image_put(image, runtime + members[STACK_RUNTIME_INTERPRETERS], interpreter);
	image->reads = 0;
}

#endif
