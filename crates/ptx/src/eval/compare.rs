//! Comparison and selection, PTX ISA "Comparison and Selection Instructions" and "testp".

use std::cmp::Ordering;

use super::format::Format;
use super::lanes::Lanes;
use super::ty::{FloatTy, IntTy, Ty, each_int};

/// `setp`, `set` or `testp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Compare {
    test: Test,
    operands: Operands,
    /// How a third source, a predicate, is combined in.
    combine: Option<Combine>,
    /// `.ftz`
    flush: bool,
    result: Result,
}

/// A relation; for floats false or true as a whole if a source is NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Relation {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Test {
    /// "setp", "set"; `unordered` is what a NaN gives.
    Relation { relation: Relation, unordered: bool },
    /// `.num`: neither source is NaN.
    Num,
    /// `.nan`: a source is NaN.
    Nan,
    /// "testp", on one source
    Property(Property),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Property {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operands {
    Int(IntTy),
    Float(FloatTy),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Combine {
    And,
    Or,
    Xor,
}

/// What a truth value becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Result {
    /// Predicates `p` and `q`, the complement combined.
    Predicates,
    /// `set` to an integer: all bits.
    AllOnes { mask: u64 },
    /// `set` to a float: 1.0.
    One { one: u64 },
}

impl Combine {
    fn apply(self, test: bool, predicate: bool) -> bool {
        match self {
            Combine::And => test && predicate,
            Combine::Or => test || predicate,
            Combine::Xor => test != predicate,
        }
    }
}

impl Relation {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Relation::Eq => ordering.is_eq(),
            Relation::Ne => ordering.is_ne(),
            Relation::Lt => ordering.is_lt(),
            Relation::Le => ordering.is_le(),
            Relation::Gt => ordering.is_gt(),
            Relation::Ge => ordering.is_ge(),
        }
    }
}

/// The format of each element of a float type.
pub(super) fn format_of(ty: FloatTy) -> Format {
    match ty {
        FloatTy::F16 | FloatTy::F16x2 => Format::F16,
        FloatTy::BF16 | FloatTy::BF16x2 => Format::BF16,
        FloatTy::F32 => Format::F32,
        FloatTy::F64 => Format::F64,
    }
}

fn is_packed(ty: FloatTy) -> bool {
    match ty {
        FloatTy::F16x2 | FloatTy::BF16x2 => true,
        FloatTy::F16 | FloatTy::BF16 | FloatTy::F32 | FloatTy::F64 => false,
    }
}

impl Compare {
    pub(super) fn decode(opcode: &str, modifiers: &[&str]) -> Option<Compare> {
        if opcode == "testp" {
            return Self::decode_testp(modifiers);
        }
        let (&test, rest) = modifiers.split_first()?;
        let (&source, rest) = rest.split_last()?;
        let source = Ty::parse(source)?;
        let (rest, result) = match (opcode, rest) {
            ("setp", rest) => (rest, Result::Predicates),
            ("set", [rest @ .., dst]) => (rest, Self::set_result(Ty::parse(dst)?, source)?),
            _ => return None,
        };
        let (combine, flush) = match rest {
            [] => (None, false),
            ["ftz"] => (None, true),
            [combine] => (Some(parse_combine(combine)?), false),
            [combine, "ftz"] => (Some(parse_combine(combine)?), true),
            _ => return None,
        };
        let operands = match (source.float(), source.int(), source) {
            (Some(ty), _, _) => Operands::Float(ty),
            (_, Some(ty), _) if ty.bits() > 8 && !flush => Operands::Int(ty),
            (_, _, Ty::B16) if !flush => Operands::Int(IntTy::U16),
            (_, _, Ty::B32) if !flush => Operands::Int(IntTy::U32),
            (_, _, Ty::B64) if !flush => Operands::Int(IntTy::U64),
            _ => return None,
        };
        let test = parse_test(test, operands)?;
        let is_equality = matches!(
            test,
            Test::Relation {
                relation: Relation::Eq | Relation::Ne,
                ..
            }
        );
        if source.int().is_none() && source.float().is_none() && !is_equality {
            return None;
        }
        Some(Compare {
            test,
            operands,
            combine,
            flush,
            result,
        })
    }

    fn set_result(dst: Ty, source: Ty) -> Option<Result> {
        let packed = |ty: Ty| ty.float().is_some_and(is_packed);
        match dst {
            // A half of the result for each half of the sources.
            Ty::U32 | Ty::S32 if packed(source) => Some(Result::AllOnes { mask: 0xffff }),
            _ if packed(dst) != packed(source) => None,
            Ty::U16 | Ty::S16 | Ty::U32 | Ty::S32 => Some(Result::AllOnes { mask: dst.mask() }),
            _ => Some(Result::One {
                one: format_of(dst.float().filter(|&ty| ty != FloatTy::F64)?).one(),
            }),
        }
    }

    fn decode_testp(modifiers: &[&str]) -> Option<Compare> {
        let [property, ty @ ("f32" | "f64")] = modifiers else {
            return None;
        };
        let property = match *property {
            "finite" => Property::Finite,
            "infinite" => Property::Infinite,
            "number" => Property::Number,
            "notanumber" => Property::NotANumber,
            "normal" => Property::Normal,
            "subnormal" => Property::Subnormal,
            _ => return None,
        };
        let operands = Operands::Float(Ty::parse(ty)?.float()?);
        let test = Test::Property(property);
        Some(Compare {
            test,
            operands,
            combine: None,
            flush: false,
            result: Result::Predicates,
        })
    }

    pub(super) fn sources(self) -> usize {
        match self.test {
            Test::Property(_) => 1,
            Test::Relation { .. } | Test::Num | Test::Nan => {
                2 + usize::from(self.combine.is_some())
            }
        }
    }

    pub(super) fn run(self, lanes: impl Lanes) {
        let combine = self.combine;
        let finish = move |test: bool, c: u64| match combine {
            None => [test.into(), (!test).into()],
            Some(combine) => {
                let predicate = c & 1 == 1;
                [
                    combine.apply(test, predicate).into(),
                    combine.apply(!test, predicate).into(),
                ]
            }
        };
        // The closures below must not ask again for each lane what the comparison is.
        macro_rules! relations {
            ($relation:expr, $T:ident, $lanes:ident, $finish:ident) => {
                match $relation {
                    Relation::Eq => $lanes.map2(|[a, b, c, ..]| $finish(a as $T == b as $T, c)),
                    Relation::Ne => $lanes.map2(|[a, b, c, ..]| $finish(a as $T != b as $T, c)),
                    Relation::Lt => $lanes.map2(|[a, b, c, ..]| $finish((a as $T) < b as $T, c)),
                    Relation::Le => $lanes.map2(|[a, b, c, ..]| $finish(a as $T <= b as $T, c)),
                    Relation::Gt => $lanes.map2(|[a, b, c, ..]| $finish(a as $T > b as $T, c)),
                    Relation::Ge => $lanes.map2(|[a, b, c, ..]| $finish(a as $T >= b as $T, c)),
                }
            };
        }
        macro_rules! float_relations {
            (@ $relation:tt, $unordered:expr, $value:expr, $lanes:ident, $finish:ident) => {
                $lanes.map2(|[a, b, c, ..]| {
                    let (x, y) = ($value(a), $value(b));
                    let nan = x.is_nan() | y.is_nan();
                    $finish(if nan { $unordered } else { x $relation y }, c)
                })
            };
            ($relation:expr, $unordered:expr, $value:expr, $lanes:ident, $finish:ident) => {
                match $relation {
                    Relation::Eq => float_relations!(@ ==, $unordered, $value, $lanes, $finish),
                    Relation::Ne => float_relations!(@ !=, $unordered, $value, $lanes, $finish),
                    Relation::Lt => float_relations!(@ <, $unordered, $value, $lanes, $finish),
                    Relation::Le => float_relations!(@ <=, $unordered, $value, $lanes, $finish),
                    Relation::Gt => float_relations!(@ >, $unordered, $value, $lanes, $finish),
                    Relation::Ge => float_relations!(@ >=, $unordered, $value, $lanes, $finish),
                }
            };
        }
        match (self.result, self.operands, self.test) {
            (Result::Predicates, Operands::Int(ty), Test::Relation { relation, .. }) => {
                each_int!(ty, T, U => relations!(relation, T, lanes, finish));
            }
            (Result::Predicates, Operands::Float(ty), _) if is_packed(ty) => {
                let format = format_of(ty);
                lanes.map2(|[a, b, c, ..]| {
                    let low = finish(self.float(format, a, b), c);
                    let high = finish(self.float(format, a >> 16, b >> 16), c);
                    [low[0], high[0]]
                });
            }
            (
                Result::Predicates,
                Operands::Float(FloatTy::F32),
                Test::Relation {
                    relation,
                    unordered,
                },
            ) => {
                let flush = self.flush;
                let value = |bits: u64| {
                    f32::from_bits(if flush { Format::F32.flush(bits) } else { bits } as u32)
                };
                float_relations!(relation, unordered, value, lanes, finish);
            }
            (
                Result::Predicates,
                Operands::Float(FloatTy::F64),
                Test::Relation {
                    relation,
                    unordered,
                },
            ) => {
                float_relations!(relation, unordered, f64::from_bits, lanes, finish);
            }
            (Result::Predicates, Operands::Float(ty), _) => {
                let format = format_of(ty);
                lanes.map2(|[a, b, c, ..]| finish(self.float(format, a, b), c));
            }
            (
                Result::AllOnes { mask: value } | Result::One { one: value },
                Operands::Float(ty),
                _,
            ) => {
                let format = format_of(ty);
                let packed = is_packed(ty);
                lanes.map(|[a, b, c, ..]| {
                    let low = finish(self.float(format, a, b), c)[0] * value;
                    if !packed {
                        return low;
                    }
                    low | (finish(self.float(format, a >> 16, b >> 16), c)[0] * value) << 16
                });
            }
            (
                Result::AllOnes { mask: value } | Result::One { one: value },
                Operands::Int(ty),
                test,
            ) => {
                let Test::Relation { relation, .. } = test else {
                    return;
                };
                each_int!(ty, T, U => {
                    lanes.map(|[a, b, c, ..]| finish(relation.holds((a as T).cmp(&(b as T))), c)[0] * value)
                });
            }
            // Decoding gives integers no other test.
            (Result::Predicates, Operands::Int(_), Test::Num | Test::Nan | Test::Property(_)) => {}
        }
    }

    fn float(self, format: Format, a: u64, b: u64) -> bool {
        let [a, b] = [a, b].map(|bits| if self.flush { format.flush(bits) } else { bits });
        let nan = format.is_nan(a) || format.is_nan(b);
        match self.test {
            Test::Num => !nan,
            Test::Nan => nan,
            Test::Relation {
                relation,
                unordered,
            } => match format.to_f64(a).partial_cmp(&format.to_f64(b)) {
                Some(ordering) => relation.holds(ordering),
                None => unordered,
            },
            Test::Property(property) => {
                let (nan, infinite) = (format.is_nan(a), format.is_infinite(a));
                let small = format.has_zero_exponent(a);
                match property {
                    Property::Finite => !nan && !infinite,
                    Property::Infinite => infinite,
                    Property::Number => !nan,
                    Property::NotANumber => nan,
                    // The ISA counts zeros among the normal numbers here.
                    Property::Normal => !nan && !infinite && (!small || format.is_zero(a)),
                    Property::Subnormal => small && !format.is_zero(a),
                }
            }
        }
    }
}

fn parse_combine(text: &str) -> Option<Combine> {
    Some(match text {
        "and" => Combine::And,
        "or" => Combine::Or,
        "xor" => Combine::Xor,
        _ => return None,
    })
}

/// A comparison operator, "Comparisons": `lo`, `ls`, `hi`, `hs` are unsigned, those with `u` and
/// `num`, `nan` floating.
fn parse_test(text: &str, operands: Operands) -> Option<Test> {
    let float = matches!(operands, Operands::Float(_));
    let unsigned = matches!(operands, Operands::Int(ty) if !ty.is_signed());
    let (relation, unordered) = match text {
        "num" if float => return Some(Test::Num),
        "nan" if float => return Some(Test::Nan),
        "eq" => (Relation::Eq, false),
        "ne" => (Relation::Ne, false),
        "lt" => (Relation::Lt, false),
        "le" => (Relation::Le, false),
        "gt" => (Relation::Gt, false),
        "ge" => (Relation::Ge, false),
        "lo" if unsigned => (Relation::Lt, false),
        "ls" if unsigned => (Relation::Le, false),
        "hi" if unsigned => (Relation::Gt, false),
        "hs" if unsigned => (Relation::Ge, false),
        "equ" if float => (Relation::Eq, true),
        "neu" if float => (Relation::Ne, true),
        "ltu" if float => (Relation::Lt, true),
        "leu" if float => (Relation::Le, true),
        "gtu" if float => (Relation::Gt, true),
        "geu" if float => (Relation::Ge, true),
        _ => return None,
    };
    Some(Test::Relation {
        relation,
        unordered,
    })
}

/// `selp` or `slct`: one of the first two sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Select {
    by: By,
    mask: u64,
}

/// What the third source says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum By {
    /// "selp": a predicate
    Predicate,
    /// "slct": a number of which the first is taken if it is at least 0
    S32,
    /// A float; -0 counts as 0, a NaN takes the second.
    F32 { flush: bool },
}

impl Select {
    pub(super) fn decode(opcode: &str, modifiers: &[&str]) -> Option<Select> {
        let (ty, by) = match (opcode, modifiers) {
            ("selp", [ty]) => (ty, By::Predicate),
            ("slct", [ty, "s32"]) => (ty, By::S32),
            ("slct", [ty, "f32"]) => (ty, By::F32 { flush: false }),
            ("slct", ["ftz", ty, "f32"]) => (ty, By::F32 { flush: true }),
            _ => return None,
        };
        let ty = Ty::parse(ty).filter(|&ty| ty.bits() >= 16)?;
        Some(Select {
            by,
            mask: ty.mask(),
        })
    }

    pub(super) fn run(self, lanes: impl Lanes) {
        let mask = self.mask;
        match self.by {
            By::Predicate => lanes.map(|[a, b, c, ..]| mask & if c & 1 == 1 { a } else { b }),
            By::S32 => lanes.map(|[a, b, c, ..]| mask & if c as i32 >= 0 { a } else { b }),
            By::F32 { flush } => lanes.map(|[a, b, c, ..]| {
                let c = if flush { Format::F32.flush(c) } else { c };
                mask & if f32::from_bits(c as u32) >= 0.0 {
                    a
                } else {
                    b
                }
            }),
        }
    }
}
