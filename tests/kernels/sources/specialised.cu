// Warp specialisation: warps of a block do different work and hand registers over by setmaxnreg.
#include <cuda_fp16.h>

#include "barriers.h"
#include "corpus.h"

__device__ inline void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 160;"); }
__device__ inline void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }

// The first warp group fetches, the second computes; two buffers, a full and an empty barrier for each.
__global__ void __launch_bounds__(256, 1) produceConsume(const int *in, int *out, int tiles)
{
    __shared__ __align__(128) int buffer[2][128];
    __shared__ uint64_t full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], 128);
        }
        barrier_init_visible();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        give_registers();
        if (threadIdx.x == 0)
            for (int tile = 0; tile < tiles; tile++) {
                int at = tile % 2;
                if (tile >= 2)
                    barrier_wait(&empty[at], (tile / 2 - 1) % 2);
                barrier_expect(&full[at], sizeof(buffer[at]));
                bulk_load(buffer[at], in + tile * 128, sizeof(buffer[at]), &full[at]);
            }
    } else {
        take_registers();
        int t = threadIdx.x - 128, sum = 0;
        for (int tile = 0; tile < tiles; tile++) {
            int at = tile % 2;
            barrier_wait(&full[at], tile / 2 % 2);
            sum = sum * 5 + buffer[at][t] + buffer[at][127 - t];
            barrier_arrive(&empty[at]);
        }
        out[t] = sum;
    }
}

// Two groups hand a buffer to and fro by named barriers.
__global__ void __launch_bounds__(256, 1) pingPong(int *out, int rounds)
{
    __shared__ int buffer[128];
    int t = threadIdx.x % 128;
    if (threadIdx.x < 128) {
        give_registers();
        for (int round = 0; round < rounds; round++) {
            buffer[t] = t * 3 + round;
            asm volatile("bar.arrive 1, 256;" ::: "memory");
            asm volatile("bar.sync 2, 256;" ::: "memory");
        }
    } else {
        take_registers();
        int sum = 0;
        for (int round = 0; round < rounds; round++) {
            asm volatile("bar.sync 1, 256;" ::: "memory");
            sum = sum * 2 + buffer[127 - t];
            asm volatile("bar.arrive 2, 256;" ::: "memory");
        }
        out[t] = sum;
    }
}

// A producer and a group that multiplies on tensor cores: K in steps of 16.
__global__ void __launch_bounds__(256, 1) specialisedMatmul(const __half *a, const __half *b, float *d, int steps)
{
    // Core matrices of 8 rows of 16 bytes: A is 64 x 16, B is 8 columns of 16.
    __shared__ __align__(128) char as[2][64 * 32], bs[2][8 * 32];
    __shared__ uint64_t full[2], empty[2];
    int t = threadIdx.x % 128, k = steps * 16;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(&full[i], 128);
            barrier_init(&empty[i], 128);
        }
        barrier_init_visible();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        give_registers();
        for (int step = 0; step < steps; step++) {
            int at = step % 2;
            if (step >= 2)
                barrier_wait(&empty[at], (step / 2 - 1) % 2);
            for (int i = t; i < 72 * 16; i += 128) {
                int row = i / 16, column = i % 16;
                int place = row % 64 / 8 * 256 + column / 8 * 128 + row % 8 * 16 + column % 8 * 2;
                if (row < 64)
                    *(__half *)(as[at] + place) = a[row * k + step * 16 + column];
                else
                    *(__half *)(bs[at] + place) = b[(row - 64) * k + step * 16 + column];
            }
            async_sees();
            barrier_arrive(&full[at]);
        }
    } else {
        take_registers();
        float c0 = 0, c1 = 0, c2 = 0, c3 = 0;
        for (int step = 0; step < steps; step++) {
            int at = step % 2;
            barrier_wait(&full[at], step / 2 % 2);
            uint64_t across = 128 >> 4, along = 256 >> 4;
            uint64_t da = (shared_address(as[at]) >> 4 & 0x3fff) | across << 16 | along << 32;
            uint64_t db = (shared_address(bs[at]) >> 4 & 0x3fff) | across << 16 | along << 32;
            asm volatile("wgmma.fence.sync.aligned;\n\t"
                         "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\n\t"
                         "wgmma.commit_group.sync.aligned;\n\t"
                         "wgmma.wait_group.sync.aligned 0;"
                         : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
                         : "l"(da), "l"(db)
                         : "memory");
            barrier_arrive(&empty[at]);
        }
        int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
        d[row * 8 + column] = c0;
        d[row * 8 + column + 1] = c1;
        d[(row + 8) * 8 + column] = c2;
        d[(row + 8) * 8 + column + 1] = c3;
    }
}

static const corpus::Case cases[] = {
    {"produceConsume",
     [] {
         const int tiles = 5;
         Buffer<int> in(tiles * 128, [](uint32_t i) { return small(i); }), out(128);
         produceConsume<<<1, 256>>>(in.device, out.device, tiles);
         report("produceConsume", out, [&](uint32_t i) {
             int sum = 0;
             for (int tile = 0; tile < tiles; tile++)
                 sum = sum * 5 + in.host[tile * 128 + i] + in.host[tile * 128 + 127 - i];
             return sum;
         });
     }},
    {"pingPong",
     [] {
         const int rounds = 4;
         Buffer<int> out(128);
         pingPong<<<1, 256>>>(out.device, rounds);
         report("pingPong", out, [&](uint32_t i) {
             int sum = 0;
             for (int round = 0; round < rounds; round++)
                 sum = sum * 2 + (127 - (int)i) * 3 + round;
             return sum;
         });
     }},
    {"specialisedMatmul",
     [] {
         const int steps = 5, k = steps * 16;
         auto value = [](uint32_t i) { return __float2half((float)small(i)); };
         Buffer<__half> a(64 * k, value), b(8 * k, value);
         Buffer<float> d(512);
         specialisedMatmul<<<1, 256>>>(a.device, b.device, d.device, steps);
         report("specialisedMatmul", d, [&](uint32_t i) {
             float sum = 0;
             for (int j = 0; j < k; j++)
                 sum += (float)a.host[i / 8 * k + j] * (float)b.host[i % 8 * k + j];
             return sum;
         });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }
