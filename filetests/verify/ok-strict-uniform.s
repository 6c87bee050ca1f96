; `--strict-uniform`: what all lanes share decides; values may differ.
; strict-uniform
; map array counts entries=32 value=8
    r6 = *(u32 *)(r1 + 48)
    r2 = *(u32 *)(r1 + 0)
    if r2 > 3 goto out
    r2 &= 31
    *(u32 *)(r10 - 4) = r2
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 == 0 goto out
    lock *(u64 *)(r0 + 0) += r6
out:
    r0 = 0
    exit
