//! Kernels of a few instructions.

#![allow(dead_code)] // each test uses a part

use flashproof_ptx::{Argument, Fault, Launch, Memory, Module, Options, RunError, Statistics, run};

/// A kernel and its launch. `%rd1` points to the input buffer, `%rd2` to the thread's word of the
/// output buffer; `s` is shared memory of 4 KiB, `l` local memory of 64 bytes.
#[derive(Clone)]
pub struct Kernel {
    body: String,
    threads: u32,
    blocks: u32,
}

impl Kernel {
    pub fn new(body: &str) -> Self {
        Self { body: body.to_owned(), threads: 1, blocks: 1 }
    }

    pub fn threads(self, threads: u32) -> Self {
        Self { threads, ..self }
    }

    pub fn blocks(self, blocks: u32) -> Self {
        Self { blocks, ..self }
    }

    /// The whole text.
    pub fn text(&self) -> String {
        format!(
            ".version 8.8\n.target sm_90a\n.address_size 64\n
             .visible .entry kernel(.param .u64 p, .param .u64 q) {{
             .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
             .reg .b64 %address; .reg .b32 %index, %size, %number;
             .shared .align 16 .b8 s[4096]; .local .align 8 .b8 l[64];
             ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q];
             mov.u32 %number, %ctaid.x; mov.u32 %size, %ntid.x; mov.u32 %index, %tid.x;
             mad.lo.u32 %index, %number, %size, %index;
             mul.wide.u32 %address, %index, 4; add.s64 %rd2, %rd2, %address;\n{}\n}}",
            self.body
        )
    }

    pub fn run(&self, options: &Options) -> Result<Statistics, RunError> {
        let (module, mut memory) = (self.module(), Memory::new());
        let input = memory.upload("input", &[0; 4096]);
        let output = memory.allocate("output", 4096);
        let launch = self.launch(vec![Argument::Pointer(input), Argument::Pointer(output)]);
        run(&module, "kernel", &launch, &memory, options)
    }

    /// Runs on an input; gives input and output after it, words never written as ones.
    pub fn run_with(
        &self,
        input: &[u32],
        options: &Options,
    ) -> Result<(Vec<u32>, Vec<u32>), RunError> {
        let (module, mut memory) = (self.module(), Memory::new());
        let bytes: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
        let input = memory.upload("input", &bytes);
        let output = memory.allocate("output", (self.threads * self.blocks) as usize * 4);
        let launch = self.launch(vec![Argument::Pointer(input), Argument::Pointer(output)]);
        run(&module, "kernel", &launch, &memory, options)?;
        let words = |pointer| -> Vec<u32> {
            let bytes = memory.read(pointer).expect("a buffer");
            bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
        };
        Ok((words(input), words(output)))
    }

    fn module(&self) -> Module {
        Module::parse(&self.text()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn launch(&self, arguments: Vec<Argument>) -> Launch {
        let (grid, block) = ([self.blocks, 1, 1], [self.threads, 1, 1]);
        Launch { grid, block, dynamic_shared: 0, arguments }
    }
}

/// The fault of a run that must have one.
pub fn fault<T: std::fmt::Debug>(result: Result<T, RunError>) -> Fault {
    match result {
        Err(RunError::Fault(fault)) => *fault,
        other => panic!("expected a fault, found {other:?}"),
    }
}

/// What instructions left in their destinations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Result3 {
    /// `%xd`, 64 bits.
    pub long: u64,
    /// `%wd`, 32 bits.
    pub word: u32,
    /// `%hd`, 16 bits.
    pub half: u16,
}

/// Runs instructions on triples of operands: `%xa`, `%xb`, `%xc` of 64 bits, their low halves `%wa`
/// and so on of 32, and `%ha` and so on of 16; results are `%xd`, `%wd`, `%hd`.
pub fn evaluate(body: &str, operands: &[[u64; 3]], options: &Options) -> Vec<Result3> {
    const THREADS: usize = 64;
    let text = format!(
        ".version 8.8\n.target sm_90a\n.address_size 64\n
         .visible .entry kernel(.param .u64 p, .param .u64 q) {{
         .reg .pred %p<9>; .reg .b16 %h<9>, %ha, %hb, %hc, %hd;
         .reg .b32 %r<9>, %wa, %wb, %wc, %wd; .reg .b64 %rd<9>, %xa, %xb, %xc, %xd;
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q];
         mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r1, {THREADS}, %r2;
         mad.wide.u32 %rd1, %r1, 24, %rd1; mad.wide.u32 %rd2, %r1, 16, %rd2;
         ld.global.u64 %xa, [%rd1]; ld.global.u64 %xb, [%rd1+8]; ld.global.u64 %xc, [%rd1+16];
         cvt.u32.u64 %wa, %xa; cvt.u32.u64 %wb, %xb; cvt.u32.u64 %wc, %xc;
         cvt.u16.u64 %ha, %xa; cvt.u16.u64 %hb, %xb; cvt.u16.u64 %hc, %xc;
         mov.u64 %xd, 0; mov.u32 %wd, 0; mov.b16 %hd, 0;
         {body}
         st.global.u64 [%rd2], %xd; st.global.u32 [%rd2+8], %wd; st.global.u16 [%rd2+12], %hd;
         }}"
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let mut operands = operands.to_vec();
    let count = operands.len();
    operands.resize(count.next_multiple_of(THREADS), [1; 3]);
    let bytes: Vec<u8> = operands.as_flattened().iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut memory = Memory::new();
    let input = memory.upload("input", &bytes);
    let output = memory.upload("output", &vec![0; operands.len() * 16]);
    let launch = Launch {
        grid: [(operands.len() / THREADS) as u32, 1, 1],
        block: [THREADS as u32, 1, 1],
        dynamic_shared: 0,
        arguments: vec![Argument::Pointer(input), Argument::Pointer(output)],
    };
    run(&module, "kernel", &launch, &memory, options)
        .unwrap_or_else(|error| panic!("{body}: {error}"));
    let bytes = memory.read(output).expect("a buffer");
    let results = bytes.as_chunks::<16>().0.iter().map(|record| Result3 {
        long: u64::from_le_bytes(record[..8].try_into().expect("eight bytes")),
        word: u32::from_le_bytes(record[8..12].try_into().expect("four bytes")),
        half: u16::from_le_bytes(record[12..14].try_into().expect("two bytes")),
    });
    results.take(count).collect()
}
