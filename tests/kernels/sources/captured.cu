// Runs PTX that Triton made (triton/capture.py) by the driver API: a program that brings text and no machine code.
// usage: captured FOLDER [NAME…]
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <cuda.h>
#include <cuda_fp16.h>

#include "corpus.h"

static std::string folder;

// Entry points by name, so that nothing is linked that a machine without a driver lacks.
template <typename F> static F entry(const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    CHECK(cudaGetDriverEntryPointByVersion(name, &found, 13000, cudaEnableDefault, &result));
    if (!found) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
    return (F)found;
}

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fflush(stdout);
        fprintf(stderr, "%s: error %d\n", what, result);
        exit(1);
    }
}

// Launches `name` of its own file. Triton adds parameters behind those of the source: pointers to scratch memory, null
// for kernels that need none.
static void launch(const char *name, unsigned grid, std::vector<void *> values)
{
    std::string base = folder + "/" + name;
    std::ifstream text(base + ".ptx"), how(base + ".launch");
    if (!text || !how) {
        fprintf(stderr, "there is no %s.ptx with its .launch: triton/capture.py makes them\n", base.c_str());
        exit(1);
    }
    std::stringstream ptx;
    ptx << text.rdbuf();
    std::string word;
    unsigned threads = 0, shared = 0;
    how >> word >> threads >> word >> shared;

    CUmodule module;
    CUfunction function;
    must(entry<decltype(&cuModuleLoadData)>("cuModuleLoadData")(&module, ptx.str().c_str()), "cuModuleLoadData");
    must(entry<decltype(&cuModuleGetFunction)>("cuModuleGetFunction")(&function, module, name), "cuModuleGetFunction");
    if (shared > 48 * 1024)
        must(entry<decltype(&cuFuncSetAttribute)>("cuFuncSetAttribute")(
                 function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared),
             "cuFuncSetAttribute");
    auto info = entry<decltype(&cuFuncGetParamInfo)>("cuFuncGetParamInfo");
    static void *none = nullptr;
    size_t offset, size;
    while (info(function, values.size(), &offset, &size) == CUDA_SUCCESS)
        values.push_back(&none);
    must(entry<decltype(&cuLaunchKernel)>("cuLaunchKernel")(function, grid, 1, 1, threads, 1, 1, shared, nullptr,
                                                            values.data(), nullptr),
         "cuLaunchKernel");
}

static const auto SMALL = [](uint32_t i) { return (float)small(i); };
static const auto HALF = [](uint32_t i) { return __float2half((float)small(i)); };

static const corpus::Case cases[] = {
    {"tritonAdd",
     [] {
         int n = 1000;
         Buffer<float> x(n, SMALL), y(n, SMALL), out(n);
         launch("tritonAdd", 4, {&x.device, &y.device, &out.device, &n});
         report("tritonAdd", out, [&](uint32_t i) { return x.host[i] + y.host[i]; });
     }},
    {"tritonRows",
     [] {
         int columns = 200;
         Buffer<float> x(6 * columns, SMALL), out(6 * columns);
         launch("tritonRows", 6, {&x.device, &out.device, &columns});
         report("tritonRows", out);
     }},
    {"tritonMatmul",
     [] {
         int block = 64, k = 128;
         Buffer<__half> a(block * k, HALF), b(k * block, HALF);
         Buffer<float> c(block * block);
         launch("tritonMatmul", 1, {&a.device, &b.device, &c.device, &k});
         report("tritonMatmul", c, [&](uint32_t i) {
             float sum = 0;
             for (int j = 0; j < k; j++)
                 sum += (float)a.host[i / block * k + j] * (float)b.host[j * block + i % block];
             return sum;
         });
     }},
};

int main(int argc, char **argv)
{
    bool listing = argc == 2 && strcmp(argv[1], "--list") == 0;
    if (argc < 2) {
        fprintf(stderr, "usage: captured FOLDER [NAME...]\n");
        return 2;
    }
    if (listing)
        return corpus::run(argc, argv, cases);
    folder = argv[1];
    return corpus::run(argc - 1, argv + 1, cases);
}
