// For clang, which needs no header of CUDA: variables of each space, a virtual call, printf, inline assembly, a switch.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))

__constant__ float table[4] = {1, 2, 3, 4};
__device__ int counter;
extern __shared__ float dynamic[];
extern "C" __device__ int printf(const char *, ...);

struct Base {
    __device__ virtual int f(int) = 0;
};
struct Derived : Base {
    int x;
    __device__ int f(int a) override { return a + x; }
};
struct Big {
    int a[12];
    double d;
};

__global__ void __attribute__((launch_bounds(256, 2))) kernel(float *p, int n, Big big)
{
    __shared__ float tile[256];
    int i = __nvvm_read_ptx_sreg_tid_x();
    tile[i] = p[i] * table[n & 3];
    __nvvm_bar_sync(0);
    float a[8];
    for (int j = 0; j < n; j++)
        a[j & 7] = tile[j] + dynamic[j];
    Derived derived;
    derived.x = n;
    Base *base = &derived;
    if (n > 3)
        printf("%d %f\n", base->f(i), (double)a[n & 7]);
    asm volatile("{ .reg .pred q; setp.gt.s32 q, %0, 4; @q red.global.add.s32 [%1], 1; }" ::"r"(n), "l"(&counter));
    switch (n) {
    case 0: p[0] = 1; break;
    case 1: p[2] = 5; break;
    case 2: p[7] = 1; break;
    case 3: p[9] = 2; break;
    case 4: p[9] = 3; break;
    case 5: p[8] = 5; break;
    default: p[3] = big.d + big.a[i & 7];
    }
}
