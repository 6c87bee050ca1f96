; A key of four bytes for a map whose keys have eight.
; map hash table entries=16 key=8 value=8
    *(u32 *)(r10 - 4) = 1
    r1 = map[0]
    r2 = r10
    r2 += -4
    call 1  ; error[wrong-size]: argument 2 of `bpf_map_lookup_elem` points to 4 bytes, but a key of map `table` has 8
    r0 = 0
    exit
