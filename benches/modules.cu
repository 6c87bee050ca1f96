// What modules cost: so many are loaded by the driver API, each from a PTX text with a kernel `probed` of its own, and launched in turn.
// usage: modules-bench MODULES [GPUS]: with several GPUs each has its share of them, and is launched on in turn. Prints the median time to load one, the time of a launch (the queue is emptied between batches, so
// only the call is timed), and what the process and the device have more in memory than before the first one.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

typedef std::chrono::steady_clock Clock;

#define CHECK(call)                                                                                                                        \
    do {                                                                                                                                   \
        int error = (int)(call);                                                                                                           \
        if (error) {                                                                                                                       \
            fprintf(stderr, "%s: error %d\n", #call, error);                                                                               \
            exit(1);                                                                                                                       \
        }                                                                                                                                  \
    } while (0)

static double since(Clock::time_point begin, double unit)
{
    return std::chrono::duration<double>(Clock::now() - begin).count() * unit;
}

static double median(std::vector<double> &values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static long resident()
{
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof(line), status))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    if (status)
        fclose(status);
    return kib;
}

static size_t device_free()
{
    size_t free, total;
    CHECK(cudaMemGetInfo(&free, &total));
    return free;
}

template <typename F> static F driver(const char *name)
{
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    return (F)function;
}

int main(int argc, char **argv)
{
    const int modules = argc > 1 ? atoi(argv[1]) : 1, gpus = argc > 2 ? atoi(argv[2]) : 1, launches = 500, batches = 60;
    std::vector<int *> outs(gpus);
    for (int gpu = gpus - 1; gpu >= 0; gpu--) {
        CHECK(cudaSetDevice(gpu));
        CHECK(cudaMalloc(&outs[gpu], 4));
    }
    auto load = driver<CUresult (*)(CUmodule *, const void *)>("cuModuleLoadData");
    auto find = driver<CUresult (*)(CUfunction *, CUmodule, const char *)>("cuModuleGetFunction");
    auto launch = driver<CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **)>(
        "cuLaunchKernel");
    long resident_before = resident();
    size_t free_before = device_free();
    std::vector<CUfunction> kernels(modules);
    std::vector<double> loads, calls;
    for (int i = 0; i < modules; i++) {
        // No two texts are the same.
        std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry probed(.param .u64 out)\n{\n"
                           ".reg .b64 %rd<3>; .reg .b32 %r<3>; .reg .pred %p<2>;\n"
                           "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 31; @%p1 ret;\n"
                           "st.global.u32 [%rd1], " + std::to_string(i) + "; ret;\n}\n";
        CUmodule module;
        CHECK(cudaSetDevice(i % gpus));
        auto begin = Clock::now();
        CHECK(load(&module, text.c_str()));
        CHECK(find(&kernels[i], module, "probed"));
        loads.push_back(since(begin, 1e6));
    }
    int right = 0;
    for (int i = 0; i < modules; i++) {
        int last = -1;
        void *arguments[] = {&outs[i % gpus]};
        CHECK(cudaSetDevice(i % gpus));
        CHECK(launch(kernels[i], 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
        CHECK(cudaMemcpy(&last, outs[i % gpus], 4, cudaMemcpyDeviceToHost));
        right += last == i;
    }
    long resident_after = resident();
    size_t free_after = device_free();
    std::vector<int> next(gpus);
    for (int gpu = 0; gpu < gpus; gpu++)
        next[gpu] = gpu;
    for (int batch = 0; batch < batches; batch++) {
        const int gpu = batch % gpus;
        void *arguments[] = {&outs[gpu]};
        CHECK(cudaSetDevice(gpu));
        auto begin = Clock::now();
        for (int i = 0; i < launches; i++, next[gpu] = next[gpu] + gpus < modules ? next[gpu] + gpus : gpu)
            CHECK(launch(kernels[next[gpu]], 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
        calls.push_back(since(begin, 1e9) / launches);
        CHECK(cudaDeviceSynchronize());
    }
    printf("gpus %d modules %d load_us %.0f launch_ns %.0f resident_kib %ld device_kib %ld launches %d right %d\n", gpus, modules, median(loads), median(calls),
           resident_after - resident_before, (long)(free_before - free_after) / 1024, modules + batches * launches, right);
    return right != modules;
}
