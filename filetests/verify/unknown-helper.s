; `bpf_get_current_comm` of Linux: a thread of a GPU has no name.
    call 16  ; error[unknown-helper]: helper 16 is not known
    r0 = 0
    exit
