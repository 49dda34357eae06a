/* SPDX-License-Identifier: BSD-3-Clause
 * What callers pass, and what is said of it. */
#ifndef GROUP_ARGUMENTS_H
#define GROUP_ARGUMENTS_H

#include <lockstep/group.h>
#include <lockstep/op.h>
#include <lockstep/types.h>

/* LS_BAD_ARGUMENT, after saying which argument of which call is wrong and what would be right. */
ls_status group_bad(const char *call, const char *argument, long long value, const char *right);
/* The caller's options over the defaults. A struct of another size is from an older or newer
 * header: what it lacks has its default, and what this library does not know must not be asked
 * for. */
ls_status group_read_options(const char *call, const struct ls_op_options *options,
			     struct ls_op_options *out);
/* What messages about the arguments of a call begin with: its label, if it has one, as that stands
 * for its place in programs of other languages, whose users know neither the function nor who
 * called it in C. */
const char *group_caller(const char *call, const struct ls_op_options *options);
ls_status group_check_rank(const char *call, const char *name, const ls_group *group, int rank);
/* count elements fit into memory. */
ls_status group_check_count(const char *call, ls_dtype dtype, uint64_t count);

#endif
