; Division by a variable has guards, by a constant none; shift amounts are masked.
; map array value=64 entries=1
    r2 = *(u32 *)(r1 + 24)
    r3 = *(u32 *)(r1 + 0)
    r4 = map[0][0] + 0
    r5 = r2
    r5 /= r3
    *(u64 *)(r4 + 0) = r5
    w5 = w2
    w5 s/= w3
    *(u32 *)(r4 + 8) = r5
    r5 = r2
    r5 %= 10
    *(u64 *)(r4 + 16) = r5
    r5 = r2
    r5 <<= r3
    *(u64 *)(r4 + 24) = r5
    w5 = w2
    w5 s>>= 3
    *(u32 *)(r4 + 32) = r5
    r5 = r2
    r5 /= 8
    *(u64 *)(r4 + 40) = r5
    r0 = 0
    exit
