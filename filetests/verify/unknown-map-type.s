; A map type that is not served: BPF_MAP_TYPE_LPM_TRIE.
; map 11 routes key=8 value=8 entries=16
    r1 = map[0]  ; error[unknown-map-type]: map `routes` has Linux's type lpm_trie (11), which is not served
    r0 = 0
    exit
