/* SPDX-License-Identifier: BSD-3-Clause
 * elfutils' libdw, which reads debug information, if it is installed. Without it only line numbers
 * are missing. So neither the library nor the Python package depends on it. */
#ifndef BASE_LIBDW_H
#define BASE_LIBDW_H

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <gelf.h>

/* The functions that are used of libdw, and of libelf, which comes with it. */
#define LIBDW_CALLS(CALL)                   \
	CALL(dwarf_getsrc_die)              \
	CALL(dwarf_haspc)                   \
	CALL(dwarf_lineno)                  \
	CALL(dwarf_linesrc)                 \
	CALL(dwfl_addrmodule)               \
	CALL(dwfl_attach_state)             \
	CALL(dwfl_begin)                    \
	CALL(dwfl_build_id_find_elf)        \
	CALL(dwfl_end)                      \
	CALL(dwfl_frame_pc)                 \
	CALL(dwfl_getthread_frames)         \
	CALL(dwfl_lineinfo)                 \
	CALL(dwfl_linux_proc_find_elf)      \
	CALL(dwfl_linux_proc_maps_report)   \
	CALL(dwfl_linux_proc_report)        \
	CALL(dwfl_module_addrname)          \
	CALL(dwfl_module_build_id)          \
	CALL(dwfl_module_getelf)            \
	CALL(dwfl_module_getsrc)            \
	CALL(dwfl_module_info)              \
	CALL(dwfl_module_nextcu)            \
	CALL(dwfl_offline_section_address)  \
	CALL(dwfl_report_begin)             \
	CALL(dwfl_report_end)               \
	CALL(dwfl_report_offline)           \
	CALL(dwfl_standard_find_debuginfo)  \
	CALL(dwfl_thread_state_register_pc) \
	CALL(dwfl_thread_state_registers)   \
	CALL(elf_getphdrnum)                \
	CALL(gelf_getphdr)

struct libdw {
#define LIBDW_FIELD(name) __typeof__ (&(name))(name);
	LIBDW_CALLS(LIBDW_FIELD)
#undef LIBDW_FIELD
};

/* NULL if libdw is not installed, or too old for one of these functions; the first call prints a
 * message. libdw is loaded when this code is loaded, as a linked library is: a watch must not wait
 * for a lock of the loader, because the thread that the watch is to report may hold that lock. Any
 * thread; does not block. */
const struct libdw *libdw_get(void);

/* Finds no separate debug file. Replaces libdw's own function, which might ask servers that the
 * user has set. */
int libdw_find_no_debuginfo(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base,
			    const char *file, const char *link, GElf_Word crc, char **debug_file);

#endif
