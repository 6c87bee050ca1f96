; Waits until another thread sets a flag: in lockstep with it, for ever.
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
    r1 = *(u64 *)(r0 + 0)  ; error[spin]: this loop waits for another thread: it ends only when the value that instruction 9 reads gives another answer
    if r1 == 0 goto again
    r0 = 0
    exit
