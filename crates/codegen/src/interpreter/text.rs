//! The interpreter's function as PTX, and calls of it.

use warpbpf_abi::names::SLOTS;

use super::area::AREA_BYTES;
use super::ops::{DeviceOp, Reg16};
use crate::prelude::Text;

/// Most steps of one run. The proof's bound is far below; this one needs no proof.
const MOST_STEPS: u32 = 1 << 26;

/// The function: address of the code, `r1`, `r2`; gives `r0`, or 0 if the steps run out.
pub fn function(name: &str, ops: &[DeviceOp]) -> String {
    let mut f = Text::default();
    let label = |number: usize| format!("$wbpf_op_{number}");
    let targets: Vec<String> = (0..ops.len()).map(label).collect();
    f.raw(&format!(
        ".func (.param .b64 wbpf_r) {name}(.param .b64 wbpf_a0, .param .b64 wbpf_a1, .param .b64 wbpf_a2)"
    ));
    f.raw("{");
    let count = Reg16::COUNT;
    let area = Reg16::AREA.0;
    let imm = Reg16::IMM.0;
    let last = ops.len() - 1;
    f.code(&format!(
        ".reg .pred %wbpf_p<2>;
        .reg .b32 %wbpf_u, %wbpf_v, %wbpf_w<4>, %wbpf_steps;
        .reg .b64 %wbpf_x, %wbpf_y, %wbpf_t<3>, %wbpf_off, %wbpf_imm, %wbpf_pc, %wbpf_code, %wbpf_count, %wbpf_area, %wbpf_regs, %wbpf_put;
        .local .align 16 .b8 wbpf_regs[{}];
        .local .align 16 .b8 wbpf_area[{AREA_BYTES}];
        mov.u64 %wbpf_regs, wbpf_regs;
        mov.u64 %wbpf_t0, wbpf_area;
        cvta.local.u64 %wbpf_area, %wbpf_t0;
        st.local.u64 [wbpf_regs], 0;
        st.local.u64 [wbpf_regs+{}], %wbpf_area;
        ld.param.b64 %wbpf_t0, [wbpf_a1];
        st.local.u64 [wbpf_regs+8], %wbpf_t0;
        ld.param.b64 %wbpf_t0, [wbpf_a2];
        st.local.u64 [wbpf_regs+16], %wbpf_t0;
        ld.param.b64 %wbpf_code, [wbpf_a0];
        ld.relaxed.gpu.global.u64 %wbpf_count, [%wbpf_code];
        mov.b64 %wbpf_pc, 0;
        mov.b32 %wbpf_steps, {MOST_STEPS};",
        count * 8,
        u32::from(area) * 8,
    ));
    // One step: what the instruction says, then its operands, then what it does.
    f.code(&format!(
        "$wbpf_next:
        setp.ge.u64 %wbpf_p0, %wbpf_pc, %wbpf_count;
        setp.eq.u32 %wbpf_p1, %wbpf_steps, 0;
        or.pred %wbpf_p0, %wbpf_p0, %wbpf_p1;
        @%wbpf_p0 bra $wbpf_none;
        sub.u32 %wbpf_steps, %wbpf_steps, 1;
        shl.b64 %wbpf_t0, %wbpf_pc, 4;
        add.s64 %wbpf_t0, %wbpf_t0, %wbpf_code;
        add.s64 %wbpf_pc, %wbpf_pc, 1;
        ld.relaxed.gpu.global.u64 %wbpf_t1, [%wbpf_t0+16];
        ld.relaxed.gpu.global.u64 %wbpf_imm, [%wbpf_t0+24];
        st.local.u64 [wbpf_regs+{}], %wbpf_imm;
        shr.s64 %wbpf_off, %wbpf_t1, 32;
        cvt.u32.u64 %wbpf_w0, %wbpf_t1;
        shr.u64 %wbpf_t0, %wbpf_t1, 5;
        and.b64 %wbpf_t0, %wbpf_t0, 0x78;
        add.s64 %wbpf_t0, %wbpf_t0, %wbpf_regs;
        ld.local.u64 %wbpf_x, [%wbpf_t0];
        shr.u64 %wbpf_t0, %wbpf_t1, 13;
        and.b64 %wbpf_t0, %wbpf_t0, 0x78;
        add.s64 %wbpf_t0, %wbpf_t0, %wbpf_regs;
        ld.local.u64 %wbpf_y, [%wbpf_t0];
        shr.u64 %wbpf_t0, %wbpf_t1, 21;
        and.b64 %wbpf_t0, %wbpf_t0, 0x78;
        add.s64 %wbpf_put, %wbpf_t0, %wbpf_regs;
        cvt.u32.u64 %wbpf_u, %wbpf_x;
        cvt.u32.u64 %wbpf_v, %wbpf_y;
        and.b32 %wbpf_w0, %wbpf_w0, 0xff;
        min.u32 %wbpf_w0, %wbpf_w0, {last};",
        u32::from(imm) * 8,
    ));
    f.code(&format!(
        "$wbpf_ops: .branchtargets {};",
        targets.join(", ")
    ));
    f.code("brx.idx %wbpf_w0, $wbpf_ops;");
    for (number, op) in ops.iter().enumerate() {
        f.code(&format!("{}:", label(number)));
        f.code(&op.text(number));
    }
    f.code(
        "$wbpf_put32:
        cvt.u64.u32 %wbpf_x, %wbpf_u;
        $wbpf_put:
        st.local.u64 [%wbpf_put], %wbpf_x;
        bra $wbpf_next;
        $wbpf_none:
        st.local.u64 [wbpf_regs], 0;
        $wbpf_done:
        ld.local.u64 %wbpf_x, [wbpf_regs];
        st.param.b64 [wbpf_r], %wbpf_x;
        ret;",
    );
    f.raw("}");
    f.finish()
}

/// A fragment's body that runs the code in slot `code` with this thread's memory in `r1`, `size` in
/// `r2`, and stores `r0` behind it.
pub fn call(name: &str, space: &str, [code, slot]: [u32; 2], size: u32, stride: u32) -> String {
    let mut f = Text::default();
    let result = size.next_multiple_of(8);
    f.raw("{");
    f.code(&format!(
        ".reg .b32 %r<5>;
        .reg .b64 %rd<5>;
        ld.{space}.u64 %rd0, [{SLOTS}+{}];
        ld.{space}.u64 %rd1, [{SLOTS}+{}];",
        code * 8,
        slot * 8
    ));
    // The linear number of the thread in a grid of one dimension, as kernels of ours have.
    f.code(&format!(
        "mov.u32 %r0, %ctaid.x;
        mov.u32 %r1, %ntid.x;
        mov.u32 %r2, %tid.x;
        mad.lo.u32 %r3, %r0, %r1, %r2;
        mul.wide.u32 %rd2, %r3, {stride};
        add.s64 %rd1, %rd1, %rd2;
        mov.b64 %rd3, {size};"
    ));
    f.code(
        "{
        .param .b64 wbpf_c0;
        .param .b64 wbpf_c1;
        .param .b64 wbpf_c2;
        .param .b64 wbpf_v;
        st.param.b64 [wbpf_c0], %rd0;
        st.param.b64 [wbpf_c1], %rd1;
        st.param.b64 [wbpf_c2], %rd3;",
    );
    f.code(&format!(
        "call (wbpf_v), {name}, (wbpf_c0, wbpf_c1, wbpf_c2);
        ld.param.b64 %rd4, [wbpf_v];
        }}
        st.global.u64 [%rd1+{result}], %rd4;"
    ));
    f.raw("}");
    f.finish()
}
