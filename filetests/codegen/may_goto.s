; map array value=8
; A counter of the frame bounds the loop.
    r7 = *(u32 *)(r1 + 24)
again:
    may_goto done
    r7 >>= 1
    if r7 != 0 goto again
done:
    r1 = map[0][0] + 0
    lock *(u64 *)(r1 + 0) += r7
    r0 = 0
    exit
