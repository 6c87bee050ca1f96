// Kernels that share state with their module in every way that matters to an instrumented copy. Each prints what it
// computed; each is launched with a known geometry. The output must not change with probes.
#include <cstdio>
#include <cstring>
#include <new>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                          \
            fprintf(stderr, "variants: %s: %s\n", #call, cudaGetErrorString(error));         \
            return 1;                                                                        \
        }                                                                                    \
    } while (0)

// A variable that host and several kernels read and write.
__device__ int shared_counter = 100;
__device__ int history[4];

__global__ void addToGlobal(int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    atomicAdd(&shared_counter, 1);
    history[i % 4] = 7;
}

__global__ void readGlobal(int *out)
{
    out[threadIdx.x] = shared_counter + history[threadIdx.x % 4];
}

// Constant memory that the host sets.
__constant__ int table[64];

__global__ void useConstant(int *out)
{
    out[threadIdx.x] = table[threadIdx.x % 64] * 2;
}

// Function pointers in device memory.
typedef int (*operation)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ operation operations[2] = {add, multiply};

__global__ void callPointer(int *out)
{
    out[threadIdx.x] = operations[threadIdx.x % 2](threadIdx.x, 3);
}

// An object made by one kernel and used through its virtual function by another.
struct Shape {
    __device__ virtual int area() const { return 1; }
};
struct Square : Shape {
    int side;
    __device__ Square(int s) : side(s) {}
    __device__ int area() const override { return side * side; }
};
__device__ char storage[64];

__global__ void makeObject(int side) { new (storage) Square(side); }
__global__ void useObject(int *out) { out[threadIdx.x] = ((Shape *)storage)->area() + threadIdx.x; }

// A way out of the kernel inside a function.
__device__ __noinline__ void leaveIfOdd(int i, int *out)
{
    if (i % 2) {
        out[i] = -1;
        asm volatile("exit;");
    }
}

__global__ void exitInFunction(int *out)
{
    leaveIfOdd(threadIdx.x, out);
    out[threadIdx.x] = threadIdx.x;
}

// Lanes that leave at different times, by several returns.
__global__ void leaveApart(int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = 1;
    if (threadIdx.x % 4 == 0)
        return;
    for (int k = 0; k < threadIdx.x; k++)
        out[i] += k;
    if (threadIdx.x % 4 == 1)
        return;
    __syncwarp(__activemask());
    out[i] *= 2;
}

__global__ void speak(int n)
{
    // Of one block: what several print comes in any order.
    if (blockIdx.x == 1 && threadIdx.x < n)
        printf("thread %d of block %d says %s %.2f\n", threadIdx.x, blockIdx.x, "hello", threadIdx.x * 0.5);
}

extern __shared__ int scratch[];
__global__ void dynamicShared(int *out)
{
    scratch[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = scratch[blockDim.x - 1 - threadIdx.x];
}

template <typename T, int N> __global__ void templated(T *out)
{
    out[threadIdx.x] = T(threadIdx.x) * N;
}

static int *device;
static int host[256];

static int show(const char *name, int n)
{
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host, device, n * sizeof(int), cudaMemcpyDeviceToHost));
    unsigned long long sum = 0;
    for (int i = 0; i < n; i++)
        sum = sum * 31 + (unsigned)host[i];
    printf("%s %d %d %d %016llx\n", name, host[0], host[1], host[n - 1], sum);
    return 0;
}

int main()
{
    CHECK(cudaMalloc(&device, sizeof(host)));
    CHECK(cudaMemset(device, 0, sizeof(host)));

    addToGlobal<<<3, 64>>>(150);
    int value = 0;
    CHECK(cudaMemcpyFromSymbol(&value, shared_counter, sizeof(value)));
    printf("counter %d\n", value);
    value = 1000;
    CHECK(cudaMemcpyToSymbol(shared_counter, &value, sizeof(value)));
    addToGlobal<<<1, 64>>>(64);
    readGlobal<<<1, 32>>>(device);
    if (show("readGlobal", 32))
        return 1;

    int numbers[64];
    for (int i = 0; i < 64; i++)
        numbers[i] = i * i;
    CHECK(cudaMemcpyToSymbol(table, numbers, sizeof(numbers)));
    useConstant<<<1, 128>>>(device);
    if (show("useConstant", 128))
        return 1;

    callPointer<<<1, 96>>>(device);
    if (show("callPointer", 96))
        return 1;

    makeObject<<<1, 1>>>(9);
    useObject<<<1, 40>>>(device);
    if (show("useObject", 40))
        return 1;

    exitInFunction<<<1, 64>>>(device);
    if (show("exitInFunction", 64))
        return 1;

    leaveApart<<<2, 100>>>(device);
    if (show("leaveApart", 200))
        return 1;

    speak<<<2, 32>>>(1);
    CHECK(cudaDeviceSynchronize());

    CHECK(cudaFuncSetAttribute(dynamicShared, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024));
    dynamicShared<<<1, 256, 60 * 1024>>>(device);
    if (show("dynamicShared", 256))
        return 1;

    templated<int, 5><<<1, 50>>>(device);
    if (show("templated<int, 5>", 50))
        return 1;
    CHECK(cudaFree(device));
    return 0;
}
