/* SPDX-License-Identifier: BSD-3-Clause
 * Reads the file that LOCKSTEP_TABLE names. */
#include "engine/plan_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/messages.h"

/* Reads the whole file, and appends a NUL; NULL, with errno, on failure. Never blocks, because it
 * reads only regular files. */
static char *read_file(int fd)
{
	struct stat stat;
	size_t used = 0;
	if (fstat(fd, &stat) != 0)
		return NULL;
	if (!S_ISREG(stat.st_mode) || stat.st_size >= PLAN_TABLE_FILE_BYTES) {
		errno = S_ISREG(stat.st_mode) ? EFBIG : EINVAL;
		return NULL;
	}
	char *text = malloc(PLAN_TABLE_FILE_BYTES);
	if (!text)
		return NULL;
	while (used + 1 < PLAN_TABLE_FILE_BYTES) {
		ssize_t bytes =
			pread(fd, text + used, PLAN_TABLE_FILE_BYTES - 1 - used, (off_t)used);
		if (bytes < 0 && errno == EINTR)
			continue;
		if (bytes < 0) {
			free(text);
			return NULL;
		}
		if (bytes == 0)
			break;
		used += (size_t)bytes;
	}
	text[used] = '\0';
	return text;
}

ls_status engine_table_read(const char *path, struct plan_table *out)
{
	struct plan_table_error error;
	plan_table_default(out);
	if (!path)
		return LS_OK;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = fd >= 0 ? read_file(fd) : NULL;
	if (!text)
		MESSAGE_SAY(MESSAGE_TABLE_FILE, path, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (!text)
		return LS_BAD_ARGUMENT;
	bool good = plan_table_parse(text, out, &error);
	if (!good)
		MESSAGE_SAY(MESSAGE_TABLE_LINE, path, error.line, error.text);
	free(text);
	return good ? LS_OK : LS_BAD_ARGUMENT;
}
