; The length counts the NUL, so it may be the size itself.
; map array values value=16 entries=4
    r1 = r10
    r1 += -16
    r2 = 16
    r3 = map[0][0] + 0
    call 115
    r1 = map[0][0] + 0
    r1 += r0
    *(u8 *)(r1 + 0) = 1  ; error[out-of-bounds]: write of 1 byte at offset 1..=16 of a value of map `values`, which has 16 bytes
    r0 = 0
    exit
