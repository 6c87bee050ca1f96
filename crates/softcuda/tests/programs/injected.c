/* Stands for a tool in CUDA_INJECTION64_PATH: says when it is called, and that the driver is usable by then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int InitializeInjection(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*version)(int *) = driver ? (int (*)(int *))dlsym(driver, "cuDriverGetVersion") : 0;
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : 0;
    int number = 0;
    if (version) version(&number);
    fprintf(stderr, "injected: version %d, init %d\n", number, init ? init(0) : -1);
    return 1;
}
