// What every program of the corpus shares: deterministic inputs, a checksum per kernel over the exact bits, and a choice
// of kernels on the command line, so that one that an engine cannot run does not hide the others.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                                     \
    do {                                                                                                \
        cudaError_t error = (call);                                                                     \
        if (error != cudaSuccess) {                                                                     \
            fflush(stdout);                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error));   \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

namespace corpus {

// The same numbers on host and device.
__host__ __device__ inline uint32_t number(uint32_t i)
{
    i = (i ^ 0x9d2c5680u) * 0x01000193u;
    i ^= i >> 15;
    i *= 0x2545f491u;
    return i ^ (i >> 13);
}

// Small whole numbers, so that sums of products are exact in every format and order.
__host__ __device__ inline int small(uint32_t i) { return (int)(number(i) % 9u) - 4; }

// Device memory and its copy on the host.
template <typename T> struct Buffer {
    std::vector<T> host;
    T *device = nullptr;

    explicit Buffer(size_t n) : host(n)
    {
        CHECK(cudaMalloc(&device, n * sizeof(T)));
        CHECK(cudaMemset(device, 0, n * sizeof(T)));
    }
    template <typename F> Buffer(size_t n, F value) : Buffer(n)
    {
        for (size_t i = 0; i < n; i++)
            host[i] = value((uint32_t)i);
        CHECK(cudaMemcpy(device, host.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    Buffer(const Buffer &) = delete;
    ~Buffer() { cudaFree(device); }

    const std::vector<T> &fetch()
    {
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }
};

// One line per kernel: FNV-1a of 64 bits over the output's bytes.
template <typename T> void print(const char *name, const std::vector<T> &values)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    const unsigned char *bytes = (const unsigned char *)values.data();
    for (size_t i = 0; i < values.size() * sizeof(T); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
    printf("%s: %016llx\n", name, (unsigned long long)hash);
    fflush(stdout);
}

template <typename T> void report(const char *name, Buffer<T> &out) { print(name, out.fetch()); }

// As above, and every element must be what the host computes.
template <typename T, typename F> void report(const char *name, Buffer<T> &out, F expected)
{
    const std::vector<T> &values = out.fetch();
    for (size_t i = 0; i < values.size(); i++) {
        T wanted = expected((uint32_t)i);
        if (memcmp(&wanted, &values[i], sizeof(T)) != 0) {
            fflush(stdout);
            fprintf(stderr, "%s: element %zu of %zu is wrong\n", name, i, values.size());
            exit(1);
        }
    }
    print(name, values);
}

struct Case {
    const char *name;
    void (*run)();
};

// `program` runs all, `program NAME…` those, `program --list` prints the names.
template <size_t N> int run(int argc, char **argv, const Case (&cases)[N])
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const Case &one : cases)
            puts(one.name);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        bool known = false;
        for (const Case &one : cases)
            known |= strcmp(one.name, argv[i]) == 0;
        if (!known) {
            fprintf(stderr, "there is no kernel `%s` here\n", argv[i]);
            return 2;
        }
    }
    for (const Case &one : cases) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++)
            wanted |= strcmp(one.name, argv[i]) == 0;
        if (wanted)
            one.run();
    }
    return 0;
}

} // namespace corpus

using corpus::Buffer;
using corpus::number;
using corpus::report;
using corpus::small;
