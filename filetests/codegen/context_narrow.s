; map array value=8
; A narrow read of the context is a part of the register.
    r2 = *(u8 *)(r1 + 24)
    r3 = *(u16 *)(r1 + 38)
    r2 += r3
    r3 = *(s8 *)(r1 + 25)
    r2 += r3
    r3 = *(u32 *)(r1 + 76)
    r2 += r3
    r1 = map[0][0] + 0
    lock *(u64 *)(r1 + 0) += r2
    r0 = 0
    exit
