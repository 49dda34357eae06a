/* SPDX-License-Identifier: BSD-3-Clause
 * Makes threads ahead; see parked.h. */
#include "parked.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "scheduler_private.h"

int __real_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*main)(void *),
			  void *argument);
void *__real_mmap64(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);

#ifndef MADV_GUARD_INSTALL /* Linux 6.13 */
#define MADV_GUARD_INSTALL 102
#endif

enum {
	PARKED = 24, /* a program with more threads at once makes the others when it needs them */
	STACK_BYTES = 512 << 10, /* libdw needs half of it */
	GUARD_BYTES = 4096,
};

static struct parked all[PARKED];
static struct parked *unused;
/* How thread-local storage of this program begins; it ends at the address that `turn.local` has. */
static const void *image;
static size_t image_bytes, local_bytes;

static void *parked_main(void *argument)
{
	struct parked *self = argument;
	turn_park(&self->turn);
	for (;;)
		turn_pass(&self->turn, scheduler_thread_body());
	return NULL;
}

static int find_image(struct dl_phdr_info *info, size_t bytes, void *data)
{
	(void)bytes;
	(void)data;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		if (header->p_type != PT_TLS)
			continue;
		image = (const void *)(info->dlpi_addr + header->p_vaddr);
		image_bytes = header->p_filesz;
		local_bytes = (header->p_memsz + header->p_align - 1) & -header->p_align;
	}
	return 1; /* the first one is the program */
}

/* Without a mapping of its own, if the kernel can do that: a fork takes time for each mapping. */
static bool guard(char *page)
{
	return madvise(page, GUARD_BYTES, MADV_GUARD_INSTALL) == 0 ||
	       mprotect(page, GUARD_BYTES, PROT_NONE) == 0;
}

void parked_make(void)
{
	char *memory = turn_can_switch() ? __real_mmap64(NULL, (size_t)PARKED * STACK_BYTES,
							 PROT_READ | PROT_WRITE,
							 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
					 : MAP_FAILED;
	if (memory == MAP_FAILED)
		return;
	dl_iterate_phdr(find_image, NULL);
	for (int i = PARKED - 1; i >= 0; i--, memory += STACK_BYTES) {
		pthread_attr_t attributes;
		if (!guard(memory) || pthread_attr_init(&attributes) ||
		    pthread_attr_setstack(&attributes, memory + GUARD_BYTES,
					  STACK_BYTES - GUARD_BYTES) ||
		    __real_pthread_create(&all[i].id, &attributes, parked_main, &all[i])) {
			perror("explore: cannot make threads");
			exit(2);
		}
		pthread_attr_destroy(&attributes);
		turn_await_parked(&all[i].turn);
		all[i].next = unused;
		unused = &all[i];
	}
}

struct parked *parked_take(void)
{
	struct parked *parked = unused;
	if (parked)
		unused = parked->next;
	return parked;
}

void parked_give(struct parked *parked)
{
	char *local = (char *)(uintptr_t)parked->turn.local - local_bytes;
	memcpy(local, image, image_bytes);
	memset(local + image_bytes, 0, local_bytes - image_bytes);
	parked->next = unused;
	unused = parked;
}
