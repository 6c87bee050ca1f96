; The same where no lane waits for another.
; apart
; map array value=64
    r6 = r1
    *(u32 *)(r10 - 4) = 0
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 == 0 goto out
    r7 = r0
    r1 = r10
    r1 += -24
    r2 = 12
    r3 = *(u64 *)(r7 + 0)
    call 113
    if r0 != 0 goto out
    r2 = *(u32 *)(r10 - 24)
    r2 &= 31
    r3 = *(u64 *)(r7 + 0)
    r4 = 2
    r1 = r7
    r1 += 32
    call 520
    *(u64 *)(r7 + 8) = r0
out:
    r0 = 0
    exit
