; A value of a map with smaller ones.
; map array small entries=1 value=8
; map array large entries=1 value=16
    *(u32 *)(r10 - 4) = 0
    r1 = map[1]
    r2 = r10
    r2 += -4
    r3 = map[0][0] + 0
    r4 = 0
    call 2  ; error[wrong-size]: argument 3 of `bpf_map_update_elem` points to 8 bytes, but a value of map `large` has 16
    r0 = 0
    exit
