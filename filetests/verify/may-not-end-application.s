; Waiting for a number in the application's memory.
    r6 = r1
again:
    r1 = r10  ; error[may-not-end]: the loop may not end: nothing changes between two rounds of it
    r1 += -8
    r2 = 8
    r3 = *(u64 *)(r6 + 104)
    call 113
    r1 = *(u64 *)(r10 - 8)
    if r1 == 0 goto again
    r0 = 0
    exit
