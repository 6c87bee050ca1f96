; The leader adds what its group has.
; map array value=8
    r1 = *(u32 *)(r1 + 24)
    call 528
    r6 = r0
    call 524
    if r0 == 0 goto out
    r0 = map[0][0] + 0
    lock *(u64 *)(r0 + 0) += r6
out:
    r0 = 0
    exit
