//! What is mutated: kernels of the corpus with arguments that fit them, and generated ones.

use std::path::Path;

use warpbpf_conformance::rng::Rng;

use super::generate::{KERNEL, ROW, generate};
use warpbpf_conformance::lines::Text;

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// Memory that holds this before.
    Buffer(Vec<u8>),
    /// A number; a parameter of 4 bytes gets the lower ones.
    Number(u64),
}

/// How a kernel is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Parameters.
    pub arguments: Vec<Argument>,
}

impl Shape {
    /// Threads of all blocks.
    pub fn threads(&self) -> u64 {
        let product = |all: [u32; 3]| all.iter().map(|n| u64::from(*n)).product::<u64>();
        product(self.grid) * product(self.block)
    }
}

/// A kernel to be mutated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// What tables call it.
    pub name: String,
    /// Its name in the module.
    pub kernel: String,
    /// The module.
    pub text: Text,
    /// How it is launched.
    pub shape: Shape,
    /// It is one of ours: see [`super::mutate`].
    pub generated: bool,
    /// The compiler may fuse products and sums, so that bits may differ from what the soft GPU
    /// computes.
    pub fused: bool,
}

/// A generated kernel.
///
/// # Errors
/// The generator wrote what cannot be read.
pub fn generated(rng: &mut Rng) -> Result<Subject, String> {
    let made = generate(rng);
    let module = warpbpf_ptx::index(&made.text).map_err(|e| format!("{e}\n{}", made.text))?;
    let text = Text::of(&module, KERNEL)?;
    let rows = (made.blocks * made.threads * ROW) as usize;
    let salt = rng.number();
    Ok(Subject {
        name: "generated".into(),
        kernel: KERNEL.into(),
        shape: Shape {
            grid: [made.blocks, 1, 1],
            block: [made.threads, 1, 1],
            arguments: vec![
                Argument::Buffer(bytes(rng, rows)),
                Argument::Buffer(vec![0; rows]),
                Argument::Number(salt),
            ],
        },
        fused: fuses(&made.text),
        text,
        generated: true,
    })
}

fn bytes(rng: &mut Rng, n: usize) -> Vec<u8> {
    let words = (0..n.div_ceil(8)).flat_map(|_| rng.bits().to_le_bytes());
    words.take(n).collect()
}

/// Sums and products that are not told how to round are the compiler's.
fn fuses(text: &str) -> bool {
    [
        "mul.f32", "add.f32", "sub.f32", "mul.f64", "add.f64", "sub.f64",
    ]
    .iter()
    .any(|word| text.contains(word))
}

/// A row of [`CORPUS`].
type Row = (&'static str, &'static str, [u32; 3], [u32; 3], &'static str);

/// A kernel of the corpus: its group, its name, blocks, threads, arguments. Of these, `iN` are N
/// words of small numbers, `oN` N words of zeros, `uN` is the number N.
const CORPUS: &[Row] = &[
    (
        "tiling",
        "transposeTiled",
        [3, 3, 1],
        [16, 16, 1],
        "i1600 o1600 u40",
    ),
    (
        "tiling",
        "matmulTiled",
        [2, 2, 1],
        [8, 8, 1],
        "i256 i256 o256 u16",
    ),
    (
        "tiling",
        "stencilHalo",
        [3, 1, 1],
        [64, 1, 1],
        "i200 o200 u180",
    ),
    ("tiling", "scanShared", [2, 1, 1], [128, 1, 1], "i256 o256"),
    ("warps", "reduceShuffle", [2, 1, 1], [64, 1, 1], "i128 o128"),
    ("warps", "sortWarp", [2, 1, 1], [64, 1, 1], "i128 o128"),
    ("warps", "compactBallot", [2, 1, 1], [64, 1, 1], "i128 o128"),
    ("warps", "matchGroups", [2, 1, 1], [64, 1, 1], "i128 o256"),
    ("warps", "reduceKinds", [2, 1, 1], [64, 1, 1], "i128 o512"),
    ("warps", "shuffleApart", [2, 1, 1], [64, 1, 1], "i128 o128"),
    (
        "inline_ptx",
        "addWithCarry",
        [1, 1, 1],
        [32, 1, 1],
        "i128 i128 o160",
    ),
    ("inline_ptx", "bitFields", [1, 1, 1], [64, 1, 1], "i64 o512"),
    (
        "inline_ptx",
        "vectorAccess",
        [1, 1, 1],
        [32, 1, 1],
        "i512 o512",
    ),
    ("inline_ptx", "loopInside", [1, 1, 1], [64, 1, 1], "i64 o64"),
    (
        "doubles",
        "doubleKahan",
        [1, 1, 1],
        [32, 1, 1],
        "i512 o128 u200",
    ),
    ("halves", "halfConvert", [1, 1, 1], [64, 1, 1], "o65536"),
    (
        "counted",
        "countCopy",
        [3, 1, 1],
        [64, 1, 1],
        "i192 o192 u150",
    ),
    ("counted", "countVector", [1, 1, 1], [64, 1, 1], "i256 o256"),
    ("counted", "countLoop", [1, 1, 1], [64, 1, 1], "i4096 o64"),
    ("counted", "countShared", [1, 1, 1], [64, 1, 1], "o128"),
    ("counted", "countAtomic", [1, 1, 1], [64, 1, 1], "o64"),
    ("counted", "countDiverged", [1, 1, 1], [64, 1, 1], "o512"),
    ("counted", "countConstant", [1, 1, 1], [64, 1, 1], "o128"),
    ("counted", "countLocal", [1, 1, 1], [64, 1, 1], "o128 u20"),
    ("counted", "countGeneric", [1, 1, 1], [32, 1, 1], "o128"),
    (
        "counted",
        "countPredicated",
        [1, 1, 1],
        [64, 1, 1],
        "o128 u40",
    ),
    (
        "recursion",
        "recurseFibonacci",
        [1, 1, 1],
        [32, 1, 1],
        "o64",
    ),
    (
        "recursion",
        "recurseSort",
        [1, 1, 1],
        [32, 1, 1],
        "i512 o512",
    ),
    ("indirect", "callTable", [1, 1, 1], [32, 1, 1], "i32 o32"),
    ("indirect", "jumpTable", [1, 1, 1], [64, 1, 1], "i64 o64"),
    ("indirect", "virtualCalls", [1, 1, 1], [32, 1, 1], "o64"),
];

/// The kernels of the corpus that are mutated, from a bundle.
///
/// # Errors
/// What of the bundle is not there or cannot be read.
pub fn corpus(bundle: &Path) -> Result<Vec<Subject>, String> {
    let mut subjects = Vec::new();
    for (group, name, grid, block, arguments) in CORPUS {
        let file = bundle.join(format!("kernels/{group}.ptx"));
        let text = std::fs::read_to_string(&file)
            .map_err(|e| format!("cannot read `{}`: {e}", file.display()))?;
        let module = warpbpf_ptx::index(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        // `_Z9countCopyPKiPii`
        let part = format!("{}{name}", name.len());
        let mut entries = module.functions.iter().filter(|f| f.is_entry);
        let kernel = entries.find(|f| f.name.contains(&part));
        let kernel = kernel
            .ok_or_else(|| format!("{}: no `{name}`", file.display()))?
            .name;
        let text = Text::of(&module, kernel)?;
        let fused = fuses(&text.plain());
        subjects.push(Subject {
            name: (*name).into(),
            kernel: kernel.into(),
            text,
            shape: Shape {
                grid: *grid,
                block: *block,
                arguments: parse(arguments)?,
            },
            generated: false,
            fused,
        });
    }
    Ok(subjects)
}

fn parse(arguments: &str) -> Result<Vec<Argument>, String> {
    let one = |word: &str| -> Option<Argument> {
        let number: u64 = word.get(1..)?.parse().ok()?;
        let words = |f: fn(u64) -> u32| (0..number).flat_map(move |i| f(i).to_le_bytes()).collect();
        match word.as_bytes().first()? {
            b'i' => Some(Argument::Buffer(words(|i| {
                (i as u32).wrapping_mul(0x9e37_79b9) >> 27
            }))),
            b'o' => Some(Argument::Buffer(words(|_| 0))),
            b'u' => Some(Argument::Number(number)),
            _ => None,
        }
    };
    let all = arguments.split_whitespace();
    all.map(|word| one(word).ok_or_else(|| format!("`{word}` is no argument")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        assert_eq!(
            parse("i2 o1 u7"),
            Ok(vec![
                Argument::Buffer(vec![0, 0, 0, 0, 19, 0, 0, 0]),
                Argument::Buffer(vec![0; 4]),
                Argument::Number(7)
            ])
        );
        assert_eq!(parse("x1"), Err("`x1` is no argument".into()));
        for (.., arguments) in CORPUS {
            assert!(parse(arguments).is_ok(), "{arguments}");
        }
    }
}
