//! The host's side: memory, modules, launches, and what they refuse.

use crate::common::{Params, Rig, config, header};
use warpbpf_softgpu::{Config, Gpu, Launch, LaunchError, LoadError, MemError};

#[test]
fn initialisers() {
    let text = header(
        ".global .align 4 .u32 table[2][3] = {{1, 2}, {0x10, -1, 3}};
         .global .align 8 .u64 to = table+4; .const .align 8 .u64 wide = generic(table)+8;
         .global .f32 f[3] = {1.5, 0f40000000, -2.0}; .global .f64 d = 0d3FF8000000000000;
         .global .align 1 .b8 text[] = {72, 105, 0}; .global .align 8 .b8 bytes[8] = {0xff(table), 0xff00(table), 0xff0000(table)};
         .global .align 4 .b32 none[2]; .visible .entry k() { ret; }",
    );
    let rig = Rig::new(&text);
    let at = |name| rig.module.global(name).expect("the variable");
    let (table, size) = at("table");
    assert_eq!(
        (size, rig.read_u32(table, 6)),
        (24, vec![1, 2, 0, 16, u32::MAX, 3])
    );
    assert_eq!(rig.read_u64(at("to").0, 1), [table + 4]);
    assert_eq!(rig.read_u64(at("wide").0, 1), [table + 8]);
    assert_eq!(rig.read_f32(at("f").0, 3), [1.5, 2.0, -2.0]);
    assert_eq!(rig.read_f64(at("d").0, 1), [1.5]);
    assert_eq!(at("text").1, 3);
    assert_eq!(rig.read_u64(at("bytes").0, 1)[0], table & 0xff_ffff);
    assert_eq!(rig.read_u32(at("none").0, 2), [0, 0]);
    assert_eq!(rig.module.global("k"), None);
}

#[test]
fn managed_variables_are_at_one_address_for_host_and_device() {
    let text = header(
        ".global .attribute(.managed) .align 4 .u32 total = 5; .global .align 4 .u32 plain = 5;
         .visible .entry k() { .reg .b32 r<2>; mov.u32 r0, %tid.x; red.global.add.u32 [total], r0; ret; }",
    );
    let mut rig = Rig::new(&text);
    let (address, size) = rig.module.managed("total").expect("the variable");
    assert_eq!(size, 4);
    assert_eq!(rig.module.global("total"), Some((address, size)));
    for other in ["plain", "k", "nothing"] {
        assert_eq!(rig.module.managed(other), None, "{other}");
    }
    let host = address as *mut u32;
    // SAFETY: it is there while the module is, and no kernel runs.
    unsafe {
        assert_eq!(host.read(), 5);
        host.write(100);
    }
    rig.run("k", 1, 32, &Params::default());
    // SAFETY: as above.
    assert_eq!(unsafe { host.read() }, 596);
    assert_eq!(rig.read_u32(address, 1), [596]);
    let Rig { gpu, module, .. } = rig;
    drop(module);
    assert_eq!(gpu.range_of(address), None);
}

#[test]
fn host_memory_is_mapped_at_its_own_address() {
    let text = header(
        ".visible .entry k(.param .u64 p) { .reg .b32 r<2>; .reg .b64 d; ld.param.u64 d, [p]; mov.u32 r0, %tid.x;
            red.global.add.u32 [d], r0; ret; }",
    );
    let mut rig = Rig::new(&text);
    let host = Box::into_raw(Box::new(5u32));
    // SAFETY: the box outlives the mapping and the launch.
    let address = unsafe { rig.gpu.map_host(host.cast(), 4) };
    assert_eq!(address, host as u64);
    assert_eq!(rig.gpu.range_of(address + 3), Some((address, 4)));
    rig.run("k", 1, 32, &Params::default().u64(address));
    assert_eq!(rig.gpu.unmap_host(address), Ok(()));
    // SAFETY: made by `Box::into_raw` above, used no more.
    assert_eq!(*unsafe { Box::from_raw(host) }, 501);
    assert_eq!(
        rig.gpu.unmap_host(address),
        Err(MemError::NotAllocated { address })
    );
    assert!(
        rig.trap("k", 1, 32, &Params::default().u64(address))
            .message
            .contains("is out of bounds")
    );
}

#[test]
fn allocation() {
    let gpu = Gpu::new(Config {
        memory: 4096,
        ..config()
    });
    let a = gpu.alloc(100).expect("a");
    let b = gpu.alloc(1000).expect("b");
    assert_eq!(
        (
            a % 256,
            b % 256,
            gpu.range_of(a + 99),
            gpu.range_of(a + 100)
        ),
        (0, 0, Some((a, 100)), None)
    );
    assert_eq!(gpu.alloc(4096), None);
    gpu.fill(b, 0xab, 1000).expect("filled");
    let mut tail = [0; 3];
    gpu.read(b + 997, &mut tail).expect("read");
    assert_eq!(tail, [0xab; 3]);
    let error = gpu.write(b + 998, &[0; 3]).expect_err("past the end");
    let said = format!(
        "device range `{:#x}`+`3` is not inside a live allocation (it starts inside the 1000-byte allocation at {b:#x})",
        b + 998
    );
    assert_eq!(error.to_string(), said);
    assert_eq!(
        gpu.free(a + 1),
        Err(MemError::NotAllocated { address: a + 1 })
    );
    gpu.free(a).expect("freed");
    gpu.free(b).expect("freed");
    assert_eq!(gpu.memory_info(), (4096, 0));
    assert_eq!(gpu.alloc(3800), Some(a), "neighbours are joined");
}

#[test]
fn modules_that_cannot_be_loaded() {
    let gpu = Gpu::new(config());
    let fail = |body: &str| gpu.load(&header(body)).err().expect("an error").to_string();
    assert_eq!(
        fail(".extern .global .u32 x[];"),
        "variable `x` (line 4) is `.extern` and the module does not define it"
    );
    assert_eq!(
        fail(".global .u64 x = nothing;"),
        "variable `x` (line 4): initialiser refers to `nothing`, which has no address in this module"
    );
    assert_eq!(
        fail(".global .align 1 .b8 x[4294967296];"),
        "variable `x` needs `4294967296` bytes of device memory, which are not there"
    );
    for (text, name) in [
        (".func f(.param .b32 a,\n.param .b32 a) { ret; }", "f"),
        (".func (.param .b32 a) g(\n.param .b32 a) { ret; }", "g"),
        (
            ".visible .entry k(.param .b32 a,\n.param .b32 a) { ret; }",
            "k",
        ),
    ] {
        assert_eq!(
            fail(text),
            format!("function `{name}`, PTX line 5: two of its parameters are called `a`")
        );
    }
    let prototype = ".extern .func f(.param .b32 a, .param .b32 a);\n.func g(.param .b32 a) { ret; }\n.func h(.param .b32 a) { ret; }";
    assert!(gpu.load(&header(prototype)).is_ok());
    let narrow = gpu
        .load(".version 8.3\n.target sm_90\n.address_size 32\n")
        .err();
    assert_eq!(narrow, Some(LoadError::AddressSize { bits: 32 }));
    assert!(matches!(gpu.load("not PTX").err(), Some(LoadError::Ptx(_))));
    let module = gpu
        .load(&header(
            ".visible .entry k() { .reg .b32 r; \n mov.u32 r, %tid.x;\n bra NOWHERE; }",
        ))
        .expect("loads");
    let error = module
        .kernel_info("k")
        .expect("there")
        .expect_err("does not decode");
    assert_eq!(
        error.to_string(),
        "function `k`, PTX line 6: label `NOWHERE` is not declared"
    );
    let module = gpu
        .load(&header(
            ".visible .entry k() { .reg .b32 r;\n add.u32 r, r, what; }",
        ))
        .expect("loads");
    let error = module
        .kernel_info("k")
        .expect("there")
        .expect_err("does not decode");
    assert_eq!(
        error.to_string(),
        "function `k`, PTX line 5: `add.u32`: `what` is not declared"
    );
    assert_eq!(module.decode_all(), Err(error));
    assert_eq!(
        gpu.load(&header(".visible .entry k() { ret; }"))
            .expect("loads")
            .decode_all(),
        Ok(())
    );
}

#[test]
fn launches_that_cannot_start() {
    let text = header(".visible .entry k(.param .u64 p) .maxntid 64, 1, 1 { L: bra L; }");
    let rig = Rig::with(
        Config {
            step_limit: Some(1000),
            ..config()
        },
        &text,
    );
    let kernel = rig.module.kernel("k").expect("k");
    let launch = |grid, block, cluster, dynamic_shared, params: &[u8]| {
        let stdout = None;
        let kernel = &kernel;
        let error = rig.gpu.launch(Launch {
            kernel,
            grid,
            block,
            cluster,
            dynamic_shared,
            params,
            grid_id: 0,
            stdout,
        });
        error.expect_err("must fail").to_string()
    };
    let one = [1, 1, 1];
    assert_eq!(
        launch([0, 1, 1], one, one, 0, &[0; 8]),
        "kernel `k` cannot be launched: grid (0,1,1) is outside of (1..2147483647, 1..65535, 1..65535)"
    );
    assert_eq!(
        launch(one, [1, 1, 65], one, 0, &[0; 8]),
        "kernel `k` cannot be launched: block (1,1,65) is outside of (1..1024, 1..1024, 1..64)"
    );
    assert_eq!(
        launch(one, [1024, 2, 1], one, 0, &[0; 8]),
        "kernel `k` cannot be launched: block (1024,2,1) has 2048 threads, the device allows 1024"
    );
    assert_eq!(
        launch(one, [65, 1, 1], one, 0, &[0; 8]),
        "kernel `k` cannot be launched: block (65,1,1) has 65 threads, the kernel's `.maxntid` allows 64"
    );
    assert_eq!(
        launch([3, 1, 1], one, [2, 1, 1], 0, &[0; 8]),
        "kernel `k` cannot be launched: cluster (2,1,1) must divide grid (3,1,1) and have at most 16 blocks"
    );
    assert_eq!(
        launch(one, one, one, 300_000, &[0; 8]),
        "kernel `k` needs `300000` bytes of shared memory per block, the device has `232448`"
    );
    assert_eq!(
        launch(one, one, one, 0, &[0; 4]),
        "kernel `k` takes `8` bytes of parameters, `4` were given"
    );
    assert_eq!(
        launch(one, one, one, 0, &[0; 8]),
        "kernel `k` ran for more than `1000` warp instructions on one host thread and was given up"
    );
    let other = Gpu::new(config());
    let error = other.launch(Launch {
        kernel: &kernel,
        grid: one,
        block: one,
        cluster: one,
        dynamic_shared: 0,
        params: &[0; 8],
        grid_id: 0,
        stdout: None,
    });
    assert_eq!(
        error,
        Err(LaunchError::OtherDevice {
            kernel: "k".to_owned()
        })
    );
    assert_eq!(rig.gpu.blocks_per_sm(&kernel, 64, 0), Ok(32));
    assert_eq!(rig.gpu.blocks_per_sm(&kernel, 1024, 0), Ok(2));
    assert_eq!(rig.gpu.blocks_per_sm(&kernel, 64, 100 << 10), Ok(2));
    // A warp takes 256 registers at least, so there are five warps at once.
    let few = Gpu::new(Config {
        registers: Some(5 * 256),
        ..config()
    });
    let fit = |threads| few.blocks_per_sm(&kernel, threads, 0);
    assert_eq!([32, 64, 160, 161].map(fit), [Ok(5), Ok(2), Ok(1), Ok(0)]);
}

#[test]
fn what_fits_depends_on_the_registers_that_a_kernel_needs() {
    let add = |n: u32| format!("add.u32 r0, r0, r{n};\n");
    let text = (1..40)
        .map(|n| format!("mov.u32 r{n}, {n};\n"))
        .collect::<String>();
    let sums = (1..40).map(add).collect::<String>();
    let text = header(&format!(
        ".visible .entry few() {{ ret; }}
         .visible .entry many() {{ .reg .b32 r<40>; mov.u32 r0, 0; {text} {sums} ret; }}"
    ));
    let bounded = Config {
        registers: Some(64 << 10),
        ..config()
    };
    let rig = Rig::with(bounded, &text);
    let fit = |name| {
        let kernel = rig.module.kernel(name).expect("a kernel");
        let registers = kernel.info().expect("its body").registers;
        (registers, rig.gpu.blocks_per_sm(&kernel, 128, 0))
    };
    let (registers, blocks) = fit("many");
    assert!((40..64).contains(&registers), "{registers}");
    let of_warp = (registers * 32).next_multiple_of(256);
    assert_eq!(blocks, Ok((64 << 10) / of_warp / 4));
    assert_eq!(fit("few").1, Ok(16));
}

#[test]
fn host_and_device_talk_while_a_kernel_runs() {
    let text = header(
        ".global .u32 go; .global .u32 ready;
         .visible .entry k() { .reg .pred p; .reg .b32 r<4>;
            red.release.gpu.global.add.u32 [ready], 1;
            W: ld.acquire.sys.global.u32 r0, [go]; setp.ne.u32 p, r0, 5; @p nanosleep.u32 100; @p bra W;
            red.global.add.u32 [ready], 100; ret; }",
    );
    let rig = Rig::with(
        Config {
            step_limit: None,
            ..config()
        },
        &text,
    );
    let kernel = rig.module.kernel("k").expect("k");
    let (go, ready) = (
        rig.module.global("go").expect("go").0,
        rig.module.global("ready").expect("ready").0,
    );
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            rig.gpu.launch(Launch {
                kernel: &kernel,
                grid: [4, 1, 1],
                block: [32, 1, 1],
                cluster: [1, 1, 1],
                dynamic_shared: 0,
                params: &[],
                grid_id: 0,
                stdout: None,
            })
        });
        while rig.read_u32(ready, 1) != [128] {
            std::thread::yield_now();
        }
        // Allocations that come and go must not disturb it.
        let other = rig.gpu.alloc(64).expect("memory");
        rig.gpu.free(other).expect("freed");
        rig.gpu.write(go, &5u32.to_le_bytes()).expect("written");
        assert!(matches!(
            running.join().expect("no panic"),
            Ok(warpbpf_softgpu::Outcome::Done { .. })
        ));
    });
    assert_eq!(rig.read_u32(ready, 1), [12_928]);
}

#[test]
fn a_module_gives_its_memory_back() {
    let gpu = Gpu::new(config());
    let module = gpu
        .load(&header(
            ".global .b8 big[1000];\n.visible .entry k() { ret; }",
        ))
        .expect("loads");
    let kernel = module.kernel("k").expect("k");
    assert_eq!(gpu.memory_info().1, 1280);
    drop(module);
    assert_eq!(gpu.memory_info().1, 1280, "a kernel keeps it");
    drop(kernel);
    assert_eq!(gpu.memory_info().1, 0);
}

/// A module's text: functions that call each other, and kernels that call the first of them.
fn many(functions: usize, kernels: usize) -> String {
    let mut text = String::new();
    for n in 0..functions {
        text += &format!(".func f{n}();\n");
    }
    for n in 0..functions {
        let next = match n + 1 < functions {
            true => format!("call f{};", n + 1),
            false => String::new(),
        };
        text += &format!(
            ".func f{n}() {{ .reg .b32 r; .shared .b32 own; mov.b32 r, {n}; st.shared.u32 [own], r; {next} ret; }}\n"
        );
    }
    for n in 0..kernels {
        let call = if functions > 0 { "call f0;" } else { "" };
        text += &format!(".visible .entry k{n}() {{ .reg .b32 r; mov.b32 r, {n}; {call} ret; }}\n");
    }
    header(&text)
}

#[test]
fn what_modules_take_is_in_proportion_to_their_text() {
    // Time is not measured; that it ends is: with work for each pair, these would take minutes and
    // gigabytes.
    let gpu = Gpu::new(config());
    let ask = |module: &warpbpf_softgpu::Module, kernels: usize| {
        module.decode_all().expect("decodes");
        let infos = (0..kernels).map(|n| {
            let info = module.kernel_info(&format!("k{n}")).expect("there");
            info.expect("decodes")
        });
        infos.map(|info| info.static_shared).sum::<u32>()
    };
    let module = gpu.load(&many(0, 20_000)).expect("loads");
    assert_eq!(ask(&module, 20_000), 0);
    let module = gpu.load(&many(5_000, 1)).expect("loads");
    assert_eq!(ask(&module, 1), 20_000);
    let module = gpu.load(&many(1_000, 1_000)).expect("loads");
    assert_eq!(ask(&module, 1_000), 4_000_000);
    let kernel = module.kernel("k999").expect("there");
    assert_eq!(kernel.unsupported(), Ok(Vec::new()));
}
