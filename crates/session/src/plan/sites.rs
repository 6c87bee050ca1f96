//! Numbers of sites in the middle of kernels, one numbering for the whole session, and the names
//! that people read for them: `kernel at file.cu:212 ld.global.v4.f32`.

use std::collections::{BTreeMap, HashMap};

use warpbpf_patch::{SiteInfo, Variant};

use crate::plan::names::demangle;

/// Number of the first site: 0 stands for none.
const FIRST: u32 = 1;

/// Characters of a function's name in a site's: each of a kernel's many sites has it, and a
/// template's name can have thousands.
const MOST: usize = 256;
/// Of a longer one these are shown, from its beginning and from its end.
const SHOWN: (usize, usize) = (160, 64);

/// The numbers that were given so far. A text that is loaded again gets its old numbers again.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// By number, from [`FIRST`].
    names: Vec<String>,
    /// First number of each text (by its hash) and kernel, or list of kernels.
    known: HashMap<(u64, String), u32>,
}

impl Sites {
    /// Names by number; that of 0 is empty.
    pub(crate) fn names(&self) -> Vec<String> {
        std::iter::once(String::new())
            .chain(self.names.iter().cloned())
            .collect()
    }

    /// Has `make` number the sites of its variants from the number that it is given, and keeps
    /// their names. `text` and `kernels` say what is made: the same again is numbered as before.
    pub(crate) fn number<T, E>(
        &mut self,
        text: u64,
        kernels: &str,
        make: impl Fn(u32) -> Result<T, E>,
        named: impl Fn(&T) -> Vec<(u32, String)>,
    ) -> Result<T, E> {
        let key = (text, kernels.to_owned());
        if let Some(first) = self.known.get(&key) {
            let made = make(*first)?;
            // Another text could have the same hash.
            let same = |(number, name): &(u32, String)| self.get(*number) == Some(name);
            if named(&made).iter().all(same) {
                return Ok(made);
            }
        }
        let first = FIRST + self.names.len() as u32;
        let made = make(first)?;
        for (number, name) in named(&made) {
            let at = number.saturating_sub(FIRST) as usize;
            if self.names.len() <= at {
                self.names.resize(at + 1, String::new());
            }
            self.names[at] = name;
        }
        self.known.insert(key, first);
        Ok(made)
    }

    fn get(&self, number: u32) -> Option<&String> {
        self.names.get(number.checked_sub(FIRST)? as usize)
    }
}

/// The names of a variant's sites. `mangled` is its kernel.
pub(crate) fn names(mangled: &str, variant: &Variant) -> Vec<(u32, String)> {
    let mut seen: HashMap<String, u32> = HashMap::new();
    variant
        .sites
        .iter()
        .map(|site| {
            let mut name = name(mangled, site);
            let count = seen.entry(name.clone()).or_insert(0);
            *count += 1;
            // Several on one line: told apart in the order of the text.
            if *count > 1 {
                name += &format!(" #{count}");
            }
            (site.number, name)
        })
        .collect()
}

/// `kernel at file.cu:212 ld.global.f32`; without line information `kernel+57 ld.global.f32`, where
/// 57 is the line of the PTX text; in a device function `kernel/function at …`.
pub(crate) fn name(mangled: &str, site: &SiteInfo) -> String {
    let mut name = cut(demangle(mangled));
    if site.function != mangled {
        name += "/";
        name += &cut(demangle(&site.function));
    }
    match &site.at {
        Some((file, line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            name += &format!(" at {file}:{line}");
        }
        None => name += &format!("+{}", site.text_line),
    }
    name += " ";
    name += if site.op.is_empty() {
        site.site.word()
    } else {
        &site.op
    };
    name
}

/// The name, or the beginning and the end of one that is very long.
fn cut(name: String) -> String {
    let count = name.chars().count();
    if count <= MOST {
        return name;
    }
    let (first, last) = SHOWN;
    let begin: String = name.chars().take(first).collect();
    let end: String = name.chars().skip(count - last).collect();
    format!("{begin}…{end}")
}

/// Sites of a kernel that programs wanted and did not get: how many for each reason, most first.
pub(crate) fn left_out(variant: &Variant) -> Vec<(String, u32)> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, reason) in &variant.left_out {
        *counts.entry(reason).or_insert(0) += 1;
    }
    let mut counts: Vec<(String, u32)> = counts
        .into_iter()
        .map(|(reason, count)| (reason.to_owned(), count))
        .collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

#[cfg(test)]
mod tests {
    use warpbpf_abi::attach::Site;

    use super::*;

    const KERNEL: &str = "_Z9vectorAddPKfS0_Pfi";

    #[test]
    fn very_long_names_are_cut_in_the_middle() {
        assert_eq!(cut("k".repeat(256)), "k".repeat(256));
        let long = format!("{}ö{}", "a".repeat(3000), "b".repeat(1000));
        let expected = format!("{}…{}", "a".repeat(160), "b".repeat(64));
        assert_eq!(cut(long), expected);
    }

    fn site(number: u32, function: &str, op: &str, at: Option<(&str, u32)>) -> SiteInfo {
        SiteInfo {
            number,
            site: Site::Mem,
            function: function.to_owned(),
            op: op.to_owned(),
            at: at.map(|(file, line)| (file.to_owned(), line)),
            text_line: 57,
        }
    }

    fn variant(sites: Vec<SiteInfo>) -> Variant {
        Variant {
            entry: KERNEL.to_owned(),
            globals: Vec::new(),
            slot_count: 0,
            hidden: None,
            params: Vec::new(),
            sites,
            left_out: Vec::new(),
            placed: Vec::new(),
        }
    }

    #[test]
    fn names_say_where_and_what() {
        for (site, expect) in [
            (
                site(1, KERNEL, "ld.global.v4.f32", Some(("/src/a/file.cu", 212))),
                "vectorAdd at file.cu:212 ld.global.v4.f32",
            ),
            (
                site(1, KERNEL, "st.global.f32", None),
                "vectorAdd+57 st.global.f32",
            ),
            (
                site(1, "_Z3addff", "ld.f32", Some(("file.cu", 3))),
                "vectorAdd/add at file.cu:3 ld.f32",
            ),
            (
                SiteInfo {
                    site: Site::Func,
                    ..site(1, "helper", "", None)
                },
                "vectorAdd/helper+57 func",
            ),
        ] {
            assert_eq!(name(KERNEL, &site), expect);
        }
        let twice = variant(vec![
            site(1, KERNEL, "ld.f32", Some(("k.cu", 3))),
            site(2, KERNEL, "ld.f32", Some(("k.cu", 3))),
            site(3, KERNEL, "st.f32", Some(("k.cu", 3))),
        ]);
        let names: Vec<String> = names(KERNEL, &twice).into_iter().map(|(_, n)| n).collect();
        assert_eq!(
            names,
            [
                "vectorAdd at k.cu:3 ld.f32",
                "vectorAdd at k.cu:3 ld.f32 #2",
                "vectorAdd at k.cu:3 st.f32"
            ]
        );
    }

    #[test]
    fn a_text_loaded_again_keeps_its_numbers() {
        let mut sites = Sites::default();
        let mut of = |text, kernel: &str, names: [&str; 2]| {
            let made = sites.number(
                text,
                kernel,
                |first| Ok::<_, ()>(vec![first, first + 1]),
                |numbers| {
                    let named = numbers.iter().zip(names);
                    named.map(|(n, name)| (*n, name.to_owned())).collect()
                },
            );
            made.unwrap()
        };
        assert_eq!(of(7, "k", ["a", "b"]), [1, 2]);
        assert_eq!(of(7, "m", ["c", "d"]), [3, 4]);
        assert_eq!(of(7, "k", ["a", "b"]), [1, 2]);
        // As if two texts had one hash.
        assert_eq!(of(7, "k", ["a", "x"]), [5, 6]);
        assert_eq!(of(8, "k", ["a", "b"]), [7, 8]);
        let failed: Result<(), &str> = sites.number(9, "k", |_| Err("no"), |()| Vec::new());
        assert_eq!(failed, Err("no"));
        assert_eq!(sites.names(), ["", "a", "b", "c", "d", "a", "x", "a", "b"]);
    }

    #[test]
    fn reasons_are_counted() {
        let mut with = variant(Vec::new());
        for reason in ["in a call sequence", "in a wgmma group", "in a wgmma group"] {
            with.left_out
                .push((site(0, KERNEL, "ld.f32", None), reason.to_owned()));
        }
        assert_eq!(
            left_out(&with),
            [
                ("in a wgmma group".to_owned(), 2),
                ("in a call sequence".to_owned(), 1)
            ]
        );
    }
}
