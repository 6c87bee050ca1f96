//! From a checked program to instructions: expressions, and where they find what they need.

use warpbpf_abi::attach::Site;
use warpbpf_abi::context;
use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::maps::BPF_NOEXIST;
use warpbpf_ebpf::{AluOp, AtomicOp, JumpOp, Reg, Source, Width};

use crate::asm::{Assembler, Label, r};
use crate::ast::BinaryOp;
use crate::layout::{Layout, is_array, value_size};
use crate::typed::{Checked, Map, Read, Value};

/// Instructions of a program, and copies of bodies of `unroll` in it; jumps reach about as far.
pub const MOST: usize = 30_000;

/// Bytes of the stack of a program.
pub const STACK: usize = 512;

/// A program while it becomes instructions.
pub struct Emitter<'c> {
    /// The script.
    pub checked: &'c Checked,
    /// Its maps.
    pub layout: &'c Layout,
    /// The instructions.
    pub asm: Assembler,
    /// When the script began, in nanoseconds.
    pub start: u64,
    /// Variables of the program, in the first slots.
    pub variables: usize,
    /// Slots behind the variables that are in use.
    pub depth: usize,
    /// Slots that were in use at most, variables among them.
    pub deepest: usize,
    /// Where `break` and `continue` go, of each loop around.
    pub loops: Vec<(Label, Label)>,
    /// The end of the program.
    pub out: Label,
    /// Copies of bodies of `unroll`.
    pub copies: usize,
}

impl<'c> Emitter<'c> {
    /// Ready for a program with so many variables.
    pub fn new(
        checked: &'c Checked,
        layout: &'c Layout,
        start: u64,
        variables: usize,
    ) -> Emitter<'c> {
        let mut asm = Assembler::default();
        let out = asm.label();
        Emitter {
            checked,
            layout,
            asm,
            start,
            variables,
            depth: 0,
            deepest: variables,
            loops: Vec::new(),
            out,
            copies: 0,
        }
    }

    /// It has more than [`MOST`] instructions or copies: nothing more is added.
    pub fn is_too_large(&self) -> bool {
        self.asm.len() > MOST || self.copies > MOST
    }

    /// Where a slot is on the stack.
    pub fn slot(&self, slot: usize) -> i16 {
        -8 * (slot as i16 + 1)
    }

    /// Slots beside each other: where the first bytes are.
    pub fn block(&mut self, slots: usize) -> i16 {
        self.depth += slots;
        self.deepest = self.deepest.max(self.variables + self.depth);
        self.slot(self.variables + self.depth - 1)
    }

    /// `dst` = the value of a slot.
    pub fn load_slot(&mut self, dst: Reg, off: i16) {
        self.asm.load(Width::W64, false, dst, Reg::FP, off);
    }

    /// A slot gets `r0`.
    pub fn store_slot(&mut self, off: i16) {
        self.asm
            .store(Width::W64, Reg::FP, off, Source::Reg(Reg::R0));
    }

    /// `dst` = an address on the stack.
    pub fn address(&mut self, dst: Reg, off: i16) {
        self.asm.copy(dst, Reg::FP);
        self.asm.alu(AluOp::Add, dst, Source::Imm(off.into()));
    }

    /// A value in a slot of its own.
    pub fn kept(&mut self, value: &Value) -> i16 {
        self.value(value);
        let off = self.block(1);
        self.store_slot(off);
        off
    }

    fn definition(&self, map: usize) -> &'c Map {
        &self.checked.maps[map]
    }

    /// Puts a key on the stack; `bucket` is a slot with the bucket of a histogram.
    pub fn key(&mut self, map: usize, key: &[Value], bucket: Option<i16>) -> i16 {
        if is_array(self.definition(map)) {
            let base = self.block(1);
            match bucket {
                Some(bucket) => {
                    self.load_slot(Reg::R0, bucket);
                    let src = Source::Reg(Reg::R0);
                    self.asm.store(Width::W32, Reg::FP, base, src);
                }
                None => self.asm.store(Width::W32, Reg::FP, base, Source::Imm(0)),
            }
            return base;
        }
        let words: usize = key.iter().map(Value::words).sum();
        let base = self.block(words + usize::from(bucket.is_some()));
        self.put_all(key, base);
        if let Some(bucket) = bucket {
            self.load_slot(Reg::R0, bucket);
            self.store_slot(base + 8 * words as i16);
        }
        base
    }

    /// Puts values on the stack, one behind the other.
    pub fn put_all(&mut self, values: &[Value], base: i16) {
        let mut off = base;
        for value in values {
            let depth = self.depth;
            match value {
                Value::Str { at, size } => self.text(at.as_deref(), *size, off),
                value => {
                    self.value(value);
                    self.store_slot(off);
                }
            }
            self.depth = depth;
            off += 8 * value.words() as i16;
        }
    }

    /// Text comes to the stack, with zeros behind it.
    fn text(&mut self, at: Option<&Value>, size: u8, off: i16) {
        let last = i16::from(size.div_ceil(8)) - 1;
        if !size.is_multiple_of(8) {
            let zero = Source::Imm(0);
            self.asm.store(Width::W64, Reg::FP, off + 8 * last, zero);
        }
        let helper = match at {
            Some(at) => {
                self.value(at);
                self.asm.copy(r(3), Reg::R0);
                HelperId::ProbeReadUserStr
            }
            None => HelperId::GetCurrentComm,
        };
        self.address(r(1), off);
        self.asm.number(r(2), size.into());
        self.asm.call(helper as u32);
    }

    /// `r0` = 1 if text is the word, or if it is not and that is wanted; else 0.
    fn is(&mut self, text: &Value, word: &str, wanted: bool) {
        let (differs, end) = (self.asm.label(), self.asm.label());
        let off = self.block(text.words());
        self.put_all(std::slice::from_ref(text), off);
        let mut bytes = word.as_bytes().to_vec();
        // The NUL, too.
        bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
        for (at, word) in (0..).zip(bytes.as_chunks().0) {
            self.load_slot(Reg::R0, off + 8 * at);
            self.asm.number(r(1), i64::from_le_bytes(*word));
            let src = Source::Reg(r(1));
            self.asm.jump(JumpOp::Ne, Reg::R0, src, differs);
        }
        self.asm.number(Reg::R0, i64::from(wanted));
        self.asm.goto(end);
        self.asm.place(differs);
        self.asm.number(Reg::R0, i64::from(!wanted));
        self.asm.place(end);
    }

    /// `r0` = the address of a key's value, or null.
    pub fn look_up(&mut self, map: usize, key: i16) {
        self.asm.map(r(1), map);
        self.address(r(2), key);
        self.asm.call(HelperId::MapLookupElem as u32);
    }

    /// `r0` = the address of a key's value, which is zeros if the key was not there. Where there is
    /// no room for it, goes to `lost`.
    pub fn find(&mut self, map: usize, key: i16, lost: Label) {
        let found = self.asm.label();
        self.look_up(map, key);
        if is_array(self.definition(map)) {
            self.asm.jump(JumpOp::Eq, Reg::R0, Source::Imm(0), lost);
            return;
        }
        self.asm.jump(JumpOp::Ne, Reg::R0, Source::Imm(0), found);
        let depth = self.depth;
        let words = value_size(self.definition(map)) as usize / 8;
        let zeros = self.block(words);
        for word in 0..words as i16 {
            self.asm
                .store(Width::W64, Reg::FP, zeros + 8 * word, Source::Imm(0));
        }
        self.depth = depth;
        self.asm.map(r(1), map);
        self.address(r(2), key);
        self.address(r(3), zeros);
        self.asm.number(r(4), BPF_NOEXIST as i64);
        self.asm.call(HelperId::MapUpdateElem as u32);
        // Whoever was first: the key is there now, unless there was no room.
        self.look_up(map, key);
        self.asm.jump(JumpOp::Eq, Reg::R0, Source::Imm(0), lost);
        self.asm.place(found);
    }

    /// Counts that something was lost: an update of the map with this index, or the rounds of a
    /// loop.
    pub fn count_lost(&mut self, index: usize) {
        let (depth, end) = (self.depth, self.asm.label());
        let key = self.block(1);
        self.depth = depth;
        self.asm
            .store(Width::W32, Reg::FP, key, Source::Imm(index as i32));
        self.look_up(self.layout.lost, key);
        self.asm.jump(JumpOp::Eq, Reg::R0, Source::Imm(0), end);
        self.asm.number(r(1), 1);
        self.asm
            .atomic(AtomicOp::Add { fetch: false }, Reg::R0, 0, r(1));
        self.asm.place(end);
    }

    /// `r0` = the value.
    pub fn value(&mut self, value: &Value) {
        let depth = self.depth;
        match value {
            Value::Number(number) => self.asm.number(Reg::R0, *number),
            Value::Read(read) => self.read(*read),
            Value::Variable(variable) => {
                let off = self.slot(*variable);
                self.load_slot(Reg::R0, off);
            }
            // Who has room for it puts it there.
            Value::Str { .. } => self.asm.number(Reg::R0, 0),
            Value::Is { text, word, wanted } => self.is(text, word, *wanted),
            Value::Map { map, key } => {
                let none = self.asm.label();
                let key = self.key(*map, key, None);
                self.look_up(*map, key);
                self.asm.jump(JumpOp::Eq, Reg::R0, Source::Imm(0), none);
                self.asm.load(Width::W64, false, Reg::R0, Reg::R0, 0);
                self.asm.place(none);
            }
            Value::Minus(value) => {
                self.value(value);
                self.asm.neg(Reg::R0);
            }
            Value::Complement(value) => {
                self.value(value);
                self.asm.alu(AluOp::Xor, Reg::R0, Source::Imm(-1));
            }
            Value::Not(_) => self.truth(value),
            Value::Binary(op, left, right) => match alu(*op) {
                Some(op) => {
                    let src = self.both(left, right);
                    self.asm.alu(op, Reg::R0, src);
                }
                None => self.truth(value),
            },
            Value::Choice(cond, then, otherwise) => {
                let (no, end) = (self.asm.label(), self.asm.label());
                self.unless(cond, no);
                self.value(then);
                self.asm.goto(end);
                self.asm.place(no);
                self.value(otherwise);
                self.asm.place(end);
            }
            Value::StepVariable { variable, by, post } => {
                let off = self.slot(*variable);
                self.load_slot(Reg::R0, off);
                self.asm.alu(AluOp::Add, Reg::R0, Source::Imm(*by as i32));
                self.store_slot(off);
                if *post {
                    self.asm.alu(AluOp::Sub, Reg::R0, Source::Imm(*by as i32));
                }
            }
            Value::StepMap { map, key, by, post } => self.step_map(*map, key, *by, *post),
        }
        self.depth = depth;
    }

    fn step_map(&mut self, map: usize, key: &[Value], by: i64, post: bool) {
        let (lost, end) = (self.asm.label(), self.asm.label());
        let key = self.key(map, key, None);
        self.find(map, key, lost);
        self.asm.number(r(1), by);
        self.asm
            .atomic(AtomicOp::Add { fetch: true }, Reg::R0, 0, r(1));
        self.asm.copy(Reg::R0, r(1));
        if !post {
            self.asm.alu(AluOp::Add, Reg::R0, Source::Imm(by as i32));
        }
        self.asm.goto(end);
        self.asm.place(lost);
        self.count_lost(map);
        self.asm.number(Reg::R0, 0);
        self.asm.place(end);
    }

    /// `r0` = 1 or 0.
    fn truth(&mut self, value: &Value) {
        let (no, end) = (self.asm.label(), self.asm.label());
        self.unless(value, no);
        self.asm.number(Reg::R0, 1);
        self.asm.goto(end);
        self.asm.place(no);
        self.asm.number(Reg::R0, 0);
        self.asm.place(end);
    }

    /// `r0` = the left one; the right one is what is given back, a number or `r1`.
    fn both(&mut self, left: &Value, right: &Value) -> Source {
        if let Value::Number(number) = right
            && let Ok(small) = i32::try_from(*number)
        {
            self.value(left);
            return Source::Imm(small);
        }
        if let Value::Variable(variable) = right {
            self.value(left);
            let off = self.slot(*variable);
            self.load_slot(r(1), off);
            return Source::Reg(r(1));
        }
        let depth = self.depth;
        let kept = self.kept(left);
        self.value(right);
        self.asm.copy(r(1), Reg::R0);
        self.load_slot(Reg::R0, kept);
        self.depth = depth;
        Source::Reg(r(1))
    }

    /// Goes to `label` if the value is 0.
    pub fn unless(&mut self, value: &Value, label: Label) {
        self.branch(value, false, label);
    }

    /// Goes to `label` if the value is not 0, or, if `wanted` is false, if it is 0.
    fn branch(&mut self, value: &Value, wanted: bool, label: Label) {
        match value {
            Value::Not(value) => self.branch(value, !wanted, label),
            Value::Binary(op @ (BinaryOp::BothTrue | BinaryOp::AnyTrue), left, right) => {
                // The first one that is like this decides.
                let decisive = *op == BinaryOp::AnyTrue;
                if decisive == wanted {
                    self.branch(left, wanted, label);
                    self.branch(right, wanted, label);
                } else {
                    let over = self.asm.label();
                    self.branch(left, !wanted, over);
                    self.branch(right, wanted, label);
                    self.asm.place(over);
                }
            }
            Value::Binary(op, left, right) if op.compares() => {
                let src = self.both(left, right);
                self.asm.jump(jump(*op, wanted), Reg::R0, src, label);
            }
            value => {
                self.value(value);
                let op = if wanted { JumpOp::Ne } else { JumpOp::Eq };
                self.asm.jump(op, Reg::R0, Source::Imm(0), label);
            }
        }
    }

    fn read(&mut self, read: Read) {
        let half = Source::Imm(32);
        match read {
            Read::Field {
                offset,
                size,
                signed,
            } => {
                let width = if size == 4 { Width::W32 } else { Width::W64 };
                self.asm
                    .load(width, signed && size == 4, Reg::R0, r(6), offset);
            }
            Read::Helper(number) => self.asm.call(number),
            Read::UpperHalf(number) => {
                self.asm.call(number);
                self.asm.alu(AluOp::Rsh, Reg::R0, half);
            }
            Read::LowerHalf(number) => {
                self.asm.call(number);
                self.asm.alu(AluOp::Lsh, Reg::R0, half);
                self.asm.alu(AluOp::Rsh, Reg::R0, half);
            }
            Read::Lanes(offset) => {
                self.asm.load(Width::W32, false, Reg::R0, r(6), offset);
                self.ones();
            }
            Read::Touched { helper, spaces } => self.touched(helper, spaces),
            Read::Clock => self.asm.call(HelperId::KtimeGetNs as u32),
            Read::Elapsed => {
                self.asm.call(HelperId::KtimeGetNs as u32);
                self.asm.number(r(1), self.start as i64);
                self.asm.alu(AluOp::Sub, Reg::R0, Source::Reg(r(1)));
            }
            // Those are no single word, and known before the script runs.
            Read::Comm | Read::Probe | Read::Nothing => self.asm.number(Reg::R0, 0),
        }
    }

    /// `r0` = what a helper says of the address and the bytes of an access; of none in another
    /// space.
    fn touched(&mut self, helper: u32, spaces: [u32; 2]) {
        let (is, call) = (self.asm.label(), self.asm.label());
        self.load_field(r(3), "space");
        for space in spaces {
            let space = Source::Imm(space as i32);
            self.asm.jump(JumpOp::Eq, r(3), space, is);
        }
        self.asm.number(r(2), 0);
        self.asm.goto(call);
        self.asm.place(is);
        self.load_field(r(2), "bytes");
        self.asm.place(call);
        self.load_field(r(1), "address");
        self.asm.call(helper);
    }

    /// `dst` = a field of the context of an access.
    fn load_field(&mut self, dst: Reg, name: &str) {
        let fields = context::of(Site::Mem).fields.iter();
        let found = fields.into_iter().find(|field| field.name == name);
        let (size, offset) = found.map_or((8, 0), |field| (field.size, field.offset));
        let width = if size == 4 { Width::W32 } else { Width::W64 };
        self.asm.load(width, false, dst, r(6), offset as i16);
    }

    /// `r0` = how many of its lower 32 bits are set.
    fn ones(&mut self) {
        let (a, b) = (Reg::R0, r(1));
        let asm = &mut self.asm;
        asm.copy(b, a);
        asm.alu(AluOp::Rsh, b, Source::Imm(1));
        asm.alu(AluOp::And, b, Source::Imm(0x5555_5555));
        asm.alu(AluOp::Sub, a, Source::Reg(b));
        asm.copy(b, a);
        asm.alu(AluOp::Rsh, b, Source::Imm(2));
        asm.alu(AluOp::And, b, Source::Imm(0x3333_3333));
        asm.alu(AluOp::And, a, Source::Imm(0x3333_3333));
        asm.alu(AluOp::Add, a, Source::Reg(b));
        asm.copy(b, a);
        asm.alu(AluOp::Rsh, b, Source::Imm(4));
        asm.alu(AluOp::Add, a, Source::Reg(b));
        asm.alu(AluOp::And, a, Source::Imm(0x0f0f_0f0f));
        asm.alu32(AluOp::Mul, a, Source::Imm(0x0101_0101));
        asm.alu32(AluOp::Rsh, a, Source::Imm(24));
    }
}

/// The instruction of an operator, if it is one.
fn alu(op: BinaryOp) -> Option<AluOp> {
    Some(match op {
        BinaryOp::Add => AluOp::Add,
        BinaryOp::Sub => AluOp::Sub,
        BinaryOp::Mul => AluOp::Mul,
        BinaryOp::Div => AluOp::SDiv,
        BinaryOp::Mod => AluOp::SMod,
        BinaryOp::And => AluOp::And,
        BinaryOp::Or => AluOp::Or,
        BinaryOp::Xor => AluOp::Xor,
        BinaryOp::Left => AluOp::Lsh,
        BinaryOp::Right => AluOp::Arsh,
        BinaryOp::Equal
        | BinaryOp::Unequal
        | BinaryOp::Less
        | BinaryOp::LessEqual
        | BinaryOp::Greater
        | BinaryOp::GreaterEqual
        | BinaryOp::BothTrue
        | BinaryOp::AnyTrue => return None,
    })
}

/// The jump that is taken where a comparison is `wanted`.
fn jump(op: BinaryOp, wanted: bool) -> JumpOp {
    match (op, wanted) {
        (BinaryOp::Equal, true) | (BinaryOp::Unequal, false) => JumpOp::Eq,
        (BinaryOp::Less, true) | (BinaryOp::GreaterEqual, false) => JumpOp::SLt,
        (BinaryOp::LessEqual, true) | (BinaryOp::Greater, false) => JumpOp::SLe,
        (BinaryOp::Greater, true) | (BinaryOp::LessEqual, false) => JumpOp::SGt,
        (BinaryOp::GreaterEqual, true) | (BinaryOp::Less, false) => JumpOp::SGe,
        _ => JumpOp::Ne,
    }
}
