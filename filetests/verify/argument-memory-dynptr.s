; What a dynptr stands for is read through it too.
; map array out value=16 flags=256
    *(u32 *)(r10 - 4) = 0
    r1 = map[0]
    r2 = r10
    r2 += -4
    call 1
    if r0 == 0 goto +6
    r1 = r0
    r2 = 16
    r3 = 0
    r4 = r10
    r4 += -24
    call 197  ; error[argument-memory]: argument 1 of `bpf_dynptr_from_mem` must be 16 writable bytes of a map's value: read of 16 bytes at offset 0 of a value of map `out`: map `out` is write-only for programs
    r0 = 0
    exit
