; A string of the application may not be there: the result may be an error.
; map array values value=17 entries=4
    r1 = r10
    r1 += -16
    r2 = 16
    r3 = 4096
    call 115
    r1 = map[0][0] + 0
    r1 += r0
    *(u8 *)(r1 + 0) = 1  ; error[out-of-bounds]: write of 1 byte at offset -4095..=16 of a value of map `values`, which has 17 bytes
    r0 = 0
    exit
