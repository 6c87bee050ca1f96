; What lanes touch together is the same in all of them, and so many conflicts are an index.
; map array counts value=264 entries=1
    r6 = *(u32 *)(r1 + 48)
    r1 = r6
    r1 <<= 2
    r2 = 4
    call 552
    if r0 > 3 goto out
    r1 = r6
    r1 <<= 2
    r2 = 4
    call 553
    r0 <<= 3
    r1 = map[0][0] + 0
    r1 += r0
    *(u64 *)(r1 + 0) = 1
out:
    r0 = 0
    exit
