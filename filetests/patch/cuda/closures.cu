// Closures that a slice may not have: constants, function pointers, virtual calls; and one it may: printf.
#include <cstdio>
__constant__ int factors[4] = {2, 3, 5, 7};

struct Shape {
    __device__ virtual int area(int x) const = 0;
};
struct Square : Shape {
    __device__ int area(int x) const override { return x * x; }
};
struct Strip : Shape {
    __device__ int area(int x) const override { return x * 3; }
};
__device__ Shape* shapes[2];

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int thrice(int x) { return 3 * x; }
__device__ int (*chosen)(int) = twice;

extern "C" __global__ void make_shapes() {
    shapes[0] = new Square;
    shapes[1] = new Strip;
    chosen = thrice;
}

extern "C" __global__ void constants(int* out) {
    out[threadIdx.x] = factors[threadIdx.x & 3];
}

extern "C" __global__ void pointers(int* out) {
    out[threadIdx.x] = chosen(threadIdx.x);
}

extern "C" __global__ void virtuals(int* out) {
    out[threadIdx.x] = shapes[threadIdx.x & 1]->area(threadIdx.x);
}

extern "C" __global__ void prints(int* out) {
    out[threadIdx.x] = 1;
    if (threadIdx.x == 0) printf("hello %d\n", out[0]);
}
