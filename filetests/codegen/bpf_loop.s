; map array value=8
; The callback is the body of a loop; the caller's stack variable that it changes goes round as a parameter.
    *(u64 *)(r10 - 8) = 0
    r6 = *(u32 *)(r1 + 24)
    r1 = r6
    r2 = subprog[callback]
    r3 = r10
    r3 += -8
    r4 = 0
    call 181
    r2 = *(u64 *)(r10 - 8)
    r1 = map[0][0] + 0
    lock *(u64 *)(r1 + 0) += r2
    r0 = 0
    exit
callback:
    r3 = *(u64 *)(r2 + 0)
    r3 += r1
    *(u64 *)(r2 + 0) = r3
    r0 = 0
    if r3 < 1000 goto out
    r0 = 1
out:
    exit
