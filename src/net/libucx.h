/* SPDX-License-Identifier: BSD-3-Clause
 * UCX, loaded if it is installed. Only its headers are needed to build. For files of this room. */
#ifndef NET_LIBUCX_H
#define NET_LIBUCX_H

#include <ucp/api/ucp.h>
#include <ucs/async/async_fwd.h>

/* The functions that are used of libucp, and of libucs, which comes with it. */
#define NET_LIBRARY_CALLS(CALL)              \
	CALL(ucp_am_data_release)            \
	CALL(ucp_am_recv_data_nbx)           \
	CALL(ucp_am_send_nbx)                \
	CALL(ucp_cleanup)                    \
	CALL(ucp_config_modify)              \
	CALL(ucp_config_read)                \
	CALL(ucp_config_release)             \
	CALL(ucp_conn_request_query)         \
	CALL(ucp_ep_close_nbx)               \
	CALL(ucp_ep_create)                  \
	CALL(ucp_init_version)               \
	CALL(ucp_listener_create)            \
	CALL(ucp_listener_destroy)           \
	CALL(ucp_listener_query)             \
	CALL(ucp_listener_reject)            \
	CALL(ucp_request_free)               \
	CALL(ucp_worker_arm)                 \
	CALL(ucp_worker_create)              \
	CALL(ucp_worker_destroy)             \
	CALL(ucp_worker_get_address)         \
	CALL(ucp_worker_get_efd)             \
	CALL(ucp_worker_progress)            \
	CALL(ucp_worker_release_address)     \
	CALL(ucp_worker_set_am_recv_handler) \
	CALL(ucs_async_remove_handler)       \
	CALL(ucs_status_string)

struct net_library {
#define NET_LIBRARY_FIELD(name) __typeof__ (&(name))(name);
	NET_LIBRARY_CALLS(NET_LIBRARY_FIELD)
#undef NET_LIBRARY_FIELD
};

/* NULL, with a message, if UCX cannot be loaded. The first call loads UCX, tamed: UCX patches no
 * function of the C library, installs no signal handler and prints nothing. If something else has
 * loaded UCX before, a message says once that UCX may not be tame. Nothing unloads it. */
const struct net_library *net_library_get(void);

#endif
