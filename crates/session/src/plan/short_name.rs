//! Kernels' names as a table has room for: those of C++ templates are longer than a terminal is
//! wide, and differ at their ends.

/// Longer names lose what is inside their arguments.
const WIDE: usize = 64;
/// What stands for what was left out.
pub(crate) const LEFT_OUT: &str = "…";

/// A demangled name with template arguments without namespaces, parameters and lambdas; if that is
/// still long, without the arguments of arguments, and then with as many arguments as there is room
/// for.
pub fn short(name: &str) -> String {
    if !name.contains('<') {
        return name.to_owned();
    }
    let bare = bare(name);
    if bare.chars().count() <= WIDE {
        return bare;
    }
    let flat = flat(&bare);
    if flat.chars().count() <= WIDE {
        return flat;
    }
    let fits: String = flat.chars().take(WIDE).collect();
    match (fits.contains('<'), fits.rfind(", ")) {
        (true, Some(at)) => format!("{}, {LEFT_OUT}>", &fits[..at]),
        _ => format!("{fits}{LEFT_OUT}"),
    }
}

/// What kernels have in common that a library chooses from for one operation: a template's name, a
/// generated name without its number, and what stands in front of the tile's size.
pub fn family(name: &str) -> String {
    let short = short(name);
    let base = short.split('<').next().unwrap_or(&short);
    let mut kept: Vec<&str> = Vec::new();
    for part in base.split('_') {
        if !kept.is_empty() && is_tile(part) {
            break;
        }
        kept.push(part);
    }
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if name.starts_with("triton_") && kept.len() > 2 && kept.last().is_some_and(is_number) {
        kept.pop();
    }
    kept.join("_")
}

/// `128x64`, `tilesize128x128x64`.
fn is_tile(part: &str) -> bool {
    let sizes = part.strip_prefix("tilesize").unwrap_or(part);
    let numbers: Vec<&str> = sizes.split('x').collect();
    numbers.len() > 1
        && (numbers.iter()).all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Without what is in parentheses and braces, and with the last part of each qualified name.
fn bare(name: &str) -> String {
    let mut out = String::new();
    let mut depth = 0u32;
    for c in name.chars() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            ':' => {
                // What it qualifies follows, if that is not left out.
                let from = out
                    .rfind(|c: char| !is_word(c) && c != ':')
                    .map_or(0, |at| {
                        at + out[at..].chars().next().map_or(1, char::len_utf8)
                    });
                if out.ends_with(':') {
                    out.pop();
                    // `a<b>::c` keeps its `a<b>`, since nothing says which part is the name.
                    if from < out.len() {
                        out.truncate(from);
                    }
                } else {
                    out.push(':');
                }
            }
            '>' => {
                out.truncate(out.trim_end().len());
                out.push('>');
            }
            ' ' if out.ends_with([' ', '<']) => {}
            c => out.push(c),
        }
    }
    out.trim_end_matches([' ', ':']).to_owned()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Without the arguments of arguments.
fn flat(name: &str) -> String {
    let mut out = String::new();
    let mut depth = 0u32;
    for c in name.chars() {
        match c {
            '<' => {
                depth += 1;
                if depth <= 2 {
                    out.push('<');
                }
                if depth == 2 {
                    out.push_str(LEFT_OUT);
                }
            }
            '>' => {
                if depth <= 2 {
                    out.push('>');
                }
                depth = depth.saturating_sub(1);
            }
            _ if depth >= 2 => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_keep_what_tells_them_apart() {
        for (name, expected) in [
            ("vectorAdd", "vectorAdd"),
            ("ns::inner::add", "ns::inner::add"),
            ("templated<int, 5>", "templated<int, 5>"),
            ("ns::inner::gemm<float, 4>", "gemm<float, 4>"),
            (
                "void at::native::(anonymous namespace)::fill<at::Half, (unsigned long)1>",
                "void fill<Half, 1>",
            ),
            (
                "at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::FillFunctor<c10::Half> >(at::TensorIteratorBase&, at::native::FillFunctor<c10::Half> const&)::{lambda(int)#1}>",
                "elementwise_kernel<128, 4, gpu_kernel_impl<FillFunctor<Half>>>",
            ),
            (
                "at::native::unrolled_elementwise_kernel<at::native::FillFunctor<unsigned long>, std::array<char*, (unsigned long)1>, 4, TrivialOffsetCalculator<0, unsigned int> >",
                "unrolled_elementwise_kernel<FillFunctor<…>, array<…>, 4, …>",
            ),
            (
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel",
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel",
            ),
        ] {
            assert_eq!(short(name), expected);
        }
    }

    #[test]
    fn a_family_is_what_a_library_chooses_from() {
        for (name, expected) in [
            ("vectorAdd", "vectorAdd"),
            ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNN", "nvjet_hsh"),
            (
                "sm90_xmma_gemm_bf16_tn_n_tilesize128x128x64_x",
                "sm90_xmma_gemm_bf16_tn_n",
            ),
            (
                "cutlass_80_simt_sgemm_128x64_8x5_nn",
                "cutlass_80_simt_sgemm",
            ),
            ("triton_poi_fused_add_mul_3", "triton_poi_fused_add_mul"),
            ("triton_3", "triton_3"),
            ("at::native::reduce_kernel<512, 1>", "reduce_kernel"),
            ("128x64", "128x64"),
        ] {
            assert_eq!(family(name), expected);
        }
    }
}
