/* SPDX-License-Identifier: BSD-3-Clause
 * What Debian's libgcc, which is made for glibc, asks of the dynamic linker to unwind a stack. On a
 * system with musl the compiler's libgcc asks dl_iterate_phdr itself. */
#include <link.h>
#include <stddef.h>
#include <stdint.h>

struct dl_find_object {
	unsigned long long flags;
	void *map_start, *map_end;
	struct link_map *link_map;
	void *eh_frame;
	unsigned long long reserved[7];
};
int _dl_find_object(void *at, struct dl_find_object *out);

struct search {
	uintptr_t at;
	struct dl_find_object *out;
};

static int look(struct dl_phdr_info *info, size_t bytes, void *data)
{
	const struct search *search = data;
	struct dl_find_object found = {.flags = 0};
	(void)bytes;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + part->p_vaddr;
		if (part->p_type == PT_GNU_EH_FRAME)
			found.eh_frame = (void *)start;
		if (part->p_type == PT_LOAD && search->at - start < part->p_memsz) {
			found.map_start = (void *)start;
			found.map_end = (void *)(start + part->p_memsz);
		}
	}
	if (found.map_start && found.eh_frame)
		*search->out = found;
	return found.map_start != NULL;
}

int _dl_find_object(void *at, struct dl_find_object *out)
{
	struct search search = {(uintptr_t)at, out};
	out->eh_frame = NULL;
	dl_iterate_phdr(look, &search);
	return out->eh_frame ? 0 : -1;
}
