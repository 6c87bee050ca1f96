; A map is no array of bytes.
; map array counts value=8 entries=16
    r1 = map[0]
    r0 = *(u64 *)(r1 + 0)  ; error[map-access]: read of 8 bytes at offset 0 of map `counts`: a map itself has no bytes
    exit
