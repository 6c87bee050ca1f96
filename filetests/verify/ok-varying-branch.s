; Branches on the lane are welcome.
; map array counts value=8 entries=16
    r6 = *(u32 *)(r1 + 48)
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    if r6 > 3 goto out
    r1 = 1
    lock *(u64 *)(r0 + 0) += r1
out:
    r0 = 0
    exit
