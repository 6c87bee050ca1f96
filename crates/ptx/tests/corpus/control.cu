// A switch, a branch table, loops with pragmas, inline assembly with scopes and labels.
__global__ void dispatch(int *out, const int *in, int n) {
    int v = in[threadIdx.x];
    switch (n) {
        case 0: v *= out[1]; break;
        case 1: v += out[2] + 3; out[5] = v; break;
        case 2: v ^= out[3] << 2; break;
        case 3: v = v / (out[4] | 1); out[7] = 1; break;
        case 4: v = min(v, out[5]); break;
        case 5: v = __brev(v); out[9] = n; break;
        case 6: v = v % (out[7] | 1); break;
        case 7: v = max(v, out[8]); out[1] = v; break;
        case 8: v = ~out[9]; out[3] = 9; break;
        case 9: for (int k = 0; k < v; k++) out[k] = k; break;
        case 10: __syncthreads(); break;
        case 11: v = atomicAdd(out, v); break;
        default: v = -v;
    }
#pragma unroll 1
    for (int i = 0; i < n; i++) v = v * 3 + in[i];
#pragma unroll
    for (int i = 0; i < 4; i++) v += in[i];
    out[threadIdx.x] = v;
}

__global__ void assembly(unsigned *out, unsigned long long *wide, float f) {
    unsigned lane, x;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("{\n\t.reg .pred p, q; // two\n\t"
                 "setp.lt.and.u32 p|q, %1, 16, !q; /* a ; in { a comment */\n\t"
                 "@p bra INNER_%=;\n\t"
                 "@!p add.u32 %0, %1, 0x10U;\n\tbra DONE_%=;\n"
                 "INNER_%=:\n\tlop3.b32 %0, %1, -7, 0b101, 0x96;\nDONE_%=:\n\t}" : "=r"(x) : "r"(lane));
    asm volatile("{.reg .f32 t; mov.f32 t, 0f3F800000; fma.rn.f32 t, t, 1.5, %1; mov.b32 %0, t;}" : "=r"(x) : "f"(f));
    asm volatile("mov.b64 {%0, _}, %1;" : "=r"(x) : "l"(*wide));
    asm volatile("prefetch.global.L2::evict_last [%0+128];" :: "l"(wide));
    asm volatile("ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2+-8];" : "=r"(x), "=r"(lane) : "l"(wide));
    out[lane] = x;
}

__global__ void routes(unsigned *out, unsigned n) {
    unsigned x;
    asm volatile("{\nROUTES: .branchtargets ODD,\n  EVEN;\n\tbrx.idx %1, ROUTES;\nODD: mov.u32 %0, 1;\n\tbra.uni END;\n"
                 "EVEN: mov.u32 %0, 2;\nEND:\n}" : "=r"(x) : "r"(n & 1));
    out[threadIdx.x] = x;
}
