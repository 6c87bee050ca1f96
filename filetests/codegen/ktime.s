; Time on the host's clock.
; map array value=8 entries=1
    call 5
    r1 = map[0][0] + 0
    *(u64 *)(r1 + 0) = r0
    r0 = 0
    exit
