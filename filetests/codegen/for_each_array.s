; map array value=8 entries=16
; An array's key is nowhere in memory: the pointer to it is a number.
    r1 = map[0]
    r2 = subprog[callback]
    r3 = 0
    r4 = 0
    call 164
    r0 = 0
    exit
callback:
    r2 = *(u32 *)(r2 + 0)
    lock *(u64 *)(r3 + 0) += r2
    r0 = 0
    exit
