; The length of a string of the application is no more than the size.
; map array values value=17 entries=4
    r1 = r10
    r1 += -16
    r2 = 16
    r3 = 4096
    call 115
    if r0 s< 0 goto out
    r1 = map[0][0] + 0
    r1 += r0
    *(u8 *)(r1 + 0) = 1
out:
    r0 = 0
    exit
