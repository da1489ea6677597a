//! Masks written by hand: tables of who sees whom.

use flashproof_spec::mask::{Mask, Site};
use serde::Deserialize;

/// A mask and what it shows.
#[derive(Deserialize)]
pub struct Table {
    pub name: String,
    pub query_len: usize,
    pub key_len: usize,
    pub mask: Mask,
    /// For each batch member one string a query, one character a key.
    pub visible: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct Tables {
    masks: Vec<Table>,
}

/// The tables of a data file.
pub fn tables(json: &str) -> Vec<Table> {
    let tables: Tables = serde_json::from_str(json).expect("the data file parses");
    tables.masks
}

/// What a mask shows one batch member, as in the data files.
pub fn draw(mask: &Mask, batch: usize, query_len: usize, key_len: usize) -> Vec<String> {
    let visible = |query, key| mask.admits(Site { batch, head: 0, query, key }, query_len, key_len);
    let row = |query| (0..key_len).map(|key| if visible(query, key) { '1' } else { '0' }).collect();
    (0..query_len).map(row).collect()
}
