//! Messages as they are sent, and what is read of those that older tools and agents send.

use warpbpf_abi::maps::Placement;

use super::*;

#[test]
fn messages_are_tagged_json() {
    let text = serde_json::to_string(&ToAgent::Snapshot { token: 7 }).unwrap();
    assert_eq!(text, r#"{"type":"snapshot","token":7}"#);
    let text = serde_json::to_string(&ToTool::Note {
        level: NoteLevel::Warning,
        text: "x".into(),
        clients: Vec::new(),
    })
    .unwrap();
    assert_eq!(text, r#"{"type":"note","level":"warning","text":"x"}"#);
    let text = serde_json::to_string(&ToAgent::Forget { client: 3 }).unwrap();
    assert_eq!(text, r#"{"type":"forget","client":3}"#);
    let request = ToAgent::Cache(CacheRequest {
        place: Some("off".into()),
        bytes: None,
    });
    let text = serde_json::to_string(&request).unwrap();
    assert_eq!(text, r#"{"type":"cache","place":"off"}"#);
    assert_eq!(serde_json::from_str::<ToAgent>(&text).unwrap(), request);
    let hello = ToTool::Hello(Hello {
        protocol: PROTOCOL,
        pid: 1,
        exe: "/a".into(),
        argv: vec!["a".into()],
        device: None,
    });
    let text = serde_json::to_string(&hello).unwrap();
    assert_eq!(
        text,
        r#"{"type":"hello","protocol":6,"pid":1,"exe":"/a","argv":["a"],"device":null}"#
    );
    assert_eq!(serde_json::from_str::<ToTool>(&text).unwrap(), hello);
}

#[test]
fn an_agent_of_another_version_is_refused() {
    let hello = |protocol| Hello {
        protocol,
        pid: 77,
        exe: String::new(),
        argv: Vec::new(),
        device: None,
    };
    assert_eq!(hello(PROTOCOL).refusal(), None);
    assert_eq!(
        hello(1).refusal().unwrap(),
        "the agent in process 77 is of another warpbpf: its messages are of version 1, and this tool's of version 6; use the tool that came with it, or start the application anew"
    );
}

#[test]
fn options_of_an_older_tool_have_defaults() {
    let text = r#"{"type":"attach","options":{"allow_modify":true,"budget":null,"threads":64}}"#;
    assert_eq!(
        serde_json::from_str::<ToAgent>(text).unwrap(),
        ToAgent::Attach {
            options: Options {
                allow_modify: true,
                threads: Some(64),
                ..Options::default()
            }
        }
    );
}

#[test]
fn places_are_pairs() {
    let options = Options {
        map_memory: vec![
            ("counts".into(), Placement::Host),
            ("x".into(), Placement::Device),
        ],
        hostcall_timeout_us: Some(5000),
        ..Options::default()
    };
    let text = serde_json::to_string(&options).unwrap();
    let part = r#""map_memory":[["counts","host"],["x","device"]],"hostcall_timeout_us":5000,"#;
    assert!(text.contains(part), "{text}");
    assert_eq!(serde_json::from_str::<Options>(&text).unwrap(), options);
}

#[test]
fn a_kernel_of_an_older_agent_says_nothing_of_occupancy() {
    let text = r#"{"kernel_id":3,"mangled":"k","demangled":"k","source":"s","registers_before":12,"registers_after":40,"method":"slice","instrumented":true,"programs":[0]}"#;
    let kernel: Kernel = serde_json::from_str(text).unwrap();
    assert_eq!((kernel.occupancy, kernel.local_bytes), (None, None));
    assert_eq!((kernel.sites, kernel.shared_bytes), (0, None));
    let kernel = Kernel {
        occupancy: Some(Occupancy {
            block_threads: 256,
            before: 8,
            after: 6,
        }),
        local_bytes: Some((0, 16)),
        ..kernel
    };
    let text = serde_json::to_string(&kernel).unwrap();
    let part = r#""occupancy":{"block_threads":256,"before":8,"after":6},"local_bytes":[0,16]"#;
    assert!(text.contains(part), "{text}");
    assert_eq!(serde_json::from_str::<Kernel>(&text).unwrap(), kernel);
}

#[test]
fn maps_that_come_are_of_a_context() {
    let message = ToTool::Maps(MoreMaps {
        context: 1,
        first: 7,
        device_bytes: 4096,
    });
    let text = serde_json::to_string(&message).unwrap();
    let expected = r#"{"type":"maps","context":1,"first":7,"device_bytes":4096}"#;
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<ToTool>(&text).unwrap(), message);
}

#[test]
fn names_of_sites_follow_their_first_number() {
    let message = ToTool::Sites(Sites {
        first: 3,
        names: vec!["k at a.cu:7 ld.global.f32".into()],
    });
    let text = serde_json::to_string(&message).unwrap();
    let expected = r#"{"type":"sites","first":3,"names":["k at a.cu:7 ld.global.f32"]}"#;
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<ToTool>(&text).unwrap(), message);
}
