//! Textures and surfaces: objects, questions, wrong uses and what is refused by name. Sampling
//! itself is tested by programs of the soft CUDA libraries, whose results an H200 confirmed.

use crate::common::{Params, Rig, header};
use warpbpf_softgpu::{
    AddressMode, Channels, Image, ImageKind, ImageSource, Texture, Trap, TrapKind,
};

fn kernel(body: &str) -> String {
    header(&format!(
        ".visible .entry k(.param .u64 object, .param .u64 out) {{
            .reg .b64 %rd<8>; .reg .b32 %r<12>; .reg .f32 %f<12>; .reg .pred %p<3>; .reg .b16 %h<3>;
            ld.param.u64 %rd1, [object]; ld.param.u64 %rd2, [out];
            mov.u32 %r1, 0; mov.f32 %f1, 0f00000000;
            {body}
            ret; }}"
    ))
}

/// 4 by 2 texels of one word each.
fn image(address: u64) -> Image {
    Image {
        address,
        source: ImageSource::Array,
        kind: Channels::Unsigned,
        bits: 32,
        channels: 1,
        size: [4, 2, 0],
        layers: 0,
        pitch: 16,
        slice: 32,
    }
}

fn texture(address: u64) -> Texture {
    Texture {
        image: image(address),
        modes: [AddressMode::Clamp; 3],
        linear: false,
        as_float: false,
        normalised: true,
        border: [0.0; 4],
    }
}

/// Runs with a texture or a surface.
fn rig(body: &str, kind: ImageKind) -> (Rig, Params, u64) {
    let rig = Rig::new(&kernel(body));
    let texels = rig.u32s(&[10, 11, 12, 13, 20, 21, 22, 23]);
    let object = match kind {
        ImageKind::Texture => rig.gpu.add_texture(texture(texels)),
        ImageKind::Surface => rig.gpu.add_surface(image(texels)),
    };
    let out = rig.u32s(&[0; 8]);
    (rig, Params::default().u64(object).u64(out), out)
}

fn trap(body: &str, kind: ImageKind) -> Trap {
    let (mut rig, params, _) = rig(body, kind);
    rig.trap("k", 1, 1, &params)
}

const FETCH: &str = "tex.2d.v4.u32.f32 {%r2, %r3, %r4, %r5}, [%rd1, {%f1, %f1}];";

#[test]
fn questions_are_answered() {
    let body = "txq.width.b32 %r2, [%rd1]; txq.height.b32 %r3, [%rd1]; txq.depth.b32 %r4, [%rd1];
        txq.array_size.b32 %r5, [%rd1]; txq.num_mipmap_levels.b32 %r6, [%rd1]; txq.num_samples.b32 %r7, [%rd1];
        txq.normalized_coords.b32 %r8, [%rd1]; txq.level.width.b32 %r9, [%rd1], 0;
        st.global.v4.u32 [%rd2], {%r2, %r3, %r4, %r5}; st.global.v4.u32 [%rd2+16], {%r6, %r7, %r8, %r9};";
    let (mut with_texture, params, out) = rig(body, ImageKind::Texture);
    with_texture.run("k", 1, 1, &params);
    assert_eq!(with_texture.read_u32(out, 8), [4, 2, 0, 0, 1, 0, 1, 4]);
    let body =
        "suq.width.b32 %r2, [%rd1]; suq.height.b32 %r3, [%rd1]; suq.array_size.b32 %r4, [%rd1];
        st.global.v4.u32 [%rd2], {%r2, %r3, %r4, %r1};";
    let (mut with_surface, params, out) = rig(body, ImageKind::Surface);
    with_surface.run("k", 1, 1, &params);
    assert_eq!(with_surface.read_u32(out, 4), [4, 2, 0, 0]);
}

#[test]
fn levels_and_gradients_of_a_texture_without_levels() {
    let body = "mov.f32 %f2, 0f3F000000;
        tex.level.2d.v4.u32.f32 {%r2, %r3, %r4, %r5}, [%rd1, {%f2, %f2}], %f1;
        tex.grad.2d.v4.u32.f32 {%r3, %r4, %r5, %r6}, [%rd1, {%f2, %f2}], {%f1, %f1}, {%f1, %f1};
        tex.base.2d.v4.u32.f32 {%r4, %r5, %r6, %r7}, [%rd1, {%f1, %f2}];
        tex.2d.v4.u32.s32 {%r5, %r6, %r7, %r8}, [%rd1, {3, 1}];
        st.global.v4.u32 [%rd2], {%r2, %r3, %r4, %r5};";
    let (mut rig, params, out) = rig(body, ImageKind::Texture);
    rig.run("k", 1, 1, &params);
    assert_eq!(rig.read_u32(out, 4), [22, 22, 20, 23]);
}

#[test]
fn an_object_must_be_one_of_its_kind() {
    let says = |trap: Trap, message: &str| {
        assert_eq!(
            (trap.kind, trap.message.as_str()),
            (TrapKind::InvalidDescriptor, message)
        );
    };
    let store = "sust.b.2d.b32.trap [%rd1, {%r1, %r1}], {%r1};";
    says(
        trap(FETCH, ImageKind::Surface),
        "object 0x1 is a surface, not a texture",
    );
    says(
        trap(store, ImageKind::Texture),
        "object 0x1 is a texture, not a surface",
    );
    let none = |body: &str| trap(&format!("mov.u64 %rd1, 77; {body}"), ImageKind::Texture);
    says(none(FETCH), "there is no texture object 0x4d");
    says(none(store), "there is no surface object 0x4d");
    says(
        trap(
            "tex.3d.v4.u32.f32 {%r2, %r3, %r4, %r5}, [%rd1, {%f1, %f1, %f1, %f1}];",
            ImageKind::Texture,
        ),
        "`.3d` access to a `.2d` texture",
    );
    says(
        trap(
            "suld.b.a2d.b32.zero {%r2}, [%rd1, {%r1, %r1, %r1, %r1}];",
            ImageKind::Surface,
        ),
        "`.a2d` access to a `.2d` surface",
    );
}

#[test]
fn a_removed_object_is_gone() {
    let (mut rig, params, _) = rig(FETCH, ImageKind::Texture);
    assert!(!rig.gpu.remove_image(1, ImageKind::Surface));
    assert!(rig.gpu.remove_image(1, ImageKind::Texture));
    assert!(!rig.gpu.remove_image(1, ImageKind::Texture));
    let trap = rig.trap("k", 1, 1, &params);
    assert_eq!(trap.message, "there is no texture object 0x1");
    assert_eq!(
        rig.gpu.add_surface(image(0)),
        2,
        "numbers are not used again"
    );
}

#[test]
fn memory_that_is_gone_is_seen() {
    let mut rig = Rig::new(&kernel(FETCH));
    let object = rig.gpu.add_texture(texture(0x1000));
    let trap = rig.trap("k", 1, 1, &Params::default().u64(object).u64(0));
    assert!(
        trap.message
            .starts_with("4-byte load at global address 0x1000 is out of bounds"),
        "{trap}"
    );
}

#[test]
fn surfaces_have_ends_and_alignment() {
    let trap_of = |body: &str| trap(body, ImageKind::Surface);
    let misaligned = trap_of("suld.b.2d.b32.trap {%r2}, [%rd1, {2, %r1}];");
    assert_eq!(
        (misaligned.kind, misaligned.message.as_str()),
        (
            TrapKind::Misaligned {
                address: 2,
                bytes: 4
            },
            "misaligned 4-byte surface load at byte 2"
        )
    );
    let beyond = trap_of("sust.b.2d.v4.b32.trap [%rd1, {16, 1}], {%r1, %r1, %r1, %r1};");
    assert_eq!(
        beyond.kind,
        TrapKind::OutOfBounds {
            address: 16,
            bytes: 16,
            space: "surface",
            access: "store"
        }
    );
}

#[test]
fn other_forms_are_refused_by_name() {
    for (body, reason) in [
        (
            "tex.cube.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1, %f1, %f1, %f1}];",
            "geometry `.cube`",
        ),
        (
            "tex.2dms.v4.f32.s32 {%f2, %f3, %f4, %f5}, [%rd1, {%r1, %r1, %r1, %r1}];",
            "geometry `.2dms`",
        ),
        (
            "tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, %rd2, {%f1, %f1}];",
            "a sampler of its own (`texmode_independent`)",
        ),
        (
            "tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}|%p1, [%rd1, {%f1, %f1}];",
            "the predicate of sparse textures",
        ),
        (
            "tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [%rd1, {%f1, %f1}], {%r1, %r1};",
            "offsets and depth comparison",
        ),
        (
            "tex.2d.v2.f16x2.f32 {%r2, %r3}, [%rd1, {%f1, %f1}];",
            "2d.v2.f16x2.f32",
        ),
        (
            "sust.p.2d.b32.trap [%rd1, {%r1, %r1}], {%r1};",
            "formatted access",
        ),
        (
            "suld.b.cube.b32.trap {%r2}, [%rd1, {%r1, %r1}];",
            "geometry `.cube`",
        ),
        (
            "txq.channel_order.b32 %r2, [%rd1];",
            "query `.channel_order`",
        ),
        (
            "suq.memory_layout.b32 %r2, [%rd1];",
            "query `.memory_layout`",
        ),
    ] {
        let trap = trap(body, ImageKind::Texture);
        assert_eq!(trap.kind, TrapKind::Unsupported, "{trap}");
        assert!(trap.message.ends_with(&format!(": {reason}")), "{trap}");
    }
    let trap = trap(
        "sured.b.add.2d.u32.trap [%rd1, {%r1, %r1}], %r1;",
        ImageKind::Surface,
    );
    assert!(
        trap.message
            .starts_with("unsupported instruction `sured.b.add.2d.u32.trap` at line "),
        "{trap}"
    );
}
