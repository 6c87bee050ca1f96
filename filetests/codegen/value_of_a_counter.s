; map array value=32
; A 32-bit counter whose old value is widened right behind the load and needed after the store: still one atomic.
    r6 = *(u32 *)(r1 + 24)
    r1 = map[0][0] + 0
    r2 = *(u32 *)(r1 + 0)
    r3 = r6
    r3 += 7
    r4 = r2
    r4 <<= 8
    r3 += r2
    *(u32 *)(r1 + 0) = r3
    *(u64 *)(r1 + 8) = r2
    *(u64 *)(r1 + 16) = r4
    r0 = 0
    exit
