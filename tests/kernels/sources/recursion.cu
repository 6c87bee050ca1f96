// Functions that call themselves: frames on the thread's stack, calls that diverge in depth.
#include "corpus.h"

__device__ __noinline__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__global__ void recurseFibonacci(unsigned *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 10); }

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n)
{
    if (m == 0)
        return n + 1;
    return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

__global__ void recurseAckermann(unsigned *out) { out[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x % 4); }

__device__ __noinline__ void sort(int *values, int n)
{
    if (n < 2)
        return;
    int pivot = values[n / 2], low = 0, high = n - 1;
    while (low <= high) {
        while (values[low] < pivot)
            low++;
        while (values[high] > pivot)
            high--;
        if (low <= high) {
            int other = values[low];
            values[low++] = values[high];
            values[high--] = other;
        }
    }
    sort(values, high + 1);
    sort(values + low, n - low);
}

__global__ void recurseSort(const int *in, int *out)
{
    int mine[16];
    for (int i = 0; i < 16; i++)
        mine[i] = in[threadIdx.x * 16 + i];
    sort(mine, 16);
    for (int i = 0; i < 16; i++)
        out[threadIdx.x * 16 + i] = mine[i];
}

__device__ int odd(int n);
__device__ __noinline__ int even(int n) { return n == 0 ? 1 : odd(n - 1); }
__device__ __noinline__ int odd(int n) { return n == 0 ? 0 : even(n - 1) * 2; }

__global__ void recurseMutually(int *out) { out[threadIdx.x] = even(threadIdx.x % 12) - odd(threadIdx.x % 7); }

struct Node {
    int value, left, right;
};

__device__ __noinline__ int depthSum(const Node *nodes, int at, int depth)
{
    if (at < 0)
        return 0;
    return nodes[at].value * depth + depthSum(nodes, nodes[at].left, depth + 1) +
           depthSum(nodes, nodes[at].right, depth + 1);
}

__global__ void recurseTree(const Node *nodes, int *out) { out[threadIdx.x] = depthSum(nodes, threadIdx.x % 31, 1); }

static int host_even(int n, bool want_even)
{
    if (n == 0)
        return want_even;
    return want_even ? host_even(n - 1, false) : 2 * host_even(n - 1, true);
}

static unsigned host_fibonacci(unsigned n) { return n < 2 ? n : host_fibonacci(n - 1) + host_fibonacci(n - 2); }

static int host_sum(const std::vector<Node> &nodes, int at, int depth)
{
    if (at < 0)
        return 0;
    return nodes[at].value * depth + host_sum(nodes, nodes[at].left, depth + 1) +
           host_sum(nodes, nodes[at].right, depth + 1);
}

static const corpus::Case cases[] = {
    {"recurseFibonacci",
     [] {
         Buffer<unsigned> out(40);
         recurseFibonacci<<<1, 40>>>(out.device);
         report("recurseFibonacci", out, [](uint32_t i) { return host_fibonacci(i % 10); });
     }},
    {"recurseAckermann",
     [] {
         Buffer<unsigned> out(32);
         recurseAckermann<<<1, 32>>>(out.device);
         report("recurseAckermann", out, [](uint32_t i) { return i % 4 * (i % 3 == 2 ? 2 : 1) + (i % 3 == 2 ? 3 : i % 3 + 1); });
     }},
    {"recurseSort",
     [] {
         Buffer<int> in(32 * 16, [](uint32_t i) { return (int)(number(i) % 100); }), out(32 * 16);
         recurseSort<<<1, 32>>>(in.device, out.device);
         report("recurseSort", out, [&](uint32_t i) {
             for (uint32_t k = i / 16 * 16; k < i / 16 * 16 + 16; k++) {
                 uint32_t below = 0, same = 0;
                 for (uint32_t j = i / 16 * 16; j < i / 16 * 16 + 16; j++) {
                     below += in.host[j] < in.host[k];
                     same += in.host[j] == in.host[k];
                 }
                 if (below <= i % 16 && i % 16 < below + same)
                     return in.host[k];
             }
             return -1;
         });
     }},
    {"recurseMutually",
     [] {
         Buffer<int> out(64);
         recurseMutually<<<2, 32>>>(out.device);
         report("recurseMutually", out, [](uint32_t i) {
             int t = (int)i % 32;
             return i < 32 ? host_even(t % 12, true) - host_even(t % 7, false) : 0;
         });
     }},
    {"recurseTree",
     [] {
         Buffer<Node> nodes(31, [](uint32_t i) {
             int left = (int)i * 2 + 1;
             return Node{small(i), left < 31 ? left : -1, left + 1 < 31 ? left + 1 : -1};
         });
         Buffer<int> out(64);
         recurseTree<<<1, 64>>>(nodes.device, out.device);
         report("recurseTree", out, [&](uint32_t i) { return host_sum(nodes.host, (int)(i % 31), 1); });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }
