; The room in an array.
; map array counts value=8
    r1 = map[0]
    r2 = 0
    call 134  ; error[wrong-map-type]: `bpf_ringbuf_query` does not take map `counts`, a map of type array
    r0 = 0
    exit
