//! Statements of a block at one probe.

use crate::ast::{BinaryOp, Expr, ExprKind, MapRef, Stmt, StmtKind, Target};
use crate::check_expr::{Scope, known_to_programs, one_word, unknown_function};
use crate::error::{Problem, ScriptError};
use crate::format::Format;
use crate::language::{AGGREGATES, FUNCTIONS};
use crate::span::Span;
use crate::typed::{Action, Change, Kind, Request, Type, Value, What};

/// Copies of an `unroll`.
const MOST_COPIES: i64 = 100;
/// Buckets of an `lhist`.
const MOST_BUCKETS: i64 = 1000;
/// Values of a `printf`.
const MOST_VALUES: usize = 24;

impl Scope<'_> {
    /// All statements of a block. What is wrong with one of them is kept, and the others are looked
    /// at.
    pub fn statements(&mut self, statements: &[Stmt]) -> Vec<Action> {
        let mut actions = Vec::new();
        for statement in statements {
            match self.statement(statement) {
                Ok(what) => actions.push(Action {
                    span: statement.span,
                    what,
                }),
                Err(error) => {
                    self.declare_anyway(statement);
                    self.errors.push(error);
                }
            }
        }
        actions
    }

    /// A variable whose value is wrong is there all the same: what follows is not wrong for that.
    fn declare_anyway(&mut self, statement: &Stmt) {
        if let StmtKind::Assign {
            target: Target::Variable { name, .. },
            ..
        } = &statement.kind
            && !self.gathering
            && !self.variables.iter().any(|(known, _)| known == name)
        {
            self.hidden(name, Type::Number);
        }
    }

    fn statement(&mut self, statement: &Stmt) -> Result<What, ScriptError> {
        let span = statement.span;
        match &statement.kind {
            StmtKind::Assign { target, op, value } => match target {
                Target::Variable { name, span } => self.set_variable(name, *op, value, *span),
                Target::Map(map) => self.set_map(map, *op, value),
            },
            StmtKind::Expr(expr) => self.alone(expr),
            StmtKind::If {
                cond,
                then,
                otherwise,
            } => Ok(What::If {
                cond: self.number(cond, "a condition")?,
                then: self.statements(then),
                otherwise: self.statements(otherwise),
            }),
            StmtKind::Unroll { count, body } => {
                let what = "the number of copies";
                let number = self.constant(count, what)?;
                if !(1..=MOST_COPIES).contains(&number) {
                    let problem = Problem::Range {
                        what,
                        found: number,
                        allowed: "1 to 100",
                    };
                    return Err(problem.at(count.span));
                }
                let body = self.in_loop(body);
                Ok(What::Unroll {
                    count: number as u32,
                    body,
                })
            }
            StmtKind::While { cond, body } => Ok(What::While {
                cond: self.number(cond, "a condition")?,
                body: self.in_loop(body),
            }),
            StmtKind::For {
                variable,
                span,
                from,
                to,
                body,
            } => {
                let from = self.number(from, "the first number of a loop")?;
                let to = self.number(to, "the end of a loop")?;
                let variable = self.assigned(variable, Type::Number, *span)?;
                // No name that can be written.
                let end = self.hidden("", Type::Number);
                let body = self.in_loop(body);
                Ok(What::For {
                    variable,
                    from,
                    to,
                    end,
                    body,
                })
            }
            StmtKind::Break | StmtKind::Continue if self.loops == 0 => Err(Problem::Expected {
                expected: "a loop around this statement".into(),
                found: "none".into(),
            }
            .at(span)),
            StmtKind::Break => Ok(What::Break),
            StmtKind::Continue => Ok(What::Continue),
            StmtKind::Return => Ok(What::Return),
        }
    }

    fn in_loop(&mut self, body: &[Stmt]) -> Vec<Action> {
        self.loops += 1;
        let actions = self.statements(body);
        self.loops -= 1;
        actions
    }

    fn set_variable(
        &mut self,
        name: &str,
        op: Option<BinaryOp>,
        value: &Expr,
        span: Span,
    ) -> Result<What, ScriptError> {
        let whole = span.to(value.span);
        let Some(op) = op else {
            let (found, ty) = self.value(value)?;
            known_to_programs(ty, value.span)?;
            one_word(ty, value.span)?;
            let variable = self.assigned(name, ty, span)?;
            return Ok(What::SetVariable {
                variable,
                value: found,
            });
        };
        let before = Expr {
            span,
            kind: ExprKind::Variable(name.to_owned()),
        };
        let after = Expr {
            span: whole,
            kind: ExprKind::Binary {
                op,
                left: Box::new(before),
                right: Box::new(value.clone()),
            },
        };
        let found = self.number(&after, "the value")?;
        let variable = self.assigned(name, Type::Number, span)?;
        Ok(What::SetVariable {
            variable,
            value: found,
        })
    }

    fn set_map(
        &mut self,
        map: &MapRef,
        op: Option<BinaryOp>,
        value: &Expr,
    ) -> Result<What, ScriptError> {
        self.writes_maps(map.span)?;
        if let (
            None,
            ExprKind::Call {
                name,
                name_span,
                args,
            },
        ) = (op, &value.kind)
            && AGGREGATES.contains(&name.as_str())
        {
            return self.aggregate(map, name, *name_span, args);
        }
        let span = map.span;
        let Some(op) = op else {
            let (found, ty) = self.value(value)?;
            known_to_programs(ty, value.span)?;
            one_word(ty, value.span)?;
            let name = map.name.clone();
            let (map, key) = self.map(map)?;
            self.maps
                .kind(self.source, map, Kind::Value(ty), true, span)?;
            self.refuse_files(&name, &key, span)?;
            return Ok(What::SetMap {
                map,
                key,
                value: found,
            });
        };
        let found = self.number(value, "the value")?;
        let (change, found) = match op {
            BinaryOp::Add => (Change::Add, found),
            BinaryOp::Sub => (Change::Add, Value::Minus(Box::new(found))),
            BinaryOp::And => (Change::And, found),
            BinaryOp::Or => (Change::Or, found),
            BinaryOp::Xor => (Change::Xor, found),
            op => {
                let problem = Problem::Unserved {
                    what: format!("`{}=` of a map's value", op.sign()),
                    instead: "no lane could do it in one step, so some would be lost; there are `+=`, `-=`, `&=`, `|=`, `^=`, `++` and `--`".into(),
                };
                return Err(problem.at(span));
            }
        };
        let (map, key) = self.map(map)?;
        let is_set = change != Change::Add;
        let kind = Kind::Value(Type::Number);
        self.maps.kind(self.source, map, kind, is_set, span)?;
        Ok(What::ChangeMap {
            map,
            key,
            change,
            value: found,
        })
    }

    /// Several places have one file, whose values are put together: that means something for
    /// numbers that are added only.
    fn refuse_files(&self, name: &str, key: &[Value], span: Span) -> Result<(), ScriptError> {
        let map = self.maps.keys_of(name);
        match map.is_some_and(|key| key.contains(&Type::File)) && !key.is_empty() {
            false => Ok(()),
            true => Err(Problem::Unserved {
                what: format!("an assignment to `{name}`, whose key has a source file,"),
                instead: "use `site`, which is one place, or `count()` and its like".into(),
            }
            .at(span)),
        }
    }

    fn aggregate(
        &mut self,
        map: &MapRef,
        name: &str,
        name_span: Span,
        args: &[Expr],
    ) -> Result<What, ScriptError> {
        let expected = match (name, args.len()) {
            ("count", 0) | ("lhist", 4) => None,
            ("count", _) => Some("no argument"),
            ("lhist", _) => {
                Some("a value, the smallest and the largest number, and the size of a step")
            }
            (_, 1) => None,
            _ => Some("one argument"),
        };
        if let Some(expected) = expected {
            let problem = Problem::Arguments {
                function: name.to_owned(),
                expected,
                found: args.len(),
            };
            return Err(problem.at(name_span));
        }
        let value = match args.first() {
            Some(value) => self.number(value, &format!("what `{name}` gets"))?,
            None => Value::Number(1),
        };
        let kind = match name {
            "count" => Kind::Count,
            "sum" => Kind::Sum,
            "avg" => Kind::Avg,
            "stats" => Kind::Stats,
            "min" => Kind::Min,
            "max" => Kind::Max,
            "hist" => Kind::Hist,
            _ => self.lhist(args)?,
        };
        let span = map.span;
        let (map, key) = self.map(map)?;
        self.maps.kind(self.source, map, kind, false, span)?;
        Ok(What::Aggregate { map, key, value })
    }

    fn lhist(&mut self, args: &[Expr]) -> Result<Kind, ScriptError> {
        let [_, min, max, step] = args else {
            return Ok(Kind::Hist);
        };
        let span = min.span.to(step.span);
        let min = self.constant(min, "the smallest number")?;
        let max_value = self.constant(max, "the largest number")?;
        let step_value = self.constant(step, "the size of a step")?;
        let fail = |what, found, allowed, span| {
            Err(Problem::Range {
                what,
                found,
                allowed,
            }
            .at(span))
        };
        if step_value < 1 {
            return fail("the size of a step", step_value, "1 or more", step.span);
        }
        let Some(range) = max_value.checked_sub(min).filter(|range| *range > 0) else {
            let what = "the largest number";
            return fail(what, max_value, "larger than the smallest one", max.span);
        };
        if range % step_value != 0 {
            let what = "the size of a step";
            return fail(what, step_value, "a divisor of the range", step.span);
        }
        if range / step_value > MOST_BUCKETS {
            let what = "the number of buckets";
            return fail(what, range / step_value, "1,000 or fewer", span);
        }
        Ok(Kind::Lhist {
            min,
            max: max_value,
            step: step_value,
        })
    }

    /// An expression that is a statement: a call, or a step.
    fn alone(&mut self, expr: &Expr) -> Result<What, ScriptError> {
        match &expr.kind {
            ExprKind::Call {
                name,
                name_span,
                args,
            } => self.call(name, *name_span, args),
            ExprKind::Step { .. } => {
                let (value, _) = self.value(expr)?;
                Ok(What::Evaluate(value))
            }
            _ => {
                self.value(expr)?;
                Err(Problem::Expected {
                    expected: "a statement".into(),
                    found: "a value that nobody uses".into(),
                }
                .at(expr.span))
            }
        }
    }

    fn request(&mut self, request: Request, span: Span) -> usize {
        let found = self
            .requests
            .iter()
            .position(|(known, _)| *known == request);
        found.unwrap_or_else(|| {
            self.requests.push((request, span));
            self.requests.len() - 1
        })
    }

    fn call(&mut self, name: &str, span: Span, args: &[Expr]) -> Result<What, ScriptError> {
        let wrong = |expected| {
            Err(Problem::Arguments {
                function: name.to_owned(),
                expected,
                found: args.len(),
            }
            .at(span))
        };
        let (request, args) = match (name, args) {
            ("printf", []) => return wrong("a format"),
            ("printf", [format, values @ ..]) => return self.printf(format, values),
            ("print", [value]) => match &value.kind {
                ExprKind::Map(map) if map.key.is_empty() => (self.shown(map, None)?, Vec::new()),
                _ => return self.print_value(value),
            },
            ("print", [map, top]) => {
                let what = "the number of entries to print";
                let number = self.constant(top, what)?;
                if number < 1 {
                    let problem = Problem::Range {
                        what,
                        found: number,
                        allowed: "1 or more",
                    };
                    return Err(problem.at(top.span));
                }
                let map = self.whole(map, "print")?.clone();
                (self.shown(&map, Some(number as u64))?, Vec::new())
            }
            ("print", _) => return wrong("a map or a value, and for a map the number of entries"),
            ("clear" | "zero", [map]) => {
                let map = self.whole(map, name)?;
                let index = self.maps.index(&map.name);
                self.maps.read(index, map.span)?;
                match name {
                    "clear" => (Request::Clear(index), Vec::new()),
                    _ => (Request::Zero(index), Vec::new()),
                }
            }
            ("clear" | "zero", _) => return wrong("a map"),
            ("delete", [value]) => return self.delete(value, None),
            ("delete", [map, key]) => return self.delete(map, Some(key)),
            ("delete", _) => return wrong("a value of a map, as in `delete(@m[key])`"),
            ("exit", []) => (Request::Exit, Vec::new()),
            ("exit", _) => return wrong("no argument"),
            (name, _) if AGGREGATES.contains(&name) => {
                let problem = Problem::NoValue {
                    function: name.to_owned(),
                    instead: "it is assigned to a map, as in `@x = count()`",
                };
                return Err(problem.at(span));
            }
            ("str", _) => {
                return Err(Problem::Expected {
                    expected: "a statement".into(),
                    found: "a value that nobody uses".into(),
                }
                .at(span));
            }
            (name, _) => {
                debug_assert!(!FUNCTIONS.contains(&name));
                return Err(unknown_function(name).at(span));
            }
        };
        let request = self.request(request, span);
        Ok(What::Send { request, args })
    }

    /// A map without a key.
    fn whole<'e>(&self, expr: &'e Expr, function: &str) -> Result<&'e MapRef, ScriptError> {
        match &expr.kind {
            ExprKind::Map(map) if map.key.is_empty() => Ok(map),
            _ => Err(Problem::Expected {
                expected: format!("a map without a key for `{function}`"),
                found: "something else".into(),
            }
            .at(expr.span)),
        }
    }

    fn shown(&mut self, map: &MapRef, top: Option<u64>) -> Result<Request, ScriptError> {
        let index = self.maps.index(&map.name);
        self.maps.read(index, map.span)?;
        Ok(Request::Show { map: index, top })
    }

    fn printf(&mut self, format: &Expr, values: &[Expr]) -> Result<What, ScriptError> {
        let ExprKind::Text(text) = &format.kind else {
            return Err(Problem::Expected {
                expected: "a format in quotes".into(),
                found: "something else".into(),
            }
            .at(format.span));
        };
        if values.len() > MOST_VALUES {
            let problem = Problem::Arguments {
                function: "printf".into(),
                expected: "24 values at most",
                found: values.len(),
            };
            return Err(problem.at(format.span));
        }
        let (mut args, mut types) = (Vec::new(), Vec::new());
        for value in values {
            let (found, ty) = self.value(value)?;
            known_to_programs(ty, value.span)?;
            args.push(found);
            types.push(ty);
        }
        let parsed = Format::parse(text, &types).map_err(|problem| problem.at(format.span))?;
        let request = self.request(Request::Print(parsed), format.span);
        Ok(What::Send { request, args })
    }

    /// `print(x)` is `printf("%d\n", x)`; a value in a map has its name and key in front.
    fn print_value(&mut self, value: &Expr) -> Result<What, ScriptError> {
        let (found, ty) = self.value(value)?;
        known_to_programs(ty, value.span)?;
        let (mut head, mut args, mut types) = (String::new(), Vec::new(), Vec::new());
        if let (ExprKind::Map(map), Value::Map { key, .. }) = (&value.kind, &found) {
            let is_plain = |part: &Value| {
                matches!(part, Value::Number(_) | Value::Read(_) | Value::Variable(_))
            };
            head = if key.iter().all(is_plain) {
                types.extend(self.maps.keys_of(&map.name).unwrap_or_default());
                args.extend(key.iter().cloned());
                let parts: Vec<&str> = types.iter().map(|ty| conversion(*ty)).collect();
                format!("{}[{}]: ", map.name, parts.join(", "))
            } else {
                // What changes something is evaluated once.
                format!("{}: ", value.span.text(self.source)).replace('%', "%%")
            };
        }
        for ty in &types {
            known_to_programs(*ty, value.span)?;
        }
        types.push(ty);
        args.push(found);
        let format = Format::parse(&format!("{head}{}\n", conversion(ty)), &types);
        let format = format.map_err(|problem| problem.at(value.span))?;
        let request = self.request(Request::Print(format), value.span);
        Ok(What::Send { request, args })
    }

    fn delete(&mut self, value: &Expr, key: Option<&Expr>) -> Result<What, ScriptError> {
        let span = value.span;
        self.writes_maps(span)?;
        let ExprKind::Map(map) = &value.kind else {
            return Err(Problem::Expected {
                expected: "a value of a map, as in `delete(@m[key])`".into(),
                found: "something else".into(),
            }
            .at(span));
        };
        let mut map = map.clone();
        map.key.extend(key.cloned());
        let name = map.name.clone();
        let (index, key) = self.map(&map)?;
        let kind = self.maps.read(index, span)?;
        let refuse = |what: String, instead: &str| {
            Err(Problem::Unserved {
                what,
                instead: instead.to_owned(),
            }
            .at(span))
        };
        if key.is_empty() {
            return refuse(
                format!("`delete` of `{name}`, which has no key,"),
                "assign 0 to it, or `clear` it",
            );
        }
        if kind.buckets().is_some() {
            return refuse(
                format!("`delete` of a key of `{name}`, a histogram,"),
                "each of its buckets is a key of its own; `clear` begins it anew",
            );
        }
        let types = self.maps.keys_of(&name).unwrap_or_default();
        if types.contains(&Type::File) {
            return refuse(
                format!("`delete` of a source file in `{name}`"),
                "it stands for several places; use `site`, which is one",
            );
        }
        Ok(What::Delete { map: index, key })
    }
}

/// How `print` shows a value.
fn conversion(ty: Type) -> &'static str {
    match ty {
        Type::Number => "%d",
        _ => "%s",
    }
}
