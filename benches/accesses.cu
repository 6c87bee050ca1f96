// GPU time of kernels of which there is only machine code, launched one by one: an addition of 16 M floats, and a stencil that loads 17 for each that it stores.
// For programs at accesses by Compute Sanitizer, which are in no graphs. Prints, per kernel: its name, the median of its times in µs, whether its results
// are right; at last what all launches have accessed.
//   KERNEL MICROSECONDS right|WRONG
//   accesses ACCESSES BYTES
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                            \
    do {                                                                                       \
        cudaError_t error = (call);                                                            \
        if (error != cudaSuccess) {                                                            \
            fprintf(stderr, "accesses: %s: %s\n", #call, cudaGetErrorString(error));           \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

static const int n = 1 << 24, threads = 512, width = 8;

__global__ void addition(const float *a, const float *b, float *c)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] + b[i];
}

// Loads are volatile, so that each is one instruction.
__global__ void stencil(const volatile float *a, const float *, float *c)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = -width; k <= width; k++)
        sum += a[(i + k) & (n - 1)];
    c[i] = sum;
}

static float value(int i)
{
    return (float)(i & 255);
}

int main(int argc, char **argv)
{
    const int launches = argc > 1 ? atoi(argv[1]) : 40, warm = 3;
    std::vector<float> host(n), result(n);
    for (int i = 0; i < n; i++)
        host[i] = value(i);
    float *a, *b, *c;
    CHECK(cudaMalloc(&a, n * 4ull));
    CHECK(cudaMalloc(&b, n * 4ull));
    CHECK(cudaMalloc(&c, n * 4ull));
    CHECK(cudaMemcpy(a, host.data(), n * 4ull, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, host.data(), n * 4ull, cudaMemcpyHostToDevice));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    unsigned long long accesses = 0;
    int wrong = 0;
    for (bool adds : {true, false}) {
        std::vector<float> times;
        for (int launch = 0; launch < warm + launches; launch++) {
            CHECK(cudaEventRecord(begin));
            if (adds)
                addition<<<n / threads, threads>>>(a, b, c);
            else
                stencil<<<n / threads, threads>>>(a, b, c);
            CHECK(cudaEventRecord(end));
            CHECK(cudaEventSynchronize(end));
            float ms;
            CHECK(cudaEventElapsedTime(&ms, begin, end));
            if (launch >= warm)
                times.push_back(ms * 1000);
            accesses += (unsigned long long)n * (adds ? 3 : 2 * width + 2);
        }
        std::sort(times.begin(), times.end());
        CHECK(cudaMemcpy(result.data(), c, n * 4ull, cudaMemcpyDeviceToHost));
        bool right = true;
        for (int i = 0; i < n; i++) {
            float expected = adds ? 2 * value(i) : 0;
            for (int k = -width; !adds && k <= width; k++)
                expected += value((i + k) & (n - 1));
            right &= result[i] == expected;
        }
        printf("%s %.2f %s\n", adds ? "addition" : "stencil", times[times.size() / 2], right ? "right" : "WRONG");
        wrong += !right;
    }
    printf("accesses %llu %llu\n", accesses, accesses * 4);
    return wrong != 0;
}
