/* SPDX-License-Identifier: BSD-3-Clause
 * How the daemon of a host is called, by ssh or as a child, and what ranks there get of this
 * process: its folder, command and part of its environment. */
#include "launcher/daemons.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/open_limit.h"

enum { PATH_BYTES = 4096, SSH_WORDS_MAX = 48, COMMAND_BYTES = 2 * PATH_BYTES };

struct call {
	char words_text[PATH_BYTES]; /* of ssh, taken apart */
	char *words[SSH_WORDS_MAX];
	char own[PATH_BYTES];        /* this program */
	char command[COMMAND_BYTES]; /* for the shell of the other host */
	char name[LAUNCHER_HOST_BYTES];
};

/* Writes the text as one word of a shell. False: it does not fit. */
static bool quote_word(const char *text, char *out, size_t bytes)
{
	size_t used = 0;

	for (out[used++] = '\''; *text && used + 6 < bytes; text++) {
		if (*text == '\'')
			used += (size_t)snprintf(out + used, bytes - used, "'\\''");
		else
			out[used++] = *text;
	}
	out[used++] = '\'';
	out[used] = '\0';
	return *text == '\0';
}

/* Sets the words that start the daemon of a host. ssh asks no questions, as nobody would see them.
 * An option that the user has given comes first, and counts. */
static bool call_init(struct call *call, const struct launcher_host *host,
		      const struct launcher_options *options)
{
	static const char *const added[] = {
		"-T",
		"-oBatchMode=yes",
		"-oConnectTimeout=10",
		"-oServerAliveInterval=5",
		"-oServerAliveCountMax=3",
	};
	char path[COMMAND_BYTES - 64];
	int count = 0;

	ssize_t length = readlink("/proc/self/exe", call->own, sizeof call->own - 1);
	call->own[length > 0 ? length : 0] = '\0';
	if (host->is_here) {
		call->words[0] = call->own;
		call->words[1] = (char *)(uintptr_t) "run";
		call->words[2] = (char *)(uintptr_t) "--daemon";
		call->words[3] = NULL;
		return length > 0;
	}
	if (snprintf(call->words_text, sizeof call->words_text, "%s",
		     options->ssh ? options->ssh : "ssh") >= (int)sizeof call->words_text ||
	    !quote_word(options->lockstep ? options->lockstep : call->own, path, sizeof path))
		return false;
	for (char *at = call->words_text; *at;) {
		at += strspn(at, " \t");
		if (*at && count < SSH_WORDS_MAX - 10)
			call->words[count++] = at;
		at += strcspn(at, " \t");
		if (*at)
			*at++ = '\0';
	}
	if (count == 0)
		return false;
	for (size_t i = 0; i < sizeof added / sizeof added[0]; i++)
		call->words[count++] = (char *)(uintptr_t)added[i];
	/* ssh wants an address of IPv6 without brackets. */
	size_t named = 0;
	for (const char *at = host->name; *at; at++)
		if (*at != '[' && *at != ']')
			call->name[named++] = *at;
	call->name[named] = '\0';
	snprintf(call->command, sizeof call->command, "exec %s run --daemon", path);
	call->words[count++] = call->name;
	call->words[count++] = call->command;
	call->words[count] = NULL;
	return true;
}

static void __attribute__((noreturn))
run_daemon(const struct launcher_job *job, const struct call *call, int channel, int words,
	   pid_t launcher)
{
	/* A group of its own: what the terminal sends to the launcher reaches ranks through it. */
	if (setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == launcher &&
	    dup2(channel, STDIN_FILENO) >= 0 && dup2(channel, STDOUT_FILENO) >= 0 &&
	    dup2(words, STDERR_FILENO) >= 0 && launcher_start_restore(&job->start))
		execvp(call->words[0], call->words);
	MESSAGE_SAY(MESSAGE_RUN_CANNOT_EXECUTE, call->words[0], strerror(errno));
	_exit(LAUNCHER_EXIT_NOT_FOUND);
}

bool launcher_host_call(const struct launcher_job *job, struct launcher_host *host,
			const struct launcher_options *options)
{
	struct call call;
	int ends[2] = {-1, -1}, words[2] = {-1, -1};
	pid_t launcher = getpid();

	errno = ENAMETOOLONG;
	if (!call_init(&call, host, options) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 ||
	    pipe2(words, O_CLOEXEC) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 ||
	    fcntl(words[0], F_SETFL, O_NONBLOCK) != 0)
		goto failed;
	host->pid = fork();
	if (host->pid == 0)
		run_daemon(job, &call, ends[1], words[1], launcher);
	if (host->pid < 0)
		goto failed;
	setpgid(host->pid, host->pid);
	close(ends[1]);
	close(words[1]);
	host->pidfd = (int)syscall(SYS_pidfd_open, host->pid, 0);
	launcher_channel_init(&host->channel, ends[0], ends[0]);
	host->words_fd = words[0];
	return true;
failed:
	MESSAGE_SAY(MESSAGE_RUN_HOST, host->name, OPEN_LIMIT_TEXT(errno));
	for (int i = 0; i < 2; i++) {
		if (ends[i] >= 0)
			close(ends[i]);
		if (words[i] >= 0)
			close(words[i]);
	}
	host->state = LAUNCHER_HOST_BAD;
	host->pid = 0;
	return false;
}

/* ---- what the ranks get of this process ---- */

static bool is_passed_on(const char *variable, const struct launcher_options *options)
{
	static const char *const begins[] = {"LOCKSTEP_", "UCX_", "PYTHON"};
	size_t length = strcspn(variable, "=");

	if (strncmp(variable, "PATH=", 5) == 0 || strncmp(variable, "LD_LIBRARY_PATH=", 16) == 0 ||
	    strncmp(variable, "OMP_NUM_THREADS=", 16) == 0)
		return true;
	for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
		if (strncmp(variable, begins[i], strlen(begins[i])) == 0)
			return true;
	for (const char *const *name = options->variables; name && *name; name++)
		if (strlen(*name) == length && strncmp(*name, variable, length) == 0)
			return true;
	return false;
}

char *launcher_order_strings(const struct launcher_options *options, struct channel_order *order,
			     size_t *bytes)
{
	char folder[PATH_BYTES] = "";
	char *text = NULL;

	FILE *out = getcwd(folder, sizeof folder) ? open_memstream(&text, bytes) : NULL;
	if (!out) {
		MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "getcwd", strerror(errno));
		return NULL;
	}
	fprintf(out, "%s%c", folder, '\0');
	fprintf(out, "PWD=%s%c", folder, '\0');
	order->variables = 1;
	for (char *const *variable = environ; *variable; variable++) {
		if (!is_passed_on(*variable, options))
			continue;
		fprintf(out, "%s%c", *variable, '\0');
		order->variables++;
	}
	for (char *const *word = options->command; *word; word++) {
		fprintf(out, "%s%c", *word, '\0');
		order->words++;
	}
	if (fclose(out) == 0)
		return text;
	MESSAGE_SAY(MESSAGE_RUN_SYSTEM, "open_memstream", strerror(errno));
	free(text);
	return NULL;
}
