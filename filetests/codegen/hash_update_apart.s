; The same where no lane waits for another.
; apart
; map hash key=8 value=8 entries=64
    r6 = *(u32 *)(r1 + 24)
    *(u64 *)(r10 - 8) = r6
    *(u64 *)(r10 - 16) = 0
    r1 = map[0]
    r2 = r10
    r2 += -8
    r3 = r10
    r3 += -16
    r4 = 1
    call 2
    r0 = 0
    exit
