; A delete of a key of one word.
; map hash key=8 value=8 entries=64
    r6 = *(u32 *)(r1 + 24)
    *(u64 *)(r10 - 8) = r6
    r1 = map[0]
    r2 = r10
    r2 += -8
    call 3
    r0 = 0
    exit
