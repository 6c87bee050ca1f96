// Cooperative groups: synchronising a grid, and groups smaller than a warp.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "corpus.h"

namespace cg = cooperative_groups;

__global__ void relaxGrid(int *from, int *to, int n, int rounds)
{
    cg::grid_group grid = cg::this_grid();
    for (int round = 0; round < rounds; round++) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) {
            int left = i > 0 ? from[i - 1] : 0, right = i + 1 < n ? from[i + 1] : 0;
            to[i] = left + 2 * from[i] + right;
        }
        grid.sync();
        int *other = from;
        from = to;
        to = other;
    }
}

__global__ void sumGrid(const unsigned *in, unsigned *blocks, unsigned *out, int n)
{
    cg::grid_group grid = cg::this_grid();
    __shared__ unsigned sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    for (int i = grid.thread_rank(); i < n; i += grid.size())
        atomicAdd(&sum, in[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        blocks[blockIdx.x] = sum;
    grid.sync();
    if (grid.thread_rank() == 0)
        for (int i = 0; i < gridDim.x; i++)
            *out += blocks[i];
}

__global__ void countPhases(unsigned *out)
{
    cg::grid_group grid = cg::this_grid();
    for (unsigned phase = 0; phase < 4; phase++) {
        if (threadIdx.x == 0)
            atomicAdd(&out[phase], blockIdx.x + 1);
        grid.sync();
        // Every block sees all blocks' work of this phase.
        if (threadIdx.x == 1)
            atomicAdd(&out[4 + phase], out[phase]);
    }
}

__global__ void reduceTiles(const int *in, int *out)
{
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int sum = cg::reduce(tile, in[threadIdx.x], cg::plus<int>());
    int most = cg::reduce(tile, in[threadIdx.x], cg::greater<int>());
    int before = cg::exclusive_scan(tile, in[threadIdx.x], cg::plus<int>());
    out[threadIdx.x] = sum * 10000 + most * 100 + before;
}

__global__ void countCoalesced(const int *in, int *out)
{
    if (in[threadIdx.x] % 3 == 0) {
        cg::coalesced_group group = cg::coalesced_threads();
        if (group.thread_rank() == 0)
            atomicAdd(out, group.size());
        group.sync();
        out[1 + threadIdx.x] = group.shfl(in[threadIdx.x], group.size() - 1) * 0 + 1;
    }
}

template <typename... A> static void cooperatively(void (*kernel)(A...), int blocks, int threads, A... values)
{
    void *pointers[] = {&values...};
    CHECK(cudaLaunchCooperativeKernel((const void *)kernel, dim3(blocks), dim3(threads), pointers, 0, 0));
}

static const corpus::Case cases[] = {
    {"relaxGrid",
     [] {
         const int n = 300, rounds = 4;
         Buffer<int> a(n, [](uint32_t i) { return small(i); }), b(n);
         std::vector<int> now = a.host;
         cooperatively(relaxGrid, 3, 64, a.device, b.device, n, rounds);
         for (int round = 0; round < rounds; round++) {
             std::vector<int> next(n);
             for (int i = 0; i < n; i++)
                 next[i] = (i > 0 ? now[i - 1] : 0) + 2 * now[i] + (i + 1 < n ? now[i + 1] : 0);
             now = next;
         }
         report("relaxGrid", a, [&](uint32_t i) { return now[i]; });
     }},
    {"sumGrid",
     [] {
         const int n = 700;
         Buffer<unsigned> in(n, number), blocks(4), out(1);
         cooperatively(sumGrid, 4, 64, (const unsigned *)in.device, blocks.device, out.device, n);
         report("sumGrid", out, [&](uint32_t) {
             unsigned sum = 0;
             for (unsigned value : in.host)
                 sum += value;
             return sum;
         });
     }},
    {"countPhases",
     [] {
         Buffer<unsigned> out(8);
         cooperatively(countPhases, 4, 32, out.device);
         report("countPhases", out, [](uint32_t i) { return i < 4 ? 10u : 40u; });
     }},
    {"reduceTiles",
     [] {
         Buffer<int> in(64, [](uint32_t i) { return (int)(number(i) % 50); }), out(64);
         reduceTiles<<<1, 64>>>(in.device, out.device);
         report("reduceTiles", out, [&](uint32_t i) {
             int sum = 0, most = 0, before = 0;
             for (uint32_t k = i / 8 * 8; k < i / 8 * 8 + 8; k++) {
                 before += k < i ? in.host[k] : 0;
                 sum += in.host[k];
                 most = in.host[k] > most ? in.host[k] : most;
             }
             return sum * 10000 + most * 100 + before;
         });
     }},
    {"countCoalesced",
     [] {
         Buffer<int> in(64, [](uint32_t i) { return (int)(number(i) % 50); }), out(65);
         countCoalesced<<<1, 64>>>(in.device, out.device);
         report("countCoalesced", out, [&](uint32_t i) {
             if (i > 0)
                 return (int)(in.host[i - 1] % 3 == 0);
             int count = 0;
             for (int value : in.host)
                 count += value % 3 == 0;
             return count;
         });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }
