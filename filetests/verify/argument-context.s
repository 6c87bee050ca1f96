; Any other number is no context.
; map 1527 events value=8 entries=16
    *(u64 *)(r10 - 8) = 7
    r1 = 1
    r2 = map[0]
    r3 = 0
    r4 = r10
    r4 += -8
    r5 = 8
    call 25  ; error[argument]: argument 1 of `bpf_perf_event_output` must be the context; `r1` is the number 1
    r0 = 0
    exit
