; Linux has it: it is refused by its name.
    r2 = 0
    r3 = 0
    call 12  ; error[unknown-helper]: `bpf_tail_call` of Linux (helper 12) is not served
    r0 = 0
    exit
