; map array value=32
; A constant that keeps one half of a number and replaces the other becomes moves of halves: in loops ptxas loses the half that
; is kept.
    r7 = *(u32 *)(r1 + 24)
    r8 = *(u32 *)(r1 + 0)
    r8 <<= 32
    r7 |= r8
    r1 = map[0][0] + 0
    r2 = r7
    r3 = 0xffffffff ll
    r2 &= r3
    *(u64 *)(r1 + 0) = r2
    r2 = r7
    r2 |= r3
    *(u64 *)(r1 + 8) = r2
    r3 = 0xffffffff00000000 ll
    r2 = r7
    r2 &= r3
    *(u64 *)(r1 + 16) = r2
    r7 |= r3
    *(u64 *)(r1 + 24) = r7
    r0 = 0
    exit
