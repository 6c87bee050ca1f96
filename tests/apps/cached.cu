// Loads machine code that it has read into memory, so that no mapped file holds it, and does what it is told by lines of standard input: a number is that
// many launches of the kernel, after which the sum so far is printed. Ends with its input.
// usage: cached FILE KERNEL
#include <cstdlib>
#include <vector>

#include "check.h"

int main(int count, char **arguments)
{
    std::vector<char> image;
    char part[4096], line[64];
    unsigned sum;
    CUdeviceptr device;
    CUmodule module;
    CUfunction kernel;

    FILE *file = count == 3 ? fopen(arguments[1], "rb") : nullptr;
    if (!file) {
        fprintf(stderr, "usage: cached FILE KERNEL\n");
        return 2;
    }
    while (size_t n = fread(part, 1, sizeof(part), file))
        image.insert(image.end(), part, part + n);
    fclose(file);
    CHECK(cudaFree(nullptr));
    DRIVER(cuModuleLoadData, &module, image.data());
    DRIVER(cuModuleGetFunction, &kernel, module, arguments[2]);
    CHECK(cudaMalloc((void **)&device, sizeof(sum)));
    CHECK(cudaMemset((void *)device, 0, sizeof(sum)));
    while (fgets(line, sizeof(line), stdin)) {
        for (int n = atoi(line); n > 0; n--) {
            void *parameters[] = { &device };
            DRIVER(cuLaunchKernel, kernel, 4, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr);
        }
        CHECK(cudaMemcpy(&sum, (void *)device, sizeof(sum), cudaMemcpyDeviceToHost));
        printf("%u\n", sum);
        fflush(stdout);
    }
    return 0;
}
