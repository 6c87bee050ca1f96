; In scope `warp` one lane runs, and is its own group.
; together 506
; scope warp
    r2 = *(u32 *)(r1 + 48)
    if r2 > 3 goto out
    call 506
out:
    r0 = 0
    exit
