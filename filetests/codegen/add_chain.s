; map array value=16
; `*v += a + 1` as clang compiles it, and a chain with a subtraction: one atomic each.
    r6 = *(u32 *)(r1 + 24)
    r7 = *(u32 *)(r1 + 0)
    r1 = map[0][0] + 0
    r2 = *(u64 *)(r1 + 0)
    r2 += r6
    r2 += 1
    *(u64 *)(r1 + 0) = r2
    r2 = *(u64 *)(r1 + 8)
    r2 -= r6
    r2 += r7
    r2 -= 3
    *(u64 *)(r1 + 8) = r2
    r0 = 0
    exit
