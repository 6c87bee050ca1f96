// Variables of a module that everybody changes: the host by name and by address, kernels that get programs, and kernels beside them that get none. Each
// change is read by both kinds of kernel and by the host; both must see what the host expects.
#include "check.h"

constexpr int N = 64;

__device__ unsigned words[N];
__constant__ unsigned factors[N];

// In a module of its own with programs, and the words are the one that the application has.
__global__ void probedWords(unsigned *out, unsigned add)
{
    words[threadIdx.x] += add;
    out[threadIdx.x] = words[threadIdx.x];
}
__global__ void bareWords(unsigned *out, unsigned add)
{
    words[threadIdx.x] += add;
    out[threadIdx.x] = words[threadIdx.x];
}

// Constant memory: a second entry in the module of the first.
__global__ void probedFactors(unsigned *out)
{
    out[threadIdx.x] = factors[threadIdx.x] * 3 + words[threadIdx.x];
}
__global__ void bareFactors(unsigned *out)
{
    out[threadIdx.x] = factors[threadIdx.x] * 3 + words[threadIdx.x];
}

static unsigned *out, expected_words[N], expected_factors[N];
static bool right = true;

static void compare(const char *what, bool of_factors)
{
    unsigned found[N], sum = 0, wrong = 0;
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(found, out, sizeof(found), cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) {
        wrong += found[i] != expected_words[i] + (of_factors ? expected_factors[i] * 3 : 0);
        sum = sum * 31 + found[i];
    }
    right &= wrong == 0;
    printf("%s: %08x, %u wrong\n", what, sum, wrong);
}

static void host_reads(const char *what)
{
    unsigned found[N], wrong = 0;
    CHECK(cudaMemcpyFromSymbol(found, words, sizeof(found)));
    for (int i = 0; i < N; i++)
        wrong += found[i] != expected_words[i];
    CHECK(cudaMemcpyFromSymbol(found, factors, sizeof(found)));
    for (int i = 0; i < N; i++)
        wrong += found[i] != expected_factors[i];
    right &= wrong == 0;
    printf("%s: the host sees %u wrong\n", what, wrong);
}

// Both kinds of kernel change the words, in this order and the other one, and read what is constant.
static void kernels(const char *what)
{
    for (int turn = 0; turn < 4; turn++) {
        bool probed = turn == 0 || turn == 3;
        (probed ? probedWords : bareWords)<<<1, N>>>(out, turn + 1);
        for (unsigned &word : expected_words)
            word += turn + 1;
        compare(what, false);
    }
    probedFactors<<<1, N>>>(out);
    compare(what, true);
    bareFactors<<<1, N>>>(out);
    compare(what, true);
    host_reads(what);
}

int main()
{
    void *words_at, *factors_at;
    unsigned values[N], *from;
    CHECK(cudaMalloc(&out, N * sizeof(unsigned)));
    CHECK(cudaMalloc(&from, N * sizeof(unsigned)));
    kernels("as they begin");

    for (int i = 0; i < N; i++) {
        values[i] = expected_words[i] = i * i;
        expected_factors[i] = 1000 - i;
    }
    CHECK(cudaMemcpyToSymbol(words, values, sizeof(values)));
    CHECK(cudaMemcpyToSymbolAsync(factors, expected_factors, sizeof(values), 0, cudaMemcpyHostToDevice, 0));
    kernels("by name");

    CHECK(cudaGetSymbolAddress(&words_at, words));
    CHECK(cudaGetSymbolAddress(&factors_at, factors));
    CHECK(cudaMemset(words_at, 1, N * sizeof(unsigned) / 2));
    CHECK(cudaMemset((char *)factors_at + 4, 2, 8));
    for (int i = 0; i < N / 2; i++)
        expected_words[i] = 0x01010101;
    expected_factors[1] = expected_factors[2] = 0x02020202;
    kernels("by address");

    // From the device's memory, as a kernel left it.
    bareWords<<<1, N>>>(from, 0);
    CHECK(cudaMemcpyToSymbol(factors, from, sizeof(values), 0, cudaMemcpyDeviceToDevice));
    for (int i = 0; i < N; i++)
        expected_factors[i] = expected_words[i];
    kernels("by a copy on the device");
    printf("%s\n", right ? "all as expected" : "WRONG");
    return !right;
}
