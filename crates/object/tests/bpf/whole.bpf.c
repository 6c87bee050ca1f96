// One of everything that the loader understands.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#ifndef __ulong // libbpf before 1.5
#define __ulong(name, val) enum { ___bpf_concat(__unique_value, __COUNTER__) = val } name
#endif

struct val {
	__u64 a;
	char c[3];
	__u32 b : 3, d : 5;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct val);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} counts SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} first SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__array(values, struct inner);
} outer SEC(".maps") = { .values = { [1] = &first } };

int tail(void *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__array(values, int(void *));
} tails SEC(".maps") = { .values = { [2] = (void *)&tail } };

struct {
	__uint(type, 1502);
	__uint(max_entries, 7);
	__uint(key_size, 4);
	__uint(value_size, 24);
	__uint(numa_node, 5);
	__ulong(map_extra, 0x100000002);
} unknown SEC(".maps");

const volatile __u32 limit = 7;
__u64 hits;
static __u64 hidden;
int factor = 5;
__u64 odd SEC(".data.custom") = 9;

static __attribute__((noinline)) int helper(struct val *v)
{
	if (v)
		v->a += hidden;
	hidden++;
	return limit;
}

__attribute__((noinline)) int scale(int x)
{
	return x * factor;
}

static long step(__u64 i, void *sum)
{
	*(__u64 *)sum += i;
	return 0;
}

SEC("gpu/entry/vec*|at=a.cu:7")
int enter(void *ctx)
{
	__u32 k = limit;
	struct val *v = bpf_map_lookup_elem(&counts, &k);
	int r = helper(v);
	__u64 x = 0;
	bpf_loop(10, step, &x, 0);
	hits += x;
	odd++;
	return scale(r);
}

SEC("gpu/exit/*")
int leave(void *ctx)
{
	__sync_fetch_and_add(&hits, 1);
	bpf_trace_printk("left %d", 8, 1);
	return scale(1);
}

SEC("gpu/exit/*")
int tail(void *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
__u32 ver SEC("version") = 0x060102;
