/* SPDX-License-Identifier: BSD-3-Clause
 * Every message that Lockstep prints, one macro each: id, level and format, so that the compiler
 * checks the arguments. messages.def has the help for each, which `lockstep explain ID` and
 * lockstep-messages(7) show; tools/check compares the ids of both.
 *
 * The function that decides that something is an error prints it, once. Its callers print
 * nothing. */
#ifndef BASE_MESSAGES_H
#define BASE_MESSAGES_H

#include "base/message.h"

/* ---- base ---- */
#define MESSAGE_MESSAGE_LOST                 \
	"LS-MESSAGE-LOST", SETTING_LOG_WARN, \
		"%u messages were lost here, because nobody read standard error"
#define MESSAGE_LOCK_ORDER                  \
	"LS-LOCK-ORDER", SETTING_LOG_ERROR, \
		"lock order: wants a '%s' lock while it holds a '%s' lock"
#define MESSAGE_LOCK_WAIT \
	"LS-LOCK-WAIT", SETTING_LOG_ERROR, "about to wait while it holds a '%s' lock"
#define MESSAGE_LOCK_BROKEN "LS-LOCK-BROKEN", SETTING_LOG_ERROR, "a '%s' lock cannot be %s: %s"
#define MESSAGE_WAIT_SYSTEM "LS-WAIT-SYSTEM", SETTING_LOG_ERROR, "cannot wait: %s failed: %s"
#define MESSAGE_WAIT_BLIND                                                                                   \
	"LS-WAIT-BLIND", SETTING_LOG_WARN,                                                                   \
		"this rank looks for no hangs any more, as the program has closed descriptors of Lockstep; " \
		"calls that wait in vain end at their time limit"
#define MESSAGE_WAIT_OPEN "LS-WAIT-OPEN", SETTING_LOG_ERROR, "cannot record which threads wait: %s"
#define MESSAGE_SETTING_VALUE "LS-SETTING-VALUE", SETTING_LOG_ERROR, "%s is '%s', but must be %s"
#define MESSAGE_SETTING_UNKNOWN                                                                \
	"LS-SETTING-UNKNOWN", SETTING_LOG_WARN,                                                \
		"%s is not a setting, so it is ignored; did you mean %s? `lockstep settings` " \
		"lists all"
#define MESSAGE_LIBDW_MISSING                                                            \
	"LS-LIBDW-MISSING", SETTING_LOG_WARN,                                            \
		"call sites in C are shown as module+offset, not as file and line: %s; " \
		"Debian has libdw in the package libdw1, Fedora in elfutils-libs"

/* ---- trace ---- */
#define MESSAGE_TRACE_FAILED \
	"LS-TRACE-FAILED", SETTING_LOG_ERROR, "cannot make the flight recorder: %s: %s"
#define MESSAGE_TRACE_UNSEALED                                                                 \
	"LS-TRACE-UNSEALED", SETTING_LOG_ERROR,                                                \
		"cannot protect the flight recorder: this kernel has no F_SEAL_FUTURE_WRITE; " \
		"Lockstep needs Linux 5.3 or newer"

/* ---- memory ---- */
#define MESSAGE_MEMORY_ARENA                                                                      \
	"LS-MEMORY-ARENA", SETTING_LOG_ERROR,                                                     \
		"cannot make an arena of %zu MiB of address space: %s: %s; LOCKSTEP_ARENA_BYTES " \
		"makes it smaller"
#define MESSAGE_MEMORY_EXHAUSTED                                                                   \
	"LS-MEMORY-EXHAUSTED", SETTING_LOG_ERROR,                                                  \
		"no arena memory for %zu bytes: %s; of its %zu KiB, %zu are in use, %zu are free " \
		"but in blocks too small, %zu were revoked after failed operations"
#define MESSAGE_MEMORY_NO_BLOCK                  \
	"LS-MEMORY-NO-BLOCK", SETTING_LOG_ERROR, \
		"ls_free: %p is not the start of a block of this group%s"
#define MESSAGE_MEMORY_FREED_TWICE \
	"LS-MEMORY-FREED-TWICE", SETTING_LOG_ERROR, "ls_free: the block at %p was freed already%s"
#define MESSAGE_MEMORY_DETACH                  \
	"LS-MEMORY-DETACH", SETTING_LOG_ERROR, \
		"cannot revoke the access of other ranks to %zu bytes of a failed operation at %p: %s"
#define MESSAGE_MEMORY_VIEW \
	"LS-MEMORY-VIEW", SETTING_LOG_ERROR, "cannot map the arena of rank %d (%zu bytes): %s"
#define MESSAGE_MEMORY_REGION "LS-MEMORY-REGION", SETTING_LOG_ERROR, "ls_register: %s"
#define MESSAGE_MEMORY_REGIONS                  \
	"LS-MEMORY-REGIONS", SETTING_LOG_ERROR, \
		"ls_register: this rank has registered %d ranges of memory, which is the maximum"
#define MESSAGE_MEMORY_PEER_REGION                  \
	"LS-MEMORY-PEER-REGION", SETTING_LOG_ERROR, \
		"the memory that rank %d (pid %d) registers cannot be mapped here: %s: %s"
#define MESSAGE_MEMORY_GONE                                                                              \
	"LS-MEMORY-GONE", SETTING_LOG_WARN,                                                              \
		"the %zu bytes that were registered at %p are no longer mapped there, as the buffer of " \
		"%zu bytes at %p shows; they count as plain memory from now on. Call ls_deregister "     \
		"before such memory is unmapped"
#define MESSAGE_MEMORY_IN_USE                                                                       \
	"LS-MEMORY-IN-USE", SETTING_LOG_ERROR,                                                      \
		"the %zu bytes of a device at %p stay registered, as %u buffer%s of operations in " \
		"flight lie there: wait for these operations first"
#define MESSAGE_DEVICE_CALL "LS-DEVICE-CALL", SETTING_LOG_ERROR, "%s failed: %s"
#define MESSAGE_DEVICE_OPEN "LS-DEVICE-OPEN", SETTING_LOG_ERROR, "%s: cannot use device %s: %s"
#define MESSAGE_DEVICE_NAME                  \
	"LS-DEVICE-NAME", SETTING_LOG_ERROR, \
		"the device name '%s' has the wrong form: write NAME, NAME:NUMBER or NAME:NUMBER,OPTIONS, such as sim:0"
#define MESSAGE_DEVICE_DRIVER \
	"LS-DEVICE-DRIVER", SETTING_LOG_ERROR, "there is no driver '%s' for devices: %s"
#define MESSAGE_DEVICE_LAUNCHES                  \
	"LS-DEVICE-LAUNCHES", SETTING_LOG_ERROR, \
		"device %s: no room for an operation on stream %p, as %d other streams have operations in flight%s"
#define MESSAGE_DEVICE_NONE                  \
	"LS-DEVICE-NONE", SETTING_LOG_ERROR, \
		"%s: this rank has no device; ls_group_open takes its name as the option device"
#define MESSAGE_DEVICE_STREAMS                  \
	"LS-DEVICE-STREAMS", SETTING_LOG_ERROR, \
		"device %s: stream %p can use no memory, as %d other streams have blocks%s"
#define MESSAGE_DEVICE_STREAM                  \
	"LS-DEVICE-STREAM", SETTING_LOG_ERROR, \
		"stream %p is not one of device %s, so this call cannot use it%s"
#define MESSAGE_DEVICE_STREAM_GONE                                                         \
	"LS-DEVICE-STREAM-GONE", SETTING_LOG_WARN,                                         \
		"stream %p of device %s has been destroyed, but still has blocks: nobody " \
		"can tell when its work is done. Call ls_device_forget before you destroy it"
#define MESSAGE_DEVICE_CAPTURED                  \
	"LS-DEVICE-CAPTURED", SETTING_LOG_ERROR, \
		"stream %p of device %s is being captured for a graph, so this call cannot use it%s"
#define MESSAGE_DEVICE_CAPTURE                                                                   \
	"LS-DEVICE-CAPTURE", SETTING_LOG_ERROR,                                                  \
		"stream %p of device %s: a capture for a graph has begun there while this call " \
		"enqueued its operation, so the operation fails%s"
#define MESSAGE_DEVICE_EXHAUSTED                  \
	"LS-DEVICE-EXHAUSTED", SETTING_LOG_ERROR, \
		"there are no %zu bytes on device %s: %zu are in use, %zu cached, %zu freed but used by streams, %zu to be given back after launches in flight%s. %s"
#define MESSAGE_DEVICE_TOO_LARGE                  \
	"LS-DEVICE-TOO-LARGE", SETTING_LOG_ERROR, \
		"%zu bytes are more than device %s can ever give: %s%s. Allocate less at a time%s"
#define MESSAGE_DEVICE_FAILED                  \
	"LS-DEVICE-FAILED", SETTING_LOG_ERROR, \
		"the driver of device %s has failed, and so does this call (%s)%s. %s"
#define MESSAGE_DEVICE_LIMIT                  \
	"LS-DEVICE-LIMIT", SETTING_LOG_ERROR, \
		"%zu bytes more on device %s would exceed the limit of %zu (ls_device_limit): %zu are in use, %zu cached, %zu freed but used by streams, %zu to be given back after launches in flight%s. %s, or raise the limit"
#define MESSAGE_DEVICE_NO_BLOCK \
	"LS-DEVICE-NO-BLOCK", SETTING_LOG_ERROR, "%s: %p is no block of device %s%s"
#define MESSAGE_DEVICE_FREED \
	"LS-DEVICE-FREED", SETTING_LOG_ERROR, "%s: the block %p of device %s is free already%s"
#define MESSAGE_DEVICE_CLOSE                 \
	"LS-DEVICE-CLOSE", SETTING_LOG_WARN, \
		"ls_group_close: memory of device %s stays allocated (%s), because %s"
#define MESSAGE_GROUP_SILENT                                                                          \
	"LS-GROUP-SILENT", SETTING_LOG_ERROR,                                                         \
		"no connection to rank %s: it has ended, or a firewall blocks its port; UCX listens " \
		"on a free port of each rank's host"
#define MESSAGE_HOST_SOCKET                  \
	"LS-HOST-SOCKET", SETTING_LOG_ERROR, \
		"the group cannot be opened, as there is no socket for heartbeats at %s: %s: %s"
#define MESSAGE_HOST_SILENT                                                                             \
	"LS-HOST-SILENT", SETTING_LOG_WARN,                                                             \
		"host %s (%s) has been silent since %s, for %.1f s: no host that answers hears it. It " \
		"has died, is frozen or is cut off, which cannot be told apart from here; %s"
#define MESSAGE_HOST_LINK                                                                           \
	"LS-HOST-LINK", SETTING_LOG_WARN,                                                           \
		"what host %s (%s) sends to host %s (%s) has not arrived since %s, for %.1f s. "    \
		"Both hosts are alive: %s, so the network between them is broken at least in this " \
		"direction; %s"
#define MESSAGE_HOST_HEARD \
	"LS-HOST-HEARD", SETTING_LOG_WARN, "host %s (%s) has heard host %s (%s) again since %s%s"
#define MESSAGE_HOST_NEVER                                                                       \
	"LS-HOST-NEVER", SETTING_LOG_WARN,                                                       \
		"no heartbeat of host %s (%s) has come, although data do: a firewall may block " \
		"UDP. If that host falls silent, only the time limit of an operation will show " \
		"it"
#define MESSAGE_GROUP_CROWDED                                                                       \
	"LS-GROUP-CROWDED", SETTING_LOG_ERROR,                                                      \
		"the job has %d ranks on host %s, and is on %d host%s: a host can have at most %d " \
		"ranks of a job, and a job at most %d hosts"
#define MESSAGE_GROUP_HOSTS \
	"LS-GROUP-HOSTS", SETTING_LOG_INFO, "%d ranks on %d hosts (%s); data between hosts: %s"
#define MESSAGE_GROUP_SETTINGS                  \
	"LS-GROUP-SETTINGS", SETTING_LOG_ERROR, \
		"rank %d and rank 0 have different values of %s, which must be the same on all ranks of a job"
#define MESSAGE_GROUP_REGISTER \
	"LS-GROUP-REGISTER", SETTING_LOG_ERROR, "ls_register: rank %d could not take part (%s)"

/* ---- transport ---- */
#define MESSAGE_TRANSPORT_SIZE                  \
	"LS-TRANSPORT-SIZE", SETTING_LOG_ERROR, \
		"rank %d of %d: a job has 1 to %d ranks, counted from 0"
#define MESSAGE_TRANSPORT_SEGMENT                  \
	"LS-TRANSPORT-SEGMENT", SETTING_LOG_ERROR, \
		"cannot make the shared segment of rank %d (%zu bytes): %s: %s"
#define MESSAGE_TRANSPORT_LISTEN \
	"LS-TRANSPORT-LISTEN", SETTING_LOG_ERROR, "cannot listen for the other ranks: %s: %s"
#define MESSAGE_TRANSPORT_MAP \
	"LS-TRANSPORT-MAP", SETTING_LOG_ERROR, "cannot map the memory of rank %d: %s"
#define MESSAGE_TRANSPORT_SYSTEM \
	"LS-TRANSPORT-SYSTEM", SETTING_LOG_ERROR, "cannot connect to rank %d: %s: %s"
#define MESSAGE_TRANSPORT_LIMIT                                                                       \
	"LS-TRANSPORT-LIMIT", SETTING_LOG_ERROR,                                                      \
		"rank %d has reached its limit of %llu open files while the ranks of its host "       \
		"connected, so the group is not opened: %d ranks need about %d besides those of the " \
		"program, so raise the limit (ulimit -n)"
#define MESSAGE_TRANSPORT_MISSING                  \
	"LS-TRANSPORT-MISSING", SETTING_LOG_ERROR, \
		"not connected within the time limit of ls_group_open: rank %s"
#define MESSAGE_TRANSPORT_LOST                                                                    \
	"LS-TRANSPORT-LOST", SETTING_LOG_ERROR,                                                   \
		"rank %d (pid %d) ended or gave up while the ranks were connecting: see what it " \
		"printed"
#define MESSAGE_TRANSPORT_FAILED \
	"LS-TRANSPORT-FAILED", SETTING_LOG_ERROR, "the ranks cannot connect because of rank %d: %s"
#define MESSAGE_TRANSPORT_UNTRUSTED                                                             \
	"LS-TRANSPORT-UNTRUSTED", SETTING_LOG_WARN,                                             \
		"refused a process (pid %d, user %u) that is not a rank of this job (%s); the " \
		"job goes on, and refuses further ones silently"
#define MESSAGE_TRANSPORT_IMPOSTOR                  \
	"LS-TRANSPORT-IMPOSTOR", SETTING_LOG_ERROR, \
		"a process (pid %d, user %u) answers in place of rank %d, but %s"
#define MESSAGE_TRANSPORT_CMA                                                                   \
	"LS-TRANSPORT-CMA", SETTING_LOG_INFO,                                                   \
		"cannot read the memory of rank %d: %s; buffers that are not from ls_alloc or " \
		"ls_register are copied through shared memory, which is slower"
#define MESSAGE_TRANSPORT_READ                  \
	"LS-TRANSPORT-READ", SETTING_LOG_ERROR, \
		"cannot read %llu bytes at %#llx in the memory of rank %d (pid %d): %s"

/* ---- net ---- */
#define MESSAGE_AUTH_MISSING \
	"LS-AUTH-MISSING", SETTING_LOG_ERROR, "ranks on several hosts need libsodium: %s"
#define MESSAGE_AUTH_SECRET "LS-AUTH-SECRET", SETTING_LOG_ERROR, "the secret file %s: %s"
#define MESSAGE_NET_MISSING "LS-NET-MISSING", SETTING_LOG_ERROR, "ranks on other hosts need UCX: %s"
#define MESSAGE_NET_EARLY                                                               \
	"LS-NET-EARLY", SETTING_LOG_WARN,                                               \
		"UCX was loaded before Lockstep: it may have replaced signal handlers " \
		"and mmap of this process"
#define MESSAGE_NET_SYSTEM \
	"LS-NET-SYSTEM", SETTING_LOG_ERROR, "cannot prepare connections to other hosts: %s: %s"
#define MESSAGE_NET_LIMIT                                                                            \
	"LS-NET-LIMIT", SETTING_LOG_ERROR,                                                           \
		"the limit of rank %d is %llu open files, which is too few to connect to ranks on "  \
		"other hosts: each takes three, and Lockstep some 20 besides those of the program. " \
		"Raise the limit (ulimit -n)"
#define MESSAGE_NET_SHARED                                                                       \
	"LS-NET-SHARED", SETTING_LOG_ERROR,                                                      \
		"cannot use UCX for connections to other hosts: %s: %s. /dev/shm has only %llu " \
		"bytes free, and UCX keeps its shared memory there"
#define MESSAGE_NET_MEMORY \
	"LS-NET-MEMORY", SETTING_LOG_ERROR, "no memory for connections to %d ranks"
#define MESSAGE_NET_HOST                                                                                 \
	"LS-NET-HOST", SETTING_LOG_ERROR,                                                                \
		"this host came to the rendezvous from '%s', at which other hosts cannot reach it: let " \
		"MASTER_ADDR, on all ranks, be an address of rank 0's host in the job's network"
#define MESSAGE_NET_PEER \
	"LS-NET-PEER", SETTING_LOG_ERROR, "cannot connect to rank %d on another host: %s"
#define MESSAGE_NET_BROKEN                                                                          \
	"LS-NET-BROKEN", SETTING_LOG_ERROR,                                                         \
		"the connection to rank %d on another host broke before all ranks were connected: " \
		"%s. Whether that rank has ended is not known here: see what all ranks printed"

/* ---- rendezvous ---- */
#define MESSAGE_PLACE "LS-PLACE", SETTING_LOG_ERROR, "%s"
#define MESSAGE_WRONG_WORLD_SIZE "LS-WRONG-WORLD-SIZE", SETTING_LOG_ERROR, "%s"
#define MESSAGE_DUPLICATE_RANK "LS-DUPLICATE-RANK", SETTING_LOG_ERROR, "%s"
#define MESSAGE_RANK_MISSING "LS-RANK-MISSING", SETTING_LOG_ERROR, "%s"
#define MESSAGE_PORT_TAKEN "LS-PORT-TAKEN", SETTING_LOG_ERROR, "%s"
#define MESSAGE_NO_MASTER "LS-NO-MASTER", SETTING_LOG_ERROR, "%s"
#define MESSAGE_UNTRUSTED_PEER "LS-UNTRUSTED-PEER", SETTING_LOG_ERROR, "%s"
#define MESSAGE_WRONG_VERSION "LS-WRONG-VERSION", SETTING_LOG_ERROR, "%s"
#define MESSAGE_MEETING_INTERRUPTED "LS-MEETING-INTERRUPTED", SETTING_LOG_ERROR, "%s"
#define MESSAGE_OPEN_FAILED "LS-OPEN-FAILED", SETTING_LOG_ERROR, "%s"
#define MESSAGE_OPEN_STOPPED                 \
	"LS-OPEN-STOPPED", SETTING_LOG_WARN, \
		"rank %d (pid %d) is stopped, and ls_group_open waits for it: kill -CONT %d lets it go on"
#define MESSAGE_RENDEZVOUS "LS-RENDEZVOUS", SETTING_LOG_ERROR, "%s"

/* ---- engine ---- */
#define MESSAGE_ENGINE_MEMORY                  \
	"LS-ENGINE-MEMORY", SETTING_LOG_ERROR, \
		"no memory for the steps of collectives (up to %zu each), so no group is made"

#define MESSAGE_ENGINE_MAILBOX                  \
	"LS-ENGINE-MAILBOX", SETTING_LOG_ERROR, \
		"no memory for the messages of this group (%zu bytes); the group was not opened"

#define MESSAGE_TABLE_FILE \
	"LS-TABLE-FILE", SETTING_LOG_ERROR, "cannot read '%s', which LOCKSTEP_TABLE names: %s"
#define MESSAGE_TABLE_LINE "LS-TABLE-LINE", SETTING_LOG_ERROR, "%s, line %d: %s"

/* ---- group ---- */
#define MESSAGE_GROUP_ARGUMENT \
	"LS-GROUP-ARGUMENT", SETTING_LOG_ERROR, "%s: %s is %s, but must be %s%s"
#define MESSAGE_GROUP_WATCH                 \
	"LS-GROUP-WATCH", SETTING_LOG_WARN, \
		"cannot watch rank %d (pid %d): %s; if it dies, calls that need it wait until their time limit"
#define MESSAGE_GROUP_THREAD                  \
	"LS-GROUP-THREAD", SETTING_LOG_ERROR, \
		"cannot start a thread that the group needs, so the group is not opened: %s"
#define MESSAGE_GROUP_MEMORY \
	"LS-GROUP-MEMORY", SETTING_LOG_ERROR, "%s: no memory (%zu bytes), so no group is made"
#define MESSAGE_GROUP_REDUCE \
	"LS-GROUP-REDUCE", SETTING_LOG_ERROR, "%s: %s is not defined for elements of %s%s"
#define MESSAGE_GROUP_PROGRESS \
	"LS-GROUP-PROGRESS", SETTING_LOG_ERROR, "cannot start the progress thread: %s"
#define MESSAGE_RACE_OVERLAP                  \
	"LS-RACE-OVERLAP", SETTING_LOG_ERROR, \
		"%s%s%s %s the %llu bytes at %p while %s%s%s may still %s them. %s"
#define MESSAGE_RACE_FREE                  \
	"LS-RACE-FREE", SETTING_LOG_ERROR, \
		"%s%s %s the block at %p while %s%s%s may still %s %llu bytes of it. %s"
#define MESSAGE_RACE_FREED                                                                     \
	"LS-RACE-FREED", SETTING_LOG_ERROR,                                                    \
		"%s%s%s uses the memory at %p, which %s%s has freed. Free it after the call; " \
		"streams that use it may still have work then"
#define MESSAGE_RACE_CHANGED                  \
	"LS-RACE-CHANGED", SETTING_LOG_ERROR, \
		"the program has changed the buffer that %s sends, or has unmapped it, before the operation was complete. Wait for it first: by ls_wait, ls_test or its callback"
#define MESSAGE_RACE_NONE                                                                            \
	"LS-RACE-NONE", SETTING_LOG_ERROR,                                                           \
		"ls_group_open: no memory (%zu bytes) to look for operations that touch one buffer " \
		"at the same time (LOCKSTEP_CHECK=1)"
#define MESSAGE_GROUP_DEVICE                                                                         \
	"LS-GROUP-DEVICE", SETTING_LOG_WARN,                                                         \
		"%s has failed, but a device still uses its buffers; the call, or the wait for its " \
		"handle, returns once the device is done"
#define MESSAGE_GROUP_HAND_OVER                                                               \
	"LS-GROUP-HAND-OVER", SETTING_LOG_WARN,                                               \
		"cannot start another progress thread while this one ends an operation that " \
		"failed: %s"
#define MESSAGE_GROUP_HANDLES \
	"LS-GROUP-HANDLES", SETTING_LOG_ERROR, "cannot begin an operation%s: %s"
#define MESSAGE_GROUP_LAUNCH_LEFT                  \
	"LS-GROUP-LAUNCH-LEFT", SETTING_LOG_ERROR, \
		"a thread has ended in the launch that it began by ls_launch_begin%s: it has not called ls_launch_end. The launch ends here"
#define MESSAGE_GROUP_HANDLES_LEFT                 \
	"LS-GROUP-HANDLES-LEFT", SETTING_LOG_WARN, \
		"the group is closed, but %ld handle%s not freed%s%s%s"
#define MESSAGE_GROUP_CLOSE_PENDING                                                                      \
	"LS-GROUP-CLOSE-PENDING", SETTING_LOG_ERROR,                                                     \
		"the group fails on all ranks, as this rank closes it while %ld operation%s under way: " \
		"%s%s; %s given up"
#define MESSAGE_GROUP_LOST \
	"LS-GROUP-LOST", SETTING_LOG_WARN, "rank %d has closed the group and never received %s%s"
#define MESSAGE_GROUP_LEFT_OPEN                 \
	"LS-GROUP-LEFT-OPEN", SETTING_LOG_WARN, \
		"the world group is closed while %d other group%s open: %s%s"
#define MESSAGE_GROUP_BUFFERED                                                                                     \
	"LS-GROUP-BUFFERED", SETTING_LOG_WARN,                                                                     \
		"%s before %s (tag %d, received at %s): this works only because the messages are short enough to " \
		"be buffered; %s"
#define MESSAGE_GROUP_DROPPED                 \
	"LS-GROUP-DROPPED", SETTING_LOG_WARN, \
		"the handle of %s was freed (ls_request_free%s), but its status was never read"
#define MESSAGE_GROUP_PART                  \
	"LS-GROUP-PART", SETTING_LOG_ERROR, \
		"%s: no rank gets a group, because rank %d could not take part (%s); it says why"
#define MESSAGE_GROUP_LISTS                                                  \
	"LS-GROUP-LISTS", SETTING_LOG_ERROR,                                 \
		"%s: ranks make different groups here: %s; %s; if both are " \
		"intended, these ranks make them in different orders"
#define MESSAGE_GROUP_MANY                                                                              \
	"LS-GROUP-MANY", SETTING_LOG_ERROR,                                                             \
		"%s: no group is made: this rank is in %d groups already, which is the limit; a group " \
		"counts until all its members have closed it"
#define MESSAGE_GROUP_TRACE                 \
	"LS-GROUP-TRACE", SETTING_LOG_WARN, \
		"cannot read the trace of rank %d, so reports will say little about it: %s"
/* Reports of several lines: message_report prints them as they are. */
#define MESSAGE_VERDICT "LS-VERDICT", SETTING_LOG_ERROR, "%s"
#define MESSAGE_WAITING "LS-WAITING", SETTING_LOG_WARN, "%s"

/* ---- ddp ---- */
#define MESSAGE_DDP_ARGUMENT \
	"LS-DDP-ARGUMENT", SETTING_LOG_ERROR, "%s: %s is %lld, but must be %s%s"
#define MESSAGE_DDP_MEMORY \
	"LS-DDP-MEMORY", SETTING_LOG_ERROR, "%s: no memory for the data of the call (%zu bytes)"
#define MESSAGE_DDP_INCONSISTENT                  \
	"LS-DDP-INCONSISTENT", SETTING_LOG_ERROR, \
		"ls_ddp_open: the models are not the same: parameter %llu is %s"
#define MESSAGE_DDP_BUCKETS                                                                              \
	"LS-DDP-BUCKETS", SETTING_LOG_ERROR,                                                             \
		"ls_ddp_open: sizes of buckets differ (first one, others): %llu and %llu bytes on rank " \
		"%d, %llu and %llu on rank %d"
#define MESSAGE_DDP_READY_TWICE                  \
	"LS-DDP-READY-TWICE", SETTING_LOG_ERROR, \
		"ls_ddp_ready: parameter '%s' is ready already in this step"
#define MESSAGE_DDP_PASSES                                                                      \
	"LS-DDP-PASSES", SETTING_LOG_ERROR,                                                     \
		"ls_ddp_finish: gradients of backward pass %llu of rank %d were averaged with " \
		"those of rank %d's pass %llu: ls_ddp_no_sync differs"
#define MESSAGE_DDP_MODELS                  \
	"LS-DDP-MODELS", SETTING_LOG_ERROR, \
		"ls_ddp_finish: rank %d averaged %s with gradients of another ls_ddp on rank %d"
#define MESSAGE_DDP_ORDER                                                                                 \
	"LS-DDP-ORDER", SETTING_LOG_ERROR,                                                                \
		"ls_ddp_finish: ranks %d and %d took earlier steps of the group's ls_ddp in a different " \
		"order"
#define MESSAGE_JOIN_UNEVEN                  \
	"LS-JOIN-UNEVEN", SETTING_LOG_ERROR, \
		"uneven inputs: %s ended after %llu batch%s, while %s ha%s more"
#define MESSAGE_SAMPLER_MEMORY \
	"LS-SAMPLER-MEMORY", SETTING_LOG_ERROR, "no memory to shuffle %llu samples, 8 bytes each"
#define MESSAGE_PHASE_NAME                                                                      \
	"LS-PHASE-NAME", SETTING_LOG_ERROR,                                                     \
		"ls_phase_begin: '%s' is not a phase name: 1 to %d characters, no blanks, and " \
		"parts between single slashes%s"
#define MESSAGE_PHASE_INSIDE                                                                \
	"LS-PHASE-INSIDE", SETTING_LOG_ERROR,                                               \
		"ls_phase_begin: '%s' cannot begin inside '%s', which this thread has not " \
		"ended; names of phases inside it begin with '%s/'%s"
#define MESSAGE_PHASE_END                  \
	"LS-PHASE-END", SETTING_LOG_ERROR, \
		"ls_phase_end: '%s' cannot end here: this thread is in %s%s%s%s"
#define MESSAGE_PHASE_MANY "LS-PHASE-MANY", SETTING_LOG_ERROR, "ls_phase_begin: '%s': %s%s"
#define MESSAGE_PHASE_MEMORY                  \
	"LS-PHASE-MEMORY", SETTING_LOG_ERROR, \
		"ls_phase_report: no memory to compare %d ranks (%zu bytes)"

/* ---- cli ---- */
#define MESSAGE_OUTPUT "LS-OUTPUT", SETTING_LOG_ERROR, "cannot write to standard output: %s"
#define MESSAGE_USAGE "LS-USAGE", SETTING_LOG_ERROR, "%s%s%s; see 'lockstep%s%s --help'"
#define MESSAGE_RUN_SYSTEM \
	"LS-RUN-SYSTEM", SETTING_LOG_ERROR, "the job cannot be started: %s failed: %s"
#define MESSAGE_RUN_START \
	"LS-RUN-START", SETTING_LOG_ERROR, "rank %d cannot be started: %s failed: %s"
#define MESSAGE_RUN_NOT_FOUND "LS-RUN-NOT-FOUND", SETTING_LOG_ERROR, "cannot run '%s': %s"
#define MESSAGE_RUN_CANNOT_EXECUTE "LS-RUN-CANNOT-EXECUTE", SETTING_LOG_ERROR, "cannot run '%s': %s"
#define MESSAGE_RUN_LOG "LS-RUN-LOG", SETTING_LOG_ERROR, "cannot write to %s: %s"
#define MESSAGE_RUN_LINE_LOST                  \
	"LS-RUN-LINE-LOST", SETTING_LOG_ERROR, \
		"no memory for a line of rank %d (%zu bytes): the line is lost"
#define MESSAGE_RUN_WITNESS                 \
	"LS-RUN-WITNESS", SETTING_LOG_WARN, \
		"no memory, or no descriptor, to keep the state of all ranks"
#define MESSAGE_RUN_FAILED "LS-RUN-FAILED", SETTING_LOG_ERROR, "%s"
#define MESSAGE_RUN_AT_CLOSE                                                                        \
	"LS-RUN-AT-CLOSE", SETTING_LOG_ERROR,                                                       \
		"all ranks exited with 0, but when rank %d closed a group it found that something " \
		"had gone wrong in it; its report is above"
#define MESSAGE_RUN_TIMEOUT "LS-RUN-TIMEOUT", SETTING_LOG_ERROR, "%s"
#define MESSAGE_RUN_SNAPSHOT                  \
	"LS-RUN-SNAPSHOT", SETTING_LOG_ERROR, \
		"the state of all ranks was kept; see it with: lockstep diagnose %s"
#define MESSAGE_RUN_SNAPSHOT_FAILED \
	"LS-RUN-SNAPSHOT-FAILED", SETTING_LOG_ERROR, "cannot keep the state of the ranks in %s: %s"
#define MESSAGE_RUN_TRACE_FAILED \
	"LS-RUN-TRACE-FAILED", SETTING_LOG_ERROR, "cannot keep the traces in %s: %s"
#define MESSAGE_RUN_HOST "LS-RUN-HOST", SETTING_LOG_ERROR, "host %s: %s"
#define MESSAGE_RUN_HOSTS \
	"LS-RUN-HOSTS", SETTING_LOG_ERROR, "no rank was started, because of %d of %d hosts: %s"
#define MESSAGE_RUN_CUT                                                                                 \
	"LS-RUN-CUT", SETTING_LOG_ERROR,                                                                \
		"nothing has come from the launcher for %.1f s, and its host has acknowledged nothing " \
		"that was sent to it meanwhile, so the ranks of this host end"
#define MESSAGE_RUN_HOST_LOST \
	"LS-RUN-HOST-LOST", SETTING_LOG_ERROR, "the connection to host %s (%s) has ended: %s"
#define MESSAGE_RUN_STACK                                                                    \
	"LS-RUN-STACK", SETTING_LOG_ERROR,                                                   \
		"the limit of the stack is %llu KiB (ulimit -Hs), and lockstep run needs %d" \
		" KiB: raise it"
#define MESSAGE_RUN_HOST_AWAITED                 \
	"LS-RUN-HOST-AWAITED", SETTING_LOG_WARN, \
		"host %s: has not answered for %d s; the launcher waits for up to %d s"
#define MESSAGE_RUN_HOST_SILENT                                                            \
	"LS-RUN-HOST-SILENT", SETTING_LOG_WARN,                                            \
		"host %s (%s): nothing has come from its daemon for %.1f s; whether its "  \
		"ranks still run is not known. After %.4g s without a sign of it the job " \
		"fails"
#define MESSAGE_RUN_HOST_HEARD                 \
	"LS-RUN-HOST-HEARD", SETTING_LOG_WARN, \
		"host %s (%s): its daemon answers again, after %.1f s; the job goes on"
#define MESSAGE_RUN_HOST_GIVEN_UP                                                              \
	"LS-RUN-HOST-GIVEN-UP", SETTING_LOG_ERROR,                                             \
		"host %s (%s): nothing has come from its daemon for %.1f s, so the job has "   \
		"failed. Whether its ranks still run is not known; its daemon ends them when " \
		"it learns that the connection is closed"
#define MESSAGE_RUN_FOLDER                  \
	"LS-RUN-FOLDER", SETTING_LOG_ERROR, \
		"there is no working directory '%s' here (%s): ranks of all hosts have the launcher's"
#define MESSAGE_RUN_CHANNEL                  \
	"LS-RUN-CHANNEL", SETTING_LOG_ERROR, \
		"what comes on standard input is not from lockstep run --hosts, which starts this command"
#define MESSAGE_DIAGNOSE_NOTHING \
	"LS-DIAGNOSE-NOTHING", SETTING_LOG_ERROR, "found no job%s%s on this machine%s"
#define MESSAGE_DIAGNOSE_FILE "LS-DIAGNOSE-FILE", SETTING_LOG_ERROR, "cannot read '%s': %s"
#define MESSAGE_DIAGNOSE_PROC \
	"LS-DIAGNOSE-PROC", SETTING_LOG_ERROR, "cannot list processes: /proc: %s"
#define MESSAGE_DIAGNOSE_MEMORY \
	"LS-DIAGNOSE-MEMORY", SETTING_LOG_ERROR, "not enough memory to look at all jobs"
#define MESSAGE_TIMELINE_OUTPUT \
	"LS-TIMELINE-OUTPUT", SETTING_LOG_ERROR, "cannot write the picture to %s: %s"
#define MESSAGE_BENCH_WRONG "LS-BENCH-WRONG", SETTING_LOG_ERROR, "a result is wrong: %s"
#define MESSAGE_PLAN_FAILED "LS-PLAN-FAILED", SETTING_LOG_ERROR, "cannot make the plan: %s"

/* ---- python: said there, python/lockstep/torch/_mapped.py ---- */
#define MESSAGE_DDP_MAPPED                                                                               \
	"LS-DDP-MAPPED", SETTING_LOG_INFO,                                                               \
		"gradients of DistributedDataParallel are views of buckets that the other ranks reach; " \
		"a backward pass overwrites gradients that the program has kept: clone them"

#endif
