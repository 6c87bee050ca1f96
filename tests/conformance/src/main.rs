//! The command that travels to machines with a GPU: the suite on every engine, and the fuzzer.

#[path = "../../../xtask/src/say.rs"]
#[macro_use]
mod say;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use warpbpf_conformance::build::Way;
use warpbpf_conformance::device::{Bench, DriverDevice, RunError, SoftDevice};
use warpbpf_conformance::fuzz::{Plan, Summary, fuzz};
use warpbpf_conformance::operands;
use warpbpf_conformance::reduce::reduce;
use warpbpf_conformance::suite::{interpreter, on_device, read, table};

const USAGE: &str = "\
usage: warpbpf-conformance suite FOLDERS [--driver LIBRARY]
       warpbpf-conformance fuzz [--seconds N] [--threads T] [--seed S] [--engine soft|gpu] [--driver LIBRARY]
                                [--from INDEX] [--count N] [--batch N] [--objects FOLDER]
       warpbpf-conformance reduce --seed S --from INDEX [--engine soft|gpu] [--driver LIBRARY]
       warpbpf-conformance operands [--engine soft|gpu] [--driver LIBRARY] [--seed S] [--count N]

  suite  every case in `suites/bpf_conformance` and `suites/found`, or other folders, on the interpreter, the soft GPU
         and, with --driver, on the device of a CUDA driver (libcuda.so.1, or the path of another one)
  fuzz   generated programs on the interpreter and the soft GPU, or on the device of a CUDA driver
  reduce  program INDEX of a seed, which a device disagrees about with the soft GPU, as few lines of PTX
  operands  every lane-local PTX operation that we know on N random operand sets (32768)
";

fn main() -> ExitCode {
    say::status(work())
}

fn work() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["help" | "--help" | "-h"]
        | ["fuzz" | "suite" | "reduce" | "operands", "--help" | "-h"] => {
            crate::say::write(1, format_args!("{USAGE}"));
            Ok(true)
        }
        ["suite", words @ ..] => {
            let options = words.iter().position(|word| word.starts_with("--"));
            let (folders, options) = words.split_at(options.unwrap_or(words.len()));
            Options::parse(options).and_then(|options| suite(folders, &options))
        }
        ["fuzz", options @ ..] => Options::parse(options).and_then(|options| run_fuzz(&options)),
        ["reduce", options @ ..] => {
            Options::parse(options).and_then(|options| run_reduce(&options))
        }
        ["operands", options @ ..] => {
            Options::parse(options).and_then(|options| run_operands(&options))
        }
        _ => Err(Stop::Usage("which command?".to_owned())),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Stop::Usage(what)) => {
            crate::say::write(2, format_args!("{what}\n{USAGE}"));
            ExitCode::from(2)
        }
        Err(Stop::Failed(what)) => {
            crate::say::write(2, format_args!("warpbpf-conformance: {what}\n"));
            ExitCode::FAILURE
        }
    }
}

enum Stop {
    Usage(String),
    Failed(String),
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Stop {
        Stop::Failed(error.to_string())
    }
}

struct Options {
    seconds: u64,
    threads: usize,
    seed: u64,
    gpu: bool,
    driver: Option<String>,
    first: u64,
    count: u64,
    batch: Option<usize>,
    objects: Option<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options, Stop> {
        let mut options = Options {
            seconds: 60,
            threads: 1,
            seed: 1,
            gpu: false,
            driver: None,
            first: 0,
            count: u64::MAX,
            batch: None,
            objects: None,
        };
        for pair in words.chunks(2) {
            let &[name, value] = pair else {
                return Err(Stop::Usage(format!("`{}` needs a value", pair[0])));
            };
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| Stop::Usage(format!("`{name} {value}`: give a number")))
            };
            match name {
                "--seconds" => options.seconds = number()?,
                "--threads" => options.threads = number()? as usize,
                "--seed" => options.seed = number()?,
                "--from" => options.first = number()?,
                "--count" => options.count = number()?,
                "--batch" => options.batch = Some(number()? as usize),
                "--driver" => options.driver = Some(value.to_owned()),
                "--objects" => options.objects = Some(value.to_owned()),
                "--engine" if value == "soft" || value == "gpu" => options.gpu = value == "gpu",
                _ => return Err(Stop::Usage(format!("`{name} {value}` is not known"))),
            }
        }
        Ok(options)
    }

    fn library(&self) -> &str {
        self.driver.as_deref().unwrap_or("libcuda.so.1")
    }
}

fn suite(folders: &[&str], options: &Options) -> Result<bool, Stop> {
    let mut cases = Vec::new();
    for folder in folders {
        let found = read(Path::new(folder)).map_err(Stop::Failed)?;
        if found.is_empty() {
            return Err(Stop::Failed(format!("`{folder}` has no case (`*.data`)")));
        }
        cases.extend(found);
    }
    let mut columns = vec![interpreter(&cases)];
    for way in [Way::Compiled, Way::Interpreted] {
        let mut bench = Bench::new(SoftDevice::new(None));
        columns.push(on_device(&cases, &mut bench, way)?);
        if let Some(library) = &options.driver {
            let mut bench = Bench::new(DriverDevice::open(library)?);
            columns.push(on_device(&cases, &mut bench, way)?);
        }
    }
    crate::say::write(1, format_args!("{}", table(&cases, &columns)));
    Ok(columns.iter().all(|column| column.failed() == 0))
}

fn run_fuzz(options: &Options) -> Result<bool, Stop> {
    let plan = Plan {
        seed: options.seed,
        first: options.first,
        count: options.count,
        time: Duration::from_secs(options.seconds),
        // On a device, loading a module costs more than all else.
        batch: options.batch.unwrap_or(if options.gpu { 128 } else { 1 }),
        objects: match &options.objects {
            Some(folder) => objects(Path::new(folder))?,
            None => Vec::new(),
        },
    };
    // A panic is caught and told with the program that causes it; its place is enough.
    std::panic::set_hook(Box::new(|panic| {
        crate::say::write(2, format_args!("{panic}\n"))
    }));
    let start = Instant::now();
    let told = |text: &str| say!("{text}\n");
    let (engine, summary) = if options.gpu {
        let open = |_| DriverDevice::open(options.library());
        ("gpu", fuzz(&plan, options.threads, open, told)?)
    } else {
        // Every second thread splits warps at random; with one thread, the seed decides.
        let stressed = |thread| (options.seed + thread as u64).is_multiple_of(2);
        let open = |thread| Ok(SoftDevice::new(stressed(thread).then_some(options.seed)));
        ("soft", fuzz(&plan, options.threads, open, told)?)
    };
    let mut refused: Vec<(&str, u64)> = summary.refused.iter().map(|(r, n)| (*r, *n)).collect();
    refused.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    for (rule, n) in refused {
        say!("refused {n:9}  {rule}");
    }
    say!("{}", last_line(engine, options, start.elapsed(), &summary));
    Ok(summary.disagreements == 0)
}

/// True if there is nothing to reduce.
fn run_reduce(options: &Options) -> Result<bool, Stop> {
    let told = |text: &str| say!("{text}");
    let (seed, index) = (options.seed, options.first);
    let reduced = if options.gpu {
        let mut bench = Bench::new(DriverDevice::open(options.library())?);
        reduce(seed, index, &mut bench, told)?
    } else {
        reduce(seed, index, &mut Bench::new(SoftDevice::new(None)), told)?
    };
    let Some(reduced) = reduced else {
        say!("seed {seed} index {index}: the device agrees with the soft GPU for every target");
        return Ok(true);
    };
    say!(
        "seed {seed} index {index}, {} instructions: {}\n{}\nmade of:\n{}",
        reduced.instructions,
        reduced.what,
        reduced.text,
        reduced.program
    );
    Ok(false)
}

fn run_operands(options: &Options) -> Result<bool, Stop> {
    let sets = usize::try_from(options.count.min(32768)).unwrap_or(32768);
    let report = if options.gpu {
        operands::run(
            &mut DriverDevice::open(options.library())?,
            options.seed,
            sets,
        )?
    } else {
        operands::run(&mut SoftDevice::new(None), options.seed, sets)?
    };
    crate::say::write(1, format_args!("{}", report.table()));
    Ok(report.failed() == 0)
}

/// One line in a fixed form, for logs that add up hours.
fn last_line(engine: &str, options: &Options, wall: Duration, summary: &Summary) -> String {
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    format!(
        "fuzz engine={engine} seed={} host_threads={} seconds={:.1} cpu_seconds={cpu:.1} generated={} mutated={} \
         objects={} verified={} launches={} gpu_threads={} disagreements={}",
        options.seed,
        options.threads,
        wall.as_secs_f64(),
        summary.generated,
        summary.mutated,
        summary.objects,
        summary.verified,
        summary.launches,
        summary.threads,
        summary.disagreements
    )
}

fn objects(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, Stop> {
    let failed = |what: String| Stop::Failed(format!("`{}`: {what}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(|e| failed(e.to_string()))?;
    let mut objects = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| failed(e.to_string()))?.path();
        if path.extension().is_some_and(|extension| extension == "o") {
            let bytes = std::fs::read(&path).map_err(|e| failed(e.to_string()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            objects.push((name.into_owned(), bytes));
        }
    }
    objects.sort();
    if objects.is_empty() {
        return Err(failed("there is no object (`*.o`) in it".to_owned()));
    }
    Ok(objects)
}
