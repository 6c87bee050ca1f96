// Warp shuffles, votes, matches and reductions, in whole warps and in parts of one.
#include "corpus.h"

constexpr unsigned ALL = 0xffffffffu;

__global__ void reduceShuffle(const int *in, int *out)
{
    int value = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_down_sync(ALL, value, distance);
    if (threadIdx.x % 32 == 0)
        out[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = value;
}

__global__ void sortWarp(const unsigned *in, unsigned *out)
{
    int lane = threadIdx.x % 32, at = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned value = in[at];
    for (int size = 2; size <= 32; size *= 2)
        for (int distance = size / 2; distance > 0; distance /= 2) {
            unsigned other = __shfl_xor_sync(ALL, value, distance);
            bool low = (lane & distance) == 0, up = (lane & size) == 0;
            value = (low == up) ? min(value, other) : max(value, other);
        }
    out[at] = value;
}

__global__ void compactBallot(const int *in, int *out)
{
    int lane = threadIdx.x % 32, first = blockIdx.x * blockDim.x + threadIdx.x - lane;
    int value = in[first + lane];
    unsigned kept = __ballot_sync(ALL, value > 0);
    if (value > 0)
        out[first + __popc(kept & ((1u << lane) - 1))] = value;
}

__global__ void matchGroups(const int *in, unsigned *out)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x, same;
    unsigned peers = __match_any_sync(ALL, in[at]);
    unsigned whole = __match_all_sync(ALL, in[at] > -100, &same);
    out[at] = peers ^ (whole >> 1) ^ (unsigned)same;
}

__global__ void reduceKinds(const unsigned *in, unsigned *out)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned value = in[at];
    unsigned sum = __reduce_add_sync(ALL, value), least = __reduce_min_sync(ALL, value);
    unsigned both = __reduce_and_sync(ALL, value | 0xff), either = __reduce_xor_sync(ALL, value);
    out[at] = sum ^ (least * 3) ^ (both * 5) ^ (either * 7);
}

// Groups of lanes that stand at different places talk among themselves only.
__global__ void shuffleApart(const int *in, int *out)
{
    int lane = threadIdx.x % 32, at = blockIdx.x * blockDim.x + threadIdx.x, value = in[at];
    if (lane < 8) {
        value += __shfl_sync(0x000000ffu, value, 7 - lane);
        value *= __any_sync(0x000000ffu, value > 100) ? 3 : 5;
    } else if (lane % 2) {
        value -= __shfl_up_sync(0xaaaaaa00u, value, 2, 8);
        value += __all_sync(0xaaaaaa00u, value < 1000);
    } else {
        value = __shfl_sync(0x55555500u, value, lane, 16);
    }
    __syncwarp();
    out[at] = value;
}

static const corpus::Case cases[] = {
    {"reduceShuffle",
     [] {
         Buffer<int> in(192, [](uint32_t i) { return (int)number(i); }), out(6);
         reduceShuffle<<<2, 96>>>(in.device, out.device);
         report("reduceShuffle", out, [&](uint32_t i) {
             unsigned sum = 0;
             for (int k = 0; k < 32; k++)
                 sum += (unsigned)in.host[i * 32 + k];
             return (int)sum;
         });
     }},
    {"sortWarp",
     [] {
         Buffer<unsigned> in(128, number), out(128);
         sortWarp<<<2, 64>>>(in.device, out.device);
         report("sortWarp", out, [&](uint32_t i) {
             // The element that so many of its warp are below.
             for (int k = 0; k < 32; k++) {
                 unsigned rank = 0, value = in.host[i / 32 * 32 + k];
                 for (int j = 0; j < 32; j++)
                     rank += in.host[i / 32 * 32 + j] < value;
                 if (rank == i % 32)
                     return value;
             }
             return 0u;
         });
     }},
    {"compactBallot",
     [] {
         Buffer<int> in(128, [](uint32_t i) { return small(i); }), out(128);
         compactBallot<<<2, 64>>>(in.device, out.device);
         report("compactBallot", out, [&](uint32_t i) {
             uint32_t at = 0;
             for (int k = 0; k < 32; k++)
                 if (in.host[i / 32 * 32 + k] > 0 && at++ == i % 32)
                     return in.host[i / 32 * 32 + k];
             return 0;
         });
     }},
    {"matchGroups",
     [] {
         Buffer<int> in(96, [](uint32_t i) { return small(i); });
         Buffer<unsigned> out(96);
         matchGroups<<<1, 96>>>(in.device, out.device);
         report("matchGroups", out, [&](uint32_t i) {
             unsigned peers = 0;
             for (int k = 0; k < 32; k++)
                 peers |= (unsigned)(in.host[i / 32 * 32 + k] == in.host[i]) << k;
             return peers ^ (ALL >> 1) ^ 1u;
         });
     }},
    {"reduceKinds",
     [] {
         Buffer<unsigned> in(64, number), out(64);
         reduceKinds<<<1, 64>>>(in.device, out.device);
         report("reduceKinds", out, [&](uint32_t i) {
             unsigned sum = 0, least = ALL, both = ALL, either = 0;
             for (int k = 0; k < 32; k++) {
                 unsigned value = in.host[i / 32 * 32 + k];
                 sum += value;
                 least = value < least ? value : least;
                 both &= value | 0xff;
                 either ^= value;
             }
             return sum ^ (least * 3) ^ (both * 5) ^ (either * 7);
         });
     }},
    {"shuffleApart",
     [] {
         Buffer<int> in(64, [](uint32_t i) { return (int)(number(i) % 500); }), out(64);
         shuffleApart<<<1, 64>>>(in.device, out.device);
         report("shuffleApart", out);
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }
