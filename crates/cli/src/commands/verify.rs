//! `warpbpf verify`: proved, or why not.

use serde_json::{Value, json};
use warpbpf_session::SessionError;

use crate::commands::run::load;
use crate::error::CliError;
use crate::flags::VerifyFlags;
use crate::render::group;

/// Proves every program of an object.
pub fn run(flags: &VerifyFlags) -> Result<u8, CliError> {
    let object = load(&flags.object)?;
    match warpbpf_session::plan::prove(object, &flags.program.options()) {
        Ok((programs, maps)) if flags.json => {
            let rows: Vec<_> = programs
                .iter()
                .map(|p| {
                    let facts = p.verified.facts();
                    json!({ "program": p.name(), "section": p.section(), "site": p.spec.site.word(),
                            "scope": p.spec.scope.word(), "kernels": p.spec.kernels,
                            "instructions": p.verified.program().code.insns().len(), "cost": facts.cost,
                            "stack_bytes": facts.stack_bytes, "modifies": facts.modifies,
                            "warnings": p.verified.warnings().iter().map(ToString::to_string).collect::<Vec<_>>() })
                })
                .collect();
            println!(
                "{}",
                json!({ "ok": true, "programs": rows, "maps": maps.len() })
            );
            Ok(0)
        }
        Ok((programs, _)) => {
            for p in programs {
                let facts = p.verified.facts();
                println!(
                    "{} ({}): safe; {} instructions, at most {} executed, {} bytes of stack{}",
                    p.name(),
                    p.section(),
                    p.verified.program().code.insns().len(),
                    group(facts.cost.into()),
                    facts.stack_bytes,
                    if facts.modifies {
                        ", can change the application"
                    } else {
                        ""
                    }
                );
                for warning in p.verified.warnings() {
                    println!("  warning: {warning}");
                }
            }
            Ok(0)
        }
        Err(error) if flags.json => {
            println!("{}", as_json(&error));
            Ok(1)
        }
        Err(error) => Err(CliError::Refused {
            path: flags.object.display().to_string(),
            message: error.to_string(),
        }),
    }
}

/// A refusal for programs: the rule by its stable name, the place, the values, and the message for people.
fn as_json(error: &SessionError) -> Value {
    let mut out = json!({ "ok": false, "error": error.to_string() });
    if let SessionError::Rejected { rejection } = error {
        out["program"] = json!(rejection.program);
        out["rule"] = json!(rejection.rule.name());
        out["instruction"] = json!(rejection.slot);
        out["text"] = json!(rejection.insn);
        out["message"] = json!(rejection.rule.to_string());
        out["help"] = json!(rejection.help());
        out["values"] = rejection
            .values
            .iter()
            .map(|(register, value)| json!({ register: value }))
            .collect();
        if let Some(line) = &rejection.line {
            out["line"] = json!({ "file": line.file, "line": line.line, "column": line.column, "text": line.text });
        }
    }
    out
}
