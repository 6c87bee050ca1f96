; A maximum by compare-and-swap, tried eight times: looks at the value first, so it is no lock.
; map array counts value=8 entries=16
    r8 = *(u32 *)(r1 + 48)
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    r6 = r0
    r7 = 0
again:
    r0 = *(u64 *)(r6 + 0)
    if r0 >= r8 goto out
    r9 = r0
    r0 = cmpxchg_64(r6 + 0, r0, r8)
    if r0 == r9 goto out
    r7 += 1
    if r7 < 8 goto again
out:
    r0 = 0
    exit
