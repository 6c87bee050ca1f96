; A record of 12 bytes in a variable of 16: `warpbpf` zeroes the gap; the proof alone refuses it.
; map ring events entries=65536
    *(u64 *)(r10 - 16) = 1
    *(u32 *)(r10 - 8) = 2
    r1 = map[0]
    r2 = r10
    r2 += -16
    r3 = 16
    r4 = 0
    call 130  ; error[padding]: argument 2 of `bpf_ringbuf_output` has a gap that was never written: 4 bytes at r10-4
    r0 = 0
    exit
