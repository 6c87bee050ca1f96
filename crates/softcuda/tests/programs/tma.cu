// Tensor maps and bulk copies in all their forms, each against a computation on the host. Runs on a GPU as well.
#include <cstdio>
#include <cstdint>
#include <cstring>
#include <vector>
#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("%s: %s\n", #call, cudaGetErrorName(e)); exit(1); } } while (0)

__constant__ CUtensorMap constant_map;
__device__ CUtensorMap global_map;

__device__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(barrier)), "r"(count));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ void expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Gives up after a while, so that a wrong count of bytes does not hang.
__device__ bool wait(uint64_t *barrier) {
    for (int i = 0; i < 1 << 16; i++) {
        uint32_t done;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(barrier)) : "memory");
        if (done) return true;
    }
    return false;
}

struct Coordinates { int at[5]; uint16_t offset[3]; };

template <int D> __device__ void tensor_load(void *to, const CUtensorMap *map, Coordinates c, uint64_t *barrier) {
    uint32_t d = shared_address(to), b = shared_address(barrier);
    if constexpr (D == 1)
        asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];"
                     :: "r"(d), "l"(map), "r"(c.at[0]), "r"(b) : "memory");
    if constexpr (D == 2)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     :: "r"(d), "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(b) : "memory");
    if constexpr (D == 3)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                     :: "r"(d), "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(b) : "memory");
    if constexpr (D == 4)
        asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
                     :: "r"(d), "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(b) : "memory");
    if constexpr (D == 5)
        asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
                     :: "r"(d), "l"(map), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(c.at[4]), "r"(b) : "memory");
}

extern __shared__ __align__(1024) uint8_t buffer[];

// mode 0: parameter, 1: constant memory, 2: global memory, 3: im2col
template <int D> __global__ void load(const __grid_constant__ CUtensorMap map, int mode, Coordinates c, uint32_t bytes, uint32_t room, uint8_t *out, int *ok) {
    __shared__ uint64_t barrier;
    for (uint32_t i = threadIdx.x; i < room; i += blockDim.x) buffer[i] = 0xee;
    if (threadIdx.x == 0) init(&barrier, 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        const CUtensorMap *use = mode == 1 ? &constant_map : mode == 2 ? &global_map : &map;
        asm volatile("prefetch.tensormap [%0];" :: "l"(&map));
        if (mode == 2) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(use) : "memory");
        expect(&barrier, bytes);
        if (mode == 3) {
            if constexpr (D == 3)
                asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5], {%6};"
                    :: "r"(shared_address(buffer)), "l"(use), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(shared_address(&barrier)), "h"(c.offset[0]) : "memory");
            if constexpr (D == 4)
                asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
                    :: "r"(shared_address(buffer)), "l"(use), "r"(c.at[0]), "r"(c.at[1]), "r"(c.at[2]), "r"(c.at[3]), "r"(shared_address(&barrier)), "h"(c.offset[0]), "h"(c.offset[1]) : "memory");
        } else {
            if constexpr (D == 2)
                asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" :: "l"(use), "r"(c.at[0]), "r"(c.at[1]) : "memory");
            tensor_load<D>(buffer, use, c, &barrier);
        }
    }
    bool done = wait(&barrier);
    if (threadIdx.x == 0) *ok = done;
    for (uint32_t i = threadIdx.x; i < room; i += blockDim.x) out[i] = buffer[i];
}

enum { STORE, ADD, MIN, MAX, INC, DEC, AND, OR, XOR };
#define REDUCE(op) asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta." op ".tile.bulk_group [%0, {%1, %2}], [%3];" \
                                :: "l"(&map), "r"(x), "r"(y), "r"(shared_address(buffer)) : "memory")

__global__ void store(const __grid_constant__ CUtensorMap map, int x, int y, int what, const uint8_t *in, uint32_t bytes) {
    for (uint32_t i = threadIdx.x; i < bytes; i += blockDim.x) buffer[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        switch (what) {
            case STORE:
                asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                             :: "l"(&map), "r"(x), "r"(y), "r"(shared_address(buffer)) : "memory");
                break;
            case ADD: REDUCE("add"); break;
            case MIN: REDUCE("min"); break;
            case MAX: REDUCE("max"); break;
            case INC: REDUCE("inc"); break;
            case DEC: REDUCE("dec"); break;
            case AND: REDUCE("and"); break;
            case OR: REDUCE("or"); break;
            case XOR: REDUCE("xor"); break;
        }
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// Bytes in a row: global to shared, shared to global, by reduction, and to the other block of the cluster.
__global__ void __cluster_dims__(2, 1, 1) rows(const uint32_t *in, uint32_t *out, uint32_t *sum, unsigned long long *least, uint32_t *ok) {
    __shared__ __align__(128) uint32_t mine[64], other[64];
    __shared__ uint64_t arrived, passed;
    uint32_t rank = blockIdx.x;
    other[threadIdx.x] = 1000;
    if (threadIdx.x == 0) { init(&arrived, 1); init(&passed, 1); }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], 256;" :: "l"(in));
        expect(&arrived, 256);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(shared_address(mine)), "l"(in + 64 * rank), "r"(256), "r"(shared_address(&arrived)) : "memory");
        expect(&passed, 256);
    }
    bool done = wait(&arrived);
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t to, barrier;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(other)), "r"(1 - rank));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(&passed)), "r"(1 - rank));
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(to), "r"(shared_address(mine)), "r"(128), "r"(barrier) : "memory");
        asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%0], [%1], %2, [%3];"
                     :: "r"(to + 128), "r"(shared_address(mine + 32)), "r"(128), "r"(barrier) : "memory");
    }
    done &= wait(&passed);
    out[64 * rank + threadIdx.x] = other[threadIdx.x];
    if (threadIdx.x == 0) {
        ok[rank] = done;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     :: "l"(out + 128 + 64 * rank), "r"(shared_address(mine)), "r"(256) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;"
                     :: "l"(sum), "r"(shared_address(mine)), "r"(256) : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.min.u64 [%0], [%1], %2;"
                     :: "l"(least), "r"(shared_address(mine)), "r"(256) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// One block reads for both.
__global__ void __cluster_dims__(2, 1, 1) multicast(const __grid_constant__ CUtensorMap map, const uint32_t *in, uint32_t *out, uint32_t *ok) {
    __shared__ __align__(128) uint32_t mine[128];
    __shared__ uint64_t barrier;
    if (threadIdx.x == 0) {
        init(&barrier, 1);
        expect(&barrier, 512);
    }
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                     :: "r"(shared_address(mine)), "l"(&map), "r"(0), "r"(2), "r"(shared_address(&barrier)), "h"((uint16_t)3) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                     :: "r"(shared_address(mine + 64)), "l"(in), "r"(256), "r"(shared_address(&barrier)), "h"((uint16_t)3) : "memory");
    }
    bool done = wait(&barrier);
    for (int i = threadIdx.x; i < 128; i += blockDim.x) out[128 * blockIdx.x + i] = mine[i];
    if (threadIdx.x == 0) ok[blockIdx.x] = done;
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

static CUresult (*encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                          const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static CUresult (*encode_im2col)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const int *,
                                 const int *, cuuint32_t, cuuint32_t, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

template <class F> static void find(const char *name, F &to) {
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion(name, (void **)&to, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) { printf("no %s\n", name); exit(1); }
}

static const int WIDTHS[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

struct Case {
    const char *name;
    CUtensorMapDataType type;
    int rank;
    cuuint64_t size[5];
    cuuint32_t box[5];
    int at[5];
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
    cuuint32_t strides[5] = {1, 1, 1, 1, 1};
    bool nan = false;
    int mode = 0;
};

static uint8_t *device_bytes(const std::vector<uint8_t> &bytes) {
    uint8_t *p;
    CHECK(cudaMalloc(&p, bytes.size()));
    CHECK(cudaMemcpy(p, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    return p;
}

static uint32_t swizzled(CUtensorMapSwizzle swizzle, uint32_t address) {
    uint32_t mask = swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 1 : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 3 : swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 7 : 0;
    return address ^ ((address >> 7 & mask) << 4);
}

template <int D> static void launch_load(const CUtensorMap &map, int mode, Coordinates c, uint32_t bytes, uint32_t room, uint8_t *out, int *ok) {
    load<D><<<1, 32, room>>>(map, mode, c, bytes, room, out, ok);
}

static void compare(const char *name, const std::vector<uint8_t> &found, const std::vector<uint8_t> &wanted, int ok) {
    size_t wrong = 0, first = 0;
    for (size_t i = wanted.size(); i-- > 0;) if (found[i] != wanted[i]) { wrong++; first = i; }
    printf("%s: %s, %zu bytes, %zu wrong", name, ok ? "arrived" : "NOT ARRIVED", wanted.size(), wrong);
    if (wrong) printf(", first at %zu: %02x instead of %02x", first, found[first], wanted[first]);
    printf("\n");
}

static void run(const Case &c, std::vector<uint8_t> *given = nullptr, bool show = false) {
    int width = WIDTHS[c.type];
    cuuint64_t pitch[5] = {(cuuint64_t)width};
    for (int d = 1; d < 5; d++) {
        cuuint64_t row = pitch[d - 1] * (d - 1 < c.rank ? c.size[d - 1] : 1);
        pitch[d] = d == 1 ? (row + 15) / 16 * 16 + 16 : row;
    }
    size_t total = pitch[c.rank - 1] * c.size[c.rank - 1];
    std::vector<uint8_t> data(total);
    for (size_t i = 0; i < total; i++) data[i] = given ? (*given)[i % given->size()] : (uint8_t)(i * 37 + i / 251 + 3);
    uint8_t *tensor = device_bytes(data);
    CUtensorMap map;
    CUresult e = encode(&map, c.type, c.rank, tensor, c.size, pitch + 1, c.box, c.strides, CU_TENSOR_MAP_INTERLEAVE_NONE, c.swizzle,
                        CU_TENSOR_MAP_L2_PROMOTION_NONE, c.nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (e) { printf("%s: encode says %d\n", c.name, e); return; }
    if (c.mode == 1) CHECK(cudaMemcpyToSymbol(constant_map, &map, sizeof map));
    if (c.mode == 2) CHECK(cudaMemcpyToSymbol(global_map, &map, sizeof map));
    uint32_t count[5], elements = 1;
    for (int d = 0; d < 5; d++) {
        count[d] = d < c.rank ? (d == 0 ? c.box[0] : (c.box[d] + c.strides[d] - 1) / c.strides[d]) : 1;
        elements *= count[d];
    }
    uint32_t row = count[0] * width, span = c.swizzle == 0 ? 0 : 16u << c.swizzle;
    uint32_t step = row > span ? row : span;
    uint32_t room = elements / count[0] * step + 1024;
    std::vector<uint8_t> wanted(room, 0xee);
    for (uint32_t i = 0; i < elements; i++) {
        uint32_t rest = i, index[5];
        cuuint64_t place = 0;
        bool inside = true;
        for (int d = 0; d < 5; d++) { index[d] = rest % count[d]; rest /= count[d]; }
        for (int d = 0; d < c.rank; d++) {
            long long x = c.at[d] + (long long)index[d] * (d == 0 ? 1 : c.strides[d]);
            inside &= x >= 0 && x < (long long)c.size[d];
            place += x * pitch[d];
        }
        uint32_t to = swizzled(c.swizzle, i / count[0] * step + index[0] * width);
        static const uint8_t nans[] = {0xf7, 0x7f, 0xf7, 0x7f, 0xf7, 0x7f, 0xf7, 0x7f};
        for (int b = 0; b < width; b++) wanted[to + b] = inside ? data[place + b] : c.nan ? nans[8 - width + b] : 0;
    }
    uint8_t *out;
    int *ok, is_ok;
    CHECK(cudaMalloc(&out, room));
    CHECK(cudaMalloc(&ok, 4));
    Coordinates at = {};
    memcpy(at.at, c.at, sizeof at.at);
    void (*launch)(const CUtensorMap &, int, Coordinates, uint32_t, uint32_t, uint8_t *, int *)
        = c.rank == 1 ? launch_load<1> : c.rank == 2 ? launch_load<2> : c.rank == 3 ? launch_load<3> : c.rank == 4 ? launch_load<4> : launch_load<5>;
    launch(map, c.mode, at, elements * width, room, out, ok);
    CHECK(cudaDeviceSynchronize());
    std::vector<uint8_t> found(room);
    CHECK(cudaMemcpy(found.data(), out, room, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&is_ok, ok, 4, cudaMemcpyDeviceToHost));
    if (show) {
        printf("%s:", c.name);
        for (uint32_t i = 0; i < row; i += width) {
            printf(" ");
            for (int b = width; b-- > 0;) printf("%02x", found[i + b]);
        }
        printf("\n");
        return;
    }
    compare(c.name, found, wanted, is_ok);
}

template <class T> static T reduced(int what, T old, T value) {
    switch (what) {
        case ADD: return old + value;
        case MIN: return value < old ? value : old;
        case MAX: return value > old ? value : old;
        default: break;
    }
    if constexpr (T(0.5) == T(0)) {
        switch (what) {
            case INC: return old >= value ? T(0) : T(old + 1);
            case DEC: return old == 0 || old > value ? value : T(old - 1);
            case AND: return old & value;
            case OR: return old | value;
            case XOR: return old ^ value;
        }
    }
    return value;
}

// A box of 32 by 4 that sticks out at two sides.
template <class T> static void run_store(const char *name, CUtensorMapDataType type, int what, CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE) {
    const int W = 32, H = 6, X = 32, Y = 4, x = 16, y = 4;
    std::vector<T> data(W * H), box(X * Y);
    for (int i = 0; i < W * H; i++) data[i] = T(i * 3 % 50);
    for (int i = 0; i < X * Y; i++) box[i] = T(i * 7 % 40);
    std::vector<T> wanted = data;
    for (int i = 0; i < X * Y; i++) {
        int c = x + i % X, r = y + i / X;
        if (c < W && r >= 0 && r < H) wanted[r * W + c] = reduced<T>(what, data[r * W + c], box[i]);
    }
    uint32_t bytes = X * Y * sizeof(T);
    std::vector<uint8_t> in(bytes);
    for (uint32_t i = 0; i < bytes; i++) in[swizzled(swizzle, i)] = ((uint8_t *)box.data())[i];
    uint8_t *tensor, *source = device_bytes(in);
    CHECK(cudaMalloc(&tensor, W * H * sizeof(T)));
    CHECK(cudaMemcpy(tensor, data.data(), W * H * sizeof(T), cudaMemcpyHostToDevice));
    cuuint64_t size[] = {W, H}, pitch[] = {W * sizeof(T)};
    cuuint32_t moved[] = {X, Y}, strides[] = {1, 1};
    CUtensorMap map;
    CUresult e = encode(&map, type, 2, tensor, size, pitch, moved, strides, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (e) { printf("%s: encode says %d\n", name, e); return; }
    store<<<1, 32, 4096>>>(map, x, y, what, source, bytes);
    CHECK(cudaDeviceSynchronize());
    std::vector<T> found(W * H);
    CHECK(cudaMemcpy(found.data(), tensor, W * H * sizeof(T), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < W * H; i++) wrong += found[i] != wanted[i];
    printf("%s: %d wrong\n", name, wrong);
}

// Pixels of 16 channels for a 3 by 3 filter, over the ends of rows and of the first image.
static void run_im2col(const char *name, cuuint32_t stride, int w, int h, int n, int wo, int ho, CUtensorMapSwizzle swizzle) {
    const int C = 16, W = 7, H = 5, N = 3, PIXELS = 32;
    std::vector<uint8_t> data(C * W * H * N * 2);
    for (size_t i = 0; i < data.size(); i++) data[i] = (uint8_t)(i * 31 + i / 97 + 1);
    uint8_t *tensor = device_bytes(data);
    cuuint64_t size[] = {C, W, H, N}, pitch[] = {C * 2, C * W * 2, C * W * H * 2};
    int lower[] = {-1, -1}, upper[] = {-1, -1};
    cuuint32_t strides[] = {1, stride, stride, 1};
    CUtensorMap map;
    CUresult e = encode_im2col(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, tensor, size, pitch, lower, upper, C, PIXELS, strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                               swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (e) { printf("%s: encode says %d\n", name, e); return; }
    uint32_t span = swizzle == 0 ? 0 : 16u << swizzle, step = C * 2 > span ? C * 2 : span, room = PIXELS * step + 1024;
    std::vector<uint8_t> wanted(room, 0xee);
    int x = w, y = h, z = n;
    for (int p = 0; p < PIXELS; p++) {
        for (int b = 0; b < C * 2; b++) {
            int px = x + wo, py = y + ho;
            bool inside = px >= 0 && px < W && py >= 0 && py < H && z >= 0 && z < N;
            wanted[swizzled(swizzle, p * step + b)] = inside ? data[((z * H + py) * W + px) * C * 2 + b] : 0;
        }
        x += stride;
        if (x > W - 1 + upper[0]) { x = lower[0]; y += stride; }
        if (y > H - 1 + upper[1]) { y = lower[1]; z++; }
    }
    uint8_t *out;
    int *ok, is_ok;
    CHECK(cudaMalloc(&out, room));
    CHECK(cudaMalloc(&ok, 4));
    Coordinates c = {{0, w, h, n}, {(uint16_t)wo, (uint16_t)ho}};
    launch_load<4>(map, 3, c, PIXELS * C * 2, room, out, ok);
    CHECK(cudaDeviceSynchronize());
    std::vector<uint8_t> found(room);
    CHECK(cudaMemcpy(found.data(), out, room, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&is_ok, ok, 4, cudaMemcpyDeviceToHost));
    compare(name, found, wanted, is_ok);
}

int main() {
    find("cuTensorMapEncodeTiled", encode);
    find("cuTensorMapEncodeIm2col", encode_im2col);
    run({"1d f32 past the end", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, {100}, {64}, {52}});
    run({"2d f16 before and past", CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, {64, 32}, {32, 8}, {-8, 28}});
    run({"2d bf16 128B", CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, {64, 64}, {64, 16}, {0, 8}, CU_TENSOR_MAP_SWIZZLE_128B, {1, 1, 1, 1, 1}, false, 1});
    run({"2d u16 64B", CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, {64, 64}, {32, 16}, {16, 3}, CU_TENSOR_MAP_SWIZZLE_64B, {1, 1, 1, 1, 1}, false, 2});
    run({"2d u8 32B", CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, {99, 40}, {32, 40}, {80, 1}, CU_TENSOR_MAP_SWIZZLE_32B});
    run({"2d f32 64 of 128B", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, {64, 64}, {16, 16}, {4, 3}, CU_TENSOR_MAP_SWIZZLE_128B});
    run({"2d u8 16 of 64B", CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, {64, 64}, {16, 16}, {16, 3}, CU_TENSOR_MAP_SWIZZLE_64B});
    run({"3d u32 with strides", CU_TENSOR_MAP_DATA_TYPE_UINT32, 3, {32, 16, 24}, {8, 8, 9}, {4, 10, 2}, CU_TENSOR_MAP_SWIZZLE_NONE, {1, 2, 3, 1, 1}});
    run({"4d s32", CU_TENSOR_MAP_DATA_TYPE_INT32, 4, {12, 5, 4, 3}, {8, 3, 2, 3}, {8, -1, 3, 1}});
    run({"5d u64", CU_TENSOR_MAP_DATA_TYPE_UINT64, 5, {4, 3, 4, 3, 5}, {4, 2, 2, 2, 2}, {0, 2, 1, 0, 4}, CU_TENSOR_MAP_SWIZZLE_NONE, {1, 1, 1, 1, 1}});
    run({"2d f16 nan", CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, {8, 4}, {16, 2}, {0, 3}, CU_TENSOR_MAP_SWIZZLE_NONE, {1, 1, 1, 1, 1}, true});
    run({"2d bf16 nan", CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, {8, 4}, {16, 2}, {0, 3}, CU_TENSOR_MAP_SWIZZLE_NONE, {1, 1, 1, 1, 1}, true});
    run({"2d f32 nan", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, {8, 4}, {16, 2}, {0, 3}, CU_TENSOR_MAP_SWIZZLE_NONE, {1, 1, 1, 1, 1}, true});
    run({"2d f64 nan", CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 2, {8, 4}, {16, 2}, {0, 3}, CU_TENSOR_MAP_SWIZZLE_NONE, {1, 1, 1, 1, 1}, true});
    const uint32_t words[] = {0x3f800fff, 0x3f801000, 0x3f803000, 0xbf802fff, 0x00000001, 0x80400000, 0x007fffff, 0x7f800001, 0x7fffffff, 0x7f800000, 0x7f7fffff, 0x00801000};
    std::vector<uint8_t> bits((const uint8_t *)words, (const uint8_t *)(words + 12));
    for (auto [name, type] : {std::pair("f32", CU_TENSOR_MAP_DATA_TYPE_FLOAT32), {"f32.ftz", CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ}, {"tf32", CU_TENSOR_MAP_DATA_TYPE_TFLOAT32}, {"tf32.ftz", CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ}}) {
        run({name, type, 1, {12}, {12}, {0}}, &bits, true);
        run({name, type, 1, {12}, {16}, {0}, CU_TENSOR_MAP_SWIZZLE_NONE, {1, 1, 1, 1, 1}, true}, &bits, true);
    }

    run_store<uint16_t>("store u16", CU_TENSOR_MAP_DATA_TYPE_UINT16, STORE);
    run_store<uint16_t>("store u16 64B", CU_TENSOR_MAP_DATA_TYPE_UINT16, STORE, CU_TENSOR_MAP_SWIZZLE_64B);
    run_store<uint8_t>("store u8", CU_TENSOR_MAP_DATA_TYPE_UINT8, STORE);
    run_store<float>("add f32", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, ADD);
    run_store<int>("add s32", CU_TENSOR_MAP_DATA_TYPE_INT32, ADD);
    run_store<uint64_t>("add u64", CU_TENSOR_MAP_DATA_TYPE_UINT64, ADD);
    run_store<int>("min s32", CU_TENSOR_MAP_DATA_TYPE_INT32, MIN);
    run_store<uint64_t>("max u64", CU_TENSOR_MAP_DATA_TYPE_UINT64, MAX);
    run_store<int64_t>("max s64", CU_TENSOR_MAP_DATA_TYPE_INT64, MAX);
    run_store<uint32_t>("inc u32", CU_TENSOR_MAP_DATA_TYPE_UINT32, INC);
    run_store<uint32_t>("dec u32", CU_TENSOR_MAP_DATA_TYPE_UINT32, DEC);
    run_store<uint32_t>("and u32", CU_TENSOR_MAP_DATA_TYPE_UINT32, AND);
    run_store<int>("or s32", CU_TENSOR_MAP_DATA_TYPE_INT32, OR);
    run_store<uint64_t>("xor u64", CU_TENSOR_MAP_DATA_TYPE_UINT64, XOR);

    run_im2col("im2col", 1, 2, 1, 0, 0, 0, CU_TENSOR_MAP_SWIZZLE_NONE);
    run_im2col("im2col at an offset", 1, -1, -1, 1, 2, 1, CU_TENSOR_MAP_SWIZZLE_32B);
    run_im2col("im2col with strides", 2, -1, -1, 0, 1, 2, CU_TENSOR_MAP_SWIZZLE_NONE);
    run_im2col("im2col past the end", 1, 4, 3, 2, 2, 2, CU_TENSOR_MAP_SWIZZLE_64B);

    std::vector<uint32_t> in(128), out(512), sum(64);
    for (int i = 0; i < 128; i++) in[i] = i * i + 1;
    uint32_t *device_in = (uint32_t *)device_bytes(std::vector<uint8_t>((uint8_t *)in.data(), (uint8_t *)(in.data() + 128)));
    uint32_t *device_out, *device_sum, *ok, is_ok[2];
    unsigned long long *device_least;
    CHECK(cudaMalloc(&device_out, 2048));
    CHECK(cudaMalloc(&device_sum, 256));
    CHECK(cudaMalloc(&device_least, 256));
    CHECK(cudaMalloc(&ok, 8));
    CHECK(cudaMemset(device_sum, 0, 256));
    CHECK(cudaMemset(device_least, 0xff, 256));
    rows<<<2, 64>>>(device_in, device_out, device_sum, device_least, ok);
    CHECK(cudaDeviceSynchronize());
    unsigned long long least[32];
    CHECK(cudaMemcpy(out.data(), device_out, 1024, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(sum.data(), device_sum, 256, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(least, device_least, 256, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(is_ok, ok, 8, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < 128; i++) {
        int from = (i + 64) % 128;
        wrong += out[i] != (i % 64 < 32 ? in[from] : in[from] + 1000);
        wrong += out[128 + i] != in[i];
        if (i < 64) wrong += sum[i] != in[i] + in[64 + i];
        if (i < 32) wrong += least[i] != (in[2 * i] | (unsigned long long)in[2 * i + 1] << 32);
    }
    printf("rows: arrived %u %u, %d wrong\n", is_ok[0], is_ok[1], wrong);

    cuuint64_t size[] = {16, 8}, pitch[] = {64};
    cuuint32_t box[] = {16, 4}, strides[] = {1, 1};
    CUtensorMap map;
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, device_in, size, pitch, box, strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
           CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    multicast<<<2, 64>>>(map, device_in + 64, device_out, ok);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(out.data(), device_out, 1024, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(is_ok, ok, 8, cudaMemcpyDeviceToHost));
    wrong = 0;
    for (int i = 0; i < 256; i++) wrong += out[i] != (i % 128 < 64 ? in[32 + i % 128] : in[i % 128]);
    printf("multicast: arrived %u %u, %d wrong\n", is_ok[0], is_ok[1], wrong);

    // What is refused.
    cuuint64_t odd[] = {72}, none[] = {0, 8};
    cuuint32_t large[] = {257, 1}, narrow[] = {3, 1}, wide[] = {64, 1}, nine[] = {1, 9};
    auto says = [&](CUtensorMapDataType type, int rank, void *at, cuuint64_t *size, cuuint64_t *pitch, cuuint32_t *box, cuuint32_t *strides, CUtensorMapSwizzle swizzle, CUtensorMapFloatOOBfill fill) {
        printf(" %d", encode(&map, type, rank, at, size, pitch, box, strides, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, fill));
    };
    printf("refused:");
    auto U = CU_TENSOR_MAP_DATA_TYPE_UINT32;
    auto S = CU_TENSOR_MAP_SWIZZLE_NONE;
    auto Z = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    says((CUtensorMapDataType)99, 2, device_in, size, pitch, box, strides, S, Z);
    says(U, 0, device_in, size, pitch, box, strides, S, Z);
    says(U, 6, device_in, size, pitch, box, strides, S, Z);
    says(U, 2, (uint8_t *)device_in + 8, size, pitch, box, strides, S, Z);
    says(U, 2, device_in, none, pitch, box, strides, S, Z);
    says(U, 2, device_in, size, odd, box, strides, S, Z);
    says(U, 2, device_in, size, pitch, large, strides, S, Z);
    says(U, 2, device_in, size, pitch, narrow, strides, S, Z);
    says(U, 2, device_in, size, pitch, wide, strides, CU_TENSOR_MAP_SWIZZLE_128B, Z);
    says(U, 2, device_in, size, pitch, box, nine, S, Z);
    says(U, 2, device_in, size, pitch, box, strides, S, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
    says(U, 2, device_in, size, pitch, nullptr, strides, S, Z);
    says(U, 2, device_in, size, pitch, box, strides, (CUtensorMapSwizzle)9, Z);
    printf("\n");
}
