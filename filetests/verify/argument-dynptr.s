; Only a record is given back.
; map array counts value=64
    *(u32 *)(r10 - 4) = 0
    r1 = map[0]
    r2 = r10
    r2 += -4
    call 1
    if r0 == 0 goto +10
    r1 = r0
    r2 = 64
    r3 = 0
    r4 = r10
    r4 += -24
    call 197
    r1 = r10
    r1 += -24
    r2 = 0
    call 200  ; error[argument]: argument 1 of `bpf_ringbuf_discard_dynptr` must be a dynptr that `bpf_ringbuf_reserve_dynptr` made; `r1` is a pointer to r10-24 of the stack
    r0 = 0
    exit
