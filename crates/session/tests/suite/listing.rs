//! Arguments in the listing of places: types from the text, names from its debug information where
//! there is some.

use warpbpf_session::image::inspect;
use warpbpf_session::listing::sites;

fn arguments(text: &str, kernel: &str) -> Vec<String> {
    let image = inspect(text.as_bytes(), (9, 0)).unwrap_or_else(|error| panic!("{error}"));
    let kernels = sites(&image, kernel);
    assert_eq!(kernels.len(), 1);
    kernels[0]
        .arguments
        .iter()
        .map(|a| format!("{} {} {}", a.ptx, a.name, a.ty))
        .collect()
}

#[test]
fn arguments_have_names_where_debug_information_has_them() {
    let text = include_str!("../../../ptx/tests/corpus/nvrtc-11.8-memory.ptx");
    assert_eq!(
        arguments(text, "_Z8by_value*"),
        ["b8[48] big Big", "u64 out Big *"]
    );
    let bare = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .align 8 .b8 s[24])\n{\n\tret;\n}\n";
    assert_eq!(arguments(bare, "k"), ["u64  ", "b8[24]  "]);
}
