; A helper that needs the same arguments in the whole group, with the lane as a value: here
; `bpf_map_update_elem` is one.
; map array counts value=8 entries=16
; alike 2
    r6 = *(u32 *)(r1 + 48)
    *(u32 *)(r10 - 4) = 3
    *(u64 *)(r10 - 16) = r6
    r1 = map[0]
    r2 = r10
    r2 += -4
    r3 = r10
    r3 += -16
    r4 = 0
    call 2  ; error[not-alike]: argument 3 of `bpf_map_update_elem` must be the same in all lanes; `r3` can differ between them
    r0 = 0
    exit
