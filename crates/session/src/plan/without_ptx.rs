//! What a back end for machine code makes of a kernel, and which of its programs it leaves out.

use crate::plan::kernel_error::KernelError;
use crate::plan::prepared::Code;

/// A kernel with programs.
pub(crate) struct Made {
    pub(crate) code: Code,
    /// Its programs by number, and at how many places each stands.
    pub(crate) placed: Vec<(usize, u32)>,
    /// Why others do not, each with 1.
    pub(crate) left_out: Vec<(String, u32)>,
}

/// A kernel's programs that can stand in it, and why others cannot, each with 1.
type Served = (Vec<usize>, Vec<(String, u32)>);

/// Parts a kernel's programs into those that can stand in it and why the others cannot.
///
/// # Errors
/// None can: why the first does not.
pub(crate) fn served(
    programs: &[usize],
    mut refusal: impl FnMut(usize) -> Option<KernelError>,
) -> Result<Served, KernelError> {
    let (mut served, mut refused) = (Vec::new(), Vec::new());
    for index in programs {
        match refusal(*index) {
            None => served.push(*index),
            Some(why) => refused.push(why),
        }
    }
    match refused.first() {
        Some(first) if served.is_empty() => Err(first.clone()),
        _ => {
            let refused = refused.iter().map(|why| (why.to_string(), 1));
            Ok((served, refused.collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_stand_is_left_out_and_named() {
        let refusal = |index: usize| {
            (index % 2 == 1).then(|| KernelError::PtxOnly {
                program: format!("p{index}"),
                site: "mem",
            })
        };
        let why = "program `p1` is at places of kind `mem`, which are found in PTX only".to_owned();
        assert_eq!(
            served(&[0, 1, 2], refusal),
            Ok((vec![0, 2], vec![(why.clone(), 1)]))
        );
        assert_eq!(served(&[0], refusal), Ok((vec![0], vec![])));
        assert_eq!(served(&[1, 3], refusal).unwrap_err().to_string(), why);
    }
}
