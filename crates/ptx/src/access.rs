//! What an instruction does to memory: which operand is the address, how many bytes, which kind,
//! space and cache operator. One table of forms (PTX ISA "Data Movement and Conversion
//! Instructions", "Asynchronous Copy", "Matrix instructions", "Texture" and "Surface
//! Instructions"), because a pattern over text misses the forms that compilers really write.

use warpbpf_abi::access::{Cache, Kind, Space};

use crate::ast::{Instruction, Operand};
use crate::decl::type_size;

/// How many bytes one lane accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    /// Always so many.
    Fixed(u32),
    /// As many as this operand says (its index): `cp.async.bulk`, `cp.async` with a source size.
    Operand(usize),
    /// As many as the tensor map says that this operand has the address of (its index).
    Box(usize, TensorBox),
    /// Not said by the instruction: a texture.
    Unknown,
}

/// What of a tensor one copy moves (PTX ISA "Tensor-Mode", "`cp.async.bulk.tensor`").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorBox {
    /// A box of so many dimensions, 1 to 5.
    Tile(u32),
    /// Four rows of two dimensions, `.tile::gather4` and `.tile::scatter4`.
    Rows,
    /// Pixels of an image.
    Im2col,
}

/// An access to memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// What it does.
    pub kind: Kind,
    /// Where: of a copy, where it reads.
    pub space: Space,
    /// Cache operator or ordering.
    pub cache: Cache,
    /// How much.
    pub bytes: Bytes,
    /// Index of the operand that holds the address: an `Address`, or the handle of a texture. Of a
    /// copy from a tensor map, the map's. An address with a computed offset is an
    /// [`Operand::Other`] that begins with `[`.
    pub address: usize,
    /// Of a copy: index of the operand where it goes, and its space.
    pub target: Option<(usize, Space)>,
    /// Indices of the operands whose values go to memory: what is stored, what an atomic adds,
    /// compares and swaps.
    pub values: Vec<usize>,
    /// Index of the operand that takes what was loaded, or the old value of an atomic.
    pub result: Option<usize>,
    /// Bytes of one element of the values and the result: 4 in `ld.global.v4.f32`; of a matrix, of
    /// one register. 0 where the instruction names no type.
    pub element: u32,
}

/// The access that an instruction makes, `None` if it touches no memory. An opcode with an address
/// operand that is not in the table is an access of kind [`Kind::Other`], so that nothing is
/// silently missed.
///
/// Operations on mbarriers, fences and cache policies are none, although they name an address: see
/// [`barrier`](crate::sync::barrier).
///
/// # Examples
/// ```
/// use warpbpf_ptx::{access::{Bytes, access}, ast::StatementKind};
/// let text = ".version 8.3\n.target sm_90\n.address_size 64\n\
///     .entry k() { @%p ld.global.nc.v4.f32 {a, b, c, d}, [%rd1+16]; }";
/// let module = warpbpf_ptx::index(text).unwrap();
/// let body = warpbpf_ptx::parse_body(&module, &module.functions[0]).unwrap();
/// let StatementKind::Instruction(load) = &body[0].kind else { panic!() };
/// let access = access(load).unwrap();
/// assert_eq!((access.address, access.bytes, access.element), (1, Bytes::Fixed(16), 4));
/// ```
pub fn access(instruction: &Instruction<'_>) -> Option<Access> {
    access_typed(instruction, &|_| None)
}

/// As [`access()`], with the types of registers: `type_of("%p1")` is `Some("pred")`. One form needs
/// them: the fourth operand of `cp.async` is a size or, if it is a predicate, whether to read at
/// all. Where the type is not known, a register counts as a predicate if it is named like one: `p`,
/// `%p3`, `pred0`.
pub fn access_typed<'a>(
    instruction: &Instruction<'a>,
    type_of: &dyn Fn(&'a str) -> Option<&'a str>,
) -> Option<Access> {
    let i = instruction;
    let known = match i.opcode {
        // Nothing here reads or writes what its address names; an mbarrier is a site of its own
        // kind.
        "mov" | "call" | "cvta" | "mapa" | "getctarank" | "isspacep" | "istypep" | "txq"
        | "suq" | "createpolicy" | "fence" | "membar" | "mbarrier" => return None,
        "ld" | "ldu" => load(i),
        "st" => store(i),
        "atom" => atomic(i),
        "red" => reduction(i),
        "multimem" => match i.modifiers.as_slice() {
            ["ld_reduce", ..] => load(i),
            ["st", ..] => store(i),
            ["red", ..] => reduction(i),
            ["cp", rest @ ..] => copy(i, rest, type_of)?,
            _ => None,
        },
        "cp" => copy(i, &i.modifiers, type_of)?,
        "prefetch" | "prefetchu" => prefetch(i, Bytes::Unknown),
        "applypriority" => prefetch(i, amount(i, 1)),
        "discard" => discard(i),
        "ldmatrix" => row_load(i),
        "stmatrix" => row_store(i),
        "wmma" => match i.modifiers.as_slice() {
            ["load", ..] => matrix_load(i),
            ["store", ..] => matrix_store(i),
            _ => None,
        },
        "tex" | "tld4" => texture(i),
        "suld" => surface_load(i),
        "sust" | "sured" => surface_store(i),
        "tensormap" => tensormap(i),
        "clusterlaunchcontrol" => launch_control(i),
        "tcgen05" if i.modifiers.first() == Some(&"commit") => return None,
        "tcgen05" if i.modifiers.first() == Some(&"alloc") => tensor_alloc(i),
        _ => None,
    };
    known.or_else(|| other(i))
}

/// How many lanes of the warp, from lane 0 on, give `ldmatrix` or `stmatrix` the address of a row;
/// those of the others are not read. `None` for any other instruction.
pub fn row_lanes(instruction: &Instruction<'_>) -> Option<u32> {
    let matrices = if instruction.has("x1") {
        1
    } else if instruction.has("x2") {
        2
    } else if instruction.has("x4") {
        4
    } else {
        return None;
    };
    match instruction.opcode {
        // A matrix of 16 rows takes 16 addresses; it comes one or two at a time.
        "ldmatrix" if instruction.has("m16n16") => Some(16 * matrices.min(2)),
        "ldmatrix" | "stmatrix" => Some(8 * matrices),
        _ => None,
    }
}

/// An access with what most have in common: the address at `at`, the type's size times the
/// vector's.
fn plain(i: &Instruction<'_>, kind: Kind, at: usize) -> Option<Access> {
    is_address(i.operands.get(at)?).then(|| {
        let element = element(i);
        Access {
            kind,
            space: space(i, 0),
            cache: cache(i),
            bytes: whole(element, lanes(i)),
            address: at,
            target: None,
            values: Vec::new(),
            result: None,
            element,
        }
    })
}

/// `ld`, `ldu`, `multimem.ld_reduce`: `d, [a]{, policy}`
fn load(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        result: Some(0),
        ..plain(i, Kind::Load, 1)?
    })
}

/// `st`, `st.async`, `multimem.st`: `[a], b{, mbarrier}{, policy}`; `st.bulk`: `[a], size, zero`
fn store(i: &Instruction<'_>) -> Option<Access> {
    let store = plain(i, Kind::Store, 0)?;
    if i.modifiers.first() == Some(&"bulk") {
        return Some(Access {
            bytes: amount(i, 1),
            values: operands(i, 2, 1),
            element: 8,
            ..store
        });
    }
    Some(Access {
        values: operands(i, 1, 1),
        ..store
    })
}

/// `d, [a], b{, c}{, policy}`
fn atomic(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        values: operands(i, 2, if i.has("cas") { 2 } else { 1 }),
        result: Some(0),
        ..plain(i, Kind::Atomic, 1)?
    })
}

/// `red`, `red.async`, `multimem.red`: `[a], b{, mbarrier}{, policy}`
fn reduction(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        values: operands(i, 1, 1),
        ..plain(i, Kind::Reduction, 0)?
    })
}

/// Every `cp`, of which `words` are the modifiers behind that word. The outer `None` is for those
/// that move nothing.
fn copy<'a>(
    i: &Instruction<'a>,
    words: &[&'a str],
    type_of: &dyn Fn(&'a str) -> Option<&'a str>,
) -> Option<Option<Access>> {
    Some(match words {
        [
            "async",
            "commit_group" | "wait_group" | "wait_all" | "mbarrier",
            ..,
        ]
        | ["async", "bulk", "commit_group" | "wait_group", ..] => return None,
        ["async", "bulk", "prefetch", "tensor", ..] => prefetch(i, boxed(i, 0)),
        ["async", "bulk", "prefetch", ..] => prefetch(i, amount(i, 1)),
        ["async", "bulk", "tensor", ..] | ["reduce", "async", "bulk", "tensor", ..] => {
            let to_tensor = space(i, 0) == Space::Global;
            moved(i, Kind::TensorCopy, boxed(i, usize::from(!to_tensor)))
        }
        ["async", "bulk", ..] | ["reduce", "async", "bulk", ..] => {
            moved(i, Kind::BulkCopy, amount(i, 2))
        }
        ["async", ..] => moved(i, Kind::AsyncCopy, async_bytes(i, type_of)),
        _ => None,
    })
}

/// `[to], [from], …` with the two spaces in that order.
fn moved(i: &Instruction<'_>, kind: Kind, bytes: Bytes) -> Option<Access> {
    is_address(i.operands.first()?).then_some(())?;
    Some(Access {
        space: space(i, 1),
        bytes,
        target: Some((0, space(i, 0))),
        ..plain(i, kind, 1)?
    })
}

/// The box of a tensor copy, whose map is in operand `map`. `.im2col::w` is not known: the GPUs
/// that this is measured on have no such maps.
fn boxed(i: &Instruction<'_>, map: usize) -> Bytes {
    let rank = ["1d", "2d", "3d", "4d", "5d"]
        .iter()
        .position(|word| i.has(word));
    let mode = i
        .modifiers
        .iter()
        .find(|word| word.starts_with("tile") || word.starts_with("im2col"));
    match (mode.copied().unwrap_or("tile"), rank) {
        ("tile", Some(at)) => Bytes::Box(map, TensorBox::Tile(at as u32 + 1)),
        ("tile::gather4" | "tile::scatter4", Some(_)) => Bytes::Box(map, TensorBox::Rows),
        ("im2col" | "im2col_no_offs", Some(_)) => Bytes::Box(map, TensorBox::Im2col),
        _ => Bytes::Unknown,
    }
}

/// What `cp.async [to], [from], size{, source size or whether to ignore the source}{, policy}`
/// reads.
fn async_bytes<'a>(i: &Instruction<'a>, type_of: &dyn Fn(&'a str) -> Option<&'a str>) -> Bytes {
    let extra = usize::from(i.has("L2::cache_hint"));
    if i.operands.len() <= 3 + extra {
        return amount(i, 2);
    }
    match &i.operands[3] {
        Operand::Not(_) => amount(i, 2),
        Operand::Name(name) => match type_of(name) {
            Some("pred") => amount(i, 2),
            None if is_named_predicate(name) => amount(i, 2),
            _ => Bytes::Operand(3),
        },
        _ => amount(i, 3),
    }
}

fn is_named_predicate(name: &str) -> bool {
    let name = name.trim_start_matches(['%', '$']);
    let rest = name.strip_prefix("pred").or_else(|| name.strip_prefix('p'));
    rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
}

/// `[a]{, size}{, policy}`
fn prefetch(i: &Instruction<'_>, bytes: Bytes) -> Option<Access> {
    Some(Access {
        bytes,
        ..plain(i, Kind::Prefetch, 0)?
    })
}

/// `[a], size`: what stood there is lost, but nothing is stored.
fn discard(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        bytes: amount(i, 1),
        ..plain(i, Kind::Other, 0)?
    })
}

/// `ldmatrix r, [p]`. A row is 16 bytes in every shape and type, padding of the 4 and 6-bit ones
/// included.
fn row_load(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        bytes: Bytes::Fixed(16),
        result: Some(0),
        element: 4,
        ..plain(i, Kind::MatrixLoad, 1)?
    })
}

/// `stmatrix [p], r`
fn row_store(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        bytes: Bytes::Fixed(16),
        values: operands(i, 1, 1),
        element: 4,
        ..plain(i, Kind::MatrixStore, 0)?
    })
}

/// `wmma.load r, [p]{, stride}`
fn matrix_load(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        bytes: matrix_share(i),
        result: Some(0),
        element: matrix_register(i),
        ..plain(i, Kind::WmmaLoad, 1)?
    })
}

/// `wmma.store [p], r{, stride}`
fn matrix_store(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        bytes: matrix_share(i),
        values: operands(i, 1, 1),
        element: matrix_register(i),
        ..plain(i, Kind::WmmaStore, 0)?
    })
}

/// All lanes have the address of the whole matrix: each counts for a 32nd of its bytes, so that the
/// lanes' sum is right. Which lane really reads which element is not specified.
fn matrix_share(i: &Instruction<'_>) -> Bytes {
    let share = || {
        let shape = i.modifiers.iter().find_map(|word| shape(word))?;
        let bits = match *i.modifiers.last()? {
            "b1" => 1,
            "s4" | "u4" => 4,
            ty => 8 * u32::try_from(type_size(ty)?).ok()?,
        };
        let [m, n, k] = shape;
        let (rows, columns) = match *i.modifiers.get(1)? {
            "a" => (m, k),
            "b" => (k, n),
            "c" | "d" => (m, n),
            _ => return None,
        };
        Some(rows.checked_mul(columns)?.checked_mul(bits)? / 8 / 32)
    };
    share().map_or(Bytes::Unknown, Bytes::Fixed)
}

/// `m16n8k4`
fn shape(word: &str) -> Option<[u32; 3]> {
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some([m.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
}

/// Fragments are held in 32-bit registers, of doubles in 64-bit ones.
fn matrix_register(i: &Instruction<'_>) -> u32 {
    if i.has("f64") { 8 } else { 4 }
}

/// `tex d, [handle, …coordinates]{, …}`
fn texture(i: &Instruction<'_>) -> Option<Access> {
    // `.v4.f32.s32`: the type of the texel stands behind the vector, that of the coordinates last.
    let texel = i
        .modifiers
        .iter()
        .position(|word| vector(word).is_some())
        .and_then(|at| size(i.modifiers.get(at + 1)?));
    Some(Access {
        space: Space::Texture,
        bytes: Bytes::Unknown,
        result: Some(0),
        element: texel.unwrap_or(0),
        ..plain(i, Kind::Texture, 1)?
    })
}

/// `suld d, [handle, coordinates]`
fn surface_load(i: &Instruction<'_>) -> Option<Access> {
    let load = plain(i, Kind::SurfaceLoad, 1)?;
    Some(Access {
        space: Space::Texture,
        bytes: unformatted(i, load.bytes),
        result: Some(0),
        ..load
    })
}

/// `sust [handle, coordinates], c`
fn surface_store(i: &Instruction<'_>) -> Option<Access> {
    let store = plain(i, Kind::SurfaceStore, 0)?;
    Some(Access {
        space: Space::Texture,
        bytes: unformatted(i, store.bytes),
        values: operands(i, 1, 1),
        ..store
    })
}

/// `.p` converts to the surface's format, which says how many bytes there are.
fn unformatted(i: &Instruction<'_>, bytes: Bytes) -> Bytes {
    if i.has("p") { Bytes::Unknown } else { bytes }
}

/// `tensormap.replace [map], {number,} value`; `tensormap.cp_fenceproxy [to], [from], size`
fn tensormap(i: &Instruction<'_>) -> Option<Access> {
    if i.modifiers.first() == Some(&"cp_fenceproxy") {
        return moved(i, Kind::Other, amount(i, 2));
    }
    Some(Access {
        bytes: Bytes::Unknown,
        values: operands(i, i.operands.len().checked_sub(1)?.max(1), 1),
        ..plain(i, Kind::Other, 0)?
    })
}

/// `clusterlaunchcontrol.try_cancel [a], [mbarrier]` writes an answer of 16 bytes.
fn launch_control(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        bytes: Bytes::Fixed(16),
        ..plain(i, Kind::Other, 0)?
    })
}

/// `tcgen05.alloc [a], columns` writes the address of the tensor memory it got.
fn tensor_alloc(i: &Instruction<'_>) -> Option<Access> {
    Some(Access {
        bytes: Bytes::Fixed(4),
        element: 4,
        ..plain(i, Kind::Other, 0)?
    })
}

/// An instruction of which no more is known than that it has an address, of tensor memory for
/// instance.
fn other(i: &Instruction<'_>) -> Option<Access> {
    let at = i.operands.iter().position(is_address)?;
    Some(Access {
        bytes: Bytes::Unknown,
        ..plain(i, Kind::Other, at)?
    })
}

/// `[…]`, whatever stands inside.
pub(crate) fn is_address(operand: &Operand<'_>) -> bool {
    match operand {
        Operand::Address { .. } => true,
        // `[…]` that is more than base and offset, or an element `a[1]` (PTX ISA "Arrays as
        // Operands").
        Operand::Other(text) => text.ends_with(']'),
        Operand::Name(_)
        | Operand::Not(_)
        | Operand::Int(_)
        | Operand::F32(_)
        | Operand::F64(_)
        | Operand::Vector(_)
        | Operand::Pair(..)
        | Operand::List(_)
        | Operand::Offset(..) => false,
    }
}

/// The `nth` state space among the modifiers.
pub(crate) fn space(i: &Instruction<'_>, nth: usize) -> Space {
    let mut spaces = i.modifiers.iter().filter_map(|word| match *word {
        "global" => Some(Space::Global),
        "shared" | "shared::cta" => Some(Space::Shared),
        "shared::cluster" => Some(Space::Cluster),
        "local" => Some(Space::Local),
        "const" => Some(Space::Const),
        "param" | "param::entry" | "param::func" => Some(Space::Param),
        _ => None,
    });
    spaces.nth(nth).unwrap_or(Space::Generic)
}

/// The ordering if one is named, else the cache operator. Of two orderings (`.mmio.relaxed`) the
/// stronger.
fn cache(i: &Instruction<'_>) -> Cache {
    const BY_WEIGHT: [(&str, Cache); 14] = [
        ("mmio", Cache::Mmio),
        ("acq_rel", Cache::AcqRel),
        ("acquire", Cache::Acquire),
        ("release", Cache::Release),
        ("relaxed", Cache::Relaxed),
        ("volatile", Cache::Volatile),
        ("nc", Cache::Nc),
        ("ca", Cache::Ca),
        ("cg", Cache::Cg),
        ("cs", Cache::Cs),
        ("lu", Cache::Lu),
        ("cv", Cache::Cv),
        ("wb", Cache::Wb),
        ("wt", Cache::Wt),
    ];
    BY_WEIGHT
        .iter()
        .find(|(word, _)| i.has(word))
        .map_or(Cache::Default, |(_, cache)| *cache)
}

/// Bytes of the last type among the modifiers, 0 if there is none.
fn element(i: &Instruction<'_>) -> u32 {
    i.modifiers
        .iter()
        .rev()
        .find_map(|word| size(word))
        .unwrap_or(0)
}

fn size(word: &str) -> Option<u32> {
    type_size(word).and_then(|size| u32::try_from(size).ok())
}

/// `v4`
fn vector(word: &str) -> Option<u32> {
    word.strip_prefix('v')?.parse().ok()
}

fn lanes(i: &Instruction<'_>) -> u32 {
    i.modifiers
        .iter()
        .find_map(|word| vector(word))
        .unwrap_or(1)
}

fn whole(element: u32, lanes: u32) -> Bytes {
    match element.checked_mul(lanes) {
        Some(bytes) if bytes > 0 => Bytes::Fixed(bytes),
        _ => Bytes::Unknown,
    }
}

/// A size that operand `at` gives.
fn amount(i: &Instruction<'_>, at: usize) -> Bytes {
    match i.operands.get(at) {
        None => Bytes::Unknown,
        Some(Operand::Int(value)) => u32::try_from(*value).map_or(Bytes::Unknown, Bytes::Fixed),
        Some(_) => Bytes::Operand(at),
    }
}

/// `count` operands from `from` on, as far as they are there.
fn operands(i: &Instruction<'_>, from: usize, count: usize) -> Vec<usize> {
    (from..(from + count).min(i.operands.len())).collect()
}
