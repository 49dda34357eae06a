/* SPDX-License-Identifier: BSD-3-Clause
 * The hosts of a job in reports: which have not answered, and since when they are silent. */
#include "inspect/ask_hosts.h"

static bool has_answered(const struct inspect_hosts *hosts, int first)
{
	return hosts->has_told && ranks_have(&hosts->answered, first);
}

/* Milliseconds since when a host and the one that was asked do not hear each other. */
static uint64_t unheard_ms(const struct inspect_report *report, int first)
{
	uint64_t since_ns = report->hosts->unheard_ns[first], now_ns = report->snapshot->now_ns;
	return since_ns && since_ns < now_ns ? (now_ns - since_ns) / 1000000 : 0;
}

static void print_host(FILE *out, const struct inspect_report *report, int first)
{
	struct ranks ranks = inspect_hosts_ranks(report->hosts, first, report->snapshot->size);
	char who[256];

	print_ranks(&ranks, who, sizeof who);
	fputs("host ", out);
	print_safely(out, report->hosts->locations[first].host, 0);
	fprintf(out, " (%s)", who);
}

void inspect_hosts_print(FILE *out, const struct inspect_report *report)
{
	const struct inspect_hosts *hosts = report->hosts;
	uint64_t ms;

	if (!hosts)
		return;
	if (!hosts->has_told) {
		fputs("  no rank of ", out);
		print_host(out, report, hosts->here);
		fprintf(out, " has answered within %llu ms, so the other hosts were not asked\n",
			(unsigned long long)hosts->waited_ms);
	}
	for (int q = 0; q < report->snapshot->size; q++) {
		if (hosts->locations[q].first != q || q == hosts->here)
			continue;
		ms = unheard_ms(report, q);
		if (!ms && (!hosts->has_told || has_answered(hosts, q)))
			continue;
		fputs("  ", out);
		print_host(out, report, q);
		bool is_missing = hosts->has_told && !has_answered(hosts, q);
		if (is_missing)
			fputs(" did not answer", out);
		if (is_missing && hosts->waited_ms)
			fprintf(out, " within %llu ms", (unsigned long long)hosts->waited_ms);
		if (ms) {
			fputs(is_missing ? "; it and " : " and ", out);
			print_host(out, report, hosts->here);
			fprintf(out, " have not heard each other for %.1f s", (double)ms / 1e3);
		}
		fputc('\n', out);
	}
}

void inspect_hosts_json(struct print_json *json, const struct inspect_report *report)
{
	const struct inspect_hosts *hosts = report->hosts;

	if (!hosts) {
		print_json_null(json, "hosts");
		return;
	}
	print_json_open(json, "hosts", '[');
	for (int q = 0; q < report->snapshot->size; q++) {
		struct ranks ranks = inspect_hosts_ranks(hosts, q, report->snapshot->size);
		if (hosts->locations[q].first != q)
			continue;
		print_json_open(json, NULL, '{');
		print_json_string(json, "host", hosts->locations[q].host);
		print_json_ranks(json, "ranks", &ranks);
		print_json_bool(json, "asked", q == hosts->here);
		print_json_bool(json, "answered", has_answered(hosts, q));
		if (unheard_ms(report, q))
			print_json_unsigned(json, "unheard_ms", unheard_ms(report, q));
		else
			print_json_null(json, "unheard_ms");
		print_json_close(json, '}');
	}
	print_json_close(json, ']');
	print_json_unsigned(json, "waited_ms", hosts->waited_ms);
}
