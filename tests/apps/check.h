// What calls of the runtime and of the driver return is looked at, and told with the program's name.
#pragma once
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                                       \
    do {                                                                                                  \
        cudaError_t error = (call);                                                                       \
        if (error != cudaSuccess) {                                                                       \
            fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, #call, cudaGetErrorString(error)); \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

#define DRIVER(name, ...)                                                                                 \
    do {                                                                                                  \
        void *found = nullptr;                                                                            \
        CHECK(cudaGetDriverEntryPointByVersion(#name, &found, 12000, cudaEnableDefault, nullptr));        \
        CUresult code = ((decltype(&name))found)(__VA_ARGS__);                                            \
        if (code != CUDA_SUCCESS) {                                                                       \
            fprintf(stderr, "%s: %s: %d\n", program_invocation_short_name, #name, (int)code);             \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)
