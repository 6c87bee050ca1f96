//! Kernel symbols: what is served, what is refused, what a weak one becomes.

use crate::common::compile;
use warpbpf_abi::kfuncs::KfuncId;
use warpbpf_ebpf::{Callee, Insn, Pc, listing};
use warpbpf_object::{Object, load};

fn loaded(source: &str) -> Object {
    load(&compile(source)).expect("it loads")
}

#[test]
fn served_functions_are_called_by_number() {
    let object = loaded(
        "struct bpf_iter_num { __u64 x[1]; };
         extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __weak __ksym;
         extern int *bpf_iter_num_next(struct bpf_iter_num *it) __weak __ksym;
         extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
         SEC(\"x\") int f(void *ctx) {
             struct bpf_iter_num it; int *p, sum = 0;
             if (!bpf_iter_num_new) return 9;
             bpf_iter_num_new(&it, 0, 10);
             while ((p = bpf_iter_num_next(&it))) sum += *p;
             bpf_iter_num_destroy(&it);
             return sum;
         }",
    );
    let program = &object.programs[0];
    let called: Vec<_> = program
        .code
        .insns()
        .iter()
        .filter_map(|insn| match insn {
            Insn::Call {
                callee: Callee::Kfunc(number),
            } => KfuncId::from_number(*number),
            _ => None,
        })
        .collect();
    assert_eq!(called[0], KfuncId::IterNumNew);
    assert!(called.contains(&KfuncId::IterNumNext));
    assert_eq!(called.last(), Some(&KfuncId::IterNumDestroy));
    // Its address is only asked whether it is 0.
    assert!(
        listing(&program.code).contains("= 0x1 ll"),
        "{}",
        listing(&program.code)
    );
    assert!(program.unresolved.is_empty());
}

#[test]
fn weak_symbols_that_are_missing_have_address_0() {
    let object = loaded(
        "extern int missing(int) __weak __ksym; extern const int counter __weak __ksym;
         SEC(\"x\") int f(int *ctx) {
             int r = 0;
             if (missing) r = missing(*ctx);
             if (&counter) r += 2;
             return r;
         }",
    );
    let program = &object.programs[0];
    let text = listing(&program.code);
    assert_eq!(text.matches("= 0x0 ll").count(), 2, "{text}");
    let table: Vec<_> = program.unresolved.iter().collect();
    let [(pc, reason)] = table[..] else {
        panic!("{table:?}");
    };
    assert_eq!(
        reason,
        "kernel function `missing` is not served here; call it only if `bpf_ksym_exists(missing)`"
    );
    assert_eq!(
        program.code.insns()[pc.index()],
        Insn::Call {
            callee: Callee::Helper(warpbpf_object::UNRESOLVED_CALL)
        }
    );
    assert!(*pc > Pc(0));
}
