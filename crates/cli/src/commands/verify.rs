//! `warpbpf verify`: proved, and at what cost, or why not.

use std::io::{BufWriter, Write as _};

use serde_json::{Value, json};
use warpbpf_maps::stops;
use warpbpf_object::MapDef;
use warpbpf_session::cpu::FUEL;
use warpbpf_session::plan::{LogStep, prove, prove_logged};
use warpbpf_session::{HostProgram, PlannedProgram, helpers_used, map_def};

use crate::flags::{ProgramFlags, VerifyFlags};
use crate::programs::linux::{ForLinux, Split};
use crate::report::table::{counted, group};
use crate::term::error::CliError;
use crate::term::explain::output_in_colour;
use crate::term::output::{line_json, say, say_drawn};

/// Proves every program of an object.
pub fn run(flags: &VerifyFlags) -> Result<u8, CliError> {
    let Split { loaded, linux } = Split::bring(&flags.object)?;
    let of_linux = linux.iter().flat_map(ForLinux::programs);
    let object = loaded.object.clone();
    let options = flags.program.options();
    let proved = if flags.log {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let proved = prove_logged(object, &options, &mut |program, step| {
            // A reader that went away has seen enough.
            let _ = out.write_all(step_text(program, step, flags.json).as_bytes());
        });
        let _ = out.flush();
        proved
    } else {
        prove(object, &options)
    };
    let on_the_host = warpbpf_session::cpu::take(&mut loaded.object.clone());
    let on_the_host = on_the_host.map_err(|error| loaded.refused(error))?;
    match proved {
        Ok((programs, maps)) if flags.json => {
            let rows = programs
                .iter()
                .map(|p| program_json(p, &maps, &flags.program));
            let own = maps
                .iter()
                .filter(|map| stops::program_of(&map.name).is_none());
            let in_linux = of_linux.map(|(program, section)| {
                json!({ "program": program, "section": section, "on": "linux" })
            });
            let rows = rows.chain(on_the_host.iter().map(host_json));
            let rows: Vec<_> = rows.chain(in_linux).collect();
            say(&format!(
                "{}\n",
                json!({ "ok": true, "programs": rows, "maps": own.count() })
            ));
            Ok(0)
        }
        Ok((programs, maps)) => {
            for program in &programs {
                say_drawn(&program_text(program, &maps, &flags.program));
            }
            for host in &on_the_host {
                say(&format!(
                    "{} ({}): runs on the CPU, where each access is checked as it is made\n  {} instructions, at most {} executed\n",
                    host.program.name,
                    host.program.section,
                    host.program.code.insns().len(),
                    group(FUEL.into()),
                ));
            }
            for (program, section) in of_linux {
                say(&format!(
                    "{program} ({section}): runs in Linux, whose verifier proves it when it is loaded\n"
                ));
            }
            Ok(0)
        }
        Err(error) => Err(loaded.rejected(error)),
    }
}

/// The budget that a program was proved with.
pub fn budget(program: &PlannedProgram, flags: &ProgramFlags) -> u64 {
    flags.budget.unwrap_or(program.spec.site.default_budget())
}

fn effect(program: &PlannedProgram) -> &'static str {
    if program.verified.facts().modifies {
        "can change the application"
    } else {
        "observes"
    }
}

fn program_text(program: &PlannedProgram, maps: &[MapDef], flags: &ProgramFlags) -> String {
    let facts = program.verified.facts();
    let (uniform, varying) = program.verified.warp().branches();
    let mut text = format!(
        "{} ({}): safe, {}\n  {} instructions; costs at most {} of a budget of {}{}\n  {} bytes of stack; branches: {uniform} uniform, {varying} varying\n",
        program.name(),
        program.section(),
        effect(program),
        program.verified.program().code.insns().len(),
        group(facts.cost.into()),
        group(budget(program, flags).into()),
        if flags.budget.is_some() {
            " (--budget)".to_owned()
        } else {
            format!(" (default at {})", program.spec.site.word())
        },
        facts.stack_bytes,
    );
    if !program.bounded.is_empty() {
        let lines = program.bounded_lines();
        let places: Vec<String> = (lines.iter().flatten())
            .map(|line| format!("{}:{}", line.file, line.line))
            .collect();
        let at = match places.is_empty() {
            true => String::new(),
            false => format!(" ({})", places.join(", ")),
        };
        text += &format!(
            "  {} without a bound of its own{at}: ended after {}, which is counted\n",
            counted(program.bounded.len() as u128, "loop"),
            counted(facts.may_goto_rounds.into(), "round"),
        );
    }
    for used in helpers_used(facts, maps) {
        let on = used
            .map
            .and_then(|map| map_def(maps, map))
            .map_or(String::new(), |map| format!(" on `{}`", map.name));
        let beyond = if used.at_most > used.counted {
            format!(
                "; up to {} where many lanes want one entry at once",
                group(used.at_most.into())
            )
        } else {
            String::new()
        };
        let places = if used.places > 1 {
            format!(" in {} places", used.places)
        } else {
            String::new()
        };
        text += &format!(
            "  bpf_{}{on}{places}: costs {} of that{beyond}\n",
            used.name(),
            group(used.counted.into())
        );
    }
    for warning in program.verified.warnings() {
        text += &warning.render_with(output_in_colour());
        text += "\n";
    }
    text
}

fn program_json(program: &PlannedProgram, maps: &[MapDef], flags: &ProgramFlags) -> Value {
    let facts = program.verified.facts();
    let (uniform, varying) = program.verified.warp().branches();
    let helpers: Vec<_> = helpers_used(facts, maps)
        .into_iter()
        .map(|used| {
            let map = used.map.and_then(|map| map_def(maps, map));
            json!({ "helper": used.name(), "map": map.map(|m| &m.name), "places": used.places,
                    "counted": used.counted, "at_most": used.at_most })
        })
        .collect();
    let warnings: Vec<_> = program
        .verified
        .warnings()
        .iter()
        .map(|w| {
            let related = w.related.as_ref().map(|r| {
                json!({ "instruction": r.slot, "what": r.what, "line": line_json(r.line.as_ref()) })
            });
            json!({ "warning": w.name, "instruction": w.slot, "text": w.insn, "line": line_json(w.line.as_ref()),
                    "message": w.message, "help": w.help, "related": related })
        })
        .collect();
    let bounded = (!program.bounded.is_empty()).then(|| {
        let lines = program.bounded_lines();
        let loops: Vec<_> = lines.iter().map(|line| line_json(line.as_ref())).collect();
        json!({ "rounds": facts.may_goto_rounds, "loops": loops })
    });
    json!({ "program": program.name(), "section": program.section(), "site": program.spec.site.word(),
            "scope": program.spec.scope.word(), "kernels": program.spec.kernels,
            "instructions": program.verified.program().code.insns().len(), "cost": facts.cost,
            "budget": budget(program, flags), "budget_default": program.spec.site.default_budget(),
            "stack_bytes": facts.stack_bytes, "modifies": facts.modifies,
            "branches": { "uniform": uniform, "varying": varying },
            "bounded": bounded, "helpers": helpers, "warnings": warnings })
}

fn host_json(host: &HostProgram) -> Value {
    json!({ "program": host.program.name, "section": host.program.section, "on": "cpu",
            "instructions": host.program.code.insns().len(), "budget": FUEL })
}

/// One step of the proof: the instruction, then what the registers and the changed stack hold
/// before it.
fn step_text(program: &str, step: &LogStep, as_json: bool) -> String {
    if as_json {
        let registers: serde_json::Map<String, Value> = step
            .registers
            .iter()
            .map(|(reg, value)| (reg.to_string(), json!(value)))
            .collect();
        let stack: Vec<_> = step
            .stack
            .iter()
            .map(|(offset, bytes, value)| json!({ "offset": offset, "bytes": bytes, "value": value }))
            .collect();
        let row = json!({ "program": program, "pass": step.pass, "instruction": step.slot, "text": step.insn,
                          "depth": step.depth, "cost": step.cost, "registers": registers, "stack": stack });
        return format!("{row}\n");
    }
    let mut text = format!(
        "{program} pass {} depth {} cost {} instruction {}: {}\n",
        step.pass, step.depth, step.cost, step.slot, step.insn
    );
    for (reg, value) in &step.registers {
        text += &format!("    {reg} is {value}\n");
    }
    for (offset, bytes, value) in &step.stack {
        text += &format!("    {bytes} bytes at r10{offset:+} are {value}\n");
    }
    text
}
