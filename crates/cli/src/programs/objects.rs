//! The program of a command: one object file or several, with types and values that the user gives.
//!
//! What comes out is one object, in bytes, so that the agent in the application loads exactly what
//! was proved here.

use warpbpf_object::{Btf, LoadOptions, Object};
use warpbpf_session::SessionError;

use crate::flags::ObjectFlags;
use crate::term::error::{CliError, read};

/// A program that is ready to be sent.
pub struct Loaded {
    /// What messages call it.
    pub name: String,
    /// Linked, with its variables set and its fields relocated.
    pub bytes: Vec<u8>,
    /// The same, parsed.
    pub object: Object,
}

impl Loaded {
    /// A refusal of this program.
    pub fn refused(&self, message: impl ToString) -> CliError {
        refused(&self.name, message)
    }

    /// With its fields relocated to those of a target, if there is one.
    ///
    /// # Errors
    /// [`CliError::Refused`] with what is wrong and where.
    pub fn adapted(self, target: Option<&Btf>) -> Result<Loaded, CliError> {
        let Some(types) = target else {
            return Ok(self);
        };
        let options = LoadOptions {
            target_btf: target,
            no_target: None,
        };
        let object = warpbpf_object::load_all(&self.bytes, &options);
        let object = object.map_err(|error| self.refused(error))?;
        let bytes = warpbpf_object::relocate(&self.bytes, types);
        let bytes = bytes.map_err(|error| self.refused(error))?;
        Ok(Loaded {
            bytes,
            object,
            ..self
        })
    }

    /// A refusal of this program by the verifier or the planner.
    pub fn rejected(&self, error: SessionError) -> CliError {
        CliError::Rejected {
            path: self.name.clone(),
            error: Box::new(error),
        }
    }
}

fn refused(path: &str, message: impl ToString) -> CliError {
    CliError::Refused {
        path: path.to_owned(),
        message: message.to_string(),
    }
}

/// Reads the objects, links them if they are several, and does what the flags say.
///
/// # Errors
/// [`CliError::Read`], or [`CliError::Refused`] with what is wrong and where.
pub fn bring(flags: &ObjectFlags) -> Result<Loaded, CliError> {
    let (loaded, target) = read_all(flags)?;
    loaded.adapted(target.as_ref())
}

/// The same, but with fields as the object has them, and the types that they are to be relocated
/// to, if there are some (`--btf`).
///
/// # Errors
/// As [`bring`].
pub fn read_all(flags: &ObjectFlags) -> Result<(Loaded, Option<Btf>), CliError> {
    let files: Vec<(String, Vec<u8>)> = flags
        .objects
        .iter()
        .map(|path| Ok((path.display().to_string(), read(path)?)))
        .collect::<Result<_, CliError>>()?;
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let name = names.join(" + ");
    let mut bytes = match files.as_slice() {
        [(_, bytes)] => bytes.clone(),
        _ => {
            let objects: Vec<(&str, &[u8])> = files
                .iter()
                .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
                .collect();
            warpbpf_object::link(&objects).map_err(|error| refused(&name, error))?
        }
    };
    let values: Vec<(&str, &str)> = flags
        .values
        .set
        .iter()
        .map(|assignment| {
            assignment.split_once('=').ok_or_else(|| {
                CliError::Other(format!(
                    "`--set {assignment}` has no value; write `--set NAME=VALUE`"
                ))
            })
        })
        .collect::<Result<_, _>>()?;
    if !values.is_empty() {
        bytes = warpbpf_object::set_variables(&bytes, &values)
            .map_err(|error| refused(&name, error))?;
    }
    let target = match &flags.values.btf {
        Some(path) => {
            let types = Btf::read(&read(path)?);
            Some(types.map_err(|error| refused(&path.display().to_string(), error))?)
        }
        None => None,
    };
    let object = warpbpf_object::load_all(&bytes, &LoadOptions::default())
        .map_err(|error| refused(&name, error))?;
    let loaded = Loaded {
        name,
        bytes,
        object,
    };
    Ok((loaded, target))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::bring;
    use crate::flags::{Cli, Command, ObjectFlags};

    fn parsed(line: &str) -> ObjectFlags {
        match Cli::try_parse_from(line.split(' ')).map(|cli| cli.command) {
            Ok(Command::Run(flags)) => flags.request.object(),
            Ok(Command::Verify(flags)) => flags.object,
            Ok(Command::Compile(flags)) => flags.object,
            other => panic!("`{line}`: {other:?}"),
        }
    }

    fn refused(line: &str) -> String {
        match bring(&parsed(line)) {
            Ok(_) => panic!("`{line}` is accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn several_objects_stand_before_the_application() {
        let flags = parsed("warpbpf run a.o b.o --set x=1 --set y[2]=3 c.o -- ./app d.o");
        let names: Vec<_> = flags.objects.iter().filter_map(|p| p.to_str()).collect();
        assert_eq!(names, ["a.o", "b.o", "c.o"]);
        assert_eq!(flags.values.set, ["x=1", "y[2]=3"]);
        for line in ["warpbpf verify a.o b.o", "warpbpf compile a.o b.o"] {
            assert_eq!(parsed(line).objects.len(), 2);
        }
        assert!(Cli::try_parse_from(["warpbpf", "run", "--", "./app"]).is_err());
        assert!(Cli::try_parse_from(["warpbpf", "link", "a.o"]).is_err());
    }

    #[test]
    fn what_is_wrong_names_the_file() {
        assert_eq!(
            refused("warpbpf verify /nonexistent/a.o"),
            "cannot read `/nonexistent/a.o`: No such file or directory (os error 2)"
        );
        let path = std::env::temp_dir().join(format!("warpbpf-objects-{}.o", std::process::id()));
        std::fs::write(&path, "hello").expect("it is written");
        let shown = path.display();
        let messages = [
            refused(&format!("warpbpf verify {shown}")),
            refused(&format!("warpbpf verify {shown} {shown}")),
            refused(&format!("warpbpf verify {shown} --set limit")),
            refused(&format!("warpbpf verify {shown} --set limit=1")),
            refused(&format!("warpbpf verify {shown} --btf {shown}")),
        ];
        std::fs::remove_file(&path).expect("it is removed");
        let elf = "this is not an ELF file; compile the program with `clang -g -O2 -target bpf -c`";
        assert_eq!(
            messages,
            [
                format!("{shown}: {elf}"),
                format!("{shown} + {shown}: `{shown}`: {elf}"),
                "`--set limit` has no value; write `--set NAME=VALUE`".to_owned(),
                format!("{shown}: {elf}"),
                format!("{shown}: {elf}"),
            ]
        );
    }
}
