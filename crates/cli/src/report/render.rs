//! Reports as text: tables, histograms, and the few sentences that matter.

use std::fmt::Write as _;

use warpbpf_maps::stops;
use warpbpf_tool::Method;

use crate::report::kernel_table::kernel_table;
use crate::report::map_text::{map_text, more};
use crate::report::model::{Kernel, Linux, Process, Report};
use crate::report::notes::alike;
use crate::report::table::{Table, counted, group};
use crate::term::plain;

/// The whole report; at most `rows` rows per map.
pub fn report(report: &Report, rows: usize) -> String {
    let mut out = String::new();
    for process in &report.processes {
        process_text(&mut out, process, rows);
    }
    together(&mut out, report, rows);
    if let Some(linux) = &report.linux {
        linux_text(&mut out, linux, rows);
    }
    for note in alike(&report.notes) {
        let _ = writeln!(out, "warpbpf: {}", plain::message(&note));
    }
    for remark in alike(&report.remarks) {
        let _ = writeln!(out, "warpbpf: note: {}", plain::message(&remark));
    }
    out
}

fn linux_text(out: &mut String, linux: &Linux, rows: usize) {
    out.push_str("\nin Linux\n");
    let mut table = Table::new(&["program", "at"]);
    for program in &linux.programs {
        table.row(vec![program.name.clone(), program.place.clone()]);
    }
    table.write(out);
    for map in &linux.maps {
        map_text(out, map, rows);
    }
    if !linux.shared.is_empty() {
        out.push_str("\nof Linux and applications together\n");
    }
    for map in &linux.shared {
        map_text(out, map, rows);
    }
}

/// Who was there, with launches of each, and what they have together.
fn together(out: &mut String, report: &Report, rows: usize) {
    if report.processes.len() < 2 {
        return;
    }
    let _ = writeln!(out, "\nall {} processes", report.processes.len());
    let mut table = Table::new(&["pid", "program", "launches", "uninstrumented", "skipped"]);
    for process in &report.processes {
        let sum = |of: fn(&Kernel) -> u64| {
            let launches: u64 = process.kernels.iter().map(of).sum();
            group(launches.into())
        };
        table.row(vec![
            process.pid.to_string(),
            process.exe.rsplit('/').next().unwrap_or("").to_owned(),
            sum(|k| k.launches),
            sum(|k| k.uninstrumented),
            sum(|k| k.skipped),
        ]);
    }
    table.write(out);
    for map in &report.together {
        map_text(out, map, rows);
    }
}

/// A line per map, for the time while the application runs.
pub fn summary(processes: &[Process]) -> String {
    let mut out = String::new();
    for process in processes {
        let launches: u64 = process.kernels.iter().map(|k| k.launches).sum();
        let _ = write!(
            out,
            "warpbpf: pid {}: {}",
            numbers(process.pid, process.inner_pid),
            counted(launches.into(), "launch")
        );
        for map in &process.maps {
            let _ = match (&map.events, &map.threads, map.sum) {
                (Some(events), _, _) => write!(
                    out,
                    ", {} {} ({} lost)",
                    plain::name(&map.name),
                    counted(events.received.into(), "event"),
                    events.lost
                ),
                (_, Some(threads), sum) => {
                    write!(
                        out,
                        ", {} {} (sum {})",
                        plain::name(&map.name),
                        counted(threads.count.into(), "thread"),
                        group(sum.unwrap_or(0))
                    )
                }
                (_, _, Some(sum)) => write!(
                    out,
                    ", {} {} (sum {})",
                    plain::name(&map.name),
                    counted(map.entries.len() as u128, "entry"),
                    group(sum)
                ),
                _ => {
                    let entries = counted(map.entries.len() as u128, "entry");
                    write!(out, ", {} {entries}", plain::name(&map.name))
                }
            };
        }
        out.push('\n');
    }
    out
}

/// A process's number, and by which it knows itself, where that is another one.
pub fn numbers(pid: u32, inner: Option<u32>) -> String {
    match inner {
        Some(inner) => format!("{pid}, {inner} in its namespace"),
        None => pid.to_string(),
    }
}

/// The table of `warpbpf kernels`.
pub fn kernels(process: &Process) -> String {
    let mut out = String::new();
    heading(&mut out, process);
    kernel_table(&mut out, &process.kernels, false);
    out
}

fn process_text(out: &mut String, process: &Process, rows: usize) {
    heading(out, process);
    if !process.complete {
        out.push_str(
            "  the application ended without a good-bye: these are the data read until then\n",
        );
    }
    // One that lost all its sites says why.
    let no_site = |k: &Kernel| k.method == Method::NoSite && k.left_out.is_empty();
    let wanted: Vec<Kernel> = process
        .kernels
        .iter()
        .filter(|k| k.method != Method::NotMatched && !no_site(k))
        .cloned()
        .collect();
    if !wanted.is_empty() {
        kernel_table(out, &wanted, true);
    }
    let from = |cached| {
        process
            .kernels
            .iter()
            .filter(|k| k.cached == Some(cached))
            .count()
    };
    if from(true) + from(false) > 0 {
        let _ = writeln!(
            out,
            "  {} from the cache, {} compiled",
            counted(from(true) as u128, "variant"),
            from(false)
        );
    }
    let without = process.kernels.iter().filter(|k| no_site(k)).count();
    if without > 0 {
        let _ = writeln!(
            out,
            "  {} without a site that a program wants",
            counted(without as u128, "kernel")
        );
    }
    for map in &process.maps {
        map_text(out, map, rows);
    }
    if !process.messages.is_empty() {
        out.push_str("\nmessages\n");
        for message in process.messages.iter().take(rows) {
            // A message of a program ends its own lines.
            let _ = writeln!(out, "  {}", plain::name(message.trim_end_matches('\n')));
        }
        let all = process.messages.len() + process.messages_left_out as usize;
        more(out, all, rows.min(process.messages.len()));
    }
    if process.messages_lost > 0 {
        let _ = writeln!(out, "  {} messages were lost", process.messages_lost);
    }
    for stopped in &process.stopped {
        let told = stops::told(&plain::name(&stopped.program), stopped.times);
        let _ = writeln!(out, "\nwarning: {told}");
    }
}

fn heading(out: &mut String, process: &Process) {
    let soft = if process.soft { " (soft GPU)" } else { "" };
    // The whole path is in the JSON.
    let exe = process.exe.rsplit('/').next().unwrap_or(&process.exe);
    let _ = writeln!(
        out,
        "\n{} [pid {}] on {}{soft}",
        plain::name(exe),
        numbers(process.pid, process.inner_pid),
        plain::name(&process.device)
    );
    let mut told: Vec<u32> = Vec::new();
    for context in &process.contexts {
        // The first is told above.
        if !told.is_empty() && !told.contains(&context.device) {
            let _ = writeln!(
                out,
                "  and on device {}: {}, {} SMs",
                context.device,
                plain::name(&context.name),
                context.sms
            );
        }
        told.push(context.device);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::map_text::line;
    use crate::report::model::{Entry, Events, Map, Threads};

    /// Reports with everything that tables are made of.
    pub(crate) fn reports() -> Vec<Report> {
        let entry = |key: serde_json::Value, value: serde_json::Value| Entry { key, value };
        let map = |kind: &str, entries: Vec<Entry>| Map {
            name: "m".into(),
            kind: kind.into(),
            entries,
            sum: Some(7u64.into()),
            warnings: vec!["1 update failed".into()],
            ..Map::default()
        };
        let values = serde_json::json!([1, 2, u64::MAX]);
        let structs = serde_json::json!({ "launches": 3, "threads": [1, 2] });
        let process = Process {
            pid: 7,
            exe: "/a/app".into(),
            device: "H200".into(),
            complete: true,
            kernels: vec![Kernel {
                name: "vectorAdd".into(),
                method: Method::Slice,
                left_out: vec![("in a call".into(), 2)],
                ..Kernel::default()
            }],
            maps: vec![
                map(
                    "hash",
                    vec![entry("a".into(), structs.clone()), entry(2.into(), structs)],
                ),
                map(
                    "array",
                    (0..20)
                        .map(|n: u64| entry(n.into(), (n * n).into()))
                        .collect(),
                ),
                map("percpu_array", vec![entry(0.into(), values)]),
            ],
            ..Process::default()
        };
        let mut several = Report {
            version: crate::report::model::VERSION,
            command: vec!["app".into()],
            status: Some(0),
            processes: vec![process.clone(), process.clone()],
            notes: vec!["a\nb".into()],
            ..Report::default()
        };
        several.together = process.maps.clone();
        vec![Report::default(), several]
    }

    #[test]
    fn what_linux_ran_stands_behind_the_processes() {
        let map = |name: &str, value: u64| Map {
            name: name.into(),
            kind: "hash".into(),
            entries: vec![Entry {
                key: 7.into(),
                value: value.into(),
            }],
            sum: Some(value.into()),
            ..Map::default()
        };
        let linux = Linux {
            programs: vec![crate::report::model::LinuxProgram {
                name: "on_call".into(),
                section: "raw_tp/sys_enter".into(),
                place: "raw tracepoint sys_enter".into(),
            }],
            maps: vec![map("calls", 5)],
            shared: vec![map("both", 9)],
        };
        let all = Report {
            linux: Some(linux),
            ..Report::default()
        };
        assert_eq!(
            report(&all, 10),
            "\nin Linux\n  program  at\n  on_call  raw tracepoint sys_enter\n\
             \ncalls (hash): 1 entry, sum 5\n  key  value\n    7      5\n\
             \nof Linux and applications together\n\
             \nboth (hash): 1 entry, sum 9\n  key  value\n    7      9\n"
        );
        let again: Report = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert_eq!(again, all);
    }

    #[test]
    fn a_process_is_called_by_its_file_name() {
        let process = crate::report::model::Process {
            pid: 7,
            exe: "/opt/apps/vectoradd".to_owned(),
            device: "H200".to_owned(),
            ..Default::default()
        };
        let mut out = String::new();
        super::heading(&mut out, &process);
        assert_eq!(out, "\nvectoradd [pid 7] on H200\n");
    }

    #[test]
    fn kernels_without_a_site_are_only_counted_unless_there_is_a_reason() {
        let kernel = |name: &str, method: &str| Kernel {
            name: name.into(),
            method: method.parse().unwrap(),
            ..Kernel::default()
        };
        let process = Process {
            exe: "app".into(),
            device: "H200".into(),
            complete: true,
            kernels: vec![
                kernel("a", "not matched"),
                kernel("b", "no site"),
                kernel("c", "no site"),
                Kernel {
                    left_out: vec![("in a call".into(), 2)],
                    ..kernel("d", "no site")
                },
            ],
            ..Process::default()
        };
        let mut out = String::new();
        process_text(&mut out, &process, 1);
        assert_eq!(
            out,
            "\napp [pid 0] on H200\n  kernel  launches  uninstrumented  registers  method\n  d              0               0  ?          no site\n  \
               warning: 2 sites in `d` left out: in a call\n  2 kernels without a site that a program wants\n"
        );
    }

    #[test]
    fn a_map_of_structs_is_a_table() {
        let value = |n: u64| serde_json::json!({ "launches": n, "threads": n * 256 });
        let entry = |key: &str, n| Entry {
            key: serde_json::json!(key),
            value: value(n),
        };
        let map = Map {
            name: "kernels".into(),
            kind: "hash".into(),
            entries: vec![entry("vectorAdd", 10), entry("gemm", 3)],
            warnings: vec!["1 update failed".into()],
            ..Map::default()
        };
        let mut out = String::new();
        map_text(&mut out, &map, 1);
        assert_eq!(
            out,
            "\nkernels (hash): 2 entries\n  key        launches  threads\n  vectorAdd        10     2560\n  … 1 more\n  warning: 1 update failed\n"
        );
    }

    #[test]
    fn a_user_ring_tells_what_is_left_and_what_went_wrong() {
        let map = Map {
            name: "jobs".into(),
            kind: "user_ringbuf".into(),
            undrained: Some(48),
            warnings: vec!["1 drain was taken over".into()],
            ..Map::default()
        };
        let mut out = String::new();
        map_text(&mut out, &map, 20);
        assert_eq!(
            out,
            "\njobs (user_ringbuf): 48 bytes not drained\n  warning: 1 drain was taken over\n"
        );
    }

    #[test]
    fn programs_that_were_ended_are_told() {
        let mut out = String::new();
        let process = Process {
            stopped: vec![crate::report::model::Stopped {
                program: "walks".into(),
                times: 2,
            }],
            ..Process::default()
        };
        process_text(&mut out, &process, 20);
        let told = "\nwarning: program `walks` was ended 2 times in a loop that used up the budget (--bound-loops); what was still to be done is missing: raise the budget (--budget N)\n";
        assert!(out.ends_with(told), "{out}");
    }

    #[test]
    fn remarks_come_last_and_are_said_to_be_no_warnings() {
        let noted = Report {
            notes: vec!["a kernel runs without probes".into()],
            remarks: vec!["map `m` was compacted".into()],
            ..Report::default()
        };
        assert_eq!(
            report(&noted, 20),
            "warpbpf: a kernel runs without probes\nwarpbpf: note: map `m` was compacted\n"
        );
        let json = serde_json::to_value(&noted).unwrap();
        assert_eq!(
            json["remarks"],
            serde_json::json!(["map `m` was compacted"])
        );
        let none = serde_json::to_value(Report::default()).unwrap();
        assert_eq!(none.get("remarks"), None);
    }

    #[test]
    fn a_record_in_one_line() {
        let record =
            serde_json::json!({ "time_ns": 5, "where": { "block": 1, "sm": 2 }, "list": [1, 2] });
        assert_eq!(line(&record), "time_ns=5 where={block=1 sm=2} list=[1, 2]");
        assert_eq!(line(&serde_json::json!(7)), "7");
    }

    #[test]
    fn threads_are_a_histogram() {
        let threads = Threads {
            count: 30,
            min: 1,
            max: 2,
            histogram: vec![(1, 10), (2, 20)],
        };
        let map = Map {
            name: "t".into(),
            kind: "per_thread_array".into(),
            threads: Some(threads),
            sum: Some(50),
            ..Map::default()
        };
        let mut out = String::new();
        map_text(&mut out, &map, 20);
        let expect = format!(
            "\nt (per_thread_array): 30 threads with a value, sum 50, min 1, max 2\n  value  threads\n      1  {} 10\n      2  {} 20\n",
            "█".repeat(20),
            "█".repeat(40)
        );
        assert_eq!(out, expect);
    }

    #[test]
    fn events_say_how_many_more() {
        let events = Events {
            received: 5,
            lost: 6,
            lost_full: 1,
            lost_busy: 2,
            lost_unread: 3,
            left_out: 4,
            first: vec![serde_json::json!({ "sm": 3 })],
        };
        let map = Map {
            name: "e".into(),
            kind: "ringbuf".into(),
            events: Some(events),
            ..Map::default()
        };
        let mut out = String::new();
        map_text(&mut out, &map, 20);
        assert_eq!(
            out,
            "\ne (ringbuf): 5 events, 6 lost\n  sm\n   3\n  … 4 more\n  \
             warning: 1 record lost: its ring on the device was full; raise `max_entries` or send fewer\n  \
             warning: 2 records lost: a bounded retry ran out where many lanes sent at once; send fewer, or one for a warp\n  \
             warning: 3 records lost: they were not read in time; raise `max_entries` or send fewer\n"
        );
    }

    #[test]
    fn processes_are_listed_where_there_are_several() {
        let process = |pid, launches, uninstrumented| Process {
            pid,
            exe: "/bin/app".into(),
            kernels: vec![Kernel {
                launches,
                uninstrumented,
                ..Kernel::default()
            }],
            ..Process::default()
        };
        let mut report = Report {
            processes: vec![process(7, 1200, 0)],
            ..Report::default()
        };
        let mut out = String::new();
        together(&mut out, &report, 5);
        assert_eq!(out, "");
        report.processes.push(process(8, 3, 1));
        together(&mut out, &report, 5);
        let lines: Vec<Vec<&str>> = out
            .lines()
            .map(|line| line.split_ascii_whitespace().collect())
            .collect();
        assert_eq!(lines[1], ["all", "2", "processes"]);
        assert_eq!(lines[3], ["7", "app", "1,200", "0", "0"]);
        assert_eq!(lines[4], ["8", "app", "3", "1", "0"]);
    }
}
