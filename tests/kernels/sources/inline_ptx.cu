// PTX written by hand: forms that no compiler writes, names that hide others, labels and loops inside of a block.
#include "corpus.h"

__global__ void addWithCarry(const uint32_t *a, const uint32_t *b, uint32_t *out)
{
    int at = threadIdx.x * 4;
    uint32_t r0, r1, r2, r3;
    asm("add.cc.u32 %0, %4, %8;\n\t"
        "addc.cc.u32 %1, %5, %9;\n\t"
        "addc.cc.u32 %2, %6, %10;\n\t"
        "addc.u32 %3, %7, %11;"
        : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
        : "r"(a[at]), "r"(a[at + 1]), "r"(a[at + 2]), "r"(a[at + 3]), "r"(b[at]), "r"(b[at + 1]), "r"(b[at + 2]),
          "r"(b[at + 3]));
    out[at] = r0;
    out[at + 1] = r1;
    out[at + 2] = r2;
    out[at + 3] = r3;
}

__global__ void bitFields(const uint32_t *in, uint32_t *out)
{
    uint32_t x = in[threadIdx.x], r;
    asm("{\n\t"
        ".reg .b32 t<5>;\n\t"
        "bfe.u32 t0, %1, 5, 11;\n\t"
        "bfi.b32 t1, t0, %1, 20, 9;\n\t"
        "prmt.b32 t2, t1, %1, 0x3715;\n\t"
        "lop3.b32 t3, t2, t1, %1, 0x96;\n\t"
        "shf.l.wrap.b32 t4, t3, t2, 13;\n\t"
        "brev.b32 t4, t4;\n\t"
        "mad.lo.u32 %0, t4, 3, t3;\n\t"
        "}"
        : "=r"(r)
        : "r"(x));
    out[threadIdx.x] = r;
}

__global__ void vectorAccess(const uint32_t *in, uint32_t *out)
{
    asm volatile("{\n\t"
                 ".reg .b64 from, to;\n\t"
                 ".reg .v4 .b32 four;\n\t"
                 ".reg .b32 a, b, c, d;\n\t"
                 "cvta.to.global.u64 from, %0;\n\t"
                 "cvta.to.global.u64 to, %1;\n\t"
                 "ld.global.nc.L1::no_allocate.v4.u32 {a, b, c, d}, [from];\n\t"
                 "st.global.cs.v2.u32 [to], {d, c};\n\t"
                 "st.relaxed.gpu.global.u32 [to + 8], b;\n\t"
                 "st.global.wb.u32 [to+12], a;\n\t"
                 "ld.volatile.global.u32 a, [to];\n\t"
                 "ld.acquire.sys.global.u32 b, [to+ 4];\n\t"
                 "add.u32 a, a, b;\n\t"
                 "st.global.u32 [to], a; // the address register is read once more\n\t"
                 "ld.global.u64 from, [from];\n\t"
                 "st.global.u64 [to + 8], from;\n\t"
                 "}" ::"l"(in + threadIdx.x * 4),
                 "l"(out + threadIdx.x * 4)
                 : "memory");
}

__global__ void predicatedAccess(const int *in, int *out, int n)
{
    asm volatile("{\n\t"
                 ".reg .pred inside, odd;\n\t"
                 ".reg .b32 i, bit, value;\n\t"
                 ".reg .b64 offset, from, to;\n\t"
                 "mov.u32 bit, %%ctaid.x;\n\t"
                 "mov.u32 i, %%tid.x;\n\t"
                 "mad.lo.u32 i, bit, 48, i;\n\t"
                 "setp.lt.s32 inside, i, %2;\n\t"
                 "mul.wide.s32 offset, i, 4;\n\t"
                 "add.s64 from, %0, offset;\n\t"
                 "add.s64 to, %1, offset;\n\t"
                 "mov.b32 value, -7;\n\t"
                 "@inside ld.u32 value, [from];\n\t"
                 "and.b32 bit, i, 1;\n\t"
                 "setp.eq.and.u32 odd, bit, 1, inside;\n\t"
                 "@odd neg.s32 value, value;\n\t"
                 "@!odd add.s32 value, value, 1;\n\t"
                 "@inside st.u32 [to], value;\n\t"
                 "@!inside bra $done;\n\t"
                 "@odd red.add.s32 [%1], 2;\n"
                 "$done:\n\t"
                 "}" ::"l"(in),
                 "l"(out), "r"(n)
                 : "memory");
}

__global__ void loopInside(const uint32_t *in, uint32_t *out)
{
    uint32_t sum;
    asm volatile("{\n\t"
                 ".reg .b32 i, value;\n\t"
                 ".reg .b64 at;\n\t"
                 ".reg .pred more;\n\t"
                 "mov.b32 %0, 0;\n\t"
                 "mov.b32 i, 0;\n\t"
                 "mov.b64 at, %1;\n"
                 "again:\n\t"
                 "{ .reg .b32 i; ld.global.b32 i, [at]; xor.b32 i, i, 0x55; add.u32 %0, %0, i; }\n\t"
                 "add.s64 at, at, 4;\n\t"
                 "add.u32 i, i, 1;\n\t"
                 "setp.le.u32 more, i, %2;\n\t"
                 "@more bra.uni again;\n\t"
                 "}"
                 : "=r"(sum)
                 : "l"(in), "r"(blockIdx.x + 5)
                 : "memory");
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void barrierForms(int *out)
{
    __shared__ int count;
    int t = threadIdx.x, members, every, some;
    if (t == 0)
        count = 0;
    asm volatile("barrier.sync 0;" ::: "memory");
    asm volatile("{ .reg .pred p, q, r; setp.lt.u32 p, %3, 40; barrier.red.popc.u32 %0, 1, 96, p;"
                 " barrier.red.and.pred q, 2, 96, p; bar.red.or.pred r, 3, 96, p;"
                 " selp.s32 %1, 1, 0, q; selp.s32 %2, 1, 0, r; }"
                 : "=r"(members), "=r"(every), "=r"(some)
                 : "r"(t)
                 : "memory");
    if (t < 64) {
        // The first warp gives, the second takes.
        if (t < 32) {
            atomicAdd(&count, t);
            asm volatile("bar.arrive 4, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 4, 64;" ::: "memory");
            members += count;
        }
    }
    out[t] = members * 100 + every * 10 + some;
}

static const corpus::Case cases[] = {
    {"addWithCarry",
     [] {
         auto value = [](uint32_t i) { return number(i) | 0xc0000000u; };
         Buffer<uint32_t> a(160, value), b(160, value), out(160);
         addWithCarry<<<1, 40>>>(a.device, b.device, out.device);
         report("addWithCarry", out, [&](uint32_t i) {
             uint64_t sum = 0;
             for (uint32_t k = i / 4 * 4; k <= i; k++)
                 sum = (sum >> 32) + a.host[k] + b.host[k];
             return (uint32_t)sum;
         });
     }},
    {"bitFields",
     [] {
         Buffer<uint32_t> in(64, number), out(64);
         bitFields<<<1, 64>>>(in.device, out.device);
         report("bitFields", out);
     }},
    {"vectorAccess",
     [] {
         Buffer<uint32_t> in(128, number), out(128);
         vectorAccess<<<1, 32>>>(in.device, out.device);
         report("vectorAccess", out, [&](uint32_t i) {
             const uint32_t *four = &in.host[i / 4 * 4];
             const uint32_t values[] = {four[3] + four[2], four[2], four[0], four[1]};
             return values[i % 4];
         });
     }},
    {"predicatedAccess",
     [] {
         Buffer<int> in(100, [](uint32_t i) { return small(i) * 10; }), out(100);
         predicatedAccess<<<3, 48>>>(in.device, out.device, 100);
         // Element 0 is written by its thread while others add to it: left out of the checksum.
         std::vector<int> values = out.fetch();
         values[0] = 0;
         for (int i = 1; i < 100; i++)
             if (values[i] != (i % 2 ? -in.host[i] : in.host[i] + 1)) {
                 fprintf(stderr, "predicatedAccess: element %d is wrong\n", i);
                 exit(1);
             }
         corpus::print("predicatedAccess", values);
     }},
    {"loopInside",
     [] {
         Buffer<uint32_t> in(16, number), out(64);
         loopInside<<<2, 32>>>(in.device, out.device);
         report("loopInside", out, [&](uint32_t i) {
             uint32_t sum = 0;
             for (uint32_t k = 0; k <= i / 32 + 5; k++)
                 sum += in.host[k] ^ 0x55;
             return sum;
         });
     }},
    {"barrierForms",
     [] {
         Buffer<int> out(96);
         barrierForms<<<1, 96>>>(out.device);
         report("barrierForms", out, [](uint32_t i) { return (40 + (i >= 32 && i < 64 ? 496 : 0)) * 100 + 1; });
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }
