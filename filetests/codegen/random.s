; A random number: nothing is kept in memory.
; map array value=8
    call 7
    r1 = map[0][0] + 0
    *(u64 *)(r1 + 0) = r0
    r0 = 0
    exit
