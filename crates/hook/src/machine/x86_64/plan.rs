//! Reads a function's beginning and decides whether and how a jump fits behind its first
//! instruction.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter, Instruction, InstructionInfoFactory,
    IntelFormatter, MemoryOperand, OpAccess, OpKind, Register,
};

use crate::error::{BeneathError, HookError};

/// Bytes of `jmp rel32`.
pub(super) const JUMP: usize = 5;

/// How a function is hooked.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Where the jump goes: behind the first instruction, or in an entry of a procedure linkage
    /// table over its jump.
    pub(crate) jump_at: u64,
    /// Takes back what the first instruction did, if it did something that matters.
    pub(crate) undo: Option<Instruction>,
    /// The instructions up to the jump and those under it.
    pub(crate) displaced: Vec<Instruction>,
    /// The first instruction that stays where it is, behind them.
    pub(crate) resume: u64,
}

impl Plan {
    /// The jump takes the place of what stands first.
    pub(crate) fn replaces_start(&self) -> bool {
        self.displaced[0].ip() == self.jump_at
    }

    /// A call among the instructions that are moved.
    pub(crate) fn call(&self) -> Option<String> {
        let is_call = |i: &&Instruction| {
            matches!(
                i.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            )
        };
        self.displaced.iter().find(is_call).map(text)
    }
}

/// Registers with the first arguments (System V ABI for AMD64, "Parameter Passing").
const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];

/// Plans a hook for the function whose bytes `code` lie at `address`. All of `code` is searched for
/// branches into the displaced instructions, so it should be the whole function.
pub(crate) fn plan(address: u64, code: &[u8]) -> Result<Plan, HookError> {
    plan_few(address, code, ARGUMENTS.len())
}

/// The same for a function that has no more than so many arguments in registers.
pub(crate) fn plan_few(address: u64, code: &[u8], arguments: usize) -> Result<Plan, HookError> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let first = decode(&mut decoder)?;
    if first.code() == Code::Int3 {
        let source = BeneathError::Own;
        return Err(HookError::Breakpoint { source });
    }
    if leaves(&first) && first.flow_control() != FlowControl::Return {
        return Err(HookError::Taken { text: text(&first) });
    }
    let undo = undo(&first, ARGUMENTS.get(arguments..).unwrap_or_default())?;
    let jump_at = first.next_ip();
    let mut displaced = vec![first];
    let mut resume = jump_at;
    while resume - jump_at < JUMP as u64 {
        let short = HookError::Short {
            bytes: (resume - jump_at) as usize,
            needs: JUMP,
        };
        if !decoder.can_decode() {
            return Err(short);
        }
        let instruction = decode(&mut decoder)?;
        let enough = instruction.next_ip() - jump_at >= JUMP as u64;
        if resume == jump_at && instruction.code() == Code::Jmp_rel32_64 {
            return Err(HookError::Taken {
                text: text(&instruction),
            });
        }
        if leaves(&instruction) && !enough {
            return Err(HookError::Short {
                bytes: (instruction.next_ip() - jump_at) as usize,
                needs: JUMP,
            });
        }
        resume = instruction.next_ip();
        displaced.push(instruction);
    }
    if let Some(from) = branch_into(address, code, address + 1..resume) {
        return Err(HookError::BranchedInto { from });
    }
    Ok(Plan {
        jump_at,
        undo,
        displaced,
        resume,
    })
}

/// The same for an entry of a procedure linkage table (System V ABI for AMD64, "Procedure Linkage
/// Table"): a jump through a word, behind a landing pad where there is one. Ours takes the place of
/// that one instruction. What the word leads to as long as no function was looked for stands behind
/// it or in another table, and stays.
pub(crate) fn plan_entry(address: u64, code: &[u8]) -> Result<Plan, HookError> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut displaced = vec![decode(&mut decoder)?];
    if displaced[0].code() == Code::Endbr64 {
        displaced.push(decode(&mut decoder)?);
    }
    let jump = displaced[displaced.len() - 1];
    match jump.code() {
        Code::Jmp_rm64 if jump.is_ip_rel_memory_operand() => Ok(Plan {
            jump_at: jump.ip(),
            undo: None,
            displaced,
            resume: jump.next_ip(),
        }),
        Code::Jmp_rel32_64 => Err(HookError::Taken { text: text(&jump) }),
        _ => Err(HookError::Entry { text: text(&jump) }),
    }
}

fn decode(decoder: &mut Decoder<'_>) -> Result<Instruction, HookError> {
    let address = decoder.ip();
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        Err(HookError::Undecodable { address })
    } else {
        Ok(instruction)
    }
}

/// Control never reaches the next instruction, or comes back in a way that a moved instruction
/// cannot offer.
fn leaves(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Next
        | FlowControl::ConditionalBranch
        | FlowControl::Call
        | FlowControl::IndirectCall => false,
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Interrupt
        | FlowControl::XbeginXabortXend
        | FlowControl::Exception => true,
    }
}

/// The instruction that takes back what `first` did; `None` if nothing of it matters at a
/// function's entry, where only arguments, callee-saved registers and the stack do.
fn undo(first: &Instruction, unused: &[Register]) -> Result<Option<Instruction>, HookError> {
    let refused = || HookError::First { text: text(first) };
    match first.code() {
        Code::Endbr64 => Ok(None),
        Code::Push_r64 => {
            let register = first.op0_register();
            Instruction::with1(Code::Pop_r64, register)
                .map(Some)
                .map_err(|_| refused())
        }
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 if first.op0_register() == Register::RSP => {
            let bytes = first.immediate(1) as i64;
            let back = MemoryOperand::with_base_displ(Register::RSP, bytes);
            Instruction::with2(Code::Lea_r64_m, Register::RSP, back)
                .map(Some)
                .map_err(|_| refused())
        }
        _ if is_harmless(first, unused) => Ok(None),
        _ => Err(refused()),
    }
}

/// Writes nothing but flags and registers that a callee may destroy and that carry no argument:
/// those, or some that are `unused`.
fn is_harmless(instruction: &Instruction, unused: &[Register]) -> bool {
    if instruction.flow_control() != FlowControl::Next || instruction.is_stack_instruction() {
        return false;
    }
    let writes = |access: OpAccess| {
        !matches!(
            access,
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        )
    };
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let registers = info.used_registers().iter().all(|used| {
        !writes(used.access())
            || match used.register().full_register() {
                Register::RAX | Register::R10 | Register::R11 => true,
                register => unused.contains(&register),
            }
    });
    registers && !info.used_memory().iter().any(|used| writes(used.access()))
}

/// The first branch in `code` that leads into `range`.
fn branch_into(address: u64, code: &[u8], range: std::ops::Range<u64>) -> Option<u64> {
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let near = |i: &Instruction| {
        (0..i.op_count()).any(|n| {
            matches!(
                i.op_kind(n),
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
            )
        })
    };
    decoder
        .into_iter()
        .find(|i| near(i) && range.contains(&i.near_branch_target()))
        .map(|i| i.ip())
}

fn text(instruction: &Instruction) -> String {
    let mut text = String::new();
    IntelFormatter::new().format(instruction, &mut text);
    text
}
