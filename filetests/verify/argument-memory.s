; A key of four bytes of which none was written.
; map array counts value=8 entries=16
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1  ; error[argument-memory]: argument 2 of `bpf_map_lookup_elem` must be a key of map `counts` (4 bytes): read of 4 bytes at r10-4 of the stack: the byte at r10-4 was never written
    r0 = 0
    exit
