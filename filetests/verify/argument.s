; A number where a map is asked for.
    r1 = 0
    call 1  ; error[argument]: argument 1 of `bpf_map_lookup_elem` must be a map; `r1` is the number 0
    r0 = 0
    exit
