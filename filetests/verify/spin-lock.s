; Takes a lock by compare-and-swap: the lane that holds it may wait for those that want it.
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
again:
    r0 = 0
    r1 = 1
    r0 = cmpxchg_64(r6 + 0, r0, r1)  ; error[spin]: this loop waits for another thread: it ends only when the value that instruction 12 reads gives another answer
    if r0 != 0 goto again
    r0 = 0
    exit
