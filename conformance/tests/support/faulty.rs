//! A backward pass in this process with one fault, behind a right forward pass.

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Choices, Failure, Subject};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::pattern::broadcast_place;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::score::{Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{Array1, Array4, s};

/// What the backward pass does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// `dS = P dP`.
    NoDelta,
    /// The scale is missing from `dK`.
    DkUnscaled,
    /// `dQ` is left at zero.
    DqZero,
    /// The LSE's upstream gradient is ignored.
    DlseIgnored,
    /// What a row does not see of a tile that it sees in part, past the last key included, is data of
    /// zeros, which scores 0.
    PadZero,
    /// The mask ends one key late.
    MaskShift,
    /// `D` comes from the output of the row before.
    DeltaStale,
    /// `dV` is rounded to `bf16` after every addition.
    DvBf16,
    /// `dK` and `dV` are overwritten by each query head of the group.
    Overwrite,
    /// `dBias` is overwritten by each head.
    DbiasOverwrite,
    /// `dBias` is left at zero.
    DbiasZero,
    /// `dSink` is left at zero.
    DsinkZero,
    /// `dSink` has the wrong sign.
    DsinkSign,
    /// The slope of the softcap is missing.
    NoSlope,
    /// `dS` is of dropped weights and undropped `dP`.
    DropoutOnWeights,
    /// Dropout is ignored in the backward pass.
    DropoutIgnored,
}

/// Keys of a tile.
const TILE: usize = 128;

/// A kernel with a right forward pass and a fault in its backward pass.
pub struct Faulty {
    forward: Builtin,
    fault: Fault,
}

impl Faulty {
    /// A kernel with this fault.
    pub fn new(fault: Fault) -> Self {
        Self { forward: Builtin::open("naive").expect("a built-in kernel"), fault }
    }
}

impl Subject for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn description(&self) -> &'static str {
        "a backward pass with a fault"
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        self.forward.profile(format)
    }

    fn choices(&self) -> Choices {
        self.forward.choices()
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        self.forward.forward(problem, inputs)
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        let outputs = self.forward.forward(problem, inputs)?;
        let pass = Pass { problem, inputs, outputs: &outputs, cotangents, fault: self.fault };
        let gradients = pass.gradients();
        Ok(Backward { outputs, gradients })
    }
}

/// One backward pass, in `f64` from what the forward pass stored.
struct Pass<'a> {
    problem: &'a Problem,
    inputs: &'a Inputs,
    outputs: &'a Outputs,
    cotangents: &'a Cotangents,
    fault: Fault,
}

impl Pass<'_> {
    fn gradients(&self) -> Gradients {
        let Problem { batch, query_heads, query_len, key_len, format, .. } = *self.problem;
        let mut sums = Sums::zero(self.problem);
        let mut before = None;
        for (batch, head, query) in ndarray::indices((batch, query_heads, query_len)) {
            if before.replace((batch, head)) != Some((batch, head)) {
                self.start_head(&mut sums, batch, head);
            }
            sums.sink[head] += self.sink_gradient(Site { batch, head, query, key: 0 });
            for key in 0..key_len.next_multiple_of(TILE) {
                let site = Site { batch, head, query, key };
                if let Some(pair) = self.pair(site) {
                    self.add(&mut sums, site, pair);
                }
            }
        }
        let scale = self.problem.scale_f64();
        sums.query *= if self.fault == Fault::DqZero { 0.0 } else { scale };
        sums.key *= if self.fault == Fault::DkUnscaled { 1.0 } else { scale };
        let tensor = |values: Array4<f64>| Tensor::rounded(format, &values.into_dyn());
        Gradients {
            query: tensor(sums.query),
            key: tensor(sums.key),
            value: tensor(sums.value),
            bias: self.problem.bias.map(|bias| {
                let factor = if self.fault == Fault::DbiasZero { 0.0 } else { 1.0 };
                Tensor::rounded(bias.format, &(sums.bias * factor).into_dyn())
            }),
            sink: self.inputs.sink.as_ref().map(|sink| {
                let factor = match self.fault {
                    Fault::DsinkZero => 0.0,
                    Fault::DsinkSign => -1.0,
                    _ => 1.0,
                };
                Tensor::rounded(sink.format(), &(sums.sink * factor).into_dyn())
            }),
        }
    }

    /// Forgets the heads before, where each overwrites what it shares with them.
    fn start_head(&self, sums: &mut Sums, batch: usize, head: usize) {
        let key_head = self.problem.key_head_of(head);
        if self.fault == Fault::Overwrite {
            sums.key.slice_mut(s![batch, key_head, .., ..]).fill(0.0);
            sums.value.slice_mut(s![batch, key_head, .., ..]).fill(0.0);
        }
        if self.fault == Fault::DbiasOverwrite {
            sums.bias.fill(0.0);
        }
    }

    /// What a row brings to the gradient of its sink.
    fn sink_gradient(&self, site: Site) -> f64 {
        let used = self.problem.mask.used_queries(site.batch, self.problem.query_len);
        let sink = self.inputs.sink_at(self.problem, site.head).filter(|_| site.query < used);
        let Some(logit) = sink else { return 0.0 };
        let lse = self.lse(site);
        (logit - lse).exp() * (self.upstream(site) - self.delta(site))
    }

    /// What a pair brings to each gradient.
    fn add(&self, sums: &mut Sums, site: Site, pair: Pair) {
        let Site { batch, head, query, key } = site;
        let Pair { weight, score_gradient, slope } = pair;
        if let Some(bias) = self.problem.bias
            && key < self.problem.key_len
        {
            let place = broadcast_place(bias.shape, site.place());
            let after = self
                .problem
                .softcap
                .is_some_and(|softcap| softcap.order == SoftcapOrder::AfterBias);
            sums.bias[place] += if after { score_gradient * slope } else { score_gradient };
        }
        let score_gradient = score_gradient * slope;
        let key_head = self.problem.key_head_of(head);
        let mut d_query = sums.query.slice_mut(s![batch, head, query, ..]);
        if self.fault == Fault::PadZero && !self.visible(site) {
            // A key of zeros: nothing, unless the score gradient is infinite.
            d_query.mapv_inplace(|sum| sum + score_gradient * 0.0);
        } else {
            let k = self.inputs.key.view4();
            d_query.scaled_add(score_gradient, &k.slice(s![batch, key_head, key, ..]));
        }
        if key >= self.problem.key_len {
            return;
        }
        let (q, d_output) = (self.inputs.query.view4(), self.cotangents.output.view4());
        let mut d_key = sums.key.slice_mut(s![batch, key_head, key, ..]);
        d_key.scaled_add(score_gradient, &q.slice(s![batch, head, query, ..]));
        let mut d_value = sums.value.slice_mut(s![batch, key_head, key, ..]);
        d_value.scaled_add(weight, &d_output.slice(s![batch, head, query, ..]));
        if self.fault == Fault::DvBf16 {
            d_value.mapv_inplace(|sum| Format::Bf16.round(sum));
        }
    }

    /// What a pair brings, or `None` where it takes no part.
    fn pair(&self, site: Site) -> Option<Pair> {
        let lse = self.lse(site);
        let padding = !self.sees(site);
        if lse == f64::NEG_INFINITY || (padding && !self.fills(site)) {
            return None;
        }
        let (score, slope, d_p) = if padding { (0.0, 1.0, 0.0) } else { self.products(site) };
        // Overflows where the arithmetic of the narrower formats does.
        let probability = if padding && self.problem.format != Format::F64 {
            f64::from(((score - lse) as f32).exp())
        } else {
            (score - lse).exp()
        };
        let kept = if padding || self.fault == Fault::DropoutIgnored {
            1.0
        } else {
            self.problem.dropout_at(site)
        };
        let (on_p, on_dp) =
            if self.fault == Fault::DropoutOnWeights { (kept, 1.0) } else { (1.0, kept) };
        let centred = on_dp * d_p - self.delta(site) + self.upstream(site);
        let slope = if self.fault == Fault::NoSlope { 1.0 } else { slope };
        let score_gradient = on_p * probability * centred;
        Some(Pair { weight: kept * probability, score_gradient, slope })
    }

    fn lse(&self, Site { batch, head, query, .. }: Site) -> f64 {
        self.outputs.lse.as_ref().expect("an LSE").view3()[[batch, head, query]]
    }

    fn upstream(&self, Site { batch, head, query, .. }: Site) -> f64 {
        match (&self.cotangents.lse, self.fault) {
            (None, _) | (_, Fault::DlseIgnored) => 0.0,
            (Some(lse), _) => lse.view3()[[batch, head, query]],
        }
    }

    fn visible(&self, site: Site) -> bool {
        site.key < self.problem.key_len
            && self.problem.sees(site)
            && self.inputs.bias_at(self.problem, site) != f64::NEG_INFINITY
    }

    /// As the backward pass has it.
    fn sees(&self, site: Site) -> bool {
        let before = site.key.checked_sub(1).map(|key| Site { key, ..site });
        match before {
            Some(before) if self.fault == Fault::MaskShift => {
                site.key < self.problem.key_len && self.visible(before)
            }
            _ => self.visible(site),
        }
    }

    /// Whether an invisible position lies in a tile that the row sees in part.
    fn fills(&self, site: Site) -> bool {
        let first = site.key / TILE * TILE;
        self.fault == Fault::PadZero
            && (first..site.key).any(|key| self.visible(Site { key, ..site }))
    }

    /// `s`, what the softcap multiplies its gradient by, and `dP`.
    fn products(&self, site: Site) -> (f64, f64, f64) {
        let Site { batch, head, query, key } = site;
        let g = self.problem.key_head_of(head);
        let (q, k, v) =
            (self.inputs.query.view4(), self.inputs.key.view4(), self.inputs.value.view4());
        let d_output = self.cotangents.output.view4();
        let dot = q.slice(s![batch, head, query, ..]).dot(&k.slice(s![batch, g, key, ..]));
        let d_p = d_output.slice(s![batch, head, query, ..]).dot(&v.slice(s![batch, g, key, ..]));
        let product = self.problem.scale_f64() * dot;
        let addends = self.inputs.addends_at(self.problem, site);
        let addend = addends.bias + addends.alibi;
        let (score, slope) = match self.problem.softcap {
            None => (product + addend, 1.0),
            Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => {
                let tanh = (product / cap).tanh();
                (cap * tanh + addend, 1.0 - tanh * tanh)
            }
            Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => {
                let tanh = ((product + addend) / cap).tanh();
                (cap * tanh, 1.0 - tanh * tanh)
            }
        };
        (score, slope, d_p)
    }

    fn delta(&self, Site { batch, head, query, .. }: Site) -> f64 {
        let queries = self.problem.query_len;
        let stale = match self.fault {
            Fault::NoDelta => return 0.0,
            Fault::DeltaStale => (query + queries - 1) % queries,
            _ => query,
        };
        let d_output = self.cotangents.output.view4();
        let output = self.outputs.output.view4();
        d_output.slice(s![batch, head, query, ..]).dot(&output.slice(s![batch, head, stale, ..]))
    }
}

/// What a pair of query row and key brings.
#[derive(Clone, Copy)]
struct Pair {
    /// The weight in `dV`.
    weight: f64,
    /// `dS`.
    score_gradient: f64,
    /// What the softcap multiplies it by.
    slope: f64,
}

/// Gradients before they are scaled and stored.
struct Sums {
    query: Array4<f64>,
    key: Array4<f64>,
    value: Array4<f64>,
    bias: Array4<f64>,
    sink: Array1<f64>,
}

impl Sums {
    fn zero(problem: &Problem) -> Self {
        Self {
            query: Array4::zeros(problem.query_shape()),
            key: Array4::zeros(problem.key_shape()),
            value: Array4::zeros(problem.value_shape()),
            bias: Array4::zeros(problem.bias.map_or([0; 4], |bias| bias.shape)),
            sink: Array1::zeros(problem.query_heads),
        }
    }
}
