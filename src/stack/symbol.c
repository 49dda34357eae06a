/* SPDX-License-Identifier: BSD-3-Clause
 * A symbol of a file that another process has loaded, by the hash table that its dynamic linker
 * uses. It is read from the memory of the process and not from the file, which may have been
 * replaced, or may lie where this process does not see it. */
#include <elf.h>
#include <link.h>
#include <string.h>

#include "stack/stack_private.h"

enum { SEGMENT_MAX = 64, DYNAMIC_MAX = 256, CHAIN_MAX = 4096, NAME_BYTES = 32, PAGE_MASK = 4095 };

struct symbols {
	uint64_t bias, hash, table, names;
};

/* The linker turns some of these values into addresses in place, and leaves others as the file has
 * them. */
static uint64_t relocated(uint64_t value, uint64_t image, uint64_t bias)
{
	return value < image ? value + bias : value;
}

static bool find_dynamic(const struct stack_memory *memory, uint64_t image, uint64_t *dynamic,
			 uint64_t *bias)
{
	ElfW(Ehdr) head;
	ElfW(Phdr) segment;
	uint64_t low = UINT64_MAX;
	*dynamic = 0;
	if (!memory->read(memory, image, &head, sizeof head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_phentsize != sizeof segment || head.e_phoff > PAGE_MASK ||
	    head.e_phnum > SEGMENT_MAX)
		return false;
	for (unsigned i = 0; i < head.e_phnum; i++) {
		if (!memory->read(memory, image + head.e_phoff + i * sizeof segment, &segment,
				  sizeof segment))
			return false;
		if (segment.p_type == PT_DYNAMIC)
			*dynamic = segment.p_vaddr;
		else if (segment.p_type == PT_LOAD && segment.p_vaddr < low)
			low = segment.p_vaddr;
	}
	*bias = image - (low & ~(uint64_t)PAGE_MASK);
	*dynamic += *bias;
	return *dynamic != *bias && low != UINT64_MAX;
}

static bool find_tables(const struct stack_memory *memory, uint64_t image, struct symbols *out)
{
	uint64_t at;
	ElfW(Dyn) entry;
	*out = (struct symbols){0};
	if (!find_dynamic(memory, image, &at, &out->bias))
		return false;
	for (int i = 0; i < DYNAMIC_MAX; i++, at += sizeof entry) {
		if (!memory->read(memory, at, &entry, sizeof entry) || entry.d_tag == DT_NULL)
			break;
		uint64_t value = relocated(entry.d_un.d_ptr, image, out->bias);
		if (entry.d_tag == DT_GNU_HASH)
			out->hash = value;
		else if (entry.d_tag == DT_SYMTAB)
			out->table = value;
		else if (entry.d_tag == DT_STRTAB)
			out->names = value;
	}
	return out->hash && out->table && out->names;
}

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 5381;
	for (; *name; name++)
		hash = hash * 33 + (unsigned char)*name;
	return hash;
}

/* *same: the symbol has this name. False: it cannot be read. */
static bool has_name(const struct stack_memory *memory, uint64_t address, const char *name,
		     bool *same)
{
	char found[NAME_BYTES];
	size_t bytes = strlen(name) + 1;
	if (bytes > sizeof found || !memory->read(memory, address, found, bytes))
		return false;
	*same = memcmp(found, name, bytes) == 0;
	return true;
}

bool stack_find_symbol(const struct stack_memory *memory, uint64_t image, const char *name,
		       uint64_t *out)
{
	struct symbols symbols;
	struct {
		uint32_t buckets, first, bloom_words, bloom_shift;
	} head;
	uint32_t hash = hash_of(name), index, other = 0;
	*out = 0;
	if (!find_tables(memory, image, &symbols) ||
	    !memory->read(memory, symbols.hash, &head, sizeof head) || head.buckets == 0)
		return false;
	uint64_t buckets = symbols.hash + sizeof head + (uint64_t)head.bloom_words * 8;
	uint64_t chains = buckets + (uint64_t)head.buckets * 4;
	if (!stack_read_u32(memory, buckets + (uint64_t)(hash % head.buckets) * 4, &index))
		return false;
	if (index < head.first) /* an empty bucket */
		return true;
	for (int i = 0; i < CHAIN_MAX && !(other & 1); i++, index++) {
		ElfW(Sym) symbol;
		bool same;
		if (!stack_read_u32(memory, chains + (uint64_t)(index - head.first) * 4, &other))
			return false;
		if ((other | 1) != (hash | 1))
			continue;
		if (!memory->read(memory, symbols.table + (uint64_t)index * sizeof symbol, &symbol,
				  sizeof symbol) ||
		    !has_name(memory, symbols.names + symbol.st_name, name, &same))
			return false;
		if (same && symbol.st_shndx != SHN_UNDEF) {
			*out = symbols.bias + symbol.st_value;
			return true;
		}
	}
	return true;
}
