//! Expressions: their names are resolved, their types found, and what is known before the script
//! runs is computed.

use warpbpf_abi::access::{Barrier, Kind as Access, Space};
use warpbpf_abi::cuda;
use warpbpf_abi::nearest::nearest;

use crate::ast::{BinaryOp, Expr, ExprKind, MapRef, Probe, ProbeKind, Target, UnaryOp};
use crate::check_map::Maps;
use crate::error::{Problem, ScriptError};
use crate::language::{AGGREGATES, BUILTINS, FUNCTIONS, Missing, builtin};
use crate::span::Span;
use crate::typed::{Kind, Read, Request, Type, Value};

/// What is known where a block stands, at one of its probes.
pub struct Scope<'c> {
    /// The script.
    pub source: &'c str,
    /// The probe.
    pub probe: &'c Probe,
    /// Maps of the script.
    pub maps: &'c mut Maps,
    /// Strings of the script.
    pub texts: &'c mut Vec<String>,
    /// What it asks the tool for, and where.
    pub requests: &'c mut Vec<(Request, Span)>,
    /// Variables of the block so far.
    pub variables: Vec<(String, Type)>,
    /// What is read before the filter, and into which variables.
    pub first: Vec<(usize, Read)>,
    /// Loops around this place.
    pub loops: usize,
    /// Faults so far.
    pub errors: Vec<ScriptError>,
    /// Faults do not count yet.
    pub gathering: bool,
}

impl Scope<'_> {
    /// The tool itself executes the block.
    pub fn is_host(&self) -> bool {
        matches!(
            self.probe.kind,
            ProbeKind::Begin | ProbeKind::End | ProbeKind::Interval { .. }
        )
    }

    /// The index of a string.
    pub fn text(&mut self, text: &str) -> usize {
        let found = self.texts.iter().position(|known| known == text);
        found.unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        })
    }

    /// An expression and its type.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn value(&mut self, expr: &Expr) -> Result<(Value, Type), ScriptError> {
        match &expr.kind {
            ExprKind::Number(number) => Ok((Value::Number(*number), Type::Number)),
            ExprKind::Text(text) => {
                let index = self.text(text);
                Ok((Value::Number(index as i64), Type::Text))
            }
            ExprKind::Name(name) => self.builtin(name, expr.span),
            ExprKind::Variable(name) => {
                let (variable, ty) = self.variable(name, expr.span)?;
                Ok((Value::Variable(variable), ty))
            }
            ExprKind::Map(map) => {
                let (map, key) = self.map(map)?;
                let kind = self.maps.read(map, expr.span)?;
                let ty = match kind {
                    Kind::Value(ty) => ty,
                    Kind::Count | Kind::Sum => Type::Number,
                    _ => {
                        let what = format!(
                            "the value of `{}`, which is {},",
                            self.maps.name(map),
                            kind.name()
                        );
                        let instead =
                            "`print` shows it; a count, a sum and what is assigned can be read"
                                .into();
                        return Err(Problem::Unserved { what, instead }.at(expr.span));
                    }
                };
                Ok((Value::Map { map, key }, ty))
            }
            ExprKind::Call {
                name,
                name_span,
                args,
            } if name == "str" => self.string(args, *name_span),
            ExprKind::Call {
                name, name_span, ..
            } => Err(self.no_value(name, *name_span)),
            ExprKind::Unary { op, value } => {
                let value = self.number(value, "what stands behind the operator")?;
                let value = match (op, value) {
                    (UnaryOp::Minus, Value::Number(n)) => Value::Number(n.wrapping_neg()),
                    (UnaryOp::Not, Value::Number(n)) => Value::Number(i64::from(n == 0)),
                    (UnaryOp::Complement, Value::Number(n)) => Value::Number(!n),
                    (UnaryOp::Minus, value) => Value::Minus(Box::new(value)),
                    (UnaryOp::Not, value) => Value::Not(Box::new(value)),
                    (UnaryOp::Complement, value) => Value::Complement(Box::new(value)),
                };
                Ok((value, Type::Number))
            }
            ExprKind::Binary { op, left, right } => self.binary(*op, left, right, expr.span),
            ExprKind::Choice {
                cond,
                then,
                otherwise,
            } => {
                let cond = self.number(cond, "a condition")?;
                let then_span = then.span;
                let (then, ty) = self.value(then)?;
                one_word(ty, then_span)?;
                let span = otherwise.span;
                let (otherwise, other) = self.value(otherwise)?;
                if ty != other {
                    let problem = Problem::Type {
                        what: "what stands behind `:`".into(),
                        expected: format!("{}, as in front of it", ty.name()),
                        found: other.name().into(),
                    };
                    return Err(problem.at(span));
                }
                let value = match cond {
                    Value::Number(0) => otherwise,
                    Value::Number(_) => then,
                    cond => Value::Choice(Box::new(cond), Box::new(then), Box::new(otherwise)),
                };
                Ok((value, ty))
            }
            ExprKind::Step { target, by, post } => self.step(target, *by, *post, expr.span),
        }
    }

    /// `str(address)`, `str(address, bytes)`
    fn string(&mut self, args: &[Expr], span: Span) -> Result<(Value, Type), ScriptError> {
        let (at, bytes) = match args {
            [at] => (at, BYTES),
            [at, most] => {
                let what = "the number of bytes of a string";
                let bytes = self.constant(most, what)?;
                if !(1..=MOST_BYTES).contains(&bytes) {
                    let problem = Problem::Range {
                        what,
                        found: bytes,
                        allowed: "1 to 200",
                    };
                    return Err(problem.at(most.span));
                }
                (at, bytes)
            }
            _ => {
                let problem = Problem::Arguments {
                    function: "str".into(),
                    expected: "an address, and the number of bytes at most",
                    found: args.len(),
                };
                return Err(problem.at(span));
            }
        };
        if !matches!(
            self.probe.kind,
            ProbeKind::Cuda { .. } | ProbeKind::Function { .. }
        ) {
            let problem = Problem::Unserved {
                what: format!("`str` at `{}`", self.probe.text),
                instead: "strings are read at `cuda:` and `uprobe:`".into(),
            };
            return Err(problem.at(span));
        }
        let at = self.number(at, "the address of a string")?;
        // And a NUL.
        let size = bytes as u8 + 1;
        let at = Some(Box::new(at));
        Ok((Value::Str { at, size }, Type::Str(size.div_ceil(8))))
    }

    /// An expression that must be a number.
    ///
    /// # Errors
    /// It is none.
    pub fn number(&mut self, expr: &Expr, what: &str) -> Result<Value, ScriptError> {
        let (value, ty) = self.value(expr)?;
        match ty {
            Type::Number => Ok(value),
            found => Err(Problem::Type {
                what: what.to_owned(),
                expected: "a number".into(),
                found: found.name().into(),
            }
            .at(expr.span)),
        }
    }

    /// An expression that is a number before the script runs.
    ///
    /// # Errors
    /// It is not.
    pub fn constant(&mut self, expr: &Expr, what: &'static str) -> Result<i64, ScriptError> {
        match self.number(expr, what)? {
            Value::Number(number) => Ok(number),
            _ => Err(Problem::NotConstant { what }.at(expr.span)),
        }
    }

    fn builtin(&mut self, name: &str, span: Span) -> Result<(Value, Type), ScriptError> {
        match builtin(name, &self.probe.kind) {
            Ok((ty, read @ Read::Touched { .. })) => {
                let known = self.first.iter().find(|(_, known)| *known == read);
                let variable = known.map(|(variable, _)| *variable).unwrap_or_else(|| {
                    let variable = self.hidden("", ty);
                    self.first.push((variable, read));
                    variable
                });
                Ok((Value::Variable(variable), ty))
            }
            Ok((ty, Read::Comm)) => {
                let size = 8 * ty.words() as u8;
                Ok((Value::Str { at: None, size }, ty))
            }
            Ok((ty, Read::Probe)) => {
                let text = self.probe.text.clone();
                Ok((Value::Number(self.text(&text) as i64), ty))
            }
            Ok((ty, read)) => Ok((Value::Read(read), ty)),
            Err(Missing::Unknown) => Err(Problem::Builtin {
                name: name.to_owned(),
                meant: nearest(name, BUILTINS).map(str::to_owned),
            }
            .at(span)),
            Err(Missing::NotHere(instead)) => Err(Problem::NotHere {
                name: name.to_owned(),
                place: self.probe.text.clone(),
                instead,
            }
            .at(span)),
        }
    }

    fn variable(&self, name: &str, span: Span) -> Result<(usize, Type), ScriptError> {
        let known = self.variables.iter().position(|(known, _)| known == name);
        match known {
            Some(at) => Ok((at, self.variables[at].1)),
            None => {
                let names = self.variables.iter().map(|(name, _)| name.as_str());
                let problem = Problem::Variable {
                    name: format!("${name}"),
                    meant: nearest(name, names).map(|name| format!("${name}")),
                };
                Err(problem.at(span))
            }
        }
    }

    /// A variable that gets a value; it is made if it is not there.
    ///
    /// # Errors
    /// It is of another type.
    pub fn assigned(&mut self, name: &str, ty: Type, span: Span) -> Result<usize, ScriptError> {
        let known = self.variables.iter().position(|(known, _)| known == name);
        match known {
            Some(at) if self.variables[at].1 == ty => Ok(at),
            Some(at) => Err(Problem::VariableType {
                name: format!("${name}"),
                before: self.variables[at].1.name().into(),
                now: ty.name().into(),
            }
            .at(span)),
            None => Ok(self.hidden(name, ty)),
        }
    }

    /// A variable; of this name, if nobody can write it.
    pub fn hidden(&mut self, name: &str, ty: Type) -> usize {
        self.variables.push((name.to_owned(), ty));
        self.variables.len() - 1
    }

    /// A map and its key.
    ///
    /// # Errors
    /// A key that is none, or another one than elsewhere.
    pub fn map(&mut self, map: &MapRef) -> Result<(usize, Vec<Value>), ScriptError> {
        let (mut key, mut types) = (Vec::new(), Vec::new());
        for part in &map.key {
            let (value, ty) = self.value(part)?;
            key.push(value);
            types.push(ty);
        }
        let index = self.maps.index(&map.name);
        self.maps.key(self.source, index, &types, map.span)?;
        Ok((index, key))
    }

    fn step(
        &mut self,
        target: &Target,
        by: i64,
        post: bool,
        span: Span,
    ) -> Result<(Value, Type), ScriptError> {
        match target {
            Target::Variable { name, span } => {
                let (variable, ty) = self.variable(name, *span)?;
                if ty != Type::Number {
                    let problem = Problem::Type {
                        what: format!("`${name}`"),
                        expected: "a number".into(),
                        found: ty.name().into(),
                    };
                    return Err(problem.at(*span));
                }
                Ok((Value::StepVariable { variable, by, post }, ty))
            }
            Target::Map(map) => {
                self.writes_maps(span)?;
                let (map, key) = self.map(map)?;
                let kind = Kind::Value(Type::Number);
                self.maps.kind(self.source, map, kind, false, span)?;
                Ok((Value::StepMap { map, key, by, post }, Type::Number))
            }
        }
    }

    /// Programs write maps.
    ///
    /// # Errors
    /// The tool does not.
    pub fn writes_maps(&self, span: Span) -> Result<(), ScriptError> {
        match self.is_host() {
            false => Ok(()),
            true => Err(Problem::Unserved {
                what: format!("a write to a map at `{}`", self.probe.text),
                instead: "the tool's own blocks read maps, and `print`, `clear` and `zero` them"
                    .into(),
            }
            .at(span)),
        }
    }

    fn no_value(&self, name: &str, span: Span) -> ScriptError {
        if AGGREGATES.contains(&name) {
            let problem = Problem::NoValue {
                function: name.to_owned(),
                instead: "it is assigned to a map, as in `@x = count()`",
            };
            return problem.at(span);
        }
        if FUNCTIONS.contains(&name) {
            let problem = Problem::NoValue {
                function: name.to_owned(),
                instead: "it is a statement of its own",
            };
            return problem.at(span);
        }
        unknown_function(name).at(span)
    }

    fn binary(
        &mut self,
        op: BinaryOp,
        left: &Expr,
        right: &Expr,
        span: Span,
    ) -> Result<(Value, Type), ScriptError> {
        let (a, mut a_type) = self.value(left)?;
        let (b, mut b_type) = self.value(right)?;
        if let (Type::Str(_), _) | (_, Type::Str(_)) = (a_type, b_type) {
            return match (op, &left.kind, &right.kind) {
                (BinaryOp::Equal | BinaryOp::Unequal, _, ExprKind::Text(word)) => {
                    Ok((is(a, word, op == BinaryOp::Equal), Type::Number))
                }
                (BinaryOp::Equal | BinaryOp::Unequal, ExprKind::Text(word), _) => {
                    Ok((is(b, word, op == BinaryOp::Equal), Type::Number))
                }
                _ => {
                    let part = if let Type::Str(_) = a_type {
                        left
                    } else {
                        right
                    };
                    Err(text_here(part.span))
                }
            };
        }
        let (mut a, mut b) = (a, b);
        if matches!(op, BinaryOp::Equal | BinaryOp::Unequal) {
            // `kind == "load"`
            if let ExprKind::Text(word) = &left.kind
                && b_type != Type::Text
            {
                (a, a_type) = (word_of(b_type, word, left.span)?, b_type);
            }
            if let ExprKind::Text(word) = &right.kind
                && a_type != Type::Text
            {
                (b, b_type) = (word_of(a_type, word, right.span)?, a_type);
            }
            if a_type == b_type && !matches!(a_type, Type::File | Type::Device) {
                return Ok((folded(op, a, b), Type::Number));
            }
        }
        for (ty, part) in [(a_type, left), (b_type, right)] {
            if ty != Type::Number {
                let problem = Problem::Type {
                    what: format!("an operand of `{}`", op.sign()),
                    expected: match a_type == b_type {
                        true => "a number".into(),
                        false => "a number, or of the type of the other one".into(),
                    },
                    found: ty.name().into(),
                };
                return Err(problem.at(part.span));
            }
        }
        if matches!(op, BinaryOp::Left | BinaryOp::Right)
            && let Value::Number(by) = b
            && !(0..64).contains(&by)
        {
            let problem = Problem::Range {
                what: "the number of bits to shift by",
                found: by,
                allowed: "0 to 63",
            };
            return Err(problem.at(right.span));
        }
        if matches!(op, BinaryOp::Div | BinaryOp::Mod) && b == Value::Number(0) {
            let problem = Problem::Range {
                what: "the divisor",
                found: 0,
                allowed: "another number than 0",
            };
            return Err(problem.at(span));
        }
        Ok((folded(op, a, b), Type::Number))
    }
}

/// Bytes of a string, if nothing else is said, and most of them.
const BYTES: i64 = 63;
const MOST_BYTES: i64 = 200;

/// Whether text is a word.
fn is(text: Value, word: &str, wanted: bool) -> Value {
    if word.len() >= 8 * text.words() || word.contains('\0') {
        // There is no room for it.
        return Value::Number(i64::from(!wanted));
    }
    Value::Is {
        text: Box::new(text),
        word: word.to_owned(),
        wanted,
    }
}

fn text_here(span: Span) -> ScriptError {
    Problem::Unserved {
        what: "text that is read, here,".into(),
        instead: "it can be a key, be printed, and be compared with a string in quotes".into(),
    }
    .at(span)
}

/// Text that is read has more than one word.
///
/// # Errors
/// It is text.
pub fn one_word(ty: Type, span: Span) -> Result<(), ScriptError> {
    match ty {
        Type::Str(_) => Err(text_here(span)),
        _ => Ok(()),
    }
}

/// There is no such function.
pub fn unknown_function(name: &str) -> Problem {
    const LATER: [&str; 13] = [
        "kstr", "ksym", "usym", "kstack", "ustack", "ntop", "join", "time", "strftime", "system",
        "cat", "strncmp", "signal",
    ];
    match LATER.contains(&name) {
        true => Problem::Unserved {
            what: format!("`{name}` of bpftrace"),
            instead: "`warpbpf trace` does not have it yet".into(),
        },
        false => Problem::Function {
            name: name.to_owned(),
            meant: nearest(name, FUNCTIONS).map(str::to_owned),
        },
    }
}

fn folded(op: BinaryOp, a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Value::Number(op.of(a, b)),
        (a, b) => Value::Binary(op, Box::new(a), Box::new(b)),
    }
}

/// The number of a word of a type.
fn word_of(ty: Type, word: &str, span: Span) -> Result<Value, ScriptError> {
    let (of, found, known) = match ty {
        Type::Access => (
            "kind of access",
            Access::from_word(word).map(|kind| kind as u32),
            listed(Access::ALL.iter().map(|kind| kind.word())),
        ),
        Type::Space => (
            "state space",
            Space::from_word(word).map(|space| space as u32),
            listed(Space::ALL.iter().map(|space| space.word())),
        ),
        Type::Barrier => (
            "kind of barrier",
            Barrier::from_word(word).map(|barrier| barrier as u32),
            listed(Barrier::ALL.iter().map(|barrier| barrier.word())),
        ),
        Type::Api => {
            let names = cuda::apis().into_iter().map(|api| api.name);
            let found = names.clone().position(|name| name == word);
            return match found {
                Some(number) => Ok(Value::Number(number as i64)),
                None => Err(Problem::Word {
                    of: "function of the driver",
                    word: word.to_owned(),
                    known: listed(cuda::nearest(word).into_iter()),
                }
                .at(span)),
            };
        }
        ty => {
            let instead = match ty {
                Type::Kernel => "name kernels in the probe, as in `gpu:entry:*gemm*`",
                Type::Site | Type::File => {
                    "choose places in the probe, as in `gpu:mem:*|at=file.cu:12`"
                }
                _ => "only kinds, spaces and strings have words",
            };
            return Err(Problem::Unserved {
                what: format!("a comparison of {} with a string", ty.name()),
                instead: instead.into(),
            }
            .at(span));
        }
    };
    match found {
        Some(number) => Ok(Value::Number(i64::from(number))),
        None => Err(Problem::Word {
            of,
            word: word.to_owned(),
            known,
        }
        .at(span)),
    }
}

fn listed<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// What the tool fills in, programs cannot compute with.
///
/// # Errors
/// `device`
pub fn known_to_programs(ty: Type, span: Span) -> Result<(), ScriptError> {
    match ty {
        Type::Device => Err(Problem::Unserved {
            what: "`device` in a program".into(),
            instead:
                "only the tool knows it: use it as a key of a map, as in `@[device] = count()`"
                    .into(),
        }
        .at(span)),
        _ => Ok(()),
    }
}
