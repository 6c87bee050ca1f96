//! Kernel names as people write them: a glob may name the mangled or the demangled form, with or
//! without parameters and template arguments.

use cpp_demangle::{DemangleOptions, Symbol};
use wildmatch::WildMatch;

use crate::plan::short_name::{LEFT_OUT, short};

/// The readable name of a kernel: demangled without its parameter list and return type; names that
/// are not C++ stay.
pub fn demangle(mangled: &str) -> String {
    demangled(
        mangled,
        &DemangleOptions::new().no_params().no_return_type(),
    )
    .unwrap_or_else(|| mangled.to_string())
}

/// Does `glob` name this kernel? `*` stands for any text, `?` for one character, and text in
/// brackets at the start may be there or not: `[cuda_]_Z1kv` names `_Z1kv` and `cuda__Z1kv`. No
/// kernel's name begins with a bracket.
pub fn matches(glob: &str, mangled: &str) -> bool {
    if let Some((prefix, rest)) = glob.strip_prefix('[').and_then(|g| g.split_once(']')) {
        return matches(rest, mangled) || matches(&format!("{prefix}{rest}"), mangled);
    }
    // As tables show a template's name, it names what it stands for.
    let is_template = glob.contains('<');
    let glob = WildMatch::new(&glob.replace(LEFT_OUT, "*"));
    if glob.matches(mangled) {
        return true;
    }
    let readable = demangle(mangled);
    if glob.matches(&readable)
        || glob.matches(without_template_arguments(&readable))
        || glob.matches(&without_arguments(&readable))
        || is_template && glob.matches(&short(&readable))
    {
        return true;
    }
    demangled(mangled, &DemangleOptions::new()).is_some_and(|full| glob.matches(&full))
}

/// Without all template arguments and their brackets. A name whose brackets are not pairs stays.
fn without_arguments(name: &str) -> String {
    let mut left = String::new();
    let (mut depth, mut is_operator, mut before) = (0usize, false, ' ');
    for char in name.chars() {
        // `operator<=>` and `operator->` are names; arguments of an operator come behind a space.
        is_operator =
            (is_operator || depth == 0 && left.ends_with("operator")) && "<>=-".contains(char);
        match char {
            '<' if !is_operator => {
                if depth == 0 {
                    left.truncate(left.trim_end().len());
                }
                depth += 1;
            }
            '>' if !is_operator && before != '-' => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return name.to_owned(),
            },
            _ if depth == 0 => left.push(char),
            _ => {}
        }
        before = char;
    }
    match depth {
        0 => left,
        _ => name.to_owned(),
    }
}

/// Does `glob` stand for this text, as it is?
pub fn is_like(glob: &str, text: &str) -> bool {
    WildMatch::new(glob).matches(text)
}

fn demangled(mangled: &str, options: &DemangleOptions) -> Option<String> {
    if !mangled.starts_with("_Z") {
        return None;
    }
    Symbol::new(mangled)
        .ok()?
        .demangle_with_options(options)
        .ok()
}

fn without_template_arguments(name: &str) -> &str {
    // Only trailing arguments: `ns::gemm<float, 4>` is `ns::gemm`; `Tile<4>::run` stays whole.
    if !name.ends_with('>') {
        return name;
    }
    let mut depth = 0;
    for (at, byte) in name.bytes().enumerate().rev() {
        match byte {
            b'>' => depth += 1,
            b'<' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let before = &name[..at];
            // `operator<=>` has none.
            return match before.ends_with("operator") {
                true => name,
                false => before.trim_end(),
            };
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTOR_ADD: &str = "_Z9vectorAddPKfS0_Pfi";
    const TEMPLATE: &str = "_ZN2ns4gemmIfLi4EEEvPKT_S3_PS1_";

    #[test]
    fn readable_names() {
        assert_eq!(demangle(VECTOR_ADD), "vectorAdd");
        assert_eq!(demangle(TEMPLATE), "ns::gemm<float, 4>");
        assert_eq!(demangle("saxpy"), "saxpy");
        assert_eq!(demangle("_Znot_a_symbol"), "_Znot_a_symbol");
    }

    #[test]
    fn globs_over_names_without_arguments_and_as_tables_show_them() {
        for (name, bare) in [
            ("Tile<4>::run<A<B>>", "Tile::run"),
            ("operator<=>", "operator<=>"),
            ("operator< <int>", "operator<"),
            ("A<1>::operator->", "A::operator->"),
            ("f<(a->b)>", "f"),
            ("odd<name", "odd<name"),
            ("odd>name", "odd>name"),
        ] {
            assert_eq!(without_arguments(name), bare, "{name}");
        }
        // ns::Tile<float, 128l, 64l, 32l, ns::Pipes<3l, 2l>, ns::Layout<true> >::run<double>
        let long =
            "_ZN2ns4TileIfLi128ELi64ELi32ENS_5PipesILi3ELi2EEENS_6LayoutILb1EEEE3runIdEEvPT_";
        let demangled = demangle(long);
        let shown = short(&demangled);
        for glob in [
            "ns::Tile::run",
            "ns::Tile*::run*",
            shown.as_str(),
            demangled.as_str(),
        ] {
            assert!(matches(glob, long), "{glob} {demangled}");
        }
        assert!(!matches("ns::Tile<…>::walk<…>", long));
        assert!(matches("gemm<float>", "_ZN2ns4gemmIfEEvv"));
        for other in ["gemm", "gemm*"] {
            assert!(!matches(other, "_ZN2ns4gemmIfEEvv"), "{other}");
        }
    }

    #[test]
    fn globs_over_every_form() {
        for glob in [
            "_Z9vectorAddPKfS0_Pfi",
            "_Z9vector*",
            "vectorAdd",
            "vector*",
            "vectorAdd(float const*, *",
            "*",
        ] {
            assert!(matches(glob, VECTOR_ADD), "{glob}");
        }
        for glob in [
            "ns::gemm",
            "ns::gemm<float, 4>",
            "ns::*",
            "*gemm*",
            "ns::gemm<float, ?>",
        ] {
            assert!(matches(glob, TEMPLATE), "{glob}");
        }
        for (name, short) in [
            ("ns::operator<", "ns::operator<"),
            ("operator<=>", "operator<=>"),
            ("operator->", "operator->"),
            ("operator< <int>", "operator<"),
            ("f<g<1>, 2>", "f"),
        ] {
            assert_eq!(without_template_arguments(name), short);
        }
        for (glob, name, expect) in [
            ("[cuda_]_Z9vectorAddPKfS0_Pfi", VECTOR_ADD, true),
            ("[cuda_]fill", "cuda_fill", true),
            ("[cuda_]fill", "fill", true),
            ("[cuda_]f*", "cuda_fill", true),
            ("[cuda_]fill", "cuda_cuda_fill", false),
            ("[cuda_]fill", "cuda_", false),
            ("[cuda_", "cuda_", false),
        ] {
            assert_eq!(matches(glob, name), expect, "{glob} {name}");
        }
        for glob in ["vector", "add", "vectorAdd?", "ns::vectorAdd", ""] {
            assert!(!matches(glob, VECTOR_ADD), "{glob}");
        }
    }
}
