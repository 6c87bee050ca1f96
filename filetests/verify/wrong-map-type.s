; A lookup in a ring.
; map ring events entries=65536
    *(u32 *)(r10 - 4) = 0
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1  ; error[wrong-map-type]: `bpf_map_lookup_elem` does not take map `events`, a map of type ringbuf
    r0 = 0
    exit
