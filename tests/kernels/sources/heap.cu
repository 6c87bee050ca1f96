// malloc and free in kernels, within one launch and across launches.
#include "corpus.h"

__global__ void mallocOwn(int *out)
{
    int n = 1 + threadIdx.x % 5;
    int *mine = (int *)malloc(n * sizeof(int));
    if (!mine) {
        out[threadIdx.x] = -1;
        return;
    }
    for (int i = 0; i < n; i++)
        mine[i] = i * threadIdx.x;
    int sum = 0;
    for (int i = n - 1; i >= 0; i--)
        sum = sum * 3 + mine[i];
    free(mine);
    out[threadIdx.x] = sum;
}

struct Link {
    Link *next;
    int value;
};

__global__ void mallocList(int *out)
{
    Link *first = nullptr;
    for (int i = 0; i < 6; i++) {
        Link *link = (Link *)malloc(sizeof(Link));
        link->next = first;
        link->value = i + threadIdx.x;
        first = link;
    }
    int sum = 0;
    while (first) {
        sum = sum * 2 + first->value;
        Link *next = first->next;
        free(first);
        first = next;
    }
    out[threadIdx.x] = sum;
}

__device__ int *kept[32];

__global__ void mallocKeep(int n)
{
    kept[threadIdx.x] = (int *)malloc(n * sizeof(int));
    for (int i = 0; i < n; i++)
        kept[threadIdx.x][i] = threadIdx.x * 100 + i;
}
__global__ void readKept(int *out, int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += kept[(threadIdx.x + i) % 32][i];
    out[threadIdx.x] = sum;
}
__global__ void freeKept() { free(kept[threadIdx.x]); }

struct Counter {
    int *total;
    __device__ Counter(int *to) : total(to) {}
    __device__ virtual ~Counter() { atomicAdd(total, 1); }
};
struct Double : Counter {
    __device__ Double(int *to) : Counter(to) {}
    __device__ ~Double() override { atomicAdd(total, 10); }
};

__global__ void newDelete(int *out)
{
    Counter *counter = threadIdx.x % 2 ? new Counter(out) : new Double(out);
    int *array = new int[4];
    array[threadIdx.x % 4] = 5;
    atomicAdd(out + 1, array[threadIdx.x % 4]);
    delete[] array;
    delete counter;
}

static const corpus::Case cases[] = {
    {"mallocOwn",
     [] {
         Buffer<int> out(64);
         mallocOwn<<<2, 32>>>(out.device);
         report("mallocOwn", out, [](uint32_t t) {
             int sum = 0;
             for (int i = (int)(t % 32 % 5); i >= 0 && t < 32; i--)
                 sum = sum * 3 + i * (int)t;
             return sum;
         });
     }},
    {"mallocList",
     [] {
         Buffer<int> out(32);
         mallocList<<<1, 32>>>(out.device);
         report("mallocList", out, [](uint32_t t) {
             int sum = 0;
             for (int i = 5; i >= 0; i--)
                 sum = sum * 2 + i + (int)t;
             return sum;
         });
     }},
    {"readKept",
     [] {
         Buffer<int> out(32);
         mallocKeep<<<1, 32>>>(9);
         readKept<<<1, 32>>>(out.device, 9);
         freeKept<<<1, 32>>>();
         report("readKept", out, [](uint32_t t) {
             int sum = 0;
             for (int i = 0; i < 9; i++)
                 sum += (int)((t + i) % 32) * 100 + i;
             return sum;
         });
     }},
    {"newDelete",
     [] {
         Buffer<int> out(2);
         newDelete<<<1, 32>>>(out.device);
         report("newDelete", out, [](uint32_t i) { return i ? 160 : 16 + 16 * 11; });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }
