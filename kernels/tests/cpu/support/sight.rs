//! Which keys a query sees, in the words of the rules: no bounds of loops, no strides.

use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Prefix, Rule, Site, Window,
};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Inputs;

/// Whether the mask lets the query of `site` see its key.
pub fn sees(problem: &Problem, site: Site) -> bool {
    problem.mask.rules.iter().all(|rule| admits(problem, rule, site))
}

/// Whether it does, and no bias of minus infinity hides the key.
pub fn visible(problem: &Problem, inputs: &Inputs, site: Site) -> bool {
    let bias = inputs.bias.as_ref().map(|bias| {
        let entries: Vec<f64> = bias.values().iter().copied().collect();
        let shape = bias.shape().try_into().expect("four axes");
        entries[shared(shape, site.place())]
    });
    sees(problem, site) && bias != Some(f64::NEG_INFINITY)
}

/// The keys that one row sees.
pub fn visible_keys(
    problem: &Problem,
    inputs: &Inputs,
    [batch, head, query]: [usize; 3],
) -> Vec<usize> {
    (0..problem.key_len)
        .filter(|&key| visible(problem, inputs, Site { batch, head, query, key }))
        .collect()
}

/// The flat place in a row-major tensor of what stands for `place`: an axis of extent 1 has one
/// index only, and on the others an index is its own remainder.
pub fn shared(shape: [usize; 4], place: [usize; 4]) -> usize {
    place.iter().zip(shape).fold(0, |flat, (index, extent)| flat * extent + index % extent)
}

/// How far a key lies past the position of a query: of indices, or of distances to the ends.
pub fn ahead(problem: &Problem, alignment: Alignment, site: Site) -> i64 {
    let Site { batch, query, key, .. } = site;
    let (query, key) = (query as i64, key as i64);
    match alignment {
        Alignment::TopLeft => key - query,
        Alignment::BottomRight => {
            let [queries, keys] = in_use(problem, batch);
            (queries as i64 - query) - (keys as i64 - key)
        }
    }
}

fn in_use(problem: &Problem, batch: usize) -> [usize; 2] {
    let mut queries = vec![problem.query_len];
    let mut keys = vec![problem.key_len];
    for rule in &problem.mask.rules {
        match rule {
            Rule::QueryLengths(lengths) => queries.push(lengths[batch]),
            Rule::KeyLengths(lengths) => keys.push(lengths[batch]),
            _ => {}
        }
    }
    [queries, keys].map(|lengths| lengths.into_iter().min().expect("one at least"))
}

fn admits(problem: &Problem, rule: &Rule, site: Site) -> bool {
    let Site { batch, head, query, key } = site;
    let ahead = |alignment| ahead(problem, alignment, site);
    match rule {
        Rule::CausalTopLeft => ahead(Alignment::TopLeft) <= 0,
        Rule::CausalBottomRight => ahead(Alignment::BottomRight) <= 0,
        Rule::KeyLengths(lengths) => key < lengths[batch],
        Rule::KeyStarts(starts) => key >= starts[batch],
        Rule::QueryLengths(lengths) => query < lengths[batch],
        &Rule::Window(Window { left, right, alignment }) => {
            let within = |bound: Option<usize>, by: i64| bound.is_none_or(|b| by <= b as i64);
            let saturated = |bound: Option<usize>| bound.map(|b| b.min(i64::MAX as usize));
            within(saturated(left), -ahead(alignment)) && within(saturated(right), ahead(alignment))
        }
        Rule::Prefix(Prefix { lengths, alignment }) => {
            key < lengths[batch] || ahead(*alignment) <= 0
        }
        &Rule::Chunked(Chunked { size, alignment }) => {
            // No chunk begins on the way from one to the other.
            let (key, own) = (key as i128, key as i128 - i128::from(ahead(alignment)));
            (key.min(own) + 1..=key.max(own)).all(|p| p.rem_euclid(size as i128) != 0)
        }
        &Rule::Dilated(Dilated { step, alignment }) => {
            let ahead = i128::from(ahead(alignment));
            (-ahead.abs()..=ahead.abs()).any(|steps| steps * step as i128 == ahead)
        }
        Rule::Documents(Documents { query: queries, key: keys }) => {
            queries[batch][query] == keys[batch][key]
        }
        Rule::Boolean(pattern) => {
            pattern.bits()[shared(pattern.shape(), [batch, head, query, key])]
        }
        Rule::BlockSparse(BlockSparse { query_block, key_block, pattern }) => {
            let place = [batch, head, query / query_block, key / key_block];
            pattern.bits()[shared(pattern.shape(), place)]
        }
    }
}

/// Whether a query stands at or past a query length.
pub fn is_padding(problem: &Problem, batch: usize, query: usize) -> bool {
    let ends = |rule: &Rule| matches!(rule, Rule::QueryLengths(ends) if query >= ends[batch]);
    problem.mask.rules.iter().any(ends)
}
