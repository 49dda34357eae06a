/* SPDX-License-Identifier: BSD-3-Clause
 * Checks of arguments and options, and the messages about wrong ones. */
#ifndef GROUP_ARGUMENTS_H
#define GROUP_ARGUMENTS_H

#include <lockstep/group.h>
#include <lockstep/request.h>
#include <lockstep/types.h>

/* Prints which argument of which call is wrong, in which state it is ("NULL", "in a batch"), and
 * what would be right. Returns LS_BAD_ARGUMENT. */
ls_status group_bad_state(const char *function, const char *argument, const char *state,
			  const char *right);
/* As group_bad_state; `state` is the argument's value. */
ls_status group_bad(const char *function, const char *argument, long long value, const char *right);
/* Whether ls_group_close has closed the group, also with its world. Reads nothing that a close
 * frees. */
bool group_is_closed(const ls_group *group);
/* What a call returns on a group that this process cannot use: LS_BAD_ARGUMENT, after a message:
 * the group was closed; LS_FORKED: it belongs to the process that forked this one. */
ls_status group_not_open(const char *function, const ls_group *group);
/* Fills *out with the defaults, replaced by the caller's options. A shorter struct is from an older
 * header: fields that it lacks have their defaults. A longer one, from a newer header, is
 * refused. */
ls_status group_read_options(const char *function, const struct ls_call_options *options,
			     struct ls_call_options *out);
/* How messages about the arguments of a call begin: with its label, if it has one, because users of
 * other languages know neither the C function nor its caller; otherwise with `function`. */
const char *group_caller(const char *function, const struct ls_call_options *options);
ls_status group_check_rank(const char *function, const char *name, const ls_group *group, int rank);
/* For a call with so many elements that no memory has room for them. */
ls_status group_bad_count(const char *function, uint64_t count);
/* Checks that count elements fit into memory. */
ls_status group_check_count(const char *function, ls_dtype dtype, uint64_t count);

#endif
