/* SPDX-License-Identifier: BSD-3-Clause
 * Makes and frees one end of the link: UCX's context and worker, and the table of functions. */
#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/open_limit.h"
#include "base/wait.h"
#include "net/peer.h"

enum { SHARED_BYTES = 16 << 20 }; /* more than UCX needs for a rank */

static const struct link_ops ucx_ops = {
	.name = "ucx",
	.connect = net_connect,
	.post = net_post,
	.store = net_store,
	.push = net_push,
	.fetch = net_fetch,
	.advance = net_advance,
	.arm = net_arm,
	.flush = net_flush,
	.cut = net_cut,
	.close = net_close,
};

/* UCX's transports within a host keep megabytes in /dev/shm; of a full one UCX says only that it
 * has no memory. */
static bool lacks_shared_memory(const struct net *net, unsigned long long *free_bytes)
{
	struct statvfs folder;
	if (net->options.transports || statvfs("/dev/shm", &folder) != 0)
		return false;
	*free_bytes = (unsigned long long)folder.f_bavail * folder.f_frsize;
	return *free_bytes < SHARED_BYTES;
}

static ls_status say_failed(const struct net *net, const char *what, ucs_status_t status)
{
	if (open_limit_is_reached())
		return net_say_limit(net);
	const char *why = net->ucx->ucs_status_string(status);
	unsigned long long free_bytes;
	if (lacks_shared_memory(net, &free_bytes))
		MESSAGE_SAY(MESSAGE_NET_SHARED, what, why, free_bytes);
	else
		MESSAGE_SAY(MESSAGE_NET_SYSTEM, what, why);
	return status == UCS_ERR_NO_MEMORY ? LS_OUT_OF_MEMORY : LS_SYSTEM;
}

/* ---- UCX's objects ---- */

static const struct sockaddr *sockaddr_of(const struct net_address *address)
{
	return (const struct sockaddr *)(const void *)address->data;
}

static bool is_same_address(const struct sockaddr *one, const struct sockaddr *other)
{
	if (one->sa_family == AF_INET)
		return memcmp(&((const struct sockaddr_in *)one)->sin_addr,
			      &((const struct sockaddr_in *)other)->sin_addr, 4) == 0;
	return memcmp(&((const struct sockaddr_in6 *)one)->sin6_addr,
		      &((const struct sockaddr_in6 *)other)->sin6_addr, 16) == 0;
}

static bool is_link_local(const struct sockaddr *one)
{
	return one->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)one)->sin6_addr);
}

/* The device that has this address; its name is "" if there is none. Returns the first address of
 * the same family there that is not link-local. */
static const struct ifaddrs *find_device(const struct ifaddrs *all, const struct sockaddr *wanted,
					 char name[IF_NAMESIZE])
{
	name[0] = '\0';
	for (const struct ifaddrs *one = all; one && !name[0]; one = one->ifa_next)
		if (one->ifa_addr && one->ifa_addr->sa_family == wanted->sa_family &&
		    is_same_address(one->ifa_addr, wanted))
			snprintf(name, IF_NAMESIZE, "%.*s", (int)strcspn(one->ifa_name, ":"),
				 one->ifa_name); /* behind a colon is the address' label */
	for (const struct ifaddrs *one = all; one; one = one->ifa_next)
		if (one->ifa_addr && one->ifa_addr->sa_family == wanted->sa_family &&
		    strcmp(one->ifa_name, name) == 0 && !is_link_local(one->ifa_addr))
			return one;
	return NULL;
}

/* UCX would add connections through other networks of this host, which peers may not reach. So this
 * function gives UCX only the device that has the host's address. For its connections UCX takes the
 * first address of that device, whatever the host's address is. So that first address becomes the
 * host's. */
static void choose_device(struct net *net, struct net_address *host)
{
	struct ifaddrs *all;
	/* Devices that are not TCP's have other names. */
	if (!net->options.transports || strcmp(net->options.transports, "tcp") != 0 ||
	    getifaddrs(&all) != 0)
		return;
	const struct ifaddrs *first = find_device(all, sockaddr_of(host), net->device);
	if (first)
		memcpy(host->data, first->ifa_addr, host->bytes);
	freeifaddrs(all);
}

/* Settings that override the user's. A version of UCX that does not know a timer's setting does not
 * have the timer. Settings of TCP are here twice: before 1.17 UCX takes them only without the word
 * TCP in front. */
static void configure_ucx(const struct net *net, const struct net_address *host,
			  ucp_config_t *config)
{
	/* If a device has addresses of both families, UCX 1.13 would make room for an IPv4 address
	 * of a peer, and write the peer's IPv6 address there. */
	/* Two ways in which UCX 1.13 sends long payloads end the process by an assertion. One is
	 * puts of TCP, when many go to and fro: tcp_ep.c, UCT_TCP_EP_FLAG_PUT_TX_WAITING_ACK. The
	 * other is messages whose bytes UCX does not copy, when their peer is cut off: uct_iface.h,
	 * comp->count > 0. */
	/* UCX must not connect in calls that block. They would hold up this rank for minutes if the
	 * peer's host has just gone. And if the peer breaks such a connection and refuses the next
	 * one, UCX 1.13 ends the process by an assertion (tcp_ep.c, uct_tcp_ep_destroy_progress).
	 */
	/* UCX's TCP makes a system call for each segment that it sends, of 8 KiB by default. 32 KiB
	 * with all headers fit into segments of these sizes. Longer segments are no faster, because
	 * they leave the processor's caches. No segment may be longer than a peer takes, so these
	 * settings override both sizes, whatever the user has set. */
	const char *family = sockaddr_of(host)->sa_family == AF_INET6 ? "inet6" : "inet";
	const char *settings[][2] = {{"KEEPALIVE_INTERVAL", "inf"},
				     {"TCP_KEEPIDLE", "inf"},
				     {"KEEPIDLE", "inf"},
				     {"TCP_AF_PRIO", family},
				     {"AF_PRIO", family},
				     {"TCP_CONN_NB", "y"},
				     {"CONN_NB", "y"},
				     {"TCP_PUT_ENABLE", "n"},
				     {"PUT_ENABLE", "n"},
				     {"TCP_TX_SEG_SIZE", "36k"},
				     {"TX_SEG_SIZE", "36k"},
				     {"TCP_RX_SEG_SIZE", "72k"},
				     {"RX_SEG_SIZE", "72k"},
				     {"ZCOPY_THRESH", net->options.transports ? "inf" : NULL},
				     {"MAX_EAGER_LANES", "1"},
				     {"MAX_RNDV_LANES", "1"},
				     {"NET_DEVICES", net->device[0] ? net->device : NULL},
				     {"TLS", net->options.transports}};
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
		if (settings[i][1])
			(void)net->ucx->ucp_config_modify(config, settings[i][0], settings[i][1]);
}

static ls_status make_context(struct net *net, const struct net_address *host)
{
	const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
						   UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
						   UCP_PARAM_FIELD_MT_WORKERS_SHARED,
				     .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
				     .estimated_num_eps = (size_t)net->link.size};
	ucp_config_t *config;
	ucs_status_t status = net->ucx->ucp_config_read(NULL, NULL, &config);
	if (status != UCS_OK)
		return say_failed(net, "ucp_config_read", status);
	configure_ucx(net, host, config);
	status = net->ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config,
					    &net->context);
	net->ucx->ucp_config_release(config);
	if (status == UCS_OK)
		return LS_OK;
	net->context = NULL;
	return say_failed(net, "ucp_init", status);
}

static ls_status make_worker(struct net *net)
{
	/* One thread at a time, but any. */
	const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
							  UCP_WORKER_PARAM_FIELD_CLIENT_ID,
					    .thread_mode = UCS_THREAD_MODE_SERIALIZED,
					    .client_id = net_client_id(net, net->link.rank)};
	const uint64_t fields = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
				UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
	const ucp_am_handler_param_t handlers[] = {
		{.field_mask = fields, .id = NET_AM, .cb = net_on_message, .arg = net},
		{.field_mask = fields,
		 .id = NET_AM_EAGER,
		 .flags = UCP_AM_FLAG_WHOLE_MSG,
		 .cb = net_on_eager,
		 .arg = net},
	};
	const struct net_library *ucx = net->ucx;
	net_note_listeners(net);
	ucs_status_t status = ucx->ucp_worker_create(net->context, &params, &net->worker);
	if (status != UCS_OK) {
		net->worker = NULL;
		return say_failed(net, "ucp_worker_create", status);
	}
	net_find_listener(net);
	for (int i = 0; i < 2 && status == UCS_OK; i++)
		status = ucx->ucp_worker_set_am_recv_handler(net->worker, &handlers[i]);
	if (status == UCS_OK)
		status = ucx->ucp_worker_get_efd(net->worker, &net->ucx_fd);
	if (status != UCS_OK)
		return say_failed(net, "ucp_worker_get_efd", status);
	return LS_OK;
}

/* Listens at this address, on a port that is free. */
static ls_status listen_at(struct net *net, const struct net_address *host)
{
	const struct net_library *ucx = net->ucx;
	const ucp_listener_params_t params = {
		.field_mask =
			UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = {.addr = sockaddr_of(host), .addrlen = (socklen_t)host->bytes},
		.conn_handler = {.cb = net_on_request, .arg = net}};
	ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
	ucs_status_t status = ucx->ucp_listener_create(net->worker, &params, &net->listener);
	if (status != UCS_OK) {
		net->listener = NULL;
		return say_failed(net, "ucp_listener_create", status);
	}
	status = ucx->ucp_listener_query(net->listener, &attributes);
	if (status != UCS_OK)
		return say_failed(net, "ucp_listener_query", status);
	net->address.bytes = host->bytes;
	memcpy(net->address.data, &attributes.sockaddr, host->bytes);
	return LS_OK;
}

/* ---- UCX's thread ---- */

enum { THREADS_MAX = 4096 };

/* The threads of this process with the name that UCX gives its own. */
static int find_threads(uint32_t *out)
{
	DIR *tasks = opendir("/proc/self/task");
	int count = 0;
	for (const struct dirent *task; tasks && (task = readdir(tasks));) {
		char path[64], name[16] = "";
		snprintf(path, sizeof path, "/proc/self/task/%.10s/comm", task->d_name);
		FILE *file = fopen(path, "re");
		bool read = file && fgets(name, sizeof name, file);
		if (file)
			fclose(file);
		if (read && strcmp(name, "async\n") == 0 && count < THREADS_MAX)
			out[count++] = (uint32_t)strtoul(task->d_name, NULL, 10);
	}
	if (tasks)
		closedir(tasks);
	return count;
}

/* The only thread that was not there before; 0: there is none, or there are several. */
static uint32_t find_new_thread(const uint32_t *before, int count)
{
	uint32_t now[THREADS_MAX], found = 0;
	int now_count = find_threads(now), news = 0;
	for (int i = 0; i < now_count; i++) {
		bool old = false;
		for (int j = 0; j < count; j++)
			old = old || before[j] == now[i];
		news += !old;
		found = old ? found : now[i];
	}
	return news == 1 ? found : 0;
}

static void *end_at_once(void *unused)
{
	return unused;
}

/* If UCX cannot start its thread, an assertion of UCX ends the process. */
static ls_status check_thread(void)
{
	pthread_t thread;
	int error = pthread_create(&thread, NULL, end_at_once, NULL);
	if (error) {
		MESSAGE_SAY(MESSAGE_GROUP_THREAD, strerror(error));
		return LS_OUT_OF_MEMORY;
	}
	wait_join(thread);
	return LS_OK;
}

/* ---- life ---- */

static struct net *new_net(const struct net_options *options)
{
	size_t peers = (size_t)options->size;
	struct net *net = calloc(1, sizeof *net + peers * sizeof net->peers[0]);
	if (!net)
		return NULL;
	net->options = *options;
	net->ended_end = &net->ended;
	net->link = (struct link){
		.ops = &ucx_ops, .state = net, .rank = options->rank, .size = options->size};
	net->poll_fd = net->payload_listener = -1;
	for (int q = 0; q < options->size; q++) {
		net->peers[q].net = net;
		net->peers[q].rank = q;
		net_send_init(&net->peers[q]);
	}
	return net;
}

static void free_net(struct net *net)
{
	net_stop_listening(net);
	net_forget_listener(net);
	net_stop_listening_for_payloads(net);
	if (net->poll_fd >= 0)
		close(net->poll_fd);
	if (net->worker)
		net->ucx->ucp_worker_destroy(net->worker);
	if (net->context)
		net->ucx->ucp_cleanup(net->context);
	free(net);
}

/* The address with port 0. */
static ls_status read_host(const char *text, struct net_address *out)
{
	struct sockaddr_in four = {.sin_family = AF_INET};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	*out = (struct net_address){.bytes = 0};
	if (inet_pton(AF_INET, text, &four.sin_addr) == 1) {
		out->bytes = sizeof four;
		memcpy(out->data, &four, sizeof four);
	} else if (inet_pton(AF_INET6, text, &six.sin6_addr) == 1) {
		out->bytes = sizeof six;
		memcpy(out->data, &six, sizeof six);
	} else {
		MESSAGE_SAY(MESSAGE_NET_HOST, text);
		return LS_BAD_ARGUMENT;
	}
	return LS_OK;
}

static ls_status open_net(const struct net_options *options, struct link **link)
{
	struct net_address host;
	ls_status status = read_host(options->host, &host);
	if (status != LS_OK)
		return status;
	const struct net_library *ucx = net_library_get();
	if (!ucx)
		return LS_UNSUPPORTED;
	status = check_thread();
	if (status != LS_OK)
		return status;
	struct net *net = new_net(options);
	if (!net) {
		MESSAGE_SAY(MESSAGE_NET_MEMORY, options->size);
		return LS_OUT_OF_MEMORY;
	}
	uint32_t threads[THREADS_MAX];
	int thread_count = find_threads(threads);
	net->ucx = ucx;
	choose_device(net, &host);
	net->host = host;
	status = make_context(net, &host);
	if (status == LS_OK)
		status = make_worker(net);
	if (status == LS_OK)
		status = listen_at(net, &host);
	net->has_payload_sockets = options->transports && strcmp(options->transports, "tcp") == 0;
	if (status == LS_OK && net->has_payload_sockets)
		status = net_listen_for_payloads(net);
	net->thread = find_new_thread(threads, thread_count);
	if (status == LS_OK)
		*link = &net->link;
	else
		free_net(net);
	return status;
}

ls_status net_open(const struct net_options *options, struct link **link)
{
	sigset_t all, before;
	*link = NULL;
	/* UCX's thread inherits this: signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ls_status status = open_net(options, link);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return status;
}

void net_close(struct link *link)
{
	struct net *net = net_of(link);
	net_release_sockets(net);
	for (int q = 0; q < link->size; q++) {
		net_close_endpoint(&net->peers[q]);
		net_close_payload_socket(&net->peers[q]);
		net_discard(&net->peers[q]);
	}
	free_net(net);
}

void net_address(const struct link *link, struct net_address *out)
{
	*out = net_of(link)->address;
}

void net_describe(const struct link *link, char out[NET_WIRE_BYTES])
{
	const struct net *net = net_of(link);
	const char *transports = net->options.transports;
	if (net->device[0])
		snprintf(out, NET_WIRE_BYTES, "TCP on device %s", net->device);
	else
		snprintf(out, NET_WIRE_BYTES, "UCX, on %s",
			 transports ? transports : "what UCX_TLS and UCX_NET_DEVICES allow");
}

ls_status net_set_address(struct link *link, int peer, const struct net_address *address)
{
	struct net *net = net_of(link);
	if (peer < 0 || peer >= link->size || peer == link->rank || address->bytes == 0 ||
	    address->bytes > NET_ADDRESS_BYTES)
		return LS_BAD_ARGUMENT;
	net->addressed += net->peers[peer].address.bytes == 0;
	net->peers[peer].address = *address;
	return LS_OK;
}

uint32_t net_thread(const struct link *link)
{
	return net_of(link)->thread;
}

bool net_has_answered(const struct link *link, int peer)
{
	return net_of(link)->peers[peer].has_answered;
}

bool net_is_ready(const struct link *link)
{
	const struct net *net = net_of(link);
	return net->has_begun && net->ready == net->addressed;
}

bool net_is_breaking(const struct link *link)
{
	return net_of(link)->breaking > 0;
}

uint64_t net_dropped(const struct link *link)
{
	return net_of(link)->dropped;
}
