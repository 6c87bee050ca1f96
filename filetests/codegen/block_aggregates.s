; Two aggregates over the block, each with its cell; the last thread of the block adds what they are.
; map array value=16
    r6 = *(u32 *)(r1 + 24)
    r1 = r6
    r2 = r10
    r2 += -8
    call 546
    r1 = r6
    r2 = r10
    r2 += -16
    call 547
    if r0 == 0 goto out
    r1 = *(u64 *)(r10 - 8)
    r2 = *(u64 *)(r10 - 16)
    r3 = map[0][0] + 0
    lock *(u64 *)(r3 + 0) += r1
    lock *(u64 *)(r3 + 8) += r2
out:
    r0 = 0
    exit
