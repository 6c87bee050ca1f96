; A number that is nobody's.
    call 600  ; error[unknown-helper]: helper 600 is not known
    r0 = 0
    exit
