//! Matrix instructions against products written out, in layouts written out from the PTX ISA.

mod kernel;

use flashproof_ptx::{Argument, Launch, Memory, Module, Options, Policy, TensorCore, run};
use half::bf16;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SEED: u64 = 0x5eed_0406;

/// Small integers, so that every sum is exact.
fn integers(count: usize, seed: u64) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(-8_i32..=8) as f32).collect()
}

/// `a b^T`, rows of `k`.
fn product(a: &[f32], b: &[f32], k: usize) -> Vec<f32> {
    let dot = |row: &[f32], column: &[f32]| row.iter().zip(column).map(|(x, y)| x * y).sum();
    a.chunks(k).flat_map(|row| b.chunks(k).map(move |column| dot(row, column))).collect()
}

fn execute(
    text: &str,
    threads: u32,
    shared: &[u8],
    registers: &[u32],
    sums: usize,
    options: &Options,
) -> Vec<f32> {
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new();
    let matrix = memory.upload("matrices", shared);
    let bytes: Vec<u8> = registers.iter().flat_map(|word| word.to_le_bytes()).collect();
    let registers = memory.upload("registers", &bytes);
    let output = memory.allocate("sums", sums * 4);
    let arguments = [matrix, registers, output].map(Argument::Pointer).to_vec();
    let launch = Launch { grid: [1; 3], block: [threads, 1, 1], dynamic_shared: 0, arguments };
    run(&module, "kernel", &launch, &memory, options).unwrap_or_else(|error| panic!("{error}"));
    memory.read_f32(output).expect("a buffer")
}

const HEAD: &str = ".version 8.8\n.target sm_90a\n.address_size 64\n
    .visible .entry kernel(.param .u64 matrices, .param .u64 registers, .param .u64 sums) {
    .reg .pred %p<4>; .reg .b32 %r<40>; .reg .b32 %f<200>; .reg .b64 %rd<20>;
    .shared .align 1024 .b8 s[32768];
    ld.param.u64 %rd1, [matrices]; ld.param.u64 %rd2, [registers]; ld.param.u64 %rd3, [sums];
    mov.u32 %r0, %tid.x;\n";

/// Runs `mma` of a shape on registers filled by the layouts of the PTX ISA.
fn mma(
    shape: &str,
    format: &str,
    k: usize,
    a: &[f32],
    b: &[f32],
    c: &[f32],
    options: &Options,
) -> Vec<f32> {
    let each = if format == "tf32" { 1 } else { 2 };
    let pack = |values: &[f32]| -> u32 {
        match values {
            [one] => one.to_bits(),
            many => many.iter().enumerate().fold(0, |word, (at, x)| {
                word | u32::from(bf16::from_f32(*x).to_bits()) << (16 * at)
            }),
        }
    };
    let (count_a, count_b) = (k / 2 / each, k / 4 / each);
    let mut registers = Vec::new();
    for lane in 0..32 {
        let (group, thread) = (lane / 4, lane % 4);
        for register in 0..count_a {
            let row = group + 8 * (register % 2);
            let column = thread * each + 4 * each * (register / 2);
            registers.push(pack(&a[row * k + column..][..each]));
        }
        for register in 0..count_b {
            let column = thread * each + 4 * each * register;
            registers.push(pack(&b[group * k + column..][..each]));
        }
        for register in 0..4 {
            let (row, column) = (group + 8 * (register / 2), thread * 2 + register % 2);
            registers.push(c[row * 8 + column].to_bits());
        }
    }
    let per_lane = count_a + count_b + 4;
    let names: Vec<String> = (0..per_lane).map(|at| format!("%f{at}")).collect();
    let load = |(at, name): (usize, &String)| format!("ld.global.b32 {name}, [%rd4+{}];", 4 * at);
    let loads = names.iter().enumerate().map(load).collect::<Vec<_>>().join("\n");
    let (a_names, rest) = names.split_at(count_a);
    let (b_names, c_names) = rest.split_at(count_b);
    let text = format!(
        "{HEAD} mad.wide.u32 %rd4, %r0, {}, %rd2; mad.wide.u32 %rd5, %r0, 16, %rd3; {loads}
         mma.sync.aligned.{shape}.row.col.f32.{format}.{format}.f32
         {{%r1, %r2, %r3, %r4}}, {{{}}}, {{{}}}, {{{}}};
         st.global.v4.b32 [%rd5], {{%r1, %r2, %r3, %r4}}; }}",
        4 * per_lane,
        a_names.join(","),
        b_names.join(","),
        c_names.join(",")
    );
    let found = execute(&text, 32, &[0; 16], &registers, 128, options);
    let mut sums = vec![0.0; 128];
    for lane in 0..32 {
        for register in 0..4 {
            let (row, column) = (lane / 4 + 8 * (register / 2), lane % 4 * 2 + register % 2);
            sums[row * 8 + column] = found[lane * 4 + register];
        }
    }
    sums
}

#[test]
fn mma_of_every_shape_is_a_matrix_product() {
    for (shape, format, k) in [
        ("m16n8k16", "bf16", 16),
        ("m16n8k8", "bf16", 8),
        ("m16n8k8", "tf32", 8),
        ("m16n8k4", "tf32", 4),
    ] {
        let (a, b, c) =
            (integers(16 * k, SEED), integers(8 * k, SEED + 1), integers(128, SEED + 2));
        let expected: Vec<f32> = product(&a, &b, k).iter().zip(&c).map(|(ab, c)| ab + c).collect();
        for tensor_core in [TensorCore::Rounded, TensorCore::AMPERE, TensorCore::HOPPER] {
            let options = Options {
                policy: Policy { tensor_core, ..Policy::default() },
                ..Options::default()
            };
            let found = mma(shape, format, k, &a, &b, &c, &options);
            assert_eq!(found, expected, "{shape} {format} {tensor_core:?}");
        }
    }
}

/// One row and one column of a product, all others zero.
fn dot(a: &[f32], b: &[f32], c: f32, tensor_core: TensorCore) -> f32 {
    let (mut rows, mut columns, mut sums) = (vec![0.0; 256], vec![0.0; 128], vec![0.0; 128]);
    rows[..a.len()].copy_from_slice(a);
    columns[..b.len()].copy_from_slice(b);
    sums[0] = c;
    let options =
        Options { policy: Policy { tensor_core, ..Policy::default() }, ..Options::default() };
    mma("m16n8k16", "bf16", 16, &rows, &columns, &sums, &options)[0]
}

#[test]
fn tensor_cores_truncate_what_they_align() {
    let small = |exponent: i32| 2_f32.powi(exponent);
    // Below the last fraction bit at the exponent of 1, a product is lost; in the last, it is kept
    // and then lost with the sum's, since 1 has 23.
    assert_eq!(dot(&[1.0, small(-13)], &[1.0, small(-12)], 0.0, TensorCore::AMPERE), 1.0);
    // Two products of 2^-24 make 2^-23 together with 24 fraction bits ...
    let halves = [1.0, small(-12), small(-12)];
    assert_eq!(dot(&halves, &halves, 0.0, TensorCore::AMPERE), 1.0 + small(-23));
    // ... two of 2^-25 need 25 for 2^-24, which the sum loses; four make 2^-23.
    let (a, b) = (
        [1.0, small(-13), small(-13), small(-13), small(-13)],
        [1.0, small(-12), small(-12), small(-12), small(-12)],
    );
    assert_eq!(dot(&a, &b, 0.0, TensorCore::AMPERE), 1.0);
    assert_eq!(dot(&a, &b, 0.0, TensorCore::HOPPER), 1.0 + small(-23));
    // Magnitudes are truncated, not values: toward zero on both sides.
    let negative = [-1.0, small(-13), small(-13), small(-13), small(-13)];
    assert_eq!(dot(&negative, &b, 0.0, TensorCore::AMPERE), -1.0);
    // The accumulator takes part in the alignment.
    assert_eq!(dot(&[1.0], &[1.0], small(25), TensorCore::AMPERE), small(25));
    assert_eq!(dot(&[1.0], &[1.0], small(24), TensorCore::AMPERE), small(24));
    assert_eq!(dot(&[1.0, 1.0], &[1.0, 1.0], small(24), TensorCore::AMPERE), small(24) + 2.0);
    // A chunk of 8 ends before the second of these on Ampere; the sum between is truncated.
    let mut split = [0.0; 16];
    (split[0], split[1], split[8]) = (1.0, small(-12), small(-12));
    assert_eq!(dot(&split, &split, 0.0, TensorCore::AMPERE), 1.0);
    assert_eq!(dot(&split, &split, 0.0, TensorCore::HOPPER), 1.0 + small(-23));
    // Rounded once, the same is a tie or above.
    assert_eq!(dot(&split, &split, 0.0, TensorCore::Rounded), 1.0 + small(-23));
    assert!(dot(&[f32::INFINITY], &[0.0], 0.0, TensorCore::HOPPER).is_nan());
    assert_eq!(dot(&[f32::INFINITY], &[1.0], 0.0, TensorCore::HOPPER), f32::INFINITY);
}

/// Where element (row, k) of a canonical layout stands, in bytes (PTX ISA, "Canonical Layouts"), before
/// swizzling: with atoms packed along the leading dimension first.
struct Layout {
    swizzle: u64,
    transposed: bool,
    leading: u64,
    stride: u64,
}

impl Layout {
    fn new(swizzle: u64, transposed: bool, rows: u64) -> Self {
        // Swizzled: an atom is 8 lines of `swizzle` bytes. Otherwise 8 lines of 16 bytes.
        let atom = 8 * swizzle;
        let (leading, stride) = match (swizzle, transposed) {
            (16, false) => (atom, 2 * atom),
            (16, true) => (rows / 8 * atom, atom),
            (_, false) => (0, atom),
            (width, true) => (atom, (rows * 2).div_ceil(width) * atom),
        };
        Self { swizzle, transposed, leading, stride }
    }

    fn offset(&self, row: u64, k: u64) -> u64 {
        let offset = match (self.swizzle, self.transposed) {
            (16, false) => {
                (row / 8) * self.stride + (row % 8) * 16 + (k / 8) * self.leading + (k % 8) * 2
            }
            (16, true) => {
                (row / 8) * self.stride + (row % 8) * 2 + (k / 8) * self.leading + (k % 8) * 16
            }
            (width, false) => (row / 8) * self.stride + (row % 8) * width + k * 2,
            (width, true) => {
                let across = width / 2;
                (row / across) * self.leading
                    + (row % across) * 2
                    + (k / 8) * self.stride
                    + (k % 8) * width
            }
        };
        // The line's number within the pattern changes which 16 bytes of it hold what.
        let chunk = offset / 16;
        let mask = self.swizzle / 16 - 1;
        (chunk ^ ((offset / 128) & mask)) * 16 + offset % 16
    }

    fn descriptor(&self, start: u64) -> u64 {
        let mode = match self.swizzle {
            128 => 1_u64,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        (start >> 4) | (self.leading >> 4) << 16 | (self.stride >> 4) << 32 | mode << 62
    }
}

#[test]
fn wgmma_reads_every_canonical_layout() {
    const N: u64 = 64;
    const SECOND: u64 = 16384;
    for swizzle in [16, 32, 64, 128] {
        for (transpose_a, transpose_b) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let (a, b) = (integers(64 * 16, SEED), integers(N as usize * 16, SEED + 1));
            let mut shared = vec![0_u8; 32768];
            let layouts =
                [Layout::new(swizzle, transpose_a, 64), Layout::new(swizzle, transpose_b, N)];
            for (layout, values, start) in [(&layouts[0], &a, 0), (&layouts[1], &b, SECOND)] {
                for (at, value) in values.iter().enumerate() {
                    let place = (start + layout.offset(at as u64 / 16, at as u64 % 16)) as usize;
                    shared[place..place + 2].copy_from_slice(&bf16::from_f32(*value).to_le_bytes());
                }
            }
            let names: Vec<String> = (0..N / 2).map(|at| format!("%f{at}")).collect();
            let store =
                |(at, name): (usize, &String)| format!("st.global.b32 [%rd5+{}], {name};", 4 * at);
            let stores = names.iter().enumerate().map(store).collect::<Vec<_>>().join("\n");
            let text = format!(
                "{HEAD} mul.wide.u32 %rd4, %r0, 16; add.s64 %rd4, %rd1, %rd4; mov.u32 %r1, s;
                 shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2; mov.u32 %r3, 0;
                 $copy: ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd4];
                 st.shared.v4.b32 [%r1], {{%r4, %r5, %r6, %r7}};
                 add.s64 %rd4, %rd4, 2048; add.u32 %r1, %r1, 2048; add.u32 %r3, %r3, 1;
                 setp.lt.u32 %p1, %r3, 16; @%p1 bra $copy;
                 fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;
                 wgmma.mma_async.sync.aligned.m64n{N}k16.f32.bf16.bf16 {{{}}}, {}, {}, 0, 1, -1, {}, {};
                 wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
                 mul.wide.u32 %rd5, %r0, {}; add.s64 %rd5, %rd3, %rd5; {stores} }}",
                names.join(","),
                layouts[0].descriptor(0),
                layouts[1].descriptor(SECOND),
                i32::from(transpose_a),
                i32::from(transpose_b),
                2 * N,
            );
            let found = execute(&text, 128, &shared, &[0], 64 * N as usize, &Options::default());
            let expected = product(&a, &b, 16);
            for thread in 0..128_usize {
                for register in 0..N as usize / 2 {
                    let row = thread / 32 * 16 + thread % 32 / 4 + 8 * (register / 2 % 2);
                    let column = register / 4 * 8 + thread % 4 * 2 + register % 2;
                    assert_eq!(
                        found[thread * N as usize / 2 + register],
                        -expected[row * N as usize + column],
                        "swizzle {swizzle}, {transpose_a}, {transpose_b}, ({row}, {column})"
                    );
                }
            }
        }
    }
}
