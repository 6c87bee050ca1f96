; A ring is asked with flags that are known, that are not, and that mean nothing; nothing is known of the answer.
; map ring events entries=65536
    r6 = *(u32 *)(r1 + 48)
    r1 = map[0]
    r2 = 0
    call 134
    if r0 > 1000000 goto out
    r1 = map[0]
    r2 = r6
    call 134
    r1 = map[0]
    r2 = 99
    call 134
out:
    r0 = 0
    exit
