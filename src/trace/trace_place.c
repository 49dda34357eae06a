/* SPDX-License-Identifier: BSD-3-Clause
 * Turns an address in a loaded file into a line of source, by the file's debug information. A file
 * that was replaced since is recognised by its build-id. Nothing here uses the network, so it does
 * not search for separate debug files. */
#include "trace/trace.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/libdw.h"
#include "base/text.h"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* What stands between an interpreter and this library says nothing: the interpreter's own report
 * names the line. */
static bool is_bridge(const struct trace_module *module)
{
	static const char *const bridges[] = {"libffi", "_ctypes", "liblockstep_torch"};
	const char *name = base_name(module->path);
	for (size_t i = 0; i < sizeof bridges / sizeof bridges[0]; i++)
		if (strncmp(name, bridges[i], strlen(bridges[i])) == 0)
			return true;
	return false;
}

static bool has_build_id(const struct libdw *dw, Dwfl_Module *file,
			 const struct trace_module *module)
{
	const unsigned char *bits = NULL;
	GElf_Addr where;
	int bytes = dw->dwfl_module_build_id(file, &bits, &where);
	if (bytes <= 0)
		return module->build_id_bytes == 0;
	return (uint32_t)bytes == module->build_id_bytes && bytes <= TRACE_BUILD_ID_BYTES &&
	       memcmp(bits, module->build_id, (size_t)bytes) == 0;
}

/* The address in libdwfl's terms of an offset from the page of the first segment. */
static bool file_address(const struct libdw *dw, Dwfl_Module *file, uint64_t offset, GElf_Addr *out)
{
	GElf_Addr bias;
	Elf *elf = dw->dwfl_module_getelf(file, &bias);
	size_t count;
	if (!elf || dw->elf_getphdrnum(elf, &count) != 0)
		return false;
	GElf_Addr low = (GElf_Addr)-1;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr segment;
		if (dw->gelf_getphdr(elf, (int)i, &segment) && segment.p_type == PT_LOAD &&
		    segment.p_vaddr < low)
			low = segment.p_vaddr;
	}
	*out = bias + (low & ~(GElf_Addr)4095) + offset;
	return low != (GElf_Addr)-1;
}

/* The line of an address: by the index of address ranges if the compiler wrote one (gcc does), else
 * by asking each compilation unit (clang). */
static const char *find_line(const struct libdw *dw, Dwfl_Module *file, GElf_Addr address,
			     int *number)
{
	Dwfl_Line *found = dw->dwfl_module_getsrc(file, address);
	if (found)
		return dw->dwfl_lineinfo(found, NULL, number, NULL, NULL, NULL);
	Dwarf_Addr bias;
	Dwarf_Die *unit = NULL;
	while ((unit = dw->dwfl_module_nextcu(file, unit, &bias))) {
		if (dw->dwarf_haspc(unit, address - bias) <= 0)
			continue;
		Dwarf_Line *line = dw->dwarf_getsrc_die(unit, address - bias);
		if (line && dw->dwarf_lineno(line, number) == 0)
			return dw->dwarf_linesrc(line, NULL, NULL);
	}
	return NULL;
}

/* Opens a regular file and nothing else, whatever the path stands for by now: to open a pipe would
 * block. */
static int open_file(const char *path)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Writes "file.c:12" and returns true, or writes what is known to `function`. */
static bool look_up_source(const struct libdw *dw, Dwfl *dwfl, const struct trace_module *module,
			   uint64_t offset, char *out, size_t bytes, char *function,
			   size_t function_bytes)
{
	int fd = open_file(module->path);
	if (fd < 0)
		return false;
	dw->dwfl_report_begin(dwfl);
	Dwfl_Module *file = dw->dwfl_report_offline(dwfl, "", module->path, fd);
	GElf_Addr address;
	if (!file)
		close(fd); /* else the descriptor is the module's */
	if (dw->dwfl_report_end(dwfl, NULL, NULL) != 0 || !file ||
	    !has_build_id(dw, file, module) || !file_address(dw, file, offset, &address))
		return false;
	const char *name = dw->dwfl_module_addrname(file, address);
	if (name)
		snprintf(function, function_bytes, " (%s)", name);
	int number = 0;
	const char *source = find_line(dw, file, address, &number);
	if (!source || number <= 0)
		return false;
	snprintf(out, bytes, "%s:%d", base_name(source), number);
	return true;
}

void trace_place(const struct trace_module *module, uint64_t site, char *out, size_t bytes)
{
	out[0] = 0;
	if (is_bridge(module))
		return;
	/* The address is where the call returns to, which may be the next line already. */
	uint64_t offset = site - 1 - module->base;
	char function[TRACE_TEXT_BYTES] = "";
	const struct libdw *dw = libdw_get();
	const Dwfl_Callbacks callbacks = {
		/* not called: the file is given */
		.find_elf = dw ? dw->dwfl_build_id_find_elf : NULL,
		.find_debuginfo = libdw_find_no_debuginfo,
		.section_address = dw ? dw->dwfl_offline_section_address : NULL,
	};
	Dwfl *dwfl = dw ? dw->dwfl_begin(&callbacks) : NULL; /* dwfl keeps the callbacks' address */
	bool found = dwfl && look_up_source(dw, dwfl, module, offset, out, bytes, function,
					    sizeof function);
	if (dwfl)
		dw->dwfl_end(dwfl);
	if (!found)
		snprintf(out, bytes, "%s+0x%" PRIx64 "%s",
			 module->path[0] ? base_name(module->path) : "?", offset, function);
	/* The text goes to terminals, and other processes wrote it. */
	text_clean(out, false);
}
