//! Which back ends each device of this machine can have, and why not the others: what `doctor`
//! tells, and `kernels` of those that a kernel would need.

use std::path::PathBuf;

use serde_json::{Value, json};
use warpbpf_driver::DeviceInfo;
use warpbpf_session::backends::{SANITIZER_AT, SPLICE_AT, arch};

use crate::backend::assemble;
use crate::backend::ptxas::{self, Ptxas, Refused};
use crate::backend::sanitizer::{self, Release};

/// A function that does nothing: what `ptxas` cannot make of it, it cannot make of a program.
const TRIAL: &str = "\
.version 8.0
.target sm_NUMBER
.address_size 64
.visible .func (.param .b32 r) wbpf_trial(.param .b64 ud, .param .b64 pc)
{
	st.param.b32 [r], 0;
	ret;
}
";

/// What kernels without PTX need, as it was found on this machine.
#[derive(Debug, Clone)]
pub struct Means {
    ptxas: Result<(Ptxas, String), String>,
    library: Result<(PathBuf, Release), String>,
}

/// A device, or several of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// GPUs that are all the same.
    Gpu(DeviceInfo, usize),
    /// The soft GPU.
    Soft,
}

/// A back end on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackEnd {
    /// As `--backend` has it.
    pub name: &'static str,
    /// It is to be had there, and for what; or why not.
    pub told: Result<String, String>,
}

const AS_PTX: &str = "as `ptx`";
const BY_SPLICE: &str = "kernels without PTX by `splice`";

/// All back ends of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackEnds {
    device: String,
    sm: Option<u32>,
    count: usize,
    /// `ptx`, `splice`, `sanitizer`.
    pub all: [BackEnd; 3],
    auto: &'static str,
    every: String,
}

impl Means {
    /// Looks; `ptxas` is asked for its version.
    pub fn found() -> Means {
        let ptxas = assemble::ptxas().and_then(Ptxas::new);
        let ptxas = ptxas.map(|ptxas| ptxas.at_start());
        let library = sanitizer::library();
        Means {
            ptxas: ptxas.and_then(|ptxas| Ok((ptxas.clone(), ptxas::version(&ptxas)?))),
            library: library.and_then(|file| {
                let release = sanitizer::release(&file)?;
                Ok((file, release))
            }),
        }
    }

    /// `ptxas` makes functions for a GPU; which one it is.
    fn assembler(&self, sm: u32) -> Result<String, String> {
        let arch = arch(sm).map_err(|error| error.to_string())?;
        let (ptxas, version) = self.ptxas.as_ref().map_err(Clone::clone)?;
        let text = TRIAL.replace("NUMBER", &arch.number().to_string());
        ptxas::assemble(ptxas, &text, arch).map_err(Refused::why)?;
        Ok(format!("`ptxas` {version} ({})", ptxas.file.display()))
    }

    /// Which library Compute Sanitizer would be, and what is known of it and the driver without
    /// loading it.
    fn library(&self, driver: (u32, u32)) -> Result<String, String> {
        let (file, release) = self.library.as_ref().map_err(Clone::clone)?;
        let (major, minor) = driver;
        let fits = match release {
            Release::Exactly(of, less) if (*of, *less) == driver => {
                format!("of CUDA {of}.{less}, as the driver is")
            }
            Release::Exactly(of, less) => format!(
                "of CUDA {of}.{less}, and the driver is for CUDA {major}.{minor}: whether they fit shows in an application"
            ),
            Release::Later => format!(
                "of CUDA 12.2 or newer: whether it fits the driver, which is for CUDA {major}.{minor}, shows in an application"
            ),
            Release::Earlier => format!(
                "of CUDA 12.1 or older, which does not tell of barriers of clusters: whether it fits the driver, which is for CUDA {major}.{minor}, shows in an application"
            ),
        };
        Ok(format!("the library ({}) is {fits}", file.display()))
    }
}

impl Kind {
    /// Devices by kind, in order.
    pub fn of(all: &[DeviceInfo]) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = Vec::new();
        for info in all {
            let same = |kind: &&mut Kind| matches!(kind, Kind::Gpu(one, _) if one == info);
            match kinds.iter_mut().find(same) {
                Some(Kind::Gpu(_, count)) => *count += 1,
                Some(Kind::Soft) | None => kinds.push(Kind::Gpu(info.clone(), 1)),
            }
        }
        kinds
    }

    /// What each back end is there.
    pub fn back_ends(&self, means: &Means) -> BackEnds {
        let ptx = BackEnd {
            name: "ptx",
            told: Ok("kernels that have PTX, at every place".to_owned()),
        };
        let (info, count) = match self {
            Kind::Gpu(info, count) => (info, *count),
            Kind::Soft => {
                let none = |name| BackEnd {
                    name,
                    told: Err("the soft GPU runs PTX only".to_owned()),
                };
                return BackEnds {
                    device: "soft GPU".to_owned(),
                    sm: None,
                    count: 1,
                    all: [ptx, none("splice"), none("sanitizer")],
                    auto: AS_PTX,
                    every: AS_PTX.to_owned(),
                };
            }
        };
        let (major, minor) = info.capability;
        let sm = major * 10 + minor;
        let driver = info.driver_version;
        let assembler = means.assembler(sm);
        let spliced = assembler.clone().map(|ptxas| {
            format!("those without, too, at {SPLICE_AT}, but for NVIDIA's own libraries; {ptxas}")
        });
        let library = assembler.and_then(|_| {
            means.library((
                driver.unsigned_abs() / 1000,
                driver.unsigned_abs() % 1000 / 10,
            ))
        });
        let sanitized = library.map(|library| {
            format!(
                "those without, too, at {SANITIZER_AT}, not by `attach`; nothing that uses CUPTI (torch.profiler, nsys) works in the application meanwhile; {library}"
            )
        });
        let auto = match &spliced {
            Ok(_) => BY_SPLICE,
            Err(_) => AS_PTX,
        };
        let every = match (&spliced, &sanitized) {
            (Ok(_), Ok(_)) => {
                "kernels without PTX by `splice`, by `sanitizer` where a program is at `mem`, `barrier`, `func` or `funcret`, but `splice` alone with `attach`"
            }
            (Ok(_), Err(_)) => BY_SPLICE,
            (Err(_), _) => AS_PTX,
        };
        BackEnds {
            device: info.name.clone(),
            sm: Some(sm),
            count,
            all: [
                ptx,
                BackEnd {
                    name: "splice",
                    told: spliced,
                },
                BackEnd {
                    name: "sanitizer",
                    told: sanitized,
                },
            ],
            auto,
            every: every.to_owned(),
        }
    }
}

impl BackEnds {
    /// As `doctor` prints it.
    pub fn text(&self) -> String {
        let times = match self.count {
            1 => String::new(),
            count => format!("{count} × "),
        };
        let sm = self.sm.map_or_else(String::new, |sm| format!(", sm_{sm}"));
        let mut text = format!("back ends, {times}{}{sm}:\n", self.device);
        for back_end in &self.all {
            let (mark, told) = match &back_end.told {
                Ok(told) => ("✓", told),
                Err(why) => ("✗", why),
            };
            text += &format!("  {mark} {:<10} {told}\n", back_end.name);
        }
        text + &format!(
            "    {:<10} {}\n    {:<10} {}\n",
            "auto", self.auto, "all", self.every
        )
    }

    /// As `doctor --json` has it.
    pub fn json(&self) -> Value {
        let all = self.all.iter().map(|back_end| {
            let (ok, told) = match &back_end.told {
                Ok(told) => (true, told),
                Err(why) => (false, why),
            };
            json!({ "backend": back_end.name, "ok": ok, "told": told })
        });
        json!({
            "device": self.device,
            "sm": self.sm,
            "count": self.count,
            "soft": self.sm.is_none(),
            "backends": all.collect::<Vec<_>>(),
            "auto": self.auto,
            "all": self.every,
        })
    }

    /// Which back ends are not to be had, a sentence for each.
    pub fn missing(&self) -> Vec<String> {
        let the = if self.sm.is_none() { "the " } else { "" };
        let missing = self.all.iter().filter_map(|back_end| {
            let why = back_end.told.as_ref().err()?;
            Some(format!(
                "`--backend {}` is not to be had on {the}{}: {why}",
                back_end.name, self.device
            ))
        });
        missing.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::backend::ptxas::Folder;
    use crate::backend::ptxas::tests::{patient, script};

    fn gpu(name: &str, capability: (u32, u32)) -> DeviceInfo {
        DeviceInfo {
            name: name.into(),
            capability,
            sms: 132,
            driver_version: 13_000,
        }
    }

    fn means(ptxas: &Path, library: Result<Release, &str>) -> Means {
        Means {
            ptxas: Ok((patient(ptxas), "13.0.88".to_owned())),
            library: match library {
                Ok(release) => Ok(("lib.so".into(), release)),
                Err(why) => Err(why.to_owned()),
            },
        }
    }

    const FITS: &str = "those without, too, at `entry`, `exit`, `mem`, `barrier`, `func` and `funcret`, not by `attach`; nothing that uses CUPTI (torch.profiler, nsys) works in the application meanwhile; the library (lib.so) is ";

    #[test]
    fn what_a_gpu_can_have_and_what_not() {
        let folder = Folder::new().unwrap();
        // It takes what it is asked for, and for the right GPU.
        let takes = script(
            &folder,
            "[ $1 = --compile-as-tools-patch ] && grep -q \"target $3\" $6 && cp $6 $5",
        );
        let told = |means: &Means, capability| {
            let ends = Kind::Gpu(gpu("H200", capability), 1).back_ends(means);
            let [ptx, splice, sanitizer] = ends.all.map(|end| end.told);
            assert_eq!(ptx, Ok("kernels that have PTX, at every place".to_owned()));
            (splice, sanitizer, ends.every)
        };
        let spliced = Ok(format!(
            "those without, too, at `entry` and `exit`, but for NVIDIA's own libraries; `ptxas` 13.0.88 ({})",
            takes.display()
        ));
        let both = "kernels without PTX by `splice`, by `sanitizer` where a program is at `mem`, `barrier`, `func` or `funcret`, but `splice` alone with `attach`".to_owned();
        for (capability, release, fits) in [
            (
                (9, 0),
                Release::Exactly(13, 0),
                "of CUDA 13.0, as the driver is",
            ),
            (
                (8, 0),
                Release::Exactly(12, 8),
                "of CUDA 12.8, and the driver is for CUDA 13.0: whether they fit shows in an application",
            ),
            (
                (9, 0),
                Release::Later,
                "of CUDA 12.2 or newer: whether it fits the driver, which is for CUDA 13.0, shows in an application",
            ),
            (
                (9, 0),
                Release::Earlier,
                "of CUDA 12.1 or older, which does not tell of barriers of clusters: whether it fits the driver, which is for CUDA 13.0, shows in an application",
            ),
        ] {
            let expected = (spliced.clone(), Ok(format!("{FITS}{fits}")), both.clone());
            assert_eq!(told(&means(&takes, Ok(release)), capability), expected);
        }
        let no_library = Err("it is not there".to_owned());
        assert_eq!(
            told(&means(&takes, Err("it is not there")), (9, 0)),
            (
                spliced,
                no_library,
                "kernels without PTX by `splice`".to_owned()
            )
        );
        let unknown: Result<String, String> =
            Err("machine code for `sm_89` is not known here; `sm_80` and `sm_90` are".to_owned());
        assert_eq!(
            told(&means(&takes, Ok(Release::Later)), (8, 9)),
            (unknown.clone(), unknown, "as `ptx`".to_owned())
        );
        let nothing = Means {
            ptxas: Err("no `ptxas`".to_owned()),
            library: Ok(("lib.so".into(), Release::Later)),
        };
        let why: Result<String, String> = Err("no `ptxas`".to_owned());
        assert_eq!(
            told(&nothing, (9, 0)),
            (why.clone(), why, "as `ptx`".to_owned())
        );
        // One that is older than the GPU.
        let refuses = script(&folder, "echo 'sm_90 is not defined' >&2; exit 1");
        let why: Result<String, String> =
            Err("`ptxas` refuses the function: sm_90 is not defined".to_owned());
        assert_eq!(
            told(&means(&refuses, Ok(Release::Later)), (9, 0)),
            (why.clone(), why, "as `ptx`".to_owned())
        );
    }

    #[test]
    fn text_and_json_say_the_same() {
        let nothing = Means {
            ptxas: Err("no `ptxas`".to_owned()),
            library: Err("no library".to_owned()),
        };
        let all = [gpu("H200", (9, 0)), gpu("L4", (8, 9)), gpu("H200", (9, 0))];
        let kinds = Kind::of(&all);
        assert_eq!(
            kinds,
            [
                Kind::Gpu(gpu("H200", (9, 0)), 2),
                Kind::Gpu(gpu("L4", (8, 9)), 1)
            ]
        );
        let ends = kinds[0].back_ends(&nothing);
        assert_eq!(
            ends.text(),
            "back ends, 2 × H200, sm_90:\n  ✓ ptx        kernels that have PTX, at every place\n  ✗ splice     no `ptxas`\n  ✗ sanitizer  no `ptxas`\n    auto       as `ptx`\n    all        as `ptx`\n"
        );
        assert_eq!(
            ends.json(),
            json!({
                "device": "H200", "sm": 90, "count": 2, "soft": false,
                "backends": [
                    { "backend": "ptx", "ok": true, "told": "kernels that have PTX, at every place" },
                    { "backend": "splice", "ok": false, "told": "no `ptxas`" },
                    { "backend": "sanitizer", "ok": false, "told": "no `ptxas`" },
                ],
                "auto": "as `ptx`",
                "all": "as `ptx`",
            })
        );
        assert_eq!(
            ends.missing(),
            [
                "`--backend splice` is not to be had on H200: no `ptxas`",
                "`--backend sanitizer` is not to be had on H200: no `ptxas`"
            ]
        );
        assert_eq!(
            Kind::Soft.back_ends(&nothing).text(),
            "back ends, soft GPU:\n  ✓ ptx        kernels that have PTX, at every place\n  ✗ splice     the soft GPU runs PTX only\n  ✗ sanitizer  the soft GPU runs PTX only\n    auto       as `ptx`\n    all        as `ptx`\n"
        );
    }
}
