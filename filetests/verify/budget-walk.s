; A walk over a hash looks at all its slots, however few hold something: 19 instructions each.
; map hash table entries=1000 key=8 value=8
    r1 = map[0]
    r2 = subprog[f]
    r3 = 0
    r4 = 0
    call 164  ; error[budget]: `bpf_for_each_map_elem` looks at 2048 slots of map `table`, with which one invocation may execute 38936 instructions on this path; the budget is 4096
    r0 = 0
    exit
f:
    r0 = 1
    exit
