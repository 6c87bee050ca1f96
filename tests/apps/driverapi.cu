// Calls of the driver API in every way to make one: by a symbol that the linker resolved, by dlsym, by cuGetProcAddress, and as
// per-thread functions. Threads make them at once, some of them fail, and each kind is made a known number of times.
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <thread>
#include <vector>

#include "driver.h"

// The functions that are called, as one way finds them.
struct Api {
    decltype(&cuMemcpyHtoDAsync_v2) to_device;
    decltype(&cuMemcpyDtoHAsync_v2) to_host;
    decltype(&cuMemsetD32Async) fill;
    decltype(&cuLaunchKernel) launch;
    decltype(&cuStreamSynchronize) wait;
};

template <typename F>
static F symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "driverapi: no %s\n", name);
        exit(1);
    }
    return (F)found;
}

template <typename F>
static F asked(const char *name, cuuint64_t flags)
{
    void *found = nullptr;
    CUdriverProcAddressQueryResult status;
    DO(cuGetProcAddress(name, &found, 12000, flags, &status));
    return (F)found;
}

constexpr int BLOCKS = 8, THREADS = 64, WORDS = BLOCKS * THREADS;

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 4, threads = argc > 2 ? atoi(argv[2]) : 4;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    const Api ways[] = {
        { cuMemcpyHtoDAsync_v2, cuMemcpyDtoHAsync_v2, cuMemsetD32Async, cuLaunchKernel, cuStreamSynchronize },
        { symbol<decltype(Api::to_device)>(library, "cuMemcpyHtoDAsync_v2"),
          symbol<decltype(Api::to_host)>(library, "cuMemcpyDtoHAsync_v2"),
          symbol<decltype(Api::fill)>(library, "cuMemsetD32Async"), symbol<decltype(Api::launch)>(library, "cuLaunchKernel"),
          symbol<decltype(Api::wait)>(library, "cuStreamSynchronize") },
        { asked<decltype(Api::to_device)>("cuMemcpyHtoDAsync", 0), asked<decltype(Api::to_host)>("cuMemcpyDtoHAsync", 0),
          asked<decltype(Api::fill)>("cuMemsetD32Async", 0), asked<decltype(Api::launch)>("cuLaunchKernel", 0),
          asked<decltype(Api::wait)>("cuStreamSynchronize", 0) },
        { asked<decltype(Api::to_device)>("cuMemcpyHtoDAsync", per_thread),
          asked<decltype(Api::to_host)>("cuMemcpyDtoHAsync", per_thread),
          asked<decltype(Api::fill)>("cuMemsetD32Async", per_thread), asked<decltype(Api::launch)>("cuLaunchKernel", per_thread),
          asked<decltype(Api::wait)>("cuStreamSynchronize", per_thread) },
    };
    DO(cuInit(0));
    CUdevice device;
    DO(cuDeviceGet(&device, 0));
    CUcontext context;
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    CUmodule module;
    DO(cuModuleLoadData(&module, scale_text("scale").c_str()));
    CUfunction kernel;
    DO(cuModuleGetFunction(&kernel, module, "scale"));

    std::vector<unsigned> sums(threads);
    auto work = [&](int me) {
        DO(cuCtxSetCurrent(context));
        CUstream stream;
        DO(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CUdeviceptr data;
        DO(cuMemAlloc(&data, WORDS * sizeof(unsigned)));
        std::vector<unsigned> words(WORDS);
        for (int round = 0; round < rounds; round++)
            for (const Api &api : ways) {
                // The functions for a thread's own stream get stream 0.
                CUstream in = &api == &ways[3] ? nullptr : stream;
                for (int i = 0; i < WORDS; i++)
                    words[i] = words[i] * 7 + i + me;
                DO(api.to_device(data, words.data(), WORDS * sizeof(unsigned), in));
                DO(api.fill(data + 4 * sizeof(unsigned), round, 3, in));
                unsigned factor = 3 + round;
                void *params[] = { &data, &factor };
                DO(api.launch(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, in, params, nullptr));
                DO(api.to_host(words.data(), data, WORDS * sizeof(unsigned), in));
                DO(api.wait(in));
                // Refused: there is no such memory.
                if (api.to_host(words.data(), 0, 4, in) == CUDA_SUCCESS)
                    exit(2);
            }
        for (unsigned word : words)
            sums[me] = sums[me] * 31 + word;
        DO(cuMemFree(data));
        DO(cuStreamDestroy(stream));
    };
    std::vector<std::thread> all;
    for (int me = 0; me < threads; me++)
        all.emplace_back(work, me);
    for (auto &each : all)
        each.join();
    for (unsigned sum : sums)
        printf("%08x\n", sum);
    DO(cuModuleUnload(module));
    DO(cuDevicePrimaryCtxRelease(device));
    return 0;
}
