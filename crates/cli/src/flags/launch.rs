//! Flags of the verbs that launch programs as kernels.

use std::path::PathBuf;

use clap::Args;

use super::output::OutputFlags;
use super::program::{DeviceChoice, ProgramFlags};
use super::work::ObjectFlags;

/// `warpbpf launch`
#[derive(Debug, Args)]
pub struct LaunchFlags {
    #[command(flatten)]
    pub object: ObjectFlags,
    #[command(flatten)]
    pub program: ProgramFlags,
    #[command(flatten)]
    pub output: OutputFlags,
    /// Only this program; else all, in the object's order
    #[arg(long, value_name = "NAME")]
    pub program_name: Option<String>,
    /// Blocks of the grid
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = shape)]
    pub grid: Shape,
    /// Threads of a block
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = shape)]
    pub block: Shape,
    /// Launches of each program, one after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,
    /// Events of each ring that the report has; all are counted. If not said, 20 in tables and a
    /// million in JSON, which says how many are left out
    #[arg(long, value_name = "N")]
    pub events: Option<u64>,
    /// Rows to print per map; all are in the JSON
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rows: usize,
    /// Where it runs
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
}

/// `warpbpf launch-inside`
#[derive(Debug, Args)]
pub struct LaunchInsideFlags {
    /// The tool's control socket: the file that `warpbpf loader --socket` was given
    #[arg(value_name = "SOCKET")]
    pub socket: PathBuf,
    /// The program's C function, such as one of `SEC("kprobe/__directly_run")`
    #[arg(value_name = "PROGRAM")]
    pub program: String,
    /// Blocks of the grid
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = shape)]
    pub grid: Shape,
    /// Threads of a block
    #[arg(long, value_name = "X[,Y[,Z]]", default_value = "1", value_parser = shape)]
    pub block: Shape,
    /// Launches, one after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,
    /// Where it runs
    #[arg(long, value_enum, default_value = "auto")]
    pub device: DeviceChoice,
}

/// Extents of a grid or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape(pub [u32; 3]);

/// `4`, `4,2` or `4,2,1`.
fn shape(text: &str) -> Result<Shape, String> {
    let mut extents = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > extents.len() {
        return Err("there are three dimensions at most".to_owned());
    }
    for (extent, part) in extents.iter_mut().zip(parts) {
        *extent = part
            .trim()
            .parse()
            .ok()
            .filter(|n| *n > 0)
            .ok_or_else(|| format!("`{part}` is not a number of at least 1"))?;
    }
    Ok(Shape(extents))
}

#[cfg(test)]
mod tests {
    use super::{Shape, shape};

    #[test]
    fn shapes_have_up_to_three_extents() {
        assert_eq!(shape("7"), Ok(Shape([7, 1, 1])));
        assert_eq!(shape("7, 2,3"), Ok(Shape([7, 2, 3])));
        let refused = |text: &str| shape(text).unwrap_err();
        assert_eq!(refused("1,0"), "`0` is not a number of at least 1");
        assert_eq!(refused("x"), "`x` is not a number of at least 1");
        assert_eq!(refused("1,1,1,1"), "there are three dimensions at most");
    }
}
