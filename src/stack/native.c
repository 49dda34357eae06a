/* SPDX-License-Identifier: BSD-3-Clause
 * The C frames of a thread of another process, by the unwind information of its files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/libdw.h"
#include "stack/stack_private.h"

struct stack_native {
	const struct libdw *dw;
	Dwfl_Callbacks callbacks;
	Dwfl *dwfl;
	const struct stack_memory *memory;
	/* the length of the prefix that this file put before names of files: the process's root */
	size_t root;
	uint32_t tid; /* the thread whose registers these are */
	struct stack_registers registers;
};

/* ---- a thread, as libdwfl asks for it ---- */

static pid_t next_thread(Dwfl *dwfl, void *context, void **thread)
{
	struct stack_native *native = context;
	(void)dwfl;
	if (*thread)
		return 0;
	*thread = native;
	return (pid_t)native->tid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *context, void **thread)
{
	struct stack_native *native = context;
	(void)dwfl;
	*thread = native;
	return tid == (pid_t)native->tid;
}

/* Reads a word of the copied stack, because the thread goes on and changes its own. */
static bool read_word(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *out, void *context)
{
	struct stack_native *native = context;
	const struct stack_registers *registers = &native->registers;
	(void)dwfl;
	uint64_t at = address - registers->sp;
	if (address < registers->sp || registers->bytes < sizeof *out ||
	    at > registers->bytes - sizeof *out)
		return false;
	memcpy(out, registers->stack + at, sizeof *out);
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *context)
{
	struct stack_native *native = context;
	const struct stack_registers *registers = &native->registers;
	Dwarf_Word values[STACK_REGISTER_MAX];
	for (int i = 0; i < registers->count; i++)
		values[i] = registers->values[i];
	native->dw->dwfl_thread_state_register_pc(thread, registers->pc);
	return native->dw->dwfl_thread_state_registers(thread, 0, (unsigned)registers->count,
						       values);
}

static const Dwfl_Thread_Callbacks thread_callbacks = {
	.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = read_word,
	.set_initial_registers = set_registers,
};

/* ---- the thread's frames ---- */

struct frames {
	const struct stack_native *native;
	struct stack_frame *out;
	int max;
	struct stack_depth *depth;
};

static void describe_frame(const struct stack_native *native, uint64_t pc, struct stack_frame *out)
{
	const struct libdw *dw = native->dw;
	Dwfl_Module *module = dw->dwfl_addrmodule(native->dwfl, pc);
	const char *name = NULL, *file = NULL, *source = NULL;
	int number = 0;
	if (module) {
		Dwfl_Line *line = dw->dwfl_module_getsrc(module, pc);
		name = dw->dwfl_module_addrname(module, pc);
		file = dw->dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
		source = line ? dw->dwfl_lineinfo(line, NULL, &number, NULL, NULL, NULL) : NULL;
	}
	*out = (struct stack_frame){.line = source ? number : 0};
	if (file && strlen(file) > native->root)
		file += native->root;
	stack_cut_text(name ? name : "?", false, out->function, sizeof out->function);
	stack_cut_text(source ? source : file ? file : "", true, out->file, sizeof out->file);
}

static int add_frame(Dwfl_Frame *frame, void *context)
{
	struct frames *frames = context;
	Dwarf_Addr pc;
	bool interrupted;
	if (frames->depth->count == frames->max) {
		frames->depth->more = true;
		return DWARF_CB_ABORT;
	}
	if (!frames->native->dw->dwfl_frame_pc(frame, &pc, &interrupted))
		return DWARF_CB_ABORT;
	/* Where the call returns to may be another line, or the next function. */
	describe_frame(frames->native, interrupted ? pc : pc - 1,
		       &frames->out[frames->depth->count++]);
	return DWARF_CB_OK;
}

enum stack_answer stack_native_frames(struct stack_native *native, uint32_t tid,
				      struct stack_frame *out, int max, struct stack_depth *depth)
{
	struct frames frames = {native, out, max, depth};
	*depth = (struct stack_depth){0};
	enum stack_answer answer = stack_copy_registers(native->memory, tid, &native->registers);
	if (answer != STACK_FOUND)
		return answer;
	native->tid = tid;
	/* The call fails at the first frame whose caller is not known. The frames before it have
	 * been added. */
	(void)native->dw->dwfl_getthread_frames(native->dwfl, (pid_t)tid, add_frame, &frames);
	return STACK_FOUND;
}

/* Whether the address lies in what a file is loaded to, with the variables that are zero at first,
 * for which the file has no bytes. */
static bool has_address(const struct libdw *dw, Dwfl_Module *module, uint64_t address)
{
	GElf_Addr bias;
	GElf_Phdr header;
	size_t count = 0;
	Elf *elf = dw->dwfl_module_getelf(module, &bias);
	if (!elf || dw->elf_getphdrnum(elf, &count) != 0)
		return false;
	for (size_t i = 0; i < count; i++)
		if (dw->gelf_getphdr(elf, (int)i, &header) && header.p_type == PT_LOAD &&
		    address - bias >= header.p_vaddr &&
		    address - bias - header.p_vaddr < header.p_memsz)
			return true;
	return false;
}

/* Those variables are in a mapping without a file, which follows the file's last one. */
static Dwfl_Module *find_module_before(const struct stack_native *native, uint64_t address)
{
	char path[64], *line = NULL;
	size_t room = 0;
	uint64_t first, end, file_end = 0;
	snprintf(path, sizeof path, "/proc/%d/maps", native->memory->pid);
	FILE *maps = fopen(path, "re");
	Dwfl_Module *module = NULL;
	while (maps && getline(&line, &room, maps) > 0) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &first, &end) != 2 || first > address)
			break;
		bool is_file = strchr(line, '/') != NULL;
		if (address < end && !is_file && first == file_end)
			module = native->dw->dwfl_addrmodule(native->dwfl, first - 1);
		file_end = is_file ? end : 0;
	}
	free(line);
	if (maps)
		fclose(maps);
	return module && has_address(native->dw, module, address) ? module : NULL;
}

void stack_native_variable(struct stack_native *native, uint64_t address, char *out, size_t bytes)
{
	const struct libdw *dw = native->dw;
	Dwfl_Module *module = dw->dwfl_addrmodule(native->dwfl, address);
	if (!module)
		module = find_module_before(native, address);
	const char *name = module ? dw->dwfl_module_addrname(module, address) : NULL;
	stack_cut_text(name ? name : "", false, out, bytes);
}

/* Whether a path leads the process to another file than us: it has other mounts, or another
 * root. */
static bool sees_other_files(int pid)
{
	static const char *const names[] = {"ns/mnt", "root"};
	char path[64];
	struct stat ours, theirs;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "/proc/self/%s", names[i]);
		bool known = stat(path, &ours) == 0;
		snprintf(path, sizeof path, "/proc/%d/%s", pid, names[i]);
		if (known && stat(path, &theirs) == 0 &&
		    (ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino))
			return true;
	}
	return false;
}

/* The list of files of a process, each found through the root of the process. It lacks what the
 * kernel maps, which has no file. */
static bool report_by_root(struct stack_native *native, int pid)
{
	char path[64], root[64], *text = NULL, *line = NULL;
	size_t bytes = 0, room = 0;
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	native->root = (size_t)snprintf(root, sizeof root, "/proc/%d/root", pid);
	FILE *maps = fopen(path, "re"), *out = maps ? open_memstream(&text, &bytes) : NULL;
	while (out && getline(&line, &room, maps) > 0) {
		int at = 0;
		(void)sscanf(line, "%*s %*s %*s %*s %*s %n", &at);
		bool file = at > 0 && line[at] == '/';
		fprintf(out, "%.*s%s%s", at, line, file ? root : "", line + at);
	}
	free(line);
	if (maps)
		fclose(maps);
	bool written = out && fclose(out) == 0 && bytes > 0;
	FILE *in = written ? fmemopen(text, bytes, "r") : NULL;
	bool reported = in && native->dw->dwfl_linux_proc_maps_report(native->dwfl, in) == 0;
	if (in)
		fclose(in);
	free(text);
	return reported;
}

static bool report_files(struct stack_native *native, int pid)
{
	return sees_other_files(pid) ? report_by_root(native, pid)
				     : native->dw->dwfl_linux_proc_report(native->dwfl, pid) == 0;
}

struct stack_native *stack_native_open(const struct stack_memory *memory)
{
	int pid = memory->pid;
	const struct libdw *dw = libdw_get();
	struct stack_native *native = dw ? calloc(1, sizeof *native) : NULL;
	if (!native)
		return NULL;
	native->dw = dw;
	native->callbacks = (Dwfl_Callbacks){.find_elf = dw->dwfl_linux_proc_find_elf,
					     .find_debuginfo = libdw_find_no_debuginfo};
	native->memory = memory;
	native->dwfl = dw->dwfl_begin(&native->callbacks);
	bool known = native->dwfl && report_files(native, pid) &&
		     dw->dwfl_report_end(native->dwfl, NULL, NULL) == 0 &&
		     dw->dwfl_attach_state(native->dwfl, NULL, pid, &thread_callbacks, native);
	if (known)
		return native;
	stack_native_close(native);
	return NULL;
}

void stack_native_close(struct stack_native *native)
{
	if (native && native->dwfl)
		native->dw->dwfl_end(native->dwfl);
	free(native);
}
