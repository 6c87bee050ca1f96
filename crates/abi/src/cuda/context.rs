//! The context that a program at a function of the driver API gets.

/// Arguments that a context has room for, which is as many as any function has.
pub const ARGS: usize = 16;

/// The context of a program at a function of the driver API: a field's offset and bytes, and what
/// it is. It begins with Linux's `struct pt_regs` of x86-64, so what programs at functions do with
/// that works here too.
#[derive(Debug)]
pub struct Field {
    /// Name in C.
    pub name: &'static str,
    /// Where.
    pub offset: usize,
    /// Bytes of one element.
    pub size: usize,
    /// How many elements.
    pub count: usize,
    /// For people.
    pub doc: &'static str,
}

macro_rules! fields {
    ($( $constant:ident = $name:literal $offset:literal $size:literal x $count:expr, $doc:literal; )*) => {
        $( #[doc = $doc] pub const $constant: usize = $offset; )*
        /// All fields of the context, in order and without gaps.
        pub static FIELDS: &[Field] = &[ $( Field { name: $name, offset: $offset, size: $size, count: $count, doc: $doc } ),* ];
    };
}

fields! {
    REGS = "regs" 0 8 x 21, "struct pt_regs of x86-64, for PT_REGS_PARM1 and its like; at the end of the function those that it returns with";
    API = "api" 168 4 x 1, "WBPF_API_NAME of this function";
    ARG_COUNT = "arg_count" 172 4 x 1, "how many arguments it has";
    RESULT = "result" 176 4 x 1, "the CUresult, in cudaret; 0 in cuda";
    PER_THREAD = "per_thread" 180 4 x 1, "1 if it was called by a name for which stream 0 is the thread's own (_ptsz, _ptds)";
    START = "start_ns" 184 8 x 1, "when it was called, by bpf_ktime_get_ns";
    DURATION = "duration_ns" 192 8 x 1, "how long the driver took, in cudaret; 0 in cuda";
    KERNEL = "kernel_id" 200 8 x 1, "the kernel that is launched, if programs are in it";
    LAUNCH = "launch_id" 208 8 x 1, "number of this launch among those of its kernel, the same that programs in it have; 0 if it launches none, or one without programs";
    ARGS_AT = "args" 216 8 x ARGS, "the arguments, as they were given: by name with WBPF_ARGS";
}

/// Bytes of the context.
pub const CONTEXT_BYTES: usize = ARGS_AT + 8 * ARGS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_no_gaps() {
        let mut end = 0;
        for field in FIELDS {
            assert_eq!(field.offset, end, "{}", field.name);
            end += field.size * field.count;
        }
        assert_eq!(end, CONTEXT_BYTES);
    }
}
