// Device functions that survive inlining, recursion, function pointers, virtual calls, printf, assert, new.
#include <cstdio>
#include <cassert>
struct Shape {
    __device__ virtual float area(float scale) const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    float side;
    __device__ Square(float s) : side(s) {}
    __device__ float area(float scale) const override { return side * side * scale; }
};
struct Circle : Shape {
    float radius;
    __device__ Circle(float r) : radius(r) {}
    __device__ float area(float scale) const override { return 3.14159f * radius * radius * scale; }
};
struct Pair { long a; int b; };
__device__ __noinline__ Pair make_pair(long a, int b) { return Pair{a * 3, b + 1}; }
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ void nothing() { asm volatile("membar.gl;" ::: "memory"); }
typedef int (*Unary)(int);
__device__ int twice(int x) { return 2 * x; }
__device__ int square(int x) { return x * x; }
__device__ Unary table[2] = {twice, square};

__global__ void calls(float *out, int which, int n) {
    Shape *shape = which ? (Shape *)new Square(2.0f) : (Shape *)new Circle(1.0f);
    out[threadIdx.x] = shape->area(n);
    delete shape;
    Pair p = make_pair(n, which);
    out[1] = p.a + p.b + fib(n) + table[n & 1](n);
    nothing();
    assert(n > 0);
    printf("thread %d: %f \"quoted\" // not a comment { \n", threadIdx.x, out[0]);
}
