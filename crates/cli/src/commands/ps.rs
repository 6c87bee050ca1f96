//! `warpbpf ps`: which processes have loaded the CUDA driver, and what of ours is in them.

use warpbpf_tool::CudaProcess;

use crate::flags::PsFlags;
use crate::report::render::numbers;
use crate::report::table::Table;
use crate::term::error::CliError;
use crate::term::output::say;

/// Lists them.
pub fn run(flags: &PsFlags) -> Result<u8, CliError> {
    let all = warpbpf_tool::live::processes();
    if flags.json {
        let rows: Vec<serde_json::Value> = all
            .iter()
            .map(|process| {
                serde_json::json!({
                    "pid": process.pid,
                    "inner_pid": process.inner_pid,
                    "command": process.command,
                    "has_device": process.has_device,
                    "has_agent": process.has_agent,
                    "tool": process.tool,
                    "obstacle": process.obstacle,
                    "user": process.user,
                    "forked": process.forked,
                })
            })
            .collect();
        let text = serde_json::to_string(&rows).map_err(|e| CliError::Other(e.to_string()))?;
        say(&(text + "\n"));
        return Ok(0);
    }
    if all.is_empty() {
        say("no process that can be looked into has loaded the CUDA driver\n");
        return Ok(0);
    }
    say(&table(&all));
    Ok(0)
}

fn table(all: &[CudaProcess]) -> String {
    let mut table = Table::new(&["pid", "driver", "agent", "attached by", "command"]);
    for process in all {
        let driver = match process.has_device {
            true => "initialised",
            false => "loaded",
        };
        let agent = match (process.has_agent, process.tool) {
            (_, Some(_)) => "at work",
            (true, None) => "idle",
            (false, None) => "-",
        };
        table.row(vec![
            numbers(process.pid, process.inner_pid),
            driver.to_owned(),
            agent.to_owned(),
            process.tool.map_or("-".to_owned(), |tool| tool.to_string()),
            process.command.join(" "),
        ]);
    }
    let mut text = String::new();
    table.write(&mut text);
    for process in all {
        if let Some(obstacle) = process.obstacle.as_ref().filter(|_| process.tool.is_none()) {
            text += &format!("{obstacle}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_where_is_shown() {
        let process = |pid, has_device, has_agent, tool| CudaProcess {
            pid,
            inner_pid: None,
            command: vec!["python".into(), "train.py".into()],
            has_device,
            has_agent,
            tool,
            obstacle: None,
            user: Some(1000),
            started: 1,
            forked: false,
        };
        let mut all = vec![
            process(7, false, false, None),
            process(80, true, true, Some(1234)),
            process(81, true, true, None),
        ];
        all[1].inner_pid = Some(1);
        all[2].obstacle = Some("process 81 is stopped".into());
        let text = table(&all);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_ascii_whitespace().collect())
            .collect();
        assert_eq!(lines[0][..5], ["pid", "driver", "agent", "attached", "by"]);
        assert_eq!(lines[1], ["7", "loaded", "-", "-", "python", "train.py"]);
        assert_eq!(lines[2][..5], ["80,", "1", "in", "its", "namespace"]);
        assert_eq!(
            lines[2][5..],
            ["initialised", "at", "work", "1234", "python", "train.py"]
        );
        assert_eq!(lines[3][..4], ["81", "initialised", "idle", "-"]);
        assert_eq!(lines[4].join(" "), "process 81 is stopped");
    }
}
