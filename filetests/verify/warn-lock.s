; A lock that is tried eight times: it ends, but who does not get it goes on without.
; map array counts value=8 entries=16
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
    r0 = 0
    r1 = 1
    r0 = cmpxchg_64(r6 + 0, r0, r1)  ; warning[lock]: this tries to take a lock in map `counts`: of the lanes of a warp one gets it at most, and those that run out of tries go on without
    if r0 == 0 goto got
    r7 += 1
    if r7 < 8 goto again
    r0 = 0
    exit
got:
    r1 = 0
    r1 = xchg_64(r6 + 0, r1)
    r0 = 0
    exit
