// Memory of a thread's own, prefetches, and stores of every width: what each thread does is known, and the host says how many of each there are and what is stored.
// usage: locals [launches]
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "check.h"

typedef unsigned long long word;

static const int blocks = 60, threads = 128, n = blocks * threads - 29, steps = 9;

__host__ __device__ static word mixed(word i)
{
    i *= 0x9e3779b97f4a7c15ull;
    return i ^ i >> 29;
}

// Arrays with places that are known when it runs only, which are in local memory then: in each step one store to each, then one load.
__global__ void indexed(word *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    unsigned char bytes[16];
    unsigned words[16];
    word longs[16];
    word sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        word value = mixed(i + step);
        int at = value >> 40 & 15;
        bytes[at] = (unsigned char)value;
        words[at] = (unsigned)value;
        longs[at] = value;
        // What was stored a moment ago is read at a place of which the compiler does not know that it is the same.
        int again = (int)(mixed(i + step) >> 40) & 15;
        asm volatile("" : "+r"(again)::"memory");
        sum += bytes[again] + words[again] + longs[again];
    }
    out[i] = sum;
}

__global__ void widths(const word *in, unsigned char *one, unsigned short *two, unsigned *four, word *eight, uint4 *sixteen, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    word value = in[i];
    one[i] = (unsigned char)value;
    if (i % 2 == 0)
        two[i] = (unsigned short)value;
    if (i % 3 == 0)
        four[i] = (unsigned)value;
    if (i % 5 == 0)
        eight[i] = value;
    if (i % 7 == 0)
        sixteen[i] = make_uint4((unsigned)value, (unsigned)(value >> 32), ~(unsigned)value, i);
}

// One of each thread to the second cache, and of every third one to the first.
__global__ void fetches(const word *in, word *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(in + i)));
    if (i % 3 == 0)
        asm volatile("prefetch.global.L1 [%0];" ::"l"(__cvta_generic_to_global(in + i)));
    out[i] = in[i] + 1;
}

static int wrong = 0;

// `to` as the device has left it, where a thread in `every` stores.
template <typename T, typename V> static void stored(const char *what, const T *device, int every, V value)
{
    std::vector<T> host(n);
    CHECK(cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
    word count = 0, sum = 0;
    for (int i = 0; i < n; i += every) {
        wrong += host[i] != (T)value(i);
        count++;
        sum += (T)value(i);
    }
    printf("%s %llu stores, sum %llu\n", what, count, sum);
}

template <typename T> static T *made(size_t count)
{
    T *device;
    CHECK(cudaMalloc(&device, count * sizeof(T)));
    CHECK(cudaMemset(device, 0, count * sizeof(T)));
    return device;
}

int main(int argc, char **argv)
{
    int launches = argc > 1 ? atoi(argv[1]) : 1;
    std::vector<word> host(n);
    for (int i = 0; i < n; i++)
        host[i] = mixed(i + 77);
    auto value = [&](int i) { return host[i]; };
    word *in = made<word>(n), *out = made<word>(n), *eight = made<word>(n);
    unsigned char *one = made<unsigned char>(n);
    unsigned short *two = made<unsigned short>(n);
    unsigned *four = made<unsigned>(n);
    uint4 *sixteen = made<uint4>(n);
    CHECK(cudaMemcpy(in, host.data(), n * sizeof(word), cudaMemcpyHostToDevice));
    for (int launch = 0; launch < launches; launch++) {
        indexed<<<blocks, threads>>>(out, n);
        widths<<<blocks, threads>>>(in, one, two, four, eight, sixteen, n);
    }
    CHECK(cudaGetLastError());
    stored("bytes", one, 1, value);
    stored("halves", two, 2, value);
    stored("words", four, 3, value);
    stored("longs", eight, 5, value);
    std::vector<uint4> vectors(n);
    CHECK(cudaMemcpy(vectors.data(), sixteen, n * sizeof(uint4), cudaMemcpyDeviceToHost));
    word count = 0, low = 0, high = 0;
    for (int i = 0; i < n; i += 7) {
        const uint4 &v = vectors[i];
        word first = v.x | (word)v.y << 32, second = v.z | (word)v.w << 32;
        wrong += first != host[i] || v.z != ~(unsigned)host[i] || v.w != (unsigned)i;
        count++;
        low += first;
        high += second;
    }
    printf("vectors %llu stores, sum %llu, sum %llu\n", count, low, high);
    word sum = 0;
    std::vector<word> sums(n);
    CHECK(cudaMemcpy(sums.data(), out, n * sizeof(word), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) {
        word expected = 0;
        for (int step = 0; step < steps; step++) {
            word v = mixed(i + step);
            expected += (unsigned char)v + (unsigned)v + v;
            sum += (unsigned char)v;
            sum += (unsigned)v;
            sum += v;
        }
        wrong += sums[i] != expected;
    }
    printf("private %llu stores, sum %llu\n", (word)n * steps * 3, sum);
    for (int launch = 0; launch < launches; launch++)
        fetches<<<blocks, threads>>>(in, out, n);
    CHECK(cudaMemcpy(sums.data(), out, n * sizeof(word), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        wrong += sums[i] != host[i] + 1;
    printf("locals: %d launches, %d threads, %d wrong\n", launches, n, wrong);
    return wrong != 0;
}
