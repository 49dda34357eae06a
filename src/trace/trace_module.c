/* SPDX-License-Identifier: BSD-3-Clause
 * Which files are loaded where, so that a reader in another process can turn a return address into
 * a line of source long after this process has ended. Entries are only ever added: a module that
 * was unloaded again may still be named by old records. */
#include "trace/trace.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PAGE_MASK = 4095 };

struct module_list {
	uint32_t count;
	struct trace_module modules[TRACE_MODULE_MAX];
};

/* Finds the build-id among the notes of one segment; `notes` is this process's own memory. */
static void find_build_id(const unsigned char *notes, size_t bytes, struct trace_module *module)
{
	size_t at = 0;
	while (at + sizeof(ElfW(Nhdr)) <= bytes) {
		ElfW(Nhdr) note;
		memcpy(&note, notes + at, sizeof note);
		size_t name = at + sizeof note;
		size_t desc = name + ((note.n_namesz + 3u) & ~(size_t)3);
		size_t next = desc + ((note.n_descsz + 3u) & ~(size_t)3);
		if (next > bytes || next <= at)
			return;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
		    memcmp(notes + name, "GNU", 4) == 0 && note.n_descsz <= TRACE_BUILD_ID_BYTES) {
			memcpy(module->build_id, notes + desc, note.n_descsz);
			module->build_id_bytes = note.n_descsz;
			return;
		}
		at = next;
	}
}

/* False: nothing of the module is loaded. first: the module is the program. */
static bool fill_module(const struct dl_phdr_info *info, bool first, struct trace_module *module)
{
	ElfW(Addr) low = (ElfW(Addr)) - 1, high = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		if (segment->p_type == PT_LOAD) {
			if (segment->p_vaddr < low)
				low = segment->p_vaddr;
			if (segment->p_vaddr + segment->p_memsz > high)
				high = segment->p_vaddr + segment->p_memsz;
		} else if (segment->p_type == PT_NOTE && !module->build_id_bytes) {
			find_build_id((const unsigned char *)(info->dlpi_addr + segment->p_vaddr),
				      segment->p_memsz, module);
		}
	}
	if (high <= low)
		return false;
	module->base = info->dlpi_addr + (low & ~(ElfW(Addr))PAGE_MASK);
	module->end = info->dlpi_addr + high;
	if (info->dlpi_name && info->dlpi_name[0])
		snprintf(module->path, sizeof module->path, "%s", info->dlpi_name);
	else if (!first || readlink("/proc/self/exe", module->path, sizeof module->path - 1) < 0)
		module->path[0] = 0;
	return true;
}

static int add_module(struct dl_phdr_info *info, size_t bytes, void *context)
{
	(void)bytes;
	struct module_list *list = context;
	if (list->count == TRACE_MODULE_MAX)
		return 1;
	list->count += fill_module(info, list->count == 0, &list->modules[list->count]);
	return 0;
}

struct search {
	uint64_t address;
	bool first, found;
	struct trace_module module;
};

static int visit_module(struct dl_phdr_info *info, size_t bytes, void *context)
{
	(void)bytes;
	struct search *search = context;
	search->module = (struct trace_module){0};
	search->found = fill_module(info, search->first, &search->module) &&
			search->address >= search->module.base &&
			search->address < search->module.end;
	search->first = false;
	return search->found;
}

bool trace_find_module(uint64_t address, struct trace_module *out)
{
	struct search search = {.address = address, .first = true};
	dl_iterate_phdr(visit_module, &search);
	*out = search.module;
	return search.found;
}

static bool is_known(const struct trace *trace, uint32_t count, const struct trace_module *module)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct trace_module *known = &trace->modules[i];
		if (known->base == module->base && known->end == module->end &&
		    strcmp(known->path, module->path) == 0)
			return true;
	}
	return false;
}

void trace_update_modules(struct trace *trace)
{
	/* Collected first: the dynamic linker holds a lock of its own while it calls back. */
	struct module_list list = {0};
	dl_iterate_phdr(add_module, &list);

	lock_trace_acquire(&trace->lock);
	uint32_t count = atomic_load_explicit(&trace->header->module_count, memory_order_relaxed);
	for (uint32_t i = 0; i < list.count && count < TRACE_MODULE_MAX; i++) {
		if (is_known(trace, count, &list.modules[i]))
			continue;
		trace->modules[count] = list.modules[i];
		count++;
		atomic_store_explicit(&trace->header->module_count, count, memory_order_release);
	}
	lock_trace_release(&trace->lock);
}
