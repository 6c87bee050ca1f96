; Waits until another thread inserts a key.
; map hash table key=4 value=8 entries=16
again:
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1  ; error[spin]: this loop waits for another thread: it ends only when the lookup at instruction 5 gives another answer
    if r0 == 0 goto again
    r0 = 0
    exit
