; Takes a lock by exchange.
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
again:
    r1 = 1
    r1 = xchg_64(r0 + 0, r1)  ; error[spin]: this loop waits for another thread: it ends only when the value that instruction 10 reads gives another answer
    if r1 != 0 goto again
    r0 = 0
    exit
