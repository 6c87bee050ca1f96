// Virtual calls and function pointers: callees that only the running thread knows.
#include "corpus.h"

struct Shape {
    int side;
    __device__ Shape(int s) : side(s) {}
    __device__ virtual int area() const = 0;
    __device__ virtual int edges() const { return 4; }
};
struct Square : Shape {
    __device__ Square(int s) : Shape(s) {}
    __device__ int area() const override { return side * side; }
};
struct Cube final : Square {
    __device__ Cube(int s) : Square(s) {}
    __device__ int area() const override { return 6 * Square::area(); }
    __device__ int edges() const override { return 12; }
};
struct Line : Shape {
    __device__ Line(int s) : Shape(s) {}
    __device__ int area() const override { return 0; }
    __device__ int edges() const override { return side; }
};

__device__ __noinline__ int measure(const Shape *shape) { return shape->area() * 100 + shape->edges(); }

__global__ void virtualCalls(int *out)
{
    int t = threadIdx.x;
    Square square(t);
    Cube cube(t + 1);
    Line line(t + 2);
    const Shape *shapes[] = {&square, &cube, &line};
    out[t] = measure(shapes[t % 3]) + measure(shapes[number(t) % 3]) * 3;
}

__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int minus(int a, int b) { return a - b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
typedef int (*Operation)(int, int);
__device__ Operation table[] = {plus, minus, times};

__global__ void callTable(const int *in, int *out)
{
    int t = threadIdx.x;
    out[t] = table[in[t] % 3](in[t], t);
}

__global__ void storePointer(Operation *to, int which) { *to = which ? times : minus; }
// A pointer that another kernel of this module wrote.
__global__ void callStored(const Operation *from, int *out) { out[threadIdx.x] = (*from)(threadIdx.x, 7); }

// A pointer as a parameter: the host read it from the table.
__global__ void callParameter(Operation operation, int *out) { out[threadIdx.x] = operation(threadIdx.x, threadIdx.x + 2); }

template <typename F> __device__ __noinline__ int fold(F step, int n)
{
    int sum = 1;
    for (int i = 0; i < n; i++)
        sum = step(sum, i);
    return sum;
}

__global__ void callLambda(int *out, int factor)
{
    int t = threadIdx.x;
    out[t] = t % 2 ? fold([=](int sum, int i) { return sum * factor + i; }, t % 5)
                   : fold([=](int sum, int i) { return sum - i * t; }, t % 7);
}

// Dense cases: a jump by table.
__global__ void jumpTable(const int *in, int *out)
{
    int x = in[threadIdx.x], y = threadIdx.x;
    switch (x % 12) {
    case 0: y = y * 7 + 1; break;
    case 1: y = y ^ x; break;
    case 2: y = y - x * x; break;
    case 3: y = __popc(x) + y; break;
    case 4: y = y << (x & 7); break;
    case 5: y = y / (x + 1); break;
    case 6: y = __brev(y); break;
    case 7: y = min(x, y) * 3; break;
    case 8: y = y % (x + 3); break;
    case 9: y = ~x; break;
    case 10: y = x * y + 11; break;
    default: y = __clz(y + 1); break;
    }
    out[threadIdx.x] = y;
}

static int host_measure(int kind, int t)
{
    const int sides[] = {t, t + 1, t + 2};
    const int s = sides[kind];
    return kind == 0 ? s * s * 100 + 4 : kind == 1 ? 6 * s * s * 100 + 12 : s;
}

static const corpus::Case cases[] = {
    {"virtualCalls",
     [] {
         Buffer<int> out(64);
         virtualCalls<<<1, 64>>>(out.device);
         report("virtualCalls", out, [](uint32_t i) { return host_measure(i % 3, i) + 3 * host_measure(number(i) % 3, i); });
     }},
    {"callTable",
     [] {
         Buffer<int> in(96, [](uint32_t i) { return (int)(number(i) % 1000); }), out(96);
         callTable<<<1, 96>>>(in.device, out.device);
         report("callTable", out, [&](uint32_t i) {
             int a = in.host[i], b = (int)i;
             return a % 3 == 0 ? a + b : a % 3 == 1 ? a - b : a * b;
         });
     }},
    {"callStored",
     [] {
         Buffer<Operation> pointer(1);
         Buffer<int> out(32);
         storePointer<<<1, 1>>>(pointer.device, 1);
         callStored<<<1, 32>>>(pointer.device, out.device);
         report("callStored", out, [](uint32_t i) { return (int)i * 7; });
     }},
    {"callParameter",
     [] {
         Operation operations[3];
         CHECK(cudaMemcpyFromSymbol(operations, table, sizeof(operations)));
         Buffer<int> out(32);
         callParameter<<<1, 32>>>(operations[2], out.device);
         report("callParameter", out, [](uint32_t i) { return (int)(i * (i + 2)); });
     }},
    {"callLambda",
     [] {
         Buffer<int> out(48);
         callLambda<<<1, 48>>>(out.device, 3);
         report("callLambda", out, [](uint32_t t) {
             int sum = 1;
             for (int i = 0; i < (int)(t % 2 ? t % 5 : t % 7); i++)
                 sum = t % 2 ? sum * 3 + i : sum - i * (int)t;
             return sum;
         });
     }},
    {"jumpTable",
     [] {
         Buffer<int> in(128, [](uint32_t i) { return (int)(number(i) % 120); }), out(128);
         jumpTable<<<1, 128>>>(in.device, out.device);
         report("jumpTable", out);
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }
