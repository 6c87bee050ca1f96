// GPU time of hash operations, one in every thread: ours in the `ours_` kernels, whose bodies are empty, so that all that
// they do is what a program does that is attached to them; and a plain open-addressing table written by hand in the `hand_`
// kernels. Each kernel has its turn with the same keys in the same order, and both count what went as it should:
// `insert` of new keys and `again` of those that are there, `count`, `find`, `miss`, `crowd` (all threads add to 64 keys), `rush` (all
// insert the same 64 new keys), `clear` (all delete those), `delete`, `absent` (deletes of keys that never were there).
// Each launch that is timed waits behind one that keeps the GPU busy until the host has given it all: so no time of the host is in it.
// Prints one line per kernel:
//   KERNEL MICROSECONDS OPERATIONS COUNTED
// where COUNTED is 0 for ours: that is in the program's map.
// With `steps`, only inserts by hand, each kernel with one more of the steps that an insert into our HASH has, so that the
// differences tell what each of them costs: `step_plain`, slots of 32 bytes; `step_look`, a slot is read before it is
// claimed; `step_claim`, the claim and the publication are exchanges of their own; `step_fence`, the publication releases what was
// written; `step_each`, each lane counts its key and waits for the answer; `step_warp`, the lanes of a warp count together.
// Likewise with slots of 16 bytes, of which word and value are exchanged at once by 128 bits: `step_wide`, a slot is read before;
// `step_room`, and lanes of a warp ask together for room and wait for the answer before they exchange; `step_settle`, and say together
// afterwards that nothing is pending: all that an insert into our HASH does. Last, `step_mixed` is a test rather than a time: each key is
// inserted by two lanes at once, by one in a 128-bit exchange and by the other in a 64-bit claim, and both add to its value;
// it counts the keys that are there once, with both additions.
// usage: hash-bench [LOG2 OF KEYS [steps]]   (default: 19, half of what the programs' table holds)
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                          \
            fprintf(stderr, "hash: %s: %s\n", #call, cudaGetErrorString(error));             \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

typedef unsigned long long u64;

// A slot is a key and its value. Nothing moves, a deleted key leaves a mark.
struct Slot {
    u64 key;
    u64 value;
};

struct Table {
    Slot *slots;
    u64 mask;
    u64 *counters; // one per SM, 128 bytes apart
};

constexpr u64 EMPTY = 0, GONE = ~0ull;

__device__ __forceinline__ u64 key_of(u64 number) { return (number + 1) * 0x9E3779B97F4A7C15ull; }
__device__ __forceinline__ u64 number(unsigned first) { return (u64)blockIdx.x * blockDim.x + threadIdx.x + first; }

// The last steps of MurmurHash3's 64-bit finaliser.
__device__ __forceinline__ u64 place(u64 key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdull;
    key ^= key >> 33;
    return key;
}

// Others insert meanwhile, so a key is read past the L1 cache.
__device__ __forceinline__ u64 read_key(const Slot *slot)
{
    u64 key;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(key) : "l"(&slot->key));
    return key;
}

__device__ __forceinline__ void counted(const Table &t)
{
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], 1;" ::"l"(t.counters + 16 * sm));
}

__device__ __forceinline__ Slot *find(const Table &t, u64 key)
{
    for (u64 i = place(key);; i++) {
        Slot *slot = t.slots + (i & t.mask);
        u64 there = read_key(slot);
        if (there == key)
            return slot;
        if (there == EMPTY)
            return nullptr;
    }
}

__device__ __forceinline__ void insert(const Table &t, u64 key, u64 value)
{
    for (u64 i = place(key);; i++) {
        Slot *slot = t.slots + (i & t.mask);
        u64 there = atomicCAS(&slot->key, EMPTY, key);
        if (there == EMPTY || there == key) {
            slot->value = value;
            break;
        }
    }
    counted(t);
}

__global__ void hand_insert(Table t, unsigned first)
{
    u64 n = number(first);
    insert(t, key_of(n), n);
}

// The keys are there: their values are overwritten.
__global__ void hand_again(Table t, unsigned first)
{
    u64 n = number(first), key = key_of(n);
    Slot *slot = find(t, key);
    if (slot) {
        *(volatile u64 *)&slot->value = n;
        counted(t);
    }
}

__global__ void hand_count(Table t, unsigned first)
{
    Slot *slot = find(t, key_of(number(first)));
    if (slot) {
        atomicAdd(&slot->value, 1ull << 32);
        counted(t);
    }
}

__global__ void hand_find(Table t, unsigned first)
{
    u64 n = number(first);
    Slot *slot = find(t, key_of(n));
    if (slot && (unsigned)*(volatile u64 *)&slot->value == (unsigned)n)
        counted(t);
}

__global__ void hand_miss(Table t, unsigned first)
{
    if (!find(t, key_of(number(first))))
        counted(t);
}

__global__ void hand_crowd(Table t, unsigned first)
{
    Slot *slot = find(t, key_of(number(first) % 64));
    if (slot) {
        atomicAdd(&slot->value, 1ull << 32);
        counted(t);
    }
}

__global__ void hand_set(Table t, unsigned first)
{
    u64 n = number(first);
    Slot *slot = find(t, key_of(n));
    if (slot) {
        *(volatile u64 *)&slot->value = n | 7ull << 32;
        counted(t);
    }
}

__device__ __forceinline__ void remove(const Table &t, u64 key)
{
    Slot *slot = find(t, key);
    if (slot && atomicCAS(&slot->key, key, GONE) == key)
        counted(t);
}

__global__ void hand_delete(Table t, unsigned first) { remove(t, key_of(number(first))); }

// 64 keys that nobody has put in yet, by all threads at once; and all of them take these out again.
__device__ __forceinline__ u64 shared_key(unsigned first) { return key_of(number(0) % 64 + first); }
__global__ void hand_rush(Table t, unsigned first) { insert(t, shared_key(first), number(0)); }
__global__ void hand_clear(Table t, unsigned first) { remove(t, shared_key(first)); }

// Keys that are not there.
__global__ void hand_absent(Table t, unsigned first)
{
    if (!find(t, key_of(number(first))))
        counted(t);
}

// A slot of our HASH for larger values, or where there are no 128-bit atomics: its word, its home, and what rounds it up.
struct WideSlot {
    u64 word;
    u64 key;
    u64 value;
    u64 unused;
};

struct WideTable {
    WideSlot *slots;
    u64 mask;
    unsigned *used; // 32 shards, 128 bytes apart
    u64 *counters;  // as in Table
};

enum Steps { PLAIN, LOOK, CLAIM, FENCE, EACH, WARP };

// A word is the key's upper half, and 1 when the key is there or 2 while it is being put there.
template <int STEPS> __global__ void step_insert(WideTable t, unsigned first)
{
    u64 n = number(first), key = key_of(n), hash = place(key);
    const u64 tag = key & ~0xffffffffull, there = tag | 1, claim = STEPS >= CLAIM ? tag | 2 : there;
    for (u64 i = hash;; i++) {
        WideSlot *slot = t.slots + (i & t.mask);
        u64 word = 0;
        if (STEPS >= LOOK)
            asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(&slot->word) : "memory");
        if (word == 0)
            asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], 0, %2;"
                         : "=l"(word)
                         : "l"(&slot->word), "l"(claim)
                         : "memory");
        if (word != 0)
            continue;
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&slot->key), "l"(key) : "memory");
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&slot->value), "l"(n) : "memory");
        if (STEPS >= EACH) {
            unsigned sm, old = 0;
            asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
            unsigned *used = t.used + 32 * (sm % 32);
            if (STEPS == EACH) {
                old = atomicAdd(used, 1u);
            } else {
                unsigned mask = __activemask(), lane, below;
                asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
                asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
                if ((mask & below) == 0)
                    old = atomicAdd(used, (unsigned)__popc(mask));
                old = __shfl_sync(mask, old, __ffs(mask) - 1) + __popc(mask & below);
            }
            if (old == ~0u) // no room; never here
                return;
        }
        if (STEPS >= FENCE)
            asm volatile("atom.release.gpu.global.cas.b64 %0, [%1], %2, %3;"
                         : "=l"(word)
                         : "l"(&slot->word), "l"(claim), "l"(there)
                         : "memory");
        else if (STEPS == CLAIM)
            asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
                         : "=l"(word)
                         : "l"(&slot->word), "l"(claim), "l"(there)
                         : "memory");
        if (STEPS < CLAIM || word == claim)
            counted({nullptr, 0, t.counters});
        return;
    }
}

enum WideSteps { WIDE, ROOM, SETTLE };

// Lanes of a warp that are here together add once; what was there before each of them.
__device__ __forceinline__ u64 add_together(u64 *to, u64 each, bool wait)
{
    unsigned mask = __activemask(), below;
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    u64 old = 0;
    if ((mask & below) == 0) {
        if (wait)
            old = atomicAdd(to, each * __popc(mask));
        else
            asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(each * __popc(mask)));
    }
    if (!wait)
        return 0;
    return __shfl_sync(mask, old, __ffs(mask) - 1) + each * __popc(mask & below);
}

// The word is the key, which is never 0; `used` of a table has the counts.
template <int STEPS> __global__ void wide_insert(Table t, u64 *used, unsigned first)
{
#if __CUDA_ARCH__ >= 900
    u64 n = number(first), key = key_of(n);
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    used += 16 * (sm % 32);
    Slot *slot;
    u64 there;
    for (u64 i = place(key);; i++) {
        slot = t.slots + (i & t.mask);
        there = read_key(slot);
        if (there == EMPTY || there == key)
            break;
    }
    if (STEPS >= ROOM && add_together(used, 1ull << 32 | 1, true) == ~0ull) // no room; never here
        return;
    for (u64 i = slot - t.slots;; i++) {
        slot = t.slots + (i & t.mask);
        asm volatile("{ .reg .b128 a, b, c; .reg .b64 old;\n"
                     "mov.b128 a, {%2, %2}; mov.b128 b, {%3, %4};\n"
                     "atom.relaxed.gpu.global.cas.b128 c, [%1], a, b;\n"
                     "mov.b128 {%0, old}, c; }"
                     : "=l"(there)
                     : "l"(slot), "l"(EMPTY), "l"(key), "l"(n)
                     : "memory");
        if (there == EMPTY || there == key)
            break;
    }
    if (STEPS >= SETTLE)
        add_together(used, -(1ull << 32), false);
    counted(t);
#endif
}

// What both ways put there; each lane adds one.
constexpr u64 BEGIN = 1ull << 40;

// Keys are even, and odd while a claim is on them.
__device__ __forceinline__ u64 even_key(u64 number) { return key_of(number) << 1; }

// A thread of the lower half of a block and one of the upper half insert the same key, in different warps.
__global__ void mixed_insert(Table t, unsigned first)
{
#if __CUDA_ARCH__ >= 900
    const unsigned half = blockDim.x / 2;
    const bool claims = threadIdx.x >= half;
    u64 key = even_key((u64)blockIdx.x * half + threadIdx.x % half + first);
    for (u64 i = place(key);;) {
        Slot *slot = t.slots + (i & t.mask);
        u64 there;
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(there) : "l"(slot) : "memory");
        if (there == EMPTY && claims) {
            asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], 0, %2;"
                         : "=l"(there)
                         : "l"(slot), "l"(key | 1)
                         : "memory");
            if (there == EMPTY) {
                asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&slot->value), "l"(BEGIN) : "memory");
                asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(slot), "l"(key) : "memory");
                there = key;
            }
        } else if (there == EMPTY) {
            asm volatile("{ .reg .b128 a, b, c; .reg .b64 old;\n"
                         "mov.b128 a, {%2, %2}; mov.b128 b, {%3, %4};\n"
                         "atom.relaxed.gpu.global.cas.b128 c, [%1], a, b;\n"
                         "mov.b128 {%0, old}, c; }"
                         : "=l"(there)
                         : "l"(slot), "l"(EMPTY), "l"(key), "l"(BEGIN)
                         : "memory");
            if (there == EMPTY)
                there = key;
        }
        if (there == key) {
            atomicAdd(&slot->value, 1ull);
            return;
        }
        // A claim on the key is waited for; another key's slot is passed.
        if (there != (key | 1))
            i++;
    }
#endif
}

// Counts keys that are there once, with what two lanes added.
__global__ void mixed_check(Table t, unsigned first)
{
    u64 key = even_key(number(first)), times = 0, value = 0;
    for (u64 i = place(key);; i++) {
        Slot *slot = t.slots + (i & t.mask);
        u64 there = read_key(slot);
        if (there == EMPTY)
            break;
        if (there == key) {
            times++;
            value = *(volatile u64 *)&slot->value;
        }
    }
    if (times == 1 && value == BEGIN + 2)
        counted(t);
}

// What programs attach to. They read `first` as the first argument, which is unused here.
__global__ void ours_insert(unsigned) {}
__global__ void ours_count(unsigned) {}
__global__ void ours_find(unsigned) {}
__global__ void ours_miss(unsigned) {}
__global__ void ours_crowd(unsigned) {}
__global__ void ours_set(unsigned) {}
__global__ void ours_delete(unsigned) {}
__global__ void ours_again(unsigned) {}
__global__ void ours_rush(unsigned) {}
__global__ void ours_clear(unsigned) {}
__global__ void ours_absent(unsigned) {}

__global__ void busy()
{
    const long long begin = clock64();
    while (clock64() - begin < 100000)
        ;
}

struct Operation {
    const char *name;
    void (*hand)(Table, unsigned);
    void (*ours)(unsigned);
    // Launches, threads of each, and by how much the first key of each is beyond that of the one before.
    int launches;
    unsigned threads;
    unsigned first;
    unsigned step;
};

static double median(std::vector<float> &times)
{
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1000;
}

// Inserts `keys` keys in eight launches with each of the `step_` kernels, into an empty table each time.
static void steps(unsigned keys, u64 slots, int sms)
{
    struct {
        const char *name;
        void (*kernel)(WideTable, unsigned);
    } const kernels[] = {
        {"step_plain", step_insert<PLAIN>}, {"step_look", step_insert<LOOK>}, {"step_claim", step_insert<CLAIM>},
        {"step_fence", step_insert<FENCE>}, {"step_each", step_insert<EACH>}, {"step_warp", step_insert<WARP>},
    };
    const unsigned part = keys / 8, block = std::min(256u, part);
    WideTable t;
    t.mask = slots - 1;
    CHECK(cudaMalloc(&t.slots, slots * sizeof(WideSlot)));
    CHECK(cudaMalloc(&t.used, 32 * 128));
    CHECK(cudaMalloc(&t.counters, sms * 128));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    // The first round loads the code.
    // Every key once, part by part; the first time to have the code loaded.
    auto measure = [&](const char *name, size_t slot_bytes, auto launch) {
        for (bool timed : {false, true}) {
            CHECK(cudaMemset(t.slots, 0, slots * slot_bytes));
            CHECK(cudaMemset(t.used, 0, 32 * 128));
            CHECK(cudaMemset(t.counters, 0, sms * 128));
            std::vector<float> times;
            for (unsigned first = 0; first < keys; first += part) {
                CHECK(cudaDeviceSynchronize());
                busy<<<1, 1>>>();
                CHECK(cudaEventRecord(begin));
                launch(first);
                CHECK(cudaEventRecord(end));
                CHECK(cudaEventSynchronize(end));
                float ms;
                CHECK(cudaEventElapsedTime(&ms, begin, end));
                times.push_back(ms);
            }
            std::vector<u64> counters(16 * sms);
            CHECK(cudaMemcpy(counters.data(), t.counters, sms * 128, cudaMemcpyDeviceToHost));
            u64 sum = 0;
            for (int i = 0; i < sms; i++)
                sum += counters[16 * i];
            if (timed)
                printf("%s %.3f %u %llu\n", name, median(times), keys, sum);
        }
    };
    for (const auto &step : kernels)
        measure(step.name, sizeof(WideSlot), [&](unsigned first) { step.kernel<<<part / block, block>>>(t, first); });
    // In the same memory, as slots of half the size.
    struct {
        const char *name;
        void (*kernel)(Table, u64 *, unsigned);
    } const wide[] = {
        {"step_wide", wide_insert<WIDE>}, {"step_room", wide_insert<ROOM>}, {"step_settle", wide_insert<SETTLE>},
    };
    Table half = {(Slot *)t.slots, t.mask, t.counters};
    for (const auto &step : wide)
        measure(step.name, sizeof(Slot), [&](unsigned first) {
            step.kernel<<<part / block, block>>>(half, (u64 *)t.used, first);
        });
    CHECK(cudaMemset(half.slots, 0, slots * sizeof(Slot)));
    CHECK(cudaMemset(t.counters, 0, sms * 128));
    CHECK(cudaEventRecord(begin));
    mixed_insert<<<keys / (block / 2), block>>>(half, 0);
    CHECK(cudaEventRecord(end));
    mixed_check<<<keys / block, block>>>(half, 0);
    CHECK(cudaDeviceSynchronize());
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    std::vector<u64> counters(16 * sms);
    CHECK(cudaMemcpy(counters.data(), t.counters, sms * 128, cudaMemcpyDeviceToHost));
    u64 sum = 0;
    for (int i = 0; i < sms; i++)
        sum += counters[16 * i];
    printf("step_mixed %.3f %u %llu\n", ms * 1000, keys, sum);
}

int main(int argc, char **argv)
{
    const unsigned keys = 1u << (argc > 1 ? atoi(argv[1]) : 19);
    const u64 slots = 4ull * keys;
    int sms;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    if (argc > 2 && !strcmp(argv[2], "steps")) {
        steps(keys, slots, sms);
        return 0;
    }
    Table table;
    table.mask = slots - 1;
    CHECK(cudaMalloc(&table.slots, slots * sizeof(Slot)));
    CHECK(cudaMemset(table.slots, 0, slots * sizeof(Slot)));
    CHECK(cudaMalloc(&table.counters, sms * 128));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));

    const unsigned part = keys / 8;
    const Operation operations[] = {
        {"insert", hand_insert, ours_insert, 8, part, 0, part},
        {"count", hand_count, ours_count, 20, keys, 0, 0},
        {"find", hand_find, ours_find, 20, keys, 0, 0},
        {"miss", hand_miss, ours_miss, 20, keys, 1u << 30, 0},
        {"crowd", hand_crowd, ours_crowd, 20, keys, 0, 0},
        {"set", hand_set, ours_set, 20, keys, 0, 0},
        {"again", hand_again, ours_again, 20, keys, 0, 0},
        {"rush", hand_rush, ours_rush, 20, keys, 1u << 29, 64},
        {"clear", hand_clear, ours_clear, 20, keys, 1u << 29, 64},
        {"delete", hand_delete, ours_delete, 8, part, 0, part},
        {"absent", hand_absent, ours_absent, 20, keys, 1u << 30, 0},
    };
    const unsigned block = std::min(256u, part);
    // Code is loaded at a first launch: none of that is timed.
    for (const Operation &operation : operations)
        operation.hand<<<1, 1>>>(table, 1u << 31);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemset(table.slots, 0, slots * sizeof(Slot)));
    for (const Operation &operation : operations)
        for (bool ours : {false, true}) {
            CHECK(cudaMemset(table.counters, 0, sms * 128));
            std::vector<float> times;
            for (int i = 0; i < operation.launches; i++) {
                unsigned first = operation.first + i * operation.step;
                CHECK(cudaDeviceSynchronize());
                busy<<<1, 1>>>();
                CHECK(cudaEventRecord(begin));
                if (ours)
                    operation.ours<<<operation.threads / block, block>>>(first);
                else
                    operation.hand<<<operation.threads / block, block>>>(table, first);
                CHECK(cudaEventRecord(end));
                CHECK(cudaEventSynchronize(end));
                float ms;
                CHECK(cudaEventElapsedTime(&ms, begin, end));
                times.push_back(ms);
            }
            std::vector<u64> counters(16 * sms);
            CHECK(cudaMemcpy(counters.data(), table.counters, sms * 128, cudaMemcpyDeviceToHost));
            u64 sum = 0;
            for (int i = 0; i < sms; i++)
                sum += counters[16 * i];
            printf("%s_%s %.3f %llu %llu\n", ours ? "ours" : "hand", operation.name, median(times),
                   (u64)operation.launches * operation.threads, sum);
        }
    return 0;
}
