; A callback changes the key that it was given, and with it the map itself.
; map array counts value=8 entries=16
    r1 = map[0]
    r2 = subprog[each]
    r3 = 0
    r4 = 0
    call 164
    r0 = 0
    exit
each:
    *(u32 *)(r2 + 0) = 1  ; error[key-written]: write of 4 bytes at a key of map `counts`: a callback may only read it
    r0 = 0
    exit
