// Kernels whose accesses to global memory are told twice: by a probe in the machine code of the one, and in the source of its twin (`…_told`), which adds up
// what it does itself. All take (out, in, n, told): n is the number of threads, a multiple of 256, and `told` where the twin adds: for loads, and 64 bytes behind
// them for stores, how many there were, their bytes, all addresses exclusively or'ed, and their sum.

typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

static __device__ unsigned mix(unsigned x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

// Each access is one instruction, which the compiler neither joins with others nor leaves out.
template <bool TOLD> struct Memory {
    u64 *told;

    __device__ void tell(const void *at, unsigned bytes, int store) const
    {
        if (TOLD) {
            u64 *to = told + 8 * store;
            atomicAdd(to, 1);
            atomicAdd(to + 1, bytes);
            atomicXor(to + 2, (u64)at);
            atomicAdd(to + 3, (u64)at);
        }
    }
    __device__ unsigned load(const unsigned *at) const
    {
        unsigned x;
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
        tell(at, 4, 0);
        return x;
    }
    __device__ unsigned load_volatile(const unsigned *at) const
    {
        unsigned x;
        asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
        tell(at, 4, 0);
        return x;
    }
    __device__ unsigned load_constant(const unsigned *at) const
    {
        unsigned x;
        asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
        tell(at, 4, 0);
        return x;
    }
    __device__ unsigned load8(const u8 *at) const
    {
        unsigned x;
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
        tell(at, 1, 0);
        return x;
    }
    __device__ int load8s(const u8 *at) const
    {
        int x;
        asm volatile("ld.global.s8 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
        tell(at, 1, 0);
        return x;
    }
    __device__ unsigned load16(const u16 *at) const
    {
        unsigned x;
        asm volatile("ld.global.u16 %0, [%1];" : "=r"(x) : "l"(at) : "memory");
        tell(at, 2, 0);
        return x;
    }
    __device__ u64 load64(const u64 *at) const
    {
        u64 x;
        asm volatile("ld.global.u64 %0, [%1];" : "=l"(x) : "l"(at) : "memory");
        tell(at, 8, 0);
        return x;
    }
    __device__ uint4 load128(const uint4 *at) const
    {
        uint4 x;
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "l"(at)
                     : "memory");
        tell(at, 16, 0);
        return x;
    }
    __device__ void store(unsigned *at, unsigned x) const
    {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
        tell(at, 4, 1);
    }
    __device__ void store_through(unsigned *at, unsigned x) const
    {
        asm volatile("st.global.wt.u32 [%0], %1;" ::"l"(at), "r"(x) : "memory");
        tell(at, 4, 1);
    }
    __device__ void store8(u8 *at, unsigned x) const
    {
        asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "r"(x) : "memory");
        tell(at, 1, 1);
    }
    __device__ void store16(u16 *at, unsigned x) const
    {
        asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"((u16)x) : "memory");
        tell(at, 2, 1);
    }
    __device__ void store64(u64 *at, u64 x) const
    {
        asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(x) : "memory");
        tell(at, 8, 1);
    }
    __device__ void store128(uint4 *at, uint4 x) const
    {
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(x.x), "r"(x.y),
                     "r"(x.z), "r"(x.w)
                     : "memory");
        tell(at, 16, 1);
    }
};

#define BODY(name) template <bool TOLD> static __device__ __forceinline__ void name##_body(unsigned *out, const unsigned *in, u64 n, const Memory<TOLD> &m)
#define KERNEL(name)                                                                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) name(unsigned *out, const unsigned *in, u64 n, u64 *told)                                                \
    {                                                                                                                                                          \
        name##_body<false>(out, in, n, Memory<false>{told});                                                                                                   \
    }                                                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) name##_told(unsigned *out, const unsigned *in, u64 n, u64 *told)                                         \
    {                                                                                                                                                          \
        name##_body<true>(out, in, n, Memory<true>{told});                                                                                                     \
    }
#define HERE u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x

// One load and one store.
BODY(copy)
{
    HERE;
    m.store(out + i, m.load(in + i) + 1);
}
KERNEL(copy)

// An early way out, several loads, offsets in the instruction.
BODY(vecadd)
{
    HERE;
    if (i >= n - 7)
        return;
    m.store(out + i, m.load(in + i) + m.load(in + i + 1) * 3 + m.load(in + i + 5));
}
KERNEL(vecadd)

// All sizes, offsets below zero, caches.
BODY(sizes)
{
    HERE;
    u64 k = (unsigned)i % (unsigned)(n - 8) + 4;
    const u8 *bytes = (const u8 *)(in + k);
    unsigned x = m.load8(bytes + 3) + m.load8s(bytes - 7) * 5 + m.load16((const u16 *)bytes - 3) * 7;
    u64 pair = m.load64((const u64 *)(in + (k & ~1ull)) - 1);
    uint4 four = m.load128((const uint4 *)(in + (k & ~3ull)) - 1);
    x += m.load_volatile(in + k - 2) ^ m.load_constant(in + k + 3);
    m.store8((u8 *)(out + i) + 1, x);
    m.store16((u16 *)(out + i), x >> 3);
    m.store64((u64 *)(out + n) + i, pair * x);
    four.x += x;
    m.store128((uint4 *)(out + 4 * n) + i, four);
    m.store_through(out + 8 * n + i, mix(x));
}
KERNEL(sizes)

// Accesses of some lanes, under predicates, several of which hold at a time.
BODY(guards)
{
    HERE;
    unsigned x = m.load(in + i);
    bool a = x & 1, b = x & 2, c = x & 4, d = x % 3 == 0, e = x % 5 == 0, f = x > 0x80000000u;
    const unsigned *from = in + (i ^ 1);
    unsigned *to = out + i;
    unsigned y = x, z = 0, w = 1;
    if (a)
        y = m.load(from);
    if (!b)
        m.store(to + n, x);
    if (c)
        z = m.load(from + (i & 1 ? 1 : -1));
    if (d)
        m.store(to + 2 * n, y);
    if (!e)
        w = m.load(in + (i ^ 3));
    if (f)
        m.store(to + 3 * n, z);
    if (a && !c)
        w = m.load(in + (i ^ 7));
    if (b || e)
        m.store(to + 4 * n, w);
    m.store(to, y + z * 3 + w * 5 + a + b * 2 + c * 4 + d * 8 + e * 16 + f * 32);
}
KERNEL(guards)

// Lanes go different ways for different times, with accesses on each, and have to be together again.
BODY(diverge)
{
    HERE;
    unsigned x = m.load(in + i);
    unsigned sum = 0;
    if (x & 1) {
        for (unsigned k = 0; k < x % 7; k++) {
            sum += m.load(in + (x + k) % (unsigned)n);
            if (sum & 8) {
                m.store(out + n + i, sum);
                for (unsigned j = 0; j < sum % 3; j++)
                    sum = mix(sum + m.load(in + (sum + j) % (unsigned)n));
            }
        }
    } else {
        for (unsigned k = x % 11; k > 0; k--) {
            if (m.load(in + (x * k) % (unsigned)n) & 4)
                sum = mix(sum + k);
            else
                m.store(out + 2 * n + i, sum);
        }
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 5);
    sum = mix(sum) + m.load(in + sum % (unsigned)n);
    sum += __shfl_down_sync(0xffffffffu, sum, 3);
    sum += __ballot_sync(0xffffffffu, sum & 1);
    m.store(out + i, sum);
}
KERNEL(diverge)

// Lanes that were never apart, and have to be together behind each access: the compiler has nobody wait for anybody here, and keeps sums of the warp in registers that it has once.
BODY(together)
{
    HERE;
    unsigned x = m.load(in + i), uniform = blockIdx.x;
#pragma unroll 1
    for (unsigned k = 0; k < 6; k++) {
        x += __shfl_xor_sync(0xffffffffu, x, 1 << k % 5);
        m.store(out + n * (k + 1) + i, x);
        x ^= __shfl_down_sync(0xffffffffu, x, 3);
        uniform = uniform * 5 + k;
        x = mix(x + m.load(in + (i ^ (k * 3 & 31))) + uniform);
        x += __shfl_sync(0xffffffffu, x, (uniform + k) & 31);
        x += __popc(__ballot_sync(0xffffffffu, x & 1));
        m.store(out + n * (k + 7) + i, x + uniform);
    }
    m.store(out + i, x);
}
KERNEL(together)

// Many registers are in use at each access.
BODY(registers)
{
    HERE;
    unsigned value[44];
#pragma unroll
    for (int k = 0; k < 44; k++)
        value[k] = m.load(in + (unsigned)(i + 5 * k) % (unsigned)n);
#pragma unroll
    for (int k = 0; k < 44; k++)
        value[k] = value[k] * 0x9e3779b1u + value[(k + 7) % 44];
#pragma unroll
    for (int k = 0; k < 44; k++)
        m.store(out + i + n * k, value[k]);
}
KERNEL(registers)

// An array that is indexed, so that the kernel has a stack frame of its own.
BODY(stack)
{
    HERE;
    unsigned own[40];
    for (int k = 0; k < 40; k++)
        own[k] = mix(m.load(in + (unsigned)(i + k) % (unsigned)n) + k);
    unsigned x = m.load(in + i);
    for (int k = 0; k < 30; k++) {
        x = own[x % 40] += x + k;
        if (x & 1)
            m.store(out + n + i, own[x % 40]);
    }
    m.store(out + i, x);
}
KERNEL(stack)

template <bool TOLD> static __device__ __noinline__ unsigned deep(unsigned x, const unsigned *in, unsigned *out, u64 n, const Memory<TOLD> &m)
{
    unsigned sum = m.load(in + x % (unsigned)n);
    for (unsigned k = 0; k < (x & 3); k++)
        sum = mix(sum + m.load(in + (sum + k) % (unsigned)n));
    if (sum & 1)
        m.store(out, sum);
    return sum;
}

// Functions with accesses, which lanes call from different places.
BODY(calls)
{
    HERE;
    unsigned x = m.load(in + i);
    if (x & 1)
        x += deep(x * 3, in, out + n + i, n, m);
    else if (x & 2)
        x ^= deep(x + 1, in, out + n + i, n, m) * 3;
    m.store(out + i, x + deep(x, in, out + 2 * n + i, n, m));
}
KERNEL(calls)

// Shared memory and barriers between accesses; what each lane reads was written by another.
BODY(barriers)
{
    __shared__ unsigned sums[256];
    HERE;
    unsigned x = m.load(in + i);
    for (int round = 0; round < 4; round++) {
        sums[threadIdx.x] = x;
        __syncthreads();
        x = mix(sums[(threadIdx.x * 5 + round) % 256] + m.load(in + (unsigned)(i + x) % (unsigned)n));
        __syncthreads();
        atomicAdd(&sums[x % 256], 1u);
        __syncthreads();
        x += sums[threadIdx.x];
        __syncthreads();
    }
    m.store(out + i, x);
}
KERNEL(barriers)

// Loops whose counters and bounds are the same in all lanes: the warp has them once.
BODY(uniform)
{
    HERE;
    unsigned x = 0;
    unsigned rounds = 5 + blockIdx.x % 4;
    for (unsigned k = 0; k < rounds; k++) {
        const unsigned *row = in + (k * 977 + blockIdx.x * 31) % (unsigned)(n - 256);
        x += m.load(row + threadIdx.x) * (k + rounds);
        if (k % 2 == blockIdx.y)
            m.store(out + n * (k + 1) + i, x);
    }
    m.store(out + i, x);
}
KERNEL(uniform)

// Ways out in loops, whose other threads go on and meet again.
BODY(exits)
{
    HERE;
    unsigned x = m.load(in + i);
    if (x % 13 == 0 && i % 3 == 1)
        return;
    for (int round = 0; round < 20; round++) {
        x = mix(x + round);
        if (x % 11 == 0) {
            m.store(out + i, x + round);
            return;
        }
        if (x % 7 == 3) {
            x = mix(x ^ m.load(in + x % (unsigned)n));
            __syncwarp(__activemask());
        }
    }
    m.store(out + i, x);
}
KERNEL(exits)

// A jump table.
BODY(table)
{
    HERE;
    unsigned x = m.load(in + i);
    switch (x % 9) {
    case 0: x = mix(x); break;
    case 1: m.store(out + i, x * 3); return;
    case 2: x = __brev(x); m.store(out + i + n, x); break;
    case 3: x = x / 7 + 1; break;
    case 4: x ^= m.load(in + (unsigned)(i + 1) % (unsigned)n); m.store(out + i, x); return;
    case 5: x = __clz(x) * 17 + m.load(in + x % (unsigned)n); break;
    case 6: m.store(out + i + n, x); x = x % 1001; break;
    case 7: return;
    default: x = ~x;
    }
    m.store(out + i, x);
}
KERNEL(table)

// Divisions and floating-point functions, which the compiler calls; doubles, whose results come late.
BODY(floats)
{
    HERE;
    double x = m.load(in + i) * 1e-3, y = m.load(in + (unsigned)(i * 7) % (unsigned)n) + 1.0;
    for (int k = 0; k < 3; k++) {
        x = sqrt(x * x + y) / (y + k);
        y += sinf((float)x) * m.load(in + (unsigned)((u64)y + k) % (unsigned)n);
        m.store(out + (k + 2) * n + i, (unsigned)(u64)y);
    }
    m.store64((u64 *)out + i, __double_as_longlong(x + y));
}
KERNEL(floats)

// Copies that go on beside the code, and products of matrices.
BODY(beside)
{
    __shared__ alignas(16) unsigned tile[2][256 * 4];
    HERE;
    unsigned x = 0;
    unsigned at = (unsigned)__cvta_generic_to_shared(&tile[0][threadIdx.x * 4]);
    for (int k = 0; k < 4; k++) {
        const unsigned *from = in + ((unsigned)(i * 4 + k * 1024) % (unsigned)(n - 4) & ~3u);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;" ::"r"(at + 4096 * (k & 1)), "l"(from) : "memory");
        x += m.load(in + (unsigned)(i + k) % (unsigned)n);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        unsigned a0 = 0x3c003c00u ^ (x & 0x3ff), b0 = 0x3c003800u;
        float d[4] = {0, 0, 0, (float)k};
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a0 + 1), "r"(b0));
        m.store(out + (k + 1) * n + i, __float_as_uint(d[0] + d[3]));
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int k = 0; k < 4; k++)
        x = mix(x + tile[k & 1][(threadIdx.x * 4 + k * 5) % 1024]);
    m.store(out + i, x);
}
KERNEL(beside)
