; map array value=64
; Both operands of a sum come from what is loaded, and are needed elsewhere: no atomic, and no end without a rule against
; turning it round and round. Then what is loaded stands on the right of another load, twice combined: one atomic.
    r6 = *(u32 *)(r1 + 24)
    r7 = *(u32 *)(r1 + 0)
    r8 = *(u32 *)(r1 + 4)
    r1 = map[0][0] + 0
    r2 = *(u64 *)(r1 + 0)
    r3 = r2
    r3 += r6
    r4 = r2
    r4 += r7
    *(u64 *)(r1 + 16) = r3
    *(u64 *)(r1 + 24) = r4
    r5 = r4
    r5 += r8
    r3 += r5
    *(u64 *)(r1 + 0) = r3
    r2 = *(u64 *)(r1 + 32)
    r3 = *(u64 *)(r1 + 8)
    r2 += r3
    r2 += r6
    r2 += r7
    *(u64 *)(r1 + 8) = r2
    r0 = 0
    exit
