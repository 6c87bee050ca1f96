; An array whose key is no 32-bit index.
; map array odd key=8 value=8 entries=16
    r1 = map[0]  ; error[map-shape]: map `odd` of type array must have a key of 4 bytes, not 8
    r0 = 0
    exit
