// Copies of tensors by maps of every rank, of elements of every size, with strides, of images, and from maps that lie in the
// kernel's parameters and in global memory. Each copy is made once and prints what arrived; the barrier that it completes
// on waits for exactly the bytes that are printed. tests/suite/src/tensors.rs adds them up.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                          \
            fprintf(stderr, "tensors: %s: %s\n", #call, cudaGetErrorString(error));          \
            return 1;                                                                        \
        }                                                                                    \
    } while (0)

constexpr int THREADS = 64;

// The application is built for older GPUs too, which have no such copies.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

constexpr int MOST = 32768;

struct Tensors {
    alignas(128) unsigned char box[MOST];
    uint64_t barrier;
};

__device__ void expect(Tensors &shared, unsigned bytes)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&shared.barrier)));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&shared.barrier)), "r"(bytes)
                 : "memory");
}

// True: all bytes came. A number of bytes that is not right must not hang the GPU.
__device__ bool arrived(Tensors &shared)
{
    for (int round = 0; round < 100000; round++) {
        unsigned done;
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(shared_address(&shared.barrier))
                     : "memory");
        if (done)
            return true;
    }
    return false;
}

__device__ void tell(Tensors &shared, unsigned bytes, unsigned *out)
{
    __syncthreads();
    unsigned sum = arrived(shared) ? 0 : 0xdead;
    for (unsigned i = threadIdx.x; i < bytes; i += THREADS)
        sum += shared.box[i] * (i % 251 + 1);
    atomicAdd(out, sum);
}

#define LOAD(form, coordinates, ...)                                                                                    \
    asm volatile("cp.async.bulk.tensor." form ".mbarrier::complete_tx::bytes [%0], [%1, " coordinates "], [%2]" __VA_ARGS__ ";" ::"r"( \
                     shared_address(shared.box)),                                                                       \
                 "l"(map), "r"(shared_address(&shared.barrier)), "r"(at)                                                \
                 : "memory")

__device__ void load(const CUtensorMap *map, int kind, unsigned bytes, unsigned *out)
{
    __shared__ Tensors shared;
    if (threadIdx.x == 0) {
        int at = 0;
        expect(shared, bytes);
        switch (kind) {
        case 1: LOAD("1d.shared::cluster.global.tile", "{%3}"); break;
        case 2: LOAD("2d.shared::cluster.global.tile", "{%3, %3}"); break;
        case 3: LOAD("3d.shared::cluster.global.tile", "{%3, %3, %3}"); break;
        case 4: LOAD("4d.shared::cluster.global", "{%3, %3, %3, %3}"); break;
        case 5: LOAD("5d.shared::cluster.global.tile", "{%3, %3, %3, %3, %3}"); break;
        case 13: LOAD("3d.shared::cluster.global.im2col", "{%3, %3, %3}", ", {0}"); break;
        case 14: LOAD("4d.shared::cluster.global.im2col", "{%3, %3, %3, %3}", ", {0, 0}"); break;
        case 15: LOAD("5d.shared::cluster.global.im2col", "{%3, %3, %3, %3, %3}", ", {0, 0, 0}"); break;
        }
    }
    tell(shared, bytes, out);
}

// The box goes to the tensor as it is, and once more on top of it.
__device__ void store_box(const CUtensorMap *map)
{
    __shared__ Tensors shared;
    for (unsigned i = threadIdx.x; i < MOST; i += THREADS)
        shared.box[i] = i % 7;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %2}], [%1];" ::"l"(map),
                     "r"(shared_address(shared.box)), "r"(0)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %2}], [%1];" ::"l"(map),
                     "r"(shared_address(shared.box)), "r"(0)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
        asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %1}];" ::"l"(map), "r"(0) : "memory");
    }
}

#else

__device__ void load(const CUtensorMap *, int, unsigned, unsigned *) {}
__device__ void store_box(const CUtensorMap *) {}

#endif

__global__ void loadParam(const __grid_constant__ CUtensorMap map, int kind, unsigned bytes, unsigned *out)
{
    load(&map, kind, bytes, out);
}

__global__ void loadGlobal(const CUtensorMap *map, int kind, unsigned bytes, unsigned *out) { load(map, kind, bytes, out); }

__global__ void store(const __grid_constant__ CUtensorMap map) { store_box(&map); }

static decltype(&cuTensorMapEncodeTiled) encode_tiled;
static decltype(&cuTensorMapEncodeIm2col) encode_im2col;

static const unsigned SIZES[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
constexpr unsigned TYPES = sizeof(SIZES) / sizeof(*SIZES);

// Five dimensions of 32 elements; those behind the rank are not looked at.
static CUtensorMap tile(void *tensor, unsigned type, int rank, const unsigned *box, const unsigned *step)
{
    CUtensorMap map;
    cuuint64_t size[5], pitch[5], bytes = SIZES[type];
    for (int i = 0; i < 5; i++)
        pitch[i] = (bytes *= size[i] = 32);
    CUresult result = encode_tiled(&map, (CUtensorMapDataType)type, rank, tensor, size, pitch, box, step,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        fprintf(stderr, "tensors: cuTensorMapEncodeTiled: error %d\n", result);
    return map;
}

static CUtensorMap image(void *tensor, int rank, unsigned channels, unsigned pixels)
{
    CUtensorMap map;
    cuuint64_t size[5], pitch[5], bytes = 2;
    for (int i = 0; i < 5; i++)
        pitch[i] = (bytes *= size[i] = i == 0 ? 32 : 16);
    int corner[3] = {0, 0, 0};
    unsigned step[5] = {1, 1, 1, 1, 1};
    CUresult result = encode_im2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, tensor, size, pitch, corner, corner, channels,
                                    pixels, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                    CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        fprintf(stderr, "tensors: cuTensorMapEncodeIm2col: error %d\n", result);
    return map;
}

static void *entry(const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult how;
    if (cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how) != cudaSuccess || !found)
        fprintf(stderr, "tensors: the driver has no %s\n", name);
    return found;
}

int main()
{
    encode_tiled = (decltype(encode_tiled))entry("cuTensorMapEncodeTiled");
    encode_im2col = (decltype(encode_im2col))entry("cuTensorMapEncodeIm2col");
    if (!encode_tiled || !encode_im2col)
        return 1;
    // Room for five dimensions of 32 elements of 8 bytes would be 256 MiB; no copy goes that far.
    const size_t room = 64 << 20;
    unsigned char *tensor;
    unsigned *out;
    CUtensorMap *in_global;
    CHECK(cudaMalloc(&tensor, room));
    CHECK(cudaMalloc(&out, sizeof(*out)));
    CHECK(cudaMalloc(&in_global, sizeof(*in_global)));
    static unsigned char fill[1 << 20];
    for (size_t i = 0; i < sizeof(fill); i++)
        fill[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t at = 0; at < room; at += sizeof(fill))
        CHECK(cudaMemcpy(tensor + at, fill, sizeof(fill), cudaMemcpyHostToDevice));

    unsigned sum, total = 0, copies = 0;
    auto run = [&](const char *what, CUtensorMap map, int kind, unsigned bytes) -> int {
        CHECK(cudaMemset(out, 0, sizeof(*out)));
        if (copies % 2) {
            CHECK(cudaMemcpy(in_global, &map, sizeof(map), cudaMemcpyHostToDevice));
            loadGlobal<<<1, THREADS>>>(in_global, kind, bytes, out);
        } else {
            loadParam<<<1, THREADS>>>(map, kind, bytes, out);
        }
        CHECK(cudaMemcpy(&sum, out, sizeof(sum), cudaMemcpyDeviceToHost));
        printf("%s: %u bytes, %u\n", what, bytes, sum);
        copies++, total += bytes;
        return 0;
    };
    const unsigned one[5] = {1, 1, 1, 1, 1};
    char what[64];
    // Every type, by turns of other ranks and boxes.
    for (unsigned type = 0; type < TYPES; type++) {
        int rank = type % 5 + 1;
        unsigned box[5] = {16, 5, 3, 2, 2}, bytes = SIZES[type];
        for (int i = 0; i < rank; i++)
            bytes *= box[i];
        snprintf(what, sizeof(what), "type %u, %d dimensions", type, rank);
        if (run(what, tile(tensor, type, rank, box, one), rank, bytes))
            return 1;
    }
    // Of every second, third and fourth element; the first dimension has no strides, whatever is asked for.
    const unsigned box[5] = {32, 7, 6, 5, 1}, step[5] = {1, 2, 3, 4, 1};
    if (run("strides", tile(tensor, 2, 4, box, step), 4, 4 * 32 * 4 * 2 * 2))
        return 1;
    const unsigned large[5] = {256, 128, 1, 1, 1};
    if (run("a large box", tile(tensor, 0, 2, large, one), 2, 256 * 128))
        return 1;
    for (int rank = 3; rank <= 5; rank++) {
        snprintf(what, sizeof(what), "an image of %d dimensions", rank);
        if (run(what, image(tensor, rank, 8 * (rank - 2), 10 * rank), 10 + rank, 2 * 8 * (rank - 2) * 10 * rank))
            return 1;
    }
    printf("%u copies of %u bytes\n", copies, total);

    const unsigned stored[5] = {32, 8, 1, 1, 1};
    store<<<1, THREADS>>>(tile(tensor, 2, 2, stored, one));
    unsigned back[32 * 8], sums = 0;
    CHECK(cudaMemcpy(back, tensor, sizeof(back), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 32 * 8; i++)
        sums = sums * 31 + back[i];
    printf("stored and added: %zu bytes each, %u\n", sizeof(back), sums);
    return 0;
}
