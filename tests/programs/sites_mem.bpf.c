// SPDX-License-Identifier: MIT OR Apache-2.0
// Accesses and their bytes: by kind and space (key = kind * 8 + space), and by place.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "warpbpf.h"

struct traffic {
	__u64 accesses;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct traffic);
} spaces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, wbpf_site_id_t);
	__type(value, struct traffic);
} places SEC(".maps");

SEC("gpu/mem/*")
int at_access(struct wbpf_mem_ctx *ctx)
{
	__u32 key = ctx->kind * 8 + ctx->space;
	wbpf_site_id_t site = ctx->site;
	struct traffic *t = bpf_map_lookup_elem(&spaces, &key);

	if (t) {
		t->accesses += 1;
		t->bytes += ctx->bytes;
	}
	t = bpf_map_lookup_elem(&places, &site);
	if (t) {
		t->accesses += 1;
		t->bytes += ctx->bytes;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
