; In scope `warp` one lane runs, and is its own group.
; scope warp
    call 524
    if r0 == 0 goto out
    r1 = 1
    call 528
out:
    r0 = 0
    exit
