// Uses the runtime API in breadth and prints what it sees, one line per subject; every line is deterministic.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                      \
    do {                                                                                 \
        cudaError_t status = (call);                                                     \
        if (status != cudaSuccess) {                                                     \
            printf("%s: %s (%s)\n", #call, cudaGetErrorName(status), cudaGetErrorString(status)); \
            exit(1);                                                                     \
        }                                                                                \
    } while (0)

__device__ int counter = 7;
__device__ int table[64];
__constant__ float factors[4] = {1, 2, 3, 4};

__global__ void scale(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factors[i & 3];
}

__global__ void count() { atomicAdd(&counter, 1); }

__global__ void __launch_bounds__(128) sum_shared(const int *in, int *out) {
    extern __shared__ int scratch[];
    scratch[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) scratch[threadIdx.x] += scratch[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = scratch[0];
}

__global__ void hello() { printf("hello from block %d\n", (int)blockIdx.x); }

__global__ void fill_rows(char *base, size_t pitch, int width, int height) {
    for (int y = threadIdx.x; y < height; y += blockDim.x)
        for (int x = 0; x < width; x++) base[y * pitch + x] = (char)(y * 10 + x);
}

static int host_calls = 0;
static void note(void *by) { host_calls += *(int *)by; }
static void CUDART_CB callback(cudaStream_t, cudaError_t status, void *by) {
    if (status == cudaSuccess) host_calls += *(int *)by;
}

int main() {
    int runtime, driver, devices, device, attribute;
    CHECK(cudaRuntimeGetVersion(&runtime));
    CHECK(cudaDriverGetVersion(&driver));
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaSetDevice(0));
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&attribute, cudaDevAttrMultiProcessorCount, 0));
    cudaDeviceProp prop;
    CHECK(cudaGetDeviceProperties(&prop, 0));
    printf("versions %d %d, devices %d, device %d, sms %d %d\n", runtime, driver, devices, device, attribute,
           prop.multiProcessorCount);
    printf("%s %d.%d warp %d shared %zu %zu threads %d reserved %zu\n", prop.name, prop.major, prop.minor, prop.warpSize,
           prop.sharedMemPerBlock, prop.sharedMemPerBlockOptin, prop.maxThreadsPerBlock, prop.reservedSharedMemPerBlock);
    printf("set device 1: %s\n", cudaGetErrorName(cudaSetDevice(1)));
    printf("peeked at: %s\n", cudaGetErrorName(cudaPeekAtLastError()));
    printf("last error: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("then: %s\n", cudaGetErrorName(cudaGetLastError()));

    // Symbols.
    float other[4] = {10, 20, 30, 40};
    CHECK(cudaMemcpyToSymbol(factors, other, sizeof other));
    float x[8] = {1, 1, 1, 1, 2, 2, 2, 2}, *dx;
    CHECK(cudaMalloc(&dx, sizeof x));
    CHECK(cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice));
    scale<<<1, 8>>>(dx, 8);
    CHECK(cudaMemcpy(x, dx, sizeof x, cudaMemcpyDefault));
    printf("scaled %g %g %g %g %g %g %g %g\n", x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
    count<<<10, 32>>>();
    int value;
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    size_t bytes;
    void *address;
    CHECK(cudaGetSymbolSize(&bytes, table));
    CHECK(cudaGetSymbolAddress(&address, table));
    CHECK(cudaMemset(address, 1, bytes));
    int part[2];
    CHECK(cudaMemcpyFromSymbol(part, table, sizeof part, 62 * sizeof(int)));
    printf("counter %d, table %zu bytes, %#x %#x\n", value, bytes, part[0], part[1]);

    // Streams, events, pinned memory, host functions.
    cudaStream_t stream, urgent;
    CHECK(cudaStreamCreate(&stream));
    int least, greatest, priority;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
    CHECK(cudaStreamGetPriority(urgent, &priority));
    int *pinned, *din, *dout;
    CHECK(cudaMallocHost(&pinned, 512 * sizeof(int)));
    for (int i = 0; i < 512; i++) pinned[i] = i;
    CHECK(cudaMallocAsync(&din, 512 * sizeof(int), stream));
    CHECK(cudaMalloc(&dout, 4 * sizeof(int)));
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreateWithFlags(&stop, cudaEventDefault));
    CHECK(cudaEventRecord(start, stream));
    CHECK(cudaMemcpyAsync(din, pinned, 512 * sizeof(int), cudaMemcpyHostToDevice, stream));
    sum_shared<<<4, 128, 128 * sizeof(int), stream>>>(din, dout);
    int by = 5;
    CHECK(cudaLaunchHostFunc(stream, note, &by));
    CHECK(cudaStreamAddCallback(stream, callback, &by, 0));
    CHECK(cudaEventRecord(stop, stream));
    CHECK(cudaStreamWaitEvent(urgent, stop, 0));
    int sums[4];
    CHECK(cudaMemcpyAsync(sums, dout, sizeof sums, cudaMemcpyDeviceToHost, urgent));
    CHECK(cudaStreamSynchronize(urgent));
    CHECK(cudaEventSynchronize(stop));
    CHECK(cudaStreamSynchronize(stream));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    printf("sums %d %d %d %d, host calls %d, time %s, query %s, priority %s\n", sums[0], sums[1], sums[2], sums[3],
           host_calls, ms > 0 ? "passed" : "stood still", cudaGetErrorName(cudaStreamQuery(stream)),
           priority == greatest && greatest < least ? "kept" : "lost");
    CHECK(cudaFreeAsync(din, stream));
    CHECK(cudaStreamDestroy(stream));

    // Rows and managed memory.
    char *rows;
    size_t pitch;
    CHECK(cudaMallocPitch(&rows, &pitch, 6, 5));
    CHECK(cudaMemset2D(rows, pitch, '-', 6, 5));
    fill_rows<<<1, 4>>>(rows, pitch, 4, 5);
    char square[3][6];
    CHECK(cudaMemcpy2D(square, 6, rows + pitch, pitch, 6, 3, cudaMemcpyDeviceToHost));
    printf("pitch %zu, rows %d %d %c, %d %d %c\n", pitch, square[0][0], square[0][3], square[0][4], square[2][0],
           square[2][3], square[2][5]);
    int *managed;
    CHECK(cudaMallocManaged(&managed, 128 * sizeof(int)));
    for (int i = 0; i < 128; i++) managed[i] = 2;
    sum_shared<<<1, 128, 128 * sizeof(int)>>>(managed, managed);
    CHECK(cudaDeviceSynchronize());
    cudaPointerAttributes attributes, ours;
    CHECK(cudaPointerGetAttributes(&attributes, managed));
    CHECK(cudaPointerGetAttributes(&ours, square));
    printf("managed sum %d, type %d, ours %d\n", managed[0], (int)attributes.type, (int)ours.type);
    int *zero_copy;
    CHECK(cudaHostGetDevicePointer(&zero_copy, pinned, 0));
    sum_shared<<<1, 128, 128 * sizeof(int)>>>(zero_copy, zero_copy + 200);
    CHECK(cudaDeviceSynchronize());
    printf("zero copy sum %d\n", pinned[200]);

    // Kernel attributes and occupancy.
    cudaFuncAttributes function;
    CHECK(cudaFuncGetAttributes(&function, sum_shared));
    int blocks, best, grid;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sum_shared, 128, 0));
    CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &best, scale, 0, 0));
    printf("max threads %d, static shared %zu, blocks %d, best block %d\n", function.maxThreadsPerBlock,
           function.sharedSizeBytes, blocks, best);
    CHECK(cudaFuncSetAttribute(sum_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
    sum_shared<<<1, 128, 100 << 10>>>(managed, managed + 1);
    printf("large shared: %s\n", cudaGetErrorName(cudaGetLastError()));
    sum_shared<<<1, 128, 101 << 10>>>(managed, managed + 1);
    printf("too large shared: %s\n", cudaGetErrorName(cudaGetLastError()));
    count<<<1, 2048>>>();
    printf("too many threads: %s\n", cudaGetErrorName(cudaGetLastError()));
    sum_shared<<<1, 256, 1024>>>(managed, managed + 1);
    printf("beyond the bounds: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("no direction: %s\n", cudaGetErrorName(cudaMemcpy(dx, x, 4, (cudaMemcpyKind)9)));
    printf("too far: %s\n", cudaGetErrorName(cudaMemcpy(dx, x, sizeof x + 1, cudaMemcpyHostToDevice)));
    printf("free of nothing: %s\n", cudaGetErrorName(cudaFree(nullptr)));
    printf("free of a stranger: %s\n", cudaGetErrorName(cudaFree(x)));
    cudaGetLastError();

    // The device's printf comes out with the host's lines in order.
    printf("before\n");
    hello<<<2, 1>>>();
    CHECK(cudaDeviceSynchronize());
    printf("after\n");
    CHECK(cudaDeviceReset());
    count<<<1, 1>>>();
    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
    printf("after a reset the counter is %d\n", value);
    return 0;
}
