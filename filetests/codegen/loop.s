; A bounded loop, and a stack slot that is written and read in parts.
; map array value=16 entries=1
    r2 = *(u32 *)(r1 + 24)
    *(u64 *)(r10 - 8) = 0
    *(u16 *)(r10 - 6) = r2
    r3 = 0
    r4 = 0
again:
    r4 += r2
    r3 += 1
    if r3 < 10 goto again
    r5 = *(u64 *)(r10 - 8)
    r1 = map[0][0] + 0
    *(u64 *)(r1 + 0) = r4
    *(u64 *)(r1 + 8) = r5
    r0 = 0
    exit
