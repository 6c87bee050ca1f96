; Looked up, changed on the stack, written back by the helper.
; map hash table key=4 value=8 entries=16
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 == 0 goto out
    r1 = *(u64 *)(r0 + 0)
    r1 += 1
    *(u64 *)(r10 - 16) = r1
    r2 = r10
    r2 += -4
    r3 = r10
    r3 += -16
    r1 = map[0]
    r4 = 2
    call 2  ; warning[lost-update]: `bpf_map_update_elem` writes what was computed from an old value of map `table`: what other threads store in between is lost
out:
    r0 = 0
    exit
