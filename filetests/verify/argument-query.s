; Flags that are the address of a ring.
; map ring events entries=65536
    r1 = map[0]
    r2 = map[0]
    call 134  ; error[argument]: argument 2 of `bpf_ringbuf_query` must be a number; `r2` is map `events`
    r0 = 0
    exit
