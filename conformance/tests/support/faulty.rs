//! A backward pass in this process with one fault, behind a right forward pass.

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Choices, Failure, Subject};
use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{Array4, s};

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
        for (batch, head, query) in ndarray::indices((batch, query_heads, query_len)) {
            for key in 0..key_len.next_multiple_of(TILE) {
                let site = Site { batch, head, query, key };
                if let Some((probability, score_gradient)) = self.pair(site) {
                    self.add(&mut sums, site, probability, score_gradient);
                }
            }
        }
        let scale = self.problem.scale_f64();
        sums.query *= if self.fault == Fault::DqZero { 0.0 } else { scale };
        sums.key *= if self.fault == Fault::DkUnscaled { 1.0 } else { scale };
        let tensor = |values: Array4<f64>| Tensor::rounded(format, &values.into_dyn());
        Gradients { query: tensor(sums.query), key: tensor(sums.key), value: tensor(sums.value) }
    }

    /// What a pair brings to each gradient.
    fn add(&self, sums: &mut Sums, site: Site, probability: f64, score_gradient: f64) {
        let Site { batch, head, query, key } = site;
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
        d_value.scaled_add(probability, &d_output.slice(s![batch, head, query, ..]));
        if self.fault == Fault::DvBf16 {
            d_value.mapv_inplace(|sum| Format::Bf16.round(sum));
        }
    }

    /// `P` and `dS` of a pair, or `None` where it takes no part.
    fn pair(&self, site: Site) -> Option<(f64, f64)> {
        let Site { batch, head, query, .. } = site;
        let lse = self.outputs.lse.as_ref()?.view3()[[batch, head, query]];
        let padding = !self.sees(site);
        if lse == f64::NEG_INFINITY || (padding && !self.fills(site)) {
            return None;
        }
        let (score, d_p) = if padding { (0.0, 0.0) } else { self.products(site) };
        // Overflows where the arithmetic of the narrower formats does.
        let probability = if padding && self.problem.format != Format::F64 {
            f64::from(((score - lse) as f32).exp())
        } else {
            (score - lse).exp()
        };
        let upstream = match (&self.cotangents.lse, self.fault) {
            (None, _) | (_, Fault::DlseIgnored) => 0.0,
            (Some(lse), _) => lse.view3()[[batch, head, query]],
        };
        Some((probability, probability * (d_p - self.delta(site) + upstream)))
    }

    fn visible(&self, site: Site) -> bool {
        site.key < self.problem.key_len && self.problem.sees(site)
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

    /// `s` and `dP`.
    fn products(&self, Site { batch, head, query, key }: Site) -> (f64, f64) {
        let g = self.problem.key_head_of(head);
        let (q, k, v) =
            (self.inputs.query.view4(), self.inputs.key.view4(), self.inputs.value.view4());
        let d_output = self.cotangents.output.view4();
        let dot = q.slice(s![batch, head, query, ..]).dot(&k.slice(s![batch, g, key, ..]));
        let d_p = d_output.slice(s![batch, head, query, ..]).dot(&v.slice(s![batch, g, key, ..]));
        (self.problem.scale_f64() * dot, d_p)
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

/// Gradients before they are scaled and stored.
struct Sums {
    query: Array4<f64>,
    key: Array4<f64>,
    value: Array4<f64>,
}

impl Sums {
    fn zero(problem: &Problem) -> Self {
        Self {
            query: Array4::zeros(problem.query_shape()),
            key: Array4::zeros(problem.key_shape()),
            value: Array4::zeros(problem.value_shape()),
        }
    }
}
