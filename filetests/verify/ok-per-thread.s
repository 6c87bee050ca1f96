; One value per thread: nobody to lose to.
; map per_thread mine value=8 entries=16
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    r1 = *(u64 *)(r0 + 0)
    r1 <<= 1
    *(u64 *)(r0 + 0) = r1
    r0 = 0
    exit
