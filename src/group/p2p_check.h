/* SPDX-License-Identifier: BSD-3-Clause
 * Calls on messages, in the form that all of them have in common, and the checks of their
 * arguments. Errors come with a message. */
#ifndef GROUP_P2P_CHECK_H
#define GROUP_P2P_CHECK_H

#include "progress/progress.h"

struct group_p2p_call {
	const char *name;
	const void *site;
	struct op_call base;
	uint64_t access; /* of races/races.h; 0: none, or an operation has it */
	void **block;    /* a receive into a block; NULL: into the buffer */
	bool hands_over_block;
	bool internal; /* the library's own: never ordered, always cancellable */
};

/* Fills in the options of the call and defaults, then checks the group. LS_ANY_TAG is only for
 * receives and probes. */
LS_CHECKED ls_status group_p2p_begin(const struct group_p2p_call *call, ls_group *group,
				     const struct ls_call_options *given,
				     struct ls_call_options *options);
LS_CHECKED ls_status group_p2p_check(const struct group_p2p_call *call, const ls_group *group,
				     const struct ls_call_options *options);
/* Checks a probe: its peer, and that it has no stream. */
LS_CHECKED ls_status group_p2p_check_probe(const struct group_p2p_call *call, ls_group *group,
					   const struct ls_call_options *given,
					   struct ls_call_options *options,
					   const struct ls_message *out);
/* Checks that the buffer may be used after the call returns. */
LS_CHECKED ls_status group_p2p_check_nonblocking(ls_group *group, const struct group_p2p_call *call,
						 const struct ls_call_options *options);
/* Checks that the call may have the stream that it names. */
LS_CHECKED ls_status group_p2p_check_stream(ls_group *group, const struct group_p2p_call *call,
					    const struct ls_call_options *options);
/* Setting P2P=serial. is_serial: the call is a send that other sends may delay. is_ordered: the
 * send waits for the sends before it. */
bool group_p2p_is_serial(const ls_group *group, const struct group_p2p_call *call);
bool group_p2p_is_ordered(const ls_group *group, const struct group_p2p_call *call);

#endif
