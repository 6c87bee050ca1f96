// Copies that run while the kernel computes: cp.async by threads, bulk copies by one thread, tensor copies by descriptor.
#include <cuda.h>
#include <cuda_pipeline.h>

#include "barriers.h"
#include "corpus.h"

// Two tiles of 64 x 16 bytes in turn.
__global__ void copyDoubleBuffer(const uint4 *in, unsigned *out, int tiles)
{
    __shared__ uint4 buffer[2][64];
    int t = threadIdx.x;
    auto start = [&](int tile) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&buffer[tile % 2][t])),
                     "l"(in + tile * 64 + t)
                     : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    start(0);
    unsigned sum = 0;
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            start(tile + 1);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        uint4 other = buffer[tile % 2][63 - t];
        sum = sum * 3 + (other.x ^ other.y) + (other.z ^ other.w);
        __syncthreads();
    }
    out[t] = sum;
}

// The last rows of the source are not there: filled with zeros.
__global__ void copyZeroFill(const unsigned *in, unsigned *out, int n)
{
    __shared__ unsigned buffer[64];
    int t = threadIdx.x, bytes = t < n ? 4 : 0;
    buffer[t] = 99;
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(&buffer[t])), "l"(in + (t < n ? t : 0)),
                 "r"(bytes)
                 : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[t] = buffer[63 - t];
}

__global__ void copyPipeline(const int *in, int *out, int tiles)
{
    __shared__ int buffer[3][32];
    int t = threadIdx.x, sum = 0;
    for (int tile = 0; tile < 2; tile++) {
        __pipeline_memcpy_async(&buffer[tile][t], in + tile * 32 + t, sizeof(int));
        __pipeline_commit();
    }
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 2 < tiles)
            __pipeline_memcpy_async(&buffer[(tile + 2) % 3][t], in + (tile + 2) * 32 + t, sizeof(int));
        __pipeline_commit();
        __pipeline_wait_prior(2);
        __syncthreads();
        sum += buffer[tile % 3][(t + tile) % 32];
        __syncthreads();
    }
    out[t] = sum;
}

__global__ void copyBulk(const int *in, int *out)
{
    __shared__ __align__(128) int buffer[256];
    __shared__ uint64_t barrier;
    int t = threadIdx.x;
    if (t == 0) {
        barrier_init(&barrier, 1);
        barrier_init_visible();
    }
    __syncthreads();
    for (int round = 0; round < 2; round++) {
        if (t == 0) {
            barrier_expect(&barrier, sizeof(buffer));
            bulk_load(buffer, in + round * 256, sizeof(buffer), &barrier);
        }
        barrier_wait(&barrier, round);
        for (int i = t; i < 256; i += 64)
            buffer[i] = buffer[i] * 3 + round;
        async_sees();
        __syncthreads();
        if (t == 0) {
            bulk_store(out + round * 256, buffer, sizeof(buffer));
            bulk_stores_done();
        }
        __syncthreads();
    }
}

__global__ void reduceBulk(int *out)
{
    __shared__ __align__(128) int buffer[64];
    buffer[threadIdx.x] = threadIdx.x + blockIdx.x * 100;
    async_sees();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], %2;" ::"l"(
                         __cvta_generic_to_global(out)),
                     "r"(shared_address(buffer)), "n"(sizeof(buffer))
                     : "memory");
        bulk_stores_done();
    }
}

// A box of 16 x 8 elements at (x, y) of a matrix.
__global__ void tensorLoad(const __grid_constant__ CUtensorMap map, int *out, int x, int y)
{
    __shared__ __align__(128) int box[8 * 16];
    __shared__ uint64_t barrier;
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        barrier_init_visible();
        barrier_expect(&barrier, sizeof(box));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                     "[%4];" ::"r"(shared_address(box)),
                     "l"(&map), "r"(x), "r"(y), "r"(shared_address(&barrier))
                     : "memory");
    }
    __syncthreads();
    barrier_wait(&barrier, 0);
    out[threadIdx.x] = box[threadIdx.x];
}

__global__ void tensorStore(const __grid_constant__ CUtensorMap map, int x, int y)
{
    __shared__ __align__(128) int box[8 * 16];
    box[threadIdx.x] = threadIdx.x + 1000;
    async_sees();
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
                     "r"(shared_address(box)), "r"(x), "r"(y)
                     : "memory");
        bulk_stores_done();
    }
}

__global__ void tensorReduce(const __grid_constant__ CUtensorMap map)
{
    __shared__ __align__(128) int box[8 * 16];
    box[threadIdx.x] = threadIdx.x;
    async_sees();
    __syncthreads();
    if (threadIdx.x == 0) {
        int x = blockIdx.x * 8, y = 2;
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
                     "r"(shared_address(box)), "r"(x), "r"(y)
                     : "memory");
        bulk_stores_done();
    }
}

// The matrix that all tensor copies are about.
static const int WIDTH = 40, HEIGHT = 20;

static CUtensorMap describe(int *matrix)
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess || !entry) {
        fprintf(stderr, "the driver has no cuTensorMapEncodeTiled\n");
        exit(1);
    }
    CUtensorMap map;
    cuuint64_t size[] = {WIDTH, HEIGHT}, pitch[] = {WIDTH * sizeof(int)};
    cuuint32_t box[] = {16, 8}, step[] = {1, 1};
    CUresult result = ((decltype(&cuTensorMapEncodeTiled))entry)(
        &map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, matrix, size, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "cuTensorMapEncodeTiled: error %d\n", result);
        exit(1);
    }
    return map;
}

static int at(const std::vector<int> &matrix, int x, int y)
{
    return x < WIDTH && y < HEIGHT ? matrix[y * WIDTH + x] : 0;
}

static const corpus::Case cases[] = {
    {"copyDoubleBuffer",
     [] {
         const int tiles = 5;
         Buffer<uint4> in(tiles * 64, [](uint32_t i) { return uint4{number(i), number(i + 1), i, number(i * 7)}; });
         Buffer<unsigned> out(64);
         copyDoubleBuffer<<<1, 64>>>(in.device, out.device, tiles);
         report("copyDoubleBuffer", out, [&](uint32_t i) {
             unsigned sum = 0;
             for (int tile = 0; tile < tiles; tile++) {
                 uint4 other = in.host[tile * 64 + 63 - i];
                 sum = sum * 3 + (other.x ^ other.y) + (other.z ^ other.w);
             }
             return sum;
         });
     }},
    {"copyZeroFill",
     [] {
         Buffer<unsigned> in(50, number), out(64);
         copyZeroFill<<<1, 64>>>(in.device, out.device, 50);
         report("copyZeroFill", out, [&](uint32_t i) { return 63 - i < 50 ? in.host[63 - i] : 0u; });
     }},
    {"copyPipeline",
     [] {
         const int tiles = 6;
         Buffer<int> in(tiles * 32, [](uint32_t i) { return small(i); }), out(32);
         copyPipeline<<<1, 32>>>(in.device, out.device, tiles);
         report("copyPipeline", out, [&](uint32_t i) {
             int sum = 0;
             for (int tile = 0; tile < tiles; tile++)
                 sum += in.host[tile * 32 + (i + tile) % 32];
             return sum;
         });
     }},
    {"copyBulk",
     [] {
         Buffer<int> in(512, [](uint32_t i) { return small(i); }), out(512);
         copyBulk<<<1, 64>>>(in.device, out.device);
         report("copyBulk", out, [&](uint32_t i) { return in.host[i] * 3 + (int)(i / 256); });
     }},
    {"reduceBulk",
     [] {
         Buffer<int> out(64);
         reduceBulk<<<3, 64>>>(out.device);
         report("reduceBulk", out, [](uint32_t i) { return (int)i * 3 + 300; });
     }},
    {"tensorLoad",
     [] {
         Buffer<int> matrix(WIDTH * HEIGHT, [](uint32_t i) { return (int)number(i); }), out(2 * 128);
         CUtensorMap map = describe(matrix.device);
         tensorLoad<<<1, 128>>>(map, out.device, 8, 4);
         // Half of this box is outside of the matrix.
         tensorLoad<<<1, 128>>>(map, out.device + 128, 32, 15);
         report("tensorLoad", out, [&](uint32_t i) {
             int x = i % 16, y = i / 16 % 8;
             return i < 128 ? at(matrix.host, 8 + x, 4 + y) : at(matrix.host, 32 + x, 15 + y);
         });
     }},
    {"tensorStore",
     [] {
         Buffer<int> matrix(WIDTH * HEIGHT, [](uint32_t i) { return (int)i; });
         tensorStore<<<1, 128>>>(describe(matrix.device), 32, 10);
         report("tensorStore", matrix, [](uint32_t i) {
             int x = (int)i % WIDTH - 32, y = (int)i / WIDTH - 10;
             return x >= 0 && y >= 0 && y < 8 ? y * 16 + x + 1000 : (int)i;
         });
     }},
    {"tensorReduce",
     [] {
         Buffer<int> matrix(WIDTH * HEIGHT);
         tensorReduce<<<2, 128>>>(describe(matrix.device));
         report("tensorReduce", matrix, [](uint32_t i) {
             int x = (int)i % WIDTH, y = (int)i / WIDTH - 2, sum = 0;
             if (y >= 0 && y < 8)
                 sum = (x < 16 ? y * 16 + x : 0) + (x >= 8 && x < 24 ? y * 16 + x - 8 : 0);
             return sum;
         });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }
