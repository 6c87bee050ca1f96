; map hash key=8 value=8 entries=64
; Published nodes, in the order of their slots.
    *(u64 *)(r10 - 8) = 0
    r1 = map[0]
    r2 = subprog[callback]
    r3 = r10
    r3 += -8
    r4 = 0
    call 164
    r0 = 0
    exit
callback:
    r5 = *(u64 *)(r2 + 0)
    r1 = *(u64 *)(r4 + 0)
    r1 += r5
    *(u64 *)(r4 + 0) = r1
    lock *(u64 *)(r3 + 0) += r1
    r0 = 0
    exit
