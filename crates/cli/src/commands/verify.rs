//! `warpbpf verify`: proved, or why not.

use serde_json::json;

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
                            "stack_bytes": facts.stack_bytes, "modifies": facts.modifies })
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
            }
            Ok(0)
        }
        Err(error) if flags.json => {
            println!("{}", json!({ "ok": false, "error": error.to_string() }));
            Ok(1)
        }
        Err(error) => Err(CliError::Refused {
            path: flags.object.display().to_string(),
            message: error.to_string(),
        }),
    }
}
