// What the kernels of jit.cu and linked.cu have in common: each adds `2 * i * 3 + 1` to a word for its thread `i`. Its module is loaded, launched so
// often, looked at word by word, and the sum is told.
#pragma once
#include <string>
#include <vector>

#include "check.h"

#define THREADS 640u
#define COUNT 600u

[[noreturn]] static void fail(const char *what, const std::string &why)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why.c_str());
    exit(1);
}

static unsigned *zeroed_sums()
{
    unsigned *sums;
    CHECK(cudaMalloc(&sums, COUNT * sizeof(*sums)));
    CHECK(cudaMemset(sums, 0, COUNT * sizeof(*sums)));
    return sums;
}

// `how` is how the image was made, `kernel` its name in there.
static void run_adds(const std::vector<char> &image, const char *kernel, unsigned *sums, const char *how, unsigned launches)
{
    unsigned threads = COUNT;
    CUmodule module;
    CUfunction entry;
    DRIVER(cuModuleLoadData, &module, image.data());
    DRIVER(cuModuleGetFunction, &entry, module, kernel);
    void *parameters[] = {&sums, &threads};
    for (unsigned i = 0; i < launches; i++)
        DRIVER(cuLaunchKernel, entry, THREADS / 64, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr);
    std::vector<unsigned> found(COUNT);
    CHECK(cudaMemcpy(found.data(), sums, COUNT * sizeof(*sums), cudaMemcpyDeviceToHost));
    unsigned long long sum = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        sum += found[i];
        if (found[i] != launches * (2 * i * 3 + 1))
            fail("a wrong sum", std::to_string(i));
    }
    printf("%s %s: %llu\n", program_invocation_short_name, how, sum);
    DRIVER(cuModuleUnload, module);
}
