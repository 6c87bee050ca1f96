//! A place for programs in a kernel: what stands at a site, and the function that it calls when
//! something is to run there.
//!
//! Programs that come later may read any field of their context that a slot holds, so all of those
//! are written to memory before one runs, where C has them: a read is a plain load, and a context
//! may be handed around. The function is one for each kind of site, because memory of a thread's
//! own that stood at each site would be there as often.

use std::collections::BTreeSet;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::context::{self, Capture, Field, FieldSource};
use warpbpf_abi::layout::{gate, slot, slots};
use warpbpf_abi::names::{GROUP_MASK, SLOTS};

use super::function::Interpreter;
use crate::fence::{fence_function, fence_name};
use crate::fragment::{Env, Fragment, Target};
use crate::ir::FenceOp;
use crate::prelude::Text;

/// Parameters of the function before the captures: the environment block, the slot, the kernel's
/// number, the lanes that are there.
const FIXED: usize = 4;

/// What a slot has of a site's context. Other fields cost something at each pass, or need what a
/// launch hands over.
pub fn holds(field: &Field) -> bool {
    match field.source {
        FieldSource::BlockIdx(_)
        | FieldSource::BlockDim(_)
        | FieldSource::ThreadIdx(_)
        | FieldSource::GridDim(_)
        | FieldSource::Lane
        | FieldSource::Warp
        | FieldSource::Sm
        | FieldSource::ActiveMask
        | FieldSource::KernelId
        | FieldSource::GridId
        | FieldSource::DynamicShared
        | FieldSource::ClusterRank
        | FieldSource::ClusterDim(_) => true,
        FieldSource::Captured(capture) => match capture {
            Capture::ArgCount
            | Capture::Site
            | Capture::Line
            | Capture::Address
            | Capture::Bytes
            | Capture::Kind
            | Capture::Space
            | Capture::Cache
            | Capture::BarrierKind
            | Capture::BarrierId => true,
            Capture::Arg(_)
            | Capture::Launch
            | Capture::Node
            | Capture::Value(_)
            | Capture::ValueBytes
            | Capture::Target
            | Capture::TargetSpace
            | Capture::BarrierThreads
            | Capture::Waited
            | Capture::Operand(_)
            | Capture::OperandCount
            | Capture::TakenMask
            | Capture::Taken => false,
        },
    }
}

fn held(site: Site) -> impl Iterator<Item = &'static Field> {
    context::of(site).fields.iter().filter(|field| holds(field))
}

fn captures(site: Site) -> BTreeSet<Capture> {
    let captured = held(site).filter_map(|field| match field.source {
        FieldSource::Captured(capture) => Some(capture),
        _ => None,
    });
    captured.collect()
}

impl Interpreter {
    /// Code for the sites that `env` is for, which runs what is in slot `number`.
    pub fn slot(&self, env: &Env, number: u32) -> Fragment {
        let captures = captures(env.site);
        let name = self.slot_name(env.site);
        // Lanes that are elected come one by one; the splicer knows who was there.
        let elected = env.scope != Scope::Thread;
        let mut functions = self.functions().clone();
        for op in [FenceOp::Enter, FenceOp::Leave] {
            if let Some(name) = fence_name(op, env.target) {
                functions.insert(name.to_owned(), fence_function(op, env.target));
            }
        }
        functions.insert(name.clone(), self.slot_function(env.site, env.target));
        Fragment {
            body: call(env, &name, number, &captures),
            functions,
            uses_group_mask: elected,
            captures,
            slots: BTreeSet::from([slot::ENV]),
            ..Fragment::default()
        }
    }

    /// Functions stand in the order of their names, and this one calls the others.
    fn slot_name(&self, site: Site) -> String {
        format!("{}_{}", self.name, site.word())
    }

    fn slot_function(&self, site: Site, target: Target) -> String {
        let captures = captures(site);
        let params: Vec<String> = (0..FIXED + captures.len())
            .map(|i| format!(".param .b64 wbpf_a{i}"))
            .collect();
        let size = context::of(site).size;
        let mut f = Text::default();
        f.raw(&format!(
            ".func {}({})",
            self.slot_name(site),
            params.join(", ")
        ));
        f.raw("{");
        f.code(&format!(
            ".reg .pred %wbpf_p;
            .reg .b32 %wbpf_u, %wbpf_v, %wbpf_w;
            .reg .b64 %wbpf_env, %wbpf_in, %wbpf_code, %wbpf_ctx, %wbpf_x, %wbpf_y;
            .local .align 8 .b8 wbpf_ctx[{size}];
            ld.param.b64 %wbpf_env, [wbpf_a0];
            add.s64 %wbpf_x, %wbpf_env, {};",
            slots::AT
        ));
        f.code(&fence_call(FenceOp::Enter, target, "%wbpf_x", "%wbpf_in"));
        // Only now, as one who is counted, it is asked what is in force.
        f.code(&format!(
            "mov.u32 %wbpf_u, %smid;
            and.b32 %wbpf_u, %wbpf_u, {};
            mad.wide.u32 %wbpf_x, %wbpf_u, {}, %wbpf_env;
            ld.relaxed.gpu.global.u64 %wbpf_code, [%wbpf_x+{}];
            setp.eq.u64 %wbpf_p, %wbpf_code, 0;
            @%wbpf_p bra $wbpf_out;
            ld.param.b64 %wbpf_x, [wbpf_a1];
            shl.b64 %wbpf_x, %wbpf_x, 3;
            add.s64 %wbpf_x, %wbpf_x, %wbpf_code;
            ld.relaxed.gpu.global.u64 %wbpf_code, [%wbpf_x];
            setp.eq.u64 %wbpf_p, %wbpf_code, 0;
            @%wbpf_p bra $wbpf_out;",
            gate::COPIES - 1,
            gate::STRIDE,
            gate::COPIES_AT + gate::HALF
        ));
        for field in held(site) {
            f.code(&field_text(field, &captures, target));
        }
        f.code(&format!(
            "mov.u64 %wbpf_x, wbpf_ctx;
            cvta.local.u64 %wbpf_ctx, %wbpf_x;
            mov.b64 %wbpf_y, {size};
            {{
            .param .b64 wbpf_c0;
            .param .b64 wbpf_c1;
            .param .b64 wbpf_c2;
            .param .b64 wbpf_v;
            st.param.b64 [wbpf_c0], %wbpf_code;
            st.param.b64 [wbpf_c1], %wbpf_ctx;
            st.param.b64 [wbpf_c2], %wbpf_y;
            call (wbpf_v), {}, (wbpf_c0, wbpf_c1, wbpf_c2);
            ld.param.b64 %wbpf_x, [wbpf_v];
            }}
            $wbpf_out:",
            self.name
        ));
        f.code(&fence_call(FenceOp::Leave, target, "%wbpf_in", "%wbpf_x"));
        f.code("ret;");
        f.raw("}");
        f.finish()
    }
}

fn fence_call(op: FenceOp, target: Target, argument: &str, result: &str) -> String {
    let name = fence_name(op, target).unwrap_or_default();
    format!(
        "{{
        .param .b64 wbpf_c0;
        .param .b64 wbpf_v;
        st.param.b64 [wbpf_c0], {argument};
        call (wbpf_v), {name}, (wbpf_c0);
        ld.param.b64 {result}, [wbpf_v];
        }}"
    )
}

/// Writes a field to the context in memory.
fn field_text(field: &Field, captures: &BTreeSet<Capture>, target: Target) -> String {
    let axis = |i: u8| ["x", "y", "z"][usize::from(i) % 3];
    let special = |name: String| format!("mov.u32 %wbpf_u, {name};\n");
    let wide = |name: &str| format!("mov.u64 %wbpf_x, {name};\n");
    let param = |i: usize| format!("ld.param.b64 %wbpf_x, [wbpf_a{i}];\n");
    let narrow = "cvt.u32.u64 %wbpf_u, %wbpf_x;\n";
    // PTX ISA, "Special Registers: %cluster_ctarank".
    let clusters = target.sm >= 90 && target.ptx >= (7, 8);
    let value = match field.source {
        FieldSource::BlockIdx(i) => special(format!("%ctaid.{}", axis(i))),
        FieldSource::BlockDim(i) => special(format!("%ntid.{}", axis(i))),
        FieldSource::ThreadIdx(i) => special(format!("%tid.{}", axis(i))),
        FieldSource::GridDim(i) => special(format!("%nctaid.{}", axis(i))),
        FieldSource::Lane => special("%laneid".to_owned()),
        FieldSource::Sm => special("%smid".to_owned()),
        FieldSource::DynamicShared => special("%dynamic_smem_size".to_owned()),
        // A block without a cluster is a cluster of one.
        FieldSource::ClusterRank if !clusters => special("0".to_owned()),
        FieldSource::ClusterDim(_) if !clusters => special("1".to_owned()),
        FieldSource::ClusterRank => special("%cluster_ctarank".to_owned()),
        FieldSource::ClusterDim(i) => special(format!("%cluster_nctaid.{}", axis(i))),
        FieldSource::Warp => "mov.u32 %wbpf_u, %tid.z;
            mov.u32 %wbpf_v, %ntid.y;
            mov.u32 %wbpf_w, %tid.y;
            mad.lo.u32 %wbpf_u, %wbpf_u, %wbpf_v, %wbpf_w;
            mov.u32 %wbpf_v, %ntid.x;
            mov.u32 %wbpf_w, %tid.x;
            mad.lo.u32 %wbpf_u, %wbpf_u, %wbpf_v, %wbpf_w;
            shr.u32 %wbpf_u, %wbpf_u, 5;\n"
            .to_owned(),
        FieldSource::GridId => wide("%gridid"),
        FieldSource::KernelId => param(2),
        FieldSource::ActiveMask => param(3) + narrow,
        FieldSource::Captured(capture) => {
            let before = captures.range(..capture).count();
            let low = if field.size == 4 { narrow } else { "" };
            param(FIXED + before) + low
        }
    };
    let (bits, register) = match field.size {
        4 => (32, "%wbpf_u"),
        _ => (64, "%wbpf_x"),
    };
    format!(
        "{value}st.local.u{bits} [wbpf_ctx+{}], {register};",
        field.offset
    )
}

/// What stands at the site.
fn call(env: &Env, name: &str, number: u32, captures: &BTreeSet<Capture>) -> String {
    let space = env.slots.word();
    let table = match slot::ENV {
        0 => SLOTS.to_owned(),
        number => format!("{SLOTS}+{}", number * 8),
    };
    let mut f = Text::default();
    f.raw("{");
    f.code(&format!(
        ".reg .b32 %r<1>;
        .reg .b64 %rd<2>;
        ld.{space}.u64 %rd0, [{table}];"
    ));
    let mut list: Vec<String> = Vec::new();
    f.raw("{");
    let mut argument = |f: &mut Text, value: &str| {
        let param = format!("wbpf_c{}", list.len());
        f.code(&format!(
            ".param .b64 {param};\nst.param.b64 [{param}], {value};"
        ));
        list.push(param);
    };
    argument(&mut f, "%rd0");
    argument(&mut f, &number.to_string());
    argument(&mut f, &env.kernel_id.to_string());
    let mask = match env.scope {
        Scope::Thread => {
            f.code(&crate::opaque::group_mask("%r0"));
            "%r0"
        }
        Scope::Warp | Scope::Block => GROUP_MASK,
    };
    f.code(&format!("cvt.u64.u32 %rd1, {mask};"));
    argument(&mut f, "%rd1");
    for capture in captures {
        let register = capture.register();
        match capture.bits() {
            64 => argument(&mut f, &register),
            _ => {
                f.code(&format!("cvt.u64.u32 %rd1, {register};"));
                argument(&mut f, "%rd1");
            }
        }
    }
    f.code(&format!("call {name}, ({});", list.join(", ")));
    f.raw("}");
    f.raw("}");
    f.finish()
}
