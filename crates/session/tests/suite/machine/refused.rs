//! A link that a back end cannot serve is told with the reason, per kernel: what is said of each
//! kind of refusal under `ptx`, `splice`, `sanitizer` and `auto`.

use super::*;

/// As `--backend` has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backend {
    Ptx,
    Splice,
    Sanitizer,
    Auto,
}

/// What else a run says.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    gate: bool,
    splice_variables: bool,
    /// `ptxas` makes nothing.
    nothing_made: bool,
}

/// The method of one kernel of an image under a back end, as the tool and the agent come to it.
fn told(
    object: &[u8],
    backend: Backend,
    request: Request,
    image: &ImageInfo,
    kernel: &str,
) -> String {
    let arch = Arch::Sm90;
    let device = device(arch);
    let means = |assembled| Means {
        sanitizer: matches!(backend, Backend::Sanitizer | Backend::Auto).then(sanitizer),
        ..by_functions(assembled)
    };
    let options = Options {
        splice_first: backend == Backend::Auto,
        gate: request.gate,
        splice_variables: request.splice_variables,
        ..Options::default()
    };
    let session = |assembled| Session::with(object, &options, means(assembled), &device).unwrap();
    let plan = session(None);
    let mut texts = Vec::new();
    if matches!(backend, Backend::Splice | Backend::Auto) {
        texts.extend(plan.probe_texts(arch));
    }
    if matches!(backend, Backend::Sanitizer | Backend::Auto) {
        texts.extend(plan.patch_texts(arch.number()));
    }
    let mut all = Assembled::default();
    for text in texts {
        let cubin = match request.nothing_made {
            true => Err("`ptxas` is not there".to_owned()),
            false => ptxas(&text, arch, &["--compile-as-tools-patch"]),
        };
        all.add(text, cubin);
    }
    let assembled = (backend != Backend::Ptx).then_some(all);
    method(&session(assembled).prepare(image), kernel)
}

const WITHOUT: &str = "refused: the image is a cubin: machine code without PTX";
const OWN: &str = "it reads `__constant__` variables, and would have its own ones in the copy that is loaded beside it";

/// What each back end says; `ptx` says the same of all kernels without PTX.
fn all(
    object: &[u8],
    request: Request,
    image: &ImageInfo,
    kernel: &str,
    expected: [Result<&str, &str>; 3],
) {
    let of = |backend| told(object, backend, request, image, kernel);
    assert_eq!(of(Backend::Ptx), WITHOUT);
    let whole = |told: Result<&str, &str>| match told {
        Ok(method) => method.to_owned(),
        Err(why) => format!("{WITHOUT}; {why}"),
    };
    let backends = [Backend::Splice, Backend::Sanitizer, Backend::Auto];
    assert_eq!(backends.map(of), expected.map(whole));
}

fn kernels(text: &str, sm: u32) -> ImageInfo {
    let text = format!(".version 8.0\n.target sm_{sm}\n.address_size 64\n{text}");
    // What nobody defines is for a linker.
    let options: &[&str] = if text.contains(".extern") {
        &["-c"]
    } else {
        &[]
    };
    let cubin = ptxas_for(&text, sm, options).unwrap();
    let capability = (sm / 10, sm % 10);
    ImageInfo {
        machine_code: machine_code(&cubin, capability),
        ..inspect(&cubin, capability).unwrap()
    }
}

#[test]
fn what_is_the_kernels_own_is_told_by_each_back_end() {
    let entry = programs(&[("gpu/entry/*", 0)]);
    let here = image(Arch::Sm90);
    let none = Request::default();
    let same = |why: &'static str| [Err(why); 3];
    all(&entry, none, &here, "constant", same(OWN));
    let theirs = ImageInfo {
        untouchable: Some("it was loaded before".to_owned()),
        ..here.clone()
    };
    all(&entry, none, &theirs, "plain", same("it was loaded before"));
    let nothing = ImageInfo {
        machine_code: None,
        ..here.clone()
    };
    all(
        &entry,
        none,
        &nothing,
        "plain",
        same("its machine code is not there"),
    );
    // A library of NVIDIA's, of whose code only tables are read: they do not say which kernel has
    // the constant.
    let nvidia = ImageInfo {
        unread: Some("it is part of a library of NVIDIA's".to_owned()),
        ..here.clone()
    };
    let both = format!("by `splice`: it is part of a library of NVIDIA's; by `sanitizer`: {OWN}");
    all(
        &entry,
        none,
        &nvidia,
        "plain",
        [
            Err("it is part of a library of NVIDIA's"),
            Err(OWN),
            Err(&both),
        ],
    );
    // An architecture whose code is not known.
    let other = kernels(".visible .entry plain()\n{\n\tret;\n}\n", 89);
    let unknown = "machine code for `sm_89` is not known here; `sm_80` and `sm_90` are";
    all(&entry, none, &other, "plain", same(unknown));
    // Variables of its module, which the splice can be told to share.
    let variables = kernels(VARIABLES, 90);
    let uses = "it uses variables of its module, or functions by their address, and would have its own ones in the copy that is loaded beside it";
    all(&entry, none, &variables, "counts", same(uses));
    let shares = Request {
        splice_variables: true,
        ..none
    };
    all(
        &entry,
        shares,
        &variables,
        "counts",
        [Ok("splice"), Err(uses), Ok("splice")],
    );
    // Kernels that the device launches: by one kernel of the file, and the other one is in the
    // same.
    let parent = kernels(
        ".extern .func (.param .b32 r) cudaLaunchDeviceV2 (.param .b64 a, .param .b64 b);\n.visible .entry alone()\n{\n\tret;\n}\n.visible .entry parent()\n{\n\t{\n\t.param .b64 a;\n\t.param .b64 b;\n\t.param .b32 r;\n\tst.param.b64 [a], 0;\n\tst.param.b64 [b], 0;\n\tcall (r), cudaLaunchDeviceV2, (a, b);\n\t}\n\tret;\n}\n",
        90,
    );
    let launches = "its file uses `cudaLaunchDeviceV2`: kernels and graphs that the device launches would give our functions a wrong argument";
    let linked = "its code has relocations, and would have its own ones in the copy that is loaded beside it";
    let both = format!("by `splice`: {linked}; by `sanitizer`: {launches}");
    for (kernel, expected) in [
        ("alone", [Ok("splice"), Err(launches), Ok("splice")]),
        ("parent", [Err(linked), Err(launches), Err(both.as_str())]),
    ] {
        all(&entry, none, &parent, kernel, expected);
    }
    // An instruction that nobody can wait for at an exit.
    let prefetches = kernels(
        ".visible .entry fetches(.param .u64 p)\n{\n\t.reg .b64 %rd<2>;\n\tld.param.u64 %rd1, [p];\n\tprefetch.global.L2 [%rd1];\n\tret;\n}\n",
        90,
    );
    let exit = programs(&[("gpu/exit/*", 0)]);
    let spliced = told(&exit, Backend::Splice, none, &prefetches, "fetches");
    let (start, end) = (
        format!("{WITHOUT}; nothing tells when the instruction at `0x"),
        "` (opcode `0x98f`) is done with its registers",
    );
    assert!(
        spliced.starts_with(&start) && spliced.ends_with(end),
        "{spliced}"
    );
    for backend in [Backend::Sanitizer, Backend::Auto] {
        assert_eq!(
            told(&exit, backend, none, &prefetches, "fetches"),
            "sanitizer"
        );
    }
    all(
        &entry,
        none,
        &prefetches,
        "fetches",
        [Ok("splice"), Ok("sanitizer"), Ok("splice")],
    );
}

#[test]
fn what_a_program_wants_is_told_by_each_back_end() {
    let here = image(Arch::Sm90);
    let none = Request::default();
    let entry = programs(&[("gpu/entry/*", 0)]);
    all(
        &entry,
        none,
        &here,
        "plain",
        [Ok("splice"), Ok("sanitizer"), Ok("splice")],
    );
    let gated = "programs behind a gate (`--gate`, `--slots`) are put into PTX only";
    let gate = Request { gate: true, ..none };
    all(&entry, gate, &here, "plain", [Err(gated); 3]);
    let unmade = Request {
        nothing_made: true,
        ..none
    };
    all(
        &entry,
        unmade,
        &here,
        "plain",
        [Err("`ptxas` is not there"); 3],
    );
    // Places that one of the two knows, or neither.
    let found = |kind: &str| {
        format!("program `p0` is at places of kind `{kind}`, which are found in PTX only")
    };
    for (kind, section) in [
        ("mem", "gpu/mem/*|space=global"),
        ("barrier", "gpu/barrier/*"),
        ("func", "gpu/func/*"),
        ("funcret", "gpu/funcret/*"),
    ] {
        let object = programs(&[(section, 0)]);
        let splice = found(kind);
        let expected = [Err(splice.as_str()), Ok("sanitizer"), Ok("sanitizer")];
        all(&object, none, &here, "plain", expected);
    }
    for (kind, section) in [
        ("branch", "gpu/branch/*"),
        ("insn", "gpu/insn/*|op=ld.*"),
        ("line", "gpu/line/*|at=a.cu:1"),
    ] {
        let object = programs(&[(section, 0)]);
        let splice = found(kind);
        let sanitizer = format!(
            "program `p0` is at places of kind `{kind}`, which Compute Sanitizer does not tell of; use `entry`, `exit`, `mem`, `barrier`, `func` or `funcret`"
        );
        let both = format!("by `splice`: {splice}; by `sanitizer`: {sanitizer}");
        all(
            &object,
            none,
            &here,
            "plain",
            [Err(&splice), Err(&sanitizer), Err(&both)],
        );
    }
    // What neither can give: told once.
    let kernel = |section: &str, body: &str| {
        object(&format!(
            "SEC(\"{section}\") int p(struct wbpf_kernel_ctx *ctx) {{ return count(ctx, {body}); }}\n"
        ))
    };
    let args = "`args[0]` is not to be had in a kernel without PTX; do without it";
    let of_args = kernel("gpu/entry/*", "ctx->args[0] & 3");
    all(&of_args, none, &here, "plain", [Err(args); 3]);
    // What differs from launch to launch is told to both.
    for (section, body) in [
        ("gpu/entry/*", "ctx->launch_id & 3"),
        ("gpu/entry/*", "bpf_gpu_graph_node() & 3"),
        ("gpu/exit.warp/*", "0"),
        ("gpu/exit.block/*", "0"),
    ] {
        let told = [Ok("splice"), Ok("sanitizer"), Ok("splice")];
        all(&kernel(section, body), none, &here, "plain", told);
    }
    let named = programs(&[("gpu/entry/*|args=n", 0)]);
    let names = "program `p0`: parameters by name are not to be had in a kernel without PTX";
    all(&named, none, &here, "plain", [Err(names); 3]);
    let differ = programs(&[("gpu/entry/*", 0), ("gpu/entry/*|every=2", 1)]);
    let told = [Ok("splice"), Ok("sanitizer"), Ok("splice")];
    all(&differ, none, &here, "plain", told);
}
