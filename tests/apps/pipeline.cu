// Asynchronous copies, kernels and fills in several streams, whose durations the application itself knows by its events. It writes them
// to a file, because they are no result: `pipeline ROUNDS STREAMS WORDS CYCLES FILE`.
#include <vector>

#include "check.h"

__global__ void grow(unsigned *words, unsigned n, long long cycles)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        words[i] = words[i] * 3 + i;
    // As long as it was asked to take.
    long long start = clock64();
    while (clock64() - start < cycles)
        ;
}

enum { IN, FILL, RUN, OUT, PHASES };
static const char *const phases[] = { "in", "fill", "run", "out" };

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 3, streams = argc > 2 ? atoi(argv[2]) : 2;
    unsigned n = argc > 3 ? atoi(argv[3]) : 4096;
    long long cycles = argc > 4 ? atoll(argv[4]) : 1000;
    struct Lane {
        cudaStream_t stream;
        unsigned *host, *device;
        std::vector<cudaEvent_t> events;
    };
    std::vector<Lane> lanes(streams);
    for (Lane &lane : lanes) {
        CHECK(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
        CHECK(cudaMallocHost(&lane.host, n * sizeof(unsigned)));
        CHECK(cudaMalloc(&lane.device, n * sizeof(unsigned)));
        for (unsigned i = 0; i < n; i++)
            lane.host[i] = i + (&lane - lanes.data());
        for (int i = 0; i < rounds * (PHASES + 1); i++) {
            cudaEvent_t event;
            CHECK(cudaEventCreate(&event));
            lane.events.push_back(event);
        }
    }
    // What is loaded lazily is there before anything is timed, and is counted like the rest.
    grow<<<1, 1, 0, lanes[0].stream>>>(lanes[0].device, 0, 0);
    CHECK(cudaStreamSynchronize(lanes[0].stream));
    for (int round = 0; round < rounds; round++)
        for (Lane &lane : lanes) {
            cudaEvent_t *event = &lane.events[round * (PHASES + 1)];
            CHECK(cudaEventRecord(event[0], lane.stream));
            CHECK(cudaMemcpyAsync(lane.device, lane.host, n * sizeof(unsigned), cudaMemcpyHostToDevice, lane.stream));
            CHECK(cudaEventRecord(event[1], lane.stream));
            CHECK(cudaMemsetAsync(lane.device, round, n * sizeof(unsigned) / 4, lane.stream));
            CHECK(cudaEventRecord(event[2], lane.stream));
            grow<<<(n + 255) / 256, 256, 0, lane.stream>>>(lane.device, n, cycles);
            CHECK(cudaEventRecord(event[3], lane.stream));
            CHECK(cudaMemcpyAsync(lane.host, lane.device, n * sizeof(unsigned), cudaMemcpyDeviceToHost, lane.stream));
            CHECK(cudaEventRecord(event[4], lane.stream));
        }
    CHECK(cudaDeviceSynchronize());
    FILE *file = argc > 5 ? fopen(argv[5], "w") : nullptr;
    for (Lane &lane : lanes) {
        unsigned hash = 2166136261u;
        for (unsigned i = 0; i < n; i++)
            hash = (hash ^ lane.host[i]) * 16777619u;
        printf("%08x\n", hash);
        for (int round = 0; round < rounds; round++)
            for (int phase = 0; phase < PHASES; phase++) {
                float ms;
                cudaEvent_t *event = &lane.events[round * (PHASES + 1) + phase];
                CHECK(cudaEventElapsedTime(&ms, event[0], event[1]));
                if (file)
                    fprintf(file, "%d %d %s %.6f\n", (int)(&lane - lanes.data()), round, phases[phase], ms);
            }
    }
    if (file)
        fclose(file);
    return 0;
}
