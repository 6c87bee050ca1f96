// Host cost of a launch: nanoseconds per launch of two empty kernels, `plain` and `probed`, taking turns in one run.
// Programs attach to `probed`. The queue is emptied between batches, so only the call is timed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void plain(int *, int) {}
__global__ void probed(int *, int) {}

typedef std::chrono::steady_clock Clock;

template <typename K> static double batch(K kernel, int launches)
{
    auto begin = Clock::now();
    for (int i = 0; i < launches; i++)
        kernel<<<1, 32>>>(nullptr, i);
    auto end = Clock::now();
    if (cudaDeviceSynchronize() != cudaSuccess)
        return -1;
    return std::chrono::duration<double, std::nano>(end - begin).count() / launches;
}

int main(int argc, char **argv)
{
    // With an argument, so many batches, and no times: the same output in every run.
    const int launches = 500, batches = argc > 1 ? atoi(argv[1]) : 200;
    std::vector<double> a, b;
    for (int i = 0; i < batches; i++) {
        a.push_back(batch(plain, launches));
        b.push_back(batch(probed, launches));
    }
    if (argc > 1) {
        printf("launches %d\n", launches * batches);
        return 0;
    }
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    printf("plain %.0f probed %.0f launches %d\n", a[batches / 2], b[batches / 2], launches * batches);
    return 0;
}
