/* SPDX-License-Identifier: BSD-3-Clause
 * Finds the plugin of a driver by its name: in the program itself, or in a library, which it loads.
 * */
#include <ctype.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/messages.h"
#include "device/driver.h"

enum { NAME_BYTES = 32, INDEX_MAX = 1023 };

/* The length of the name, of which find_driver.c makes a symbol and a file name. 0: no such name is
 * possible. */
static size_t name_length(const char *device)
{
	size_t length = strcspn(device, ":,");
	for (size_t i = 0; i < length; i++)
		if (!islower((unsigned char)device[i]) && !isdigit((unsigned char)device[i]))
			return 0;
	return length < NAME_BYTES ? length : 0;
}

/* Reads what follows the name: ":INDEX" and ",OPTIONS", both of which may be missing. */
static bool read_rest(const char *rest, struct driver *out)
{
	out->index = 0;
	out->options = "";
	if (*rest == ':') {
		char *end;
		long index = isdigit((unsigned char)rest[1]) ? strtol(rest + 1, &end, 10) : -1;
		if (index < 0 || index > INDEX_MAX)
			return false;
		out->index = (int)index;
		rest = end;
	}
	if (*rest == ',')
		out->options = rest + 1;
	return *rest == ',' || *rest == '\0';
}

/* The file beside the library, or beside a program that has all of the library in it; false: there
 * is none. */
static bool find_beside(const char *file, char out[PATH_MAX])
{
	Dl_info here;
	const char *end = NULL;
	if (dladdr(&device_driver_cpu, &here) && here.dli_fname)
		end = strrchr(here.dli_fname, '/');
	if (!end)
		return false;
	int size = snprintf(out, PATH_MAX, "%.*s/%s", (int)(end - here.dli_fname), here.dli_fname,
			    file);
	return size < PATH_MAX && access(out, R_OK) == 0;
}

/* The file beside the library comes first, as it has the same version. RTLD_NOW: the loader binds
 * everything here, and nothing later under its lock. */
static const struct driver_plugin *load_plugin(const char *name, const char **why)
{
	char symbol[NAME_BYTES + 24], file[NAME_BYTES + 24], path[PATH_MAX];
	snprintf(symbol, sizeof symbol, "lockstep_driver_%s", name);
	snprintf(file, sizeof file, "liblockstep-%s.so", name);
	const struct driver_plugin *plugin = dlsym(RTLD_DEFAULT, symbol);
	if (plugin)
		return plugin;
	void *library = dlopen(find_beside(file, path) ? path : file, RTLD_NOW | RTLD_LOCAL);
	*why = library ? "it has no driver of this name" : dlerror();
	return library ? dlsym(library, symbol) : NULL;
}

ls_status device_driver_find(const char *device, struct driver *out)
{
	char name[NAME_BYTES];
	const char *why = NULL;
	size_t length = name_length(device);
	*out = (struct driver){0};
	if (!length || !read_rest(device + length, out)) {
		MESSAGE_SAY(MESSAGE_DEVICE_NAME, device);
		return LS_BAD_ARGUMENT;
	}
	memcpy(name, device, length);
	name[length] = '\0';
	const struct driver_plugin *plugin = load_plugin(name, &why);
	if (plugin && (plugin->version != DRIVER_VERSION || plugin->bytes != sizeof *plugin->ops)) {
		why = "it belongs to another version of Lockstep";
		plugin = NULL;
	}
	if (!plugin) {
		MESSAGE_SAY(MESSAGE_DEVICE_DRIVER, name, why ? why : "no reason is given");
		return LS_UNSUPPORTED;
	}
	out->ops = plugin->ops;
	out->say = message_say;
	return LS_OK;
}
