/* SPDX-License-Identifier: BSD-3-Clause
 * Starts one rank: its environment, descriptors and process group. The rank dies with the
 * launcher. */
#include "launcher/launcher_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/messages.h"
#include "base/open_limit.h"
#include "base/wait.h"

enum { VARIABLE_MAX = 17, VARIABLE_BYTES = 192, PATH_BYTES = 4096 };

/* Variables of a launcher above this one, such as torchrun, that would mislead the ranks. */
static const char *const removed[] = {
	"TORCHELASTIC_USE_AGENT_STORE",
	"TORCHELASTIC_ERROR_FILE",
};

static ls_status say_system(const char *call)
{
	MESSAGE_SAY(MESSAGE_RUN_SYSTEM, call, OPEN_LIMIT_TEXT(errno));
	return LS_SYSTEM;
}

ls_status launcher_find_port(const char *address, uint16_t *out)
{
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	} at = {.four = {.sin_family = AF_INET}};
	socklen_t bytes = sizeof at.four;
	char call[64];

	if (inet_pton(AF_INET, address, &at.four.sin_addr) != 1) {
		at.six = (struct sockaddr_in6){.sin6_family = AF_INET6};
		bytes = sizeof at.six;
		if (inet_pton(AF_INET6, address, &at.six.sin6_addr) != 1) {
			errno = EINVAL;
			return say_system("inet_pton");
		}
	}
	int fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return say_system("socket");
	if (bind(fd, &at.any, bytes) != 0 || getsockname(fd, &at.any, &bytes) != 0) {
		snprintf(call, sizeof call, "bind to %.48s", address);
		ls_status status = say_system(call);
		close(fd);
		return status;
	}
	close(fd);
	*out = ntohs(at.any.sa_family == AF_INET ? at.four.sin_port : at.six.sin6_port);
	return LS_OK;
}

ls_status launcher_start_init(struct launcher_start *start)
{
	uint64_t fresh[2];

	if (getrandom(fresh, sizeof fresh, 0) != (ssize_t)sizeof fresh)
		return say_system("getrandom");
	snprintf(start->run_id, sizeof start->run_id, "%016llx", (unsigned long long)fresh[0]);
	snprintf(start->rendezvous, sizeof start->rendezvous, "lockstep-run-%016llx%016llx",
		 (unsigned long long)fresh[0], (unsigned long long)fresh[1]);
	snprintf(start->master_addr, sizeof start->master_addr, "127.0.0.1");
	start->notes_fd = launcher_notes_open();
	if (start->notes_fd < 0)
		return say_system("memfd_create");
	return launcher_find_port(start->master_addr, &start->master_port);
}

/* ---- signals, and the stack ---- */

/* A caller that ignores SIGCHLD passes that on. Then the system would reap the ranks, and nobody
 * could find out how they ended. */
bool launcher_start_signals(struct launcher_start *start)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN},
			       by_default = {.sa_handler = SIG_DFL};

	return sigaction(SIGPIPE, &ignore, &start->broken_pipe) == 0 &&
	       sigaction(SIGXFSZ, &ignore, &start->file_limit) == 0 &&
	       sigaction(SIGCHLD, &by_default, &start->child_end) == 0;
}

ls_status launcher_start_stack(struct launcher_start *start)
{
	const rlim_t least = LAUNCHER_STACK_BYTES;

	if (getrlimit(RLIMIT_STACK, &start->stack) != 0)
		return say_system("getrlimit");
	if (start->stack.rlim_cur >= least)
		return LS_OK;
	struct rlimit more = {.rlim_cur = least, .rlim_max = start->stack.rlim_max};
	if (more.rlim_max >= least && setrlimit(RLIMIT_STACK, &more) == 0)
		return LS_OK;
	MESSAGE_SAY(MESSAGE_RUN_STACK, (unsigned long long)start->stack.rlim_max >> 10,
		    LAUNCHER_STACK_BYTES >> 10);
	return LS_SYSTEM;
}

bool launcher_start_restore(const struct launcher_start *start)
{
	return sigaction(SIGPIPE, &start->broken_pipe, NULL) == 0 &&
	       sigaction(SIGXFSZ, &start->file_limit, NULL) == 0 &&
	       sigaction(SIGCHLD, &start->child_end, NULL) == 0 &&
	       setrlimit(RLIMIT_STACK, &start->stack) == 0 &&
	       sigprocmask(SIG_SETMASK, &start->mask, NULL) == 0;
}

/* ---- the environment ---- */

struct environment {
	char **entries; /* ended by NULL; on the heap, the strings are not */
	char values[VARIABLE_MAX][VARIABLE_BYTES];
	int count;
	bool meets_by_hand; /* the ranks meet at MASTER_ADDR, not at an outer launcher's place */
};

static void __attribute__((format(printf, 2, 3)))
set_variable(struct environment *environment, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(environment->values[environment->count], VARIABLE_BYTES, format, arguments);
	va_end(arguments);
	environment->count++;
}

static bool names_variable(const char *entry, const char *variable)
{
	size_t length = strcspn(variable, "=");

	return strncmp(entry, variable, length) == 0 && entry[length] == '=';
}

static bool is_replaced(const struct environment *environment, const char *entry)
{
	for (int i = 0; i < environment->count; i++)
		if (names_variable(entry, environment->values[i]))
			return true;
	if (environment->meets_by_hand && names_variable(entry, "LOCKSTEP_RENDEZVOUS"))
		return true;
	for (size_t i = 0; i < sizeof removed / sizeof removed[0]; i++)
		if (names_variable(entry, removed[i]))
			return true;
	return false;
}

/* Sets the variables as torchrun does, except that no store listens at MASTER_PORT yet: if a
 * program wants one, its rank 0 opens it, as without torchrun. On several hosts the ranks meet
 * there, too. With one OpenMP thread for each core and rank, ranks of one host would disturb each
 * other. */
static bool environment_init(struct environment *environment, const struct launcher_start *start,
			     int rank)
{
	size_t inherited = 0;
	size_t kept = 0;

	environment->count = 0;
	set_variable(environment, "RANK=%d", rank);
	set_variable(environment, "LOCAL_RANK=%d", rank - start->first);
	set_variable(environment, "ROLE_RANK=%d", rank);
	set_variable(environment, "GROUP_RANK=%d", start->host);
	set_variable(environment, "WORLD_SIZE=%d", start->size);
	set_variable(environment, "LOCAL_WORLD_SIZE=%d", start->ranks);
	set_variable(environment, "ROLE_WORLD_SIZE=%d", start->size);
	set_variable(environment, "GROUP_WORLD_SIZE=%d", start->hosts);
	set_variable(environment, "ROLE_NAME=default");
	set_variable(environment, "MASTER_ADDR=%s", start->master_addr);
	set_variable(environment, "MASTER_PORT=%u", start->master_port);
	set_variable(environment, "TORCHELASTIC_RUN_ID=%s", start->run_id);
	set_variable(environment, "TORCHELASTIC_RESTART_COUNT=0");
	set_variable(environment, "TORCHELASTIC_MAX_RESTARTS=0");
	if (start->ranks > 1 && !launcher_variable("OMP_NUM_THREADS"))
		set_variable(environment, "OMP_NUM_THREADS=1");
	environment->meets_by_hand = !start->rendezvous[0];
	if (environment->meets_by_hand) {
		set_variable(environment, "LOCKSTEP_SECRET_FILE=/proc/%d/fd/%d", getpid(),
			     start->secret_fd);
	} else {
		set_variable(environment, "LOCKSTEP_RENDEZVOUS=unix:%s", start->rendezvous);
	}
	set_variable(environment, "LOCKSTEP_RUN_NOTES=/proc/%d/fd/%d", getpid(), start->notes_fd);

	while (environ[inherited])
		inherited++;
	environment->entries = calloc(inherited + VARIABLE_MAX + 1, sizeof *environment->entries);
	if (!environment->entries)
		return false;
	for (size_t i = 0; i < inherited; i++)
		if (!is_replaced(environment, environ[i]))
			environment->entries[kept++] = environ[i];
	for (int i = 0; i < environment->count; i++)
		environment->entries[kept++] = environment->values[i];
	return true;
}

/* ---- the new process ---- */

struct handles {
	int input;        /* standard input of the rank, -1: /dev/null */
	int output[2][2]; /* pipes for standard output and standard error */
	int report[2];    /* carries errno if the program cannot be run; else its end closes */
};

static void close_pair(int pair[2])
{
	for (int i = 0; i < 2; i++) {
		if (pair[i] >= 0)
			close(pair[i]);
		pair[i] = -1;
	}
}

static bool handles_open(struct handles *handles, int input)
{
	*handles = (struct handles){input, {{-1, -1}, {-1, -1}}, {-1, -1}};
	if (pipe2(handles->output[0], O_CLOEXEC) == 0 &&
	    pipe2(handles->output[1], O_CLOEXEC) == 0 && pipe2(handles->report, O_CLOEXEC) == 0 &&
	    fcntl(handles->output[0][0], F_SETFL, O_NONBLOCK) == 0 &&
	    fcntl(handles->output[1][0], F_SETFL, O_NONBLOCK) == 0)
		return true;
	int error = errno;
	close_pair(handles->output[0]);
	close_pair(handles->output[1]);
	close_pair(handles->report);
	errno = error;
	return false;
}

static bool become_rank(const struct launcher_start *start, const struct handles *handles,
			pid_t launcher)
{
	int32_t self = getpid();

	if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return false;
	/* A launcher that died before the line above sends no signal any more. */
	if (getppid() != launcher)
		_exit(EXIT_FAILURE);
	/* Before the program can start anything: nothing that it starts is unknown to the guard. */
	if (write(start->guard_fd, &self, sizeof self) != (ssize_t)sizeof self)
		return false;
	int input = handles->input;
	if (input < 0)
		input = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (input < 0 || (input != STDIN_FILENO && dup2(input, STDIN_FILENO) < 0) ||
	    dup2(handles->output[0][1], STDOUT_FILENO) < 0 ||
	    dup2(handles->output[1][1], STDERR_FILENO) < 0)
		return false;
	return launcher_start_restore(start);
}

static void __attribute__((noreturn))
run_child(const struct launcher_start *start, const struct handles *handles,
	  const struct environment *environment, pid_t launcher)
{
	if (become_rank(start, handles, launcher))
		execvpe(start->command[0], start->command, environment->entries);
	int error = errno;
	ssize_t written = write(handles->report[1], &error, sizeof error);
	(void)written;
	_exit(LAUNCHER_EXIT_CANNOT_EXECUTE);
}

/* Waits until the program runs: 0; otherwise the errno of what kept it from running. */
static int await_program(int report)
{
	int error = 0;
	struct pollfd ready = {.fd = report, .events = POLLIN};

	while (wait_fds(NULL, &ready, 1, -1, CLOCK_NEVER) == LS_INTERRUPTED)
		continue;
	if (read(report, &error, sizeof error) != (ssize_t)sizeof error)
		return 0;
	return error;
}

static ls_status say_program(const struct launcher_start *start, int error, int *exit_status)
{
	const char *program = start->command[0];

	*exit_status = error == ENOENT ? LAUNCHER_EXIT_NOT_FOUND : LAUNCHER_EXIT_CANNOT_EXECUTE;
	if (error == ENOENT && strchr(program, '/'))
		MESSAGE_SAY(MESSAGE_RUN_NOT_FOUND, program,
			    "there is no such file, or the interpreter that it names does not exist");
	else if (error == ENOENT)
		MESSAGE_SAY(
			MESSAGE_RUN_NOT_FOUND, program,
			"no such program on PATH; a program in this directory is called as ./NAME");
	else
		MESSAGE_SAY(MESSAGE_RUN_CANNOT_EXECUTE, program, strerror(error));
	return LS_BAD_ARGUMENT;
}

const char *launcher_variable(const char *name)
{
	size_t length = strlen(name);

	for (char *const *at = environ; at && *at; at++)
		if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
			return *at + length + 1;
	return NULL;
}

/* 0 if this file can be run; else errno, as execve would set it. */
static int look_at_file(const char *path)
{
	struct stat status;

	if (access(path, X_OK) != 0 || stat(path, &status) != 0)
		return errno;
	return S_ISREG(status.st_mode) ? 0 : EACCES;
}

/* 0 if the program can be run from PATH as it is; else errno, as execvp would set it. */
static int search_path(const char *program)
{
	const char *path = launcher_variable("PATH");
	int error = ENOENT;

	if (!program[0])
		return error;
	for (const char *at = path ? path : "/bin:/usr/bin"; *at;) {
		char file[PATH_BYTES];
		size_t length = strcspn(at, ":");
		int used = snprintf(file, sizeof file, "%.*s/%s", length ? (int)length : 1,
				    length ? at : ".", program);
		at += length + (at[length] == ':');
		if (used >= (int)sizeof file)
			continue;
		int found = look_at_file(file);
		if (found == 0)
			return 0;
		if (found == EACCES)
			error = EACCES;
	}
	return error;
}

ls_status launcher_program_check(const struct launcher_start *start, int *exit_status)
{
	const char *program = start->command[0];
	int error = 0;

	if (!strchr(program, '/'))
		error = search_path(program);
	else
		error = look_at_file(program);
	return error == 0 ? LS_OK : say_program(start, error, exit_status);
}

static ls_status say_start(int rank, const char *call, int *exit_status)
{
	*exit_status = EXIT_FAILURE;
	MESSAGE_SAY(MESSAGE_RUN_START, rank, call, OPEN_LIMIT_TEXT(errno));
	return LS_SYSTEM;
}

static ls_status launch_rank(const struct launcher_start *start, int rank, struct handles *handles,
			     struct launcher_rank *out, int *exit_status)
{
	struct environment environment;

	if (!environment_init(&environment, start, rank)) {
		errno = ENOMEM;
		return say_start(rank, "calloc", exit_status);
	}
	pid_t launcher = getpid();
	pid_t pid = fork();
	if (pid == 0)
		run_child(start, handles, &environment, launcher);
	free(environment.entries);
	if (pid < 0)
		return say_start(rank, "fork", exit_status);

	setpgid(pid, pid); /* parent and child both call it; refused after execve, but done then */
	close(handles->report[1]);
	handles->report[1] = -1;
	int error = await_program(handles->report[0]);
	int pidfd = error == 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (pidfd >= 0) {
		*out = (struct launcher_rank){
			.pid = pid, .pidfd = pidfd, .poll = -1, .exit_code = -1};
		return LS_OK;
	}
	ls_status status = LS_SYSTEM;
	if (error == EMFILE || error == ENFILE) { /* says nothing of the program */
		errno = error;
		status = say_start(rank, "open", exit_status);
	} else if (error != 0) {
		status = say_program(start, error, exit_status);
	} else {
		status = say_start(rank, "pidfd_open", exit_status);
	}
	/* The child has ended, or is about to: without a program it has no work to finish. */
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, WNOHANG);
	return status;
}

ls_status launcher_child_start(const struct launcher_start *start, int rank, int stdin_fd,
			       struct launcher_rank *out, struct launcher_stream streams[2],
			       int *exit_status)
{
	struct handles handles;

	*out = (struct launcher_rank){.pid = -1, .pidfd = -1, .poll = -1, .exit_code = -1};
	*exit_status = 0;
	if (!handles_open(&handles, stdin_fd))
		return say_start(rank, "pipe2", exit_status);
	ls_status status = launch_rank(start, rank, &handles, out, exit_status);
	if (status == LS_OK) {
		for (int i = 0; i < 2; i++) {
			streams[i].fd = handles.output[i][0];
			handles.output[i][0] = -1;
		}
	}
	close_pair(handles.output[0]);
	close_pair(handles.output[1]);
	close_pair(handles.report);
	return status;
}

bool launcher_child_ended(struct launcher_rank *rank)
{
	siginfo_t info = {0};

	/* The zombie stays, so that no other process gets its number, and peers can read in /proc
	 * how it ended. */
	if (waitid(P_PIDFD, (id_t)rank->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
	    info.si_pid == 0)
		return false;
	rank->ended = true;
	rank->dumped = info.si_code == CLD_DUMPED;
	rank->exit_code = info.si_code == CLD_EXITED ? info.si_status : -1;
	rank->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
	return true;
}

/* Ends all processes that ranks have left in their process groups, before it reaps the leaders:
 * until then no other process group can get these numbers. */
void launcher_bury(struct launcher_rank *ranks, int started, struct launcher_guard *guard)
{
	for (int i = 0; i < started; i++)
		kill(-ranks[i].pid, SIGKILL);
	launcher_guard_stop(guard);
	for (int i = 0; i < started; i++) {
		waitpid(ranks[i].pid, NULL, WNOHANG);
		close(ranks[i].pidfd);
	}
}
