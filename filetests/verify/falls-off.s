; The last instruction is no `exit`.
    r0 = 0  ; error[falls-off]: control falls off the end of the function
