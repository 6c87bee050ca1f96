; No atomic: something else may have been stored to the field in between.
; map array value=16 entries=1
    r9 = map[0][0] + 0
    r3 = *(u32 *)(r1 + 24)
    r1 = *(u64 *)(r9 + 8)
    r1 += 1
    *(u64 *)(r9 + 8) = r3
    *(u64 *)(r9 + 8) = r1
    r0 = 0
    exit
