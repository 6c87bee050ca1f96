; bpftime's programs have no context and pass NULL for it: nothing is read through it.
; map 1527 events value=8 entries=16
    *(u64 *)(r10 - 8) = 7
    r1 = 0
    r2 = map[0]
    r3 = 0
    r4 = r10
    r4 += -8
    r5 = 8
    call 25
    r0 = 0
    exit
