; map array value=8
; Current number and end are registers: the iterator needs no memory.
    r6 = *(u32 *)(r1 + 24)
    r7 = 0
    r1 = r10
    r1 += -8
    r2 = 0
    r3 = r6
    call kfunc[1]
again:
    r1 = r10
    r1 += -8
    call kfunc[2]
    if r0 == 0 goto done
    r1 = *(u32 *)(r0 + 0)
    r7 += r1
    goto again
done:
    r1 = r10
    r1 += -8
    call kfunc[3]
    r1 = map[0][0] + 0
    lock *(u64 *)(r1 + 0) += r7
    r0 = 0
    exit
