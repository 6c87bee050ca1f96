//! What clang makes of the loops that something counts, from C.

use std::process::Command;

use warpbpf_abi::attach::Site;
use warpbpf_verify::{Platform, verify};

/// The declarations of the programs below: map macros, the iterator's functions, and loops in terms
/// of them.
const HEADER: &str = r#"
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
#define SEC(name) __attribute__((section(name), used))
#define hidden __attribute__((always_inline)) static inline
#define uint(name, value) int (*name)[value]
#define type(name, value) typeof(value) *name

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_for_each_map_elem)(void *map, void *callback, void *ctx, u64 flags) = (void *)164;
static long (*bpf_loop)(u32 count, void *callback, void *ctx, u64 flags) = (void *)181;

struct bpf_iter_num { u64 opaque[1]; };
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) SEC(".ksyms");
extern int *bpf_iter_num_next(struct bpf_iter_num *it) SEC(".ksyms");
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) SEC(".ksyms");

hidden struct bpf_iter_num *begin(struct bpf_iter_num *it, int start, int end) {
    bpf_iter_num_new(it, start, end);
    return it;
}
hidden _Bool next(struct bpf_iter_num *it, int *i, int start, int end) {
    int *at = bpf_iter_num_next(it);
    return at && (*i = *at, *i >= start && *i < end);
}
#define counted(i, start, end)                                                                      \
    for (struct bpf_iter_num it __attribute__((aligned(8), cleanup(bpf_iter_num_destroy))),         \
             *begun = begin(&it, start, end);                                                       \
         begun && next(&it, &i, start, end);)

#define can_go_on()                                                                                 \
    ({                                                                                              \
        __label__ over, on;                                                                         \
        _Bool yes = 1;                                                                              \
        asm volatile goto("may_goto %l[over]" :::: over);                                           \
        goto on;                                                                                    \
    over:                                                                                           \
        yes = 0;                                                                                    \
    on:;                                                                                            \
        yes;                                                                                        \
    })

struct {
    uint(type, 2);
    uint(max_entries, 4);
    type(key, u32);
    type(value, u64[16]);
} table SEC(".maps");

u64 array[100];
volatile u32 length = 5;

hidden u64 *values(u32 key) {
    return bpf_map_lookup_elem(&table, &key);
}
"#;

/// Compiles `body` and proves its only program: cost and `may_goto` rounds.
fn proved(name: &str, body: &str, budget: u64) -> Result<(u64, u32), String> {
    let folder = std::env::temp_dir();
    let source = folder.join(format!("warpbpf-{}-{name}.bpf.c", std::process::id()));
    let object = source.with_extension("o");
    std::fs::write(&source, format!("{HEADER}{body}")).expect("the folder can be written");
    let out = Command::new(crate::corpus::clang())
        .args(["-g", "-O2", "-target", "bpf", "-mcpu=v4", "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .expect("clang starts");
    assert!(
        out.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let bytes = std::fs::read(&object).expect("what clang wrote");
    for file in [&source, &object] {
        std::fs::remove_file(file).expect("our own file");
    }
    let loaded = warpbpf_object::load(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
    let program = loaded.programs.first().expect("a program");
    let platform = Platform::new(Site::Entry).with_budget(budget);
    match verify(program, &loaded.maps, &platform) {
        Ok(verified) => {
            let facts = verified.facts();
            Ok((facts.cost, facts.may_goto_rounds))
        }
        Err(rejection) => Err(rejection.render()),
    }
}

fn accept(name: &str, body: &str, budget: u64) -> (u64, u32) {
    proved(name, body, budget).unwrap_or_else(|text| panic!("{name}: {text}"))
}

#[test]
fn counted_loops_of_c() {
    let (cost, rounds) = accept(
        "numbers",
        r#"SEC("gpu/entry") int p(void *ctx) {
            u64 sum = 0;
            int i;
            counted(i, 0, 100) { array[i] += 1; sum += i; }
            counted(i, 5, 10) sum += array[i];
            return sum;
        }"#,
        1 << 16,
    );
    assert!(
        (1000..6000).contains(&cost) && rounds == 0,
        "{cost} {rounds}"
    );
    accept(
        "nested",
        r#"SEC("gpu/entry") int p(void *ctx) {
            int i, j;
            u32 n = length;
            if (n > 20) return 0;
            counted(i, 0, n) counted(j, i, n) array[j * 2] += i;
            return 0;
        }"#,
        1 << 20,
    );
    let refused = proved(
        "beyond",
        r#"SEC("gpu/entry") int p(void *ctx) {
            int i;
            counted(i, 0, 101) array[i] += 1;
            return 0;
        }"#,
        1 << 20,
    );
    assert!(
        refused.is_err_and(|text| text.contains("out-of-bounds")),
        "one beyond the array"
    );
}

#[test]
fn callbacks_of_c() {
    accept(
        "loop",
        r#"struct state { u64 sum; u32 seen; };
        static long add(u64 i, struct state *s) {
            s->sum += array[i < 100 ? i : 0];
            if (s->seen >= 50) return 1;
            s->seen++;
            return 0;
        }
        SEC("gpu/entry") int p(void *ctx) {
            struct state s = {};
            bpf_loop(1000, add, &s, 0);
            u64 *v = values(2);
            if (v) v[s.seen & 15] = s.sum;
            return 0;
        }"#,
        1 << 20,
    );
    accept(
        "elements",
        r#"struct best { u64 value; u32 key; };
        static long pick(void *map, u32 *key, u64 *value, struct best *b) {
            if (value[0] > b->value) { b->value = value[0]; b->key = *key; }
            return 0;
        }
        SEC("gpu/entry") int p(void *ctx) {
            struct best b = {};
            bpf_for_each_map_elem(&table, pick, &b, 0);
            array[b.key % 100] = b.value;
            return 0;
        }"#,
        4096,
    );
    accept(
        "inner",
        r#"static long inner(u64 i, u64 *sum) { *sum += i; return 0; }
        static long outer(u64 i, u64 *sum) { bpf_loop(4, inner, sum, 0); return *sum > 100; }
        SEC("gpu/entry") int p(void *ctx) {
            u64 sum = 0;
            bpf_loop(8, outer, &sum, 0);
            array[0] = sum;
            return 0;
        }"#,
        4096,
    );
}

#[test]
fn loops_of_c_that_may_be_cut_short() {
    let (_, rounds) = accept(
        "bounded",
        r#"SEC("gpu/entry") int p(void *ctx) {
            for (u32 i = 0; i < 100 && can_go_on(); i++) array[i] = i;
            return 0;
        }"#,
        4096,
    );
    assert!(rounds >= 100, "{rounds}");
    let (cost, rounds) = accept(
        "search",
        r#"SEC("gpu/entry") int p(void *ctx) {
            u64 at = array[0];
            u32 n = 0;
            while (can_go_on()) {
                if (at >= 100) break;
                at = array[at];
                n++;
            }
            array[1] = n;
            return 0;
        }"#,
        4096,
    );
    assert!(cost <= 4096 && rounds > 100, "{cost} {rounds}");
    // A bound that the program does not know.
    let (_, rounds) = accept(
        "strided",
        r#"SEC("gpu/entry") int p(void *ctx) {
            u32 n = length;
            for (u32 i = 0; i < n && can_go_on(); i += 3) array[i & 63] += i;
            return 0;
        }"#,
        1 << 20,
    );
    assert!(rounds > 10_000, "{rounds}");
}
