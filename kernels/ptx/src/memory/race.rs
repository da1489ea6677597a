//! Which accesses to shared memory are ordered, and which race.
//!
//! Two accesses to a byte by different threads, at least one of them a write and not both atomic,
//! race unless a synchronisation orders them. Time in a block is counted in synchronisations. Every
//! access is stamped with the time, its warp, lane and instruction; warp `v` knows of each warp `w`
//! a time up to which all accesses of `w` come before whatever `v` does next. A barrier makes all
//! that take part know what any of them knew, and each other's accesses until then; so does a barrier
//! object for those that arrive and those that wait. These are vector clocks (Mattern 1988; Flanagan,
//! Freund: `FastTrack`, 2009) whose entries are times of the block, so that one comparison decides.
//!
//! Lanes of one warp are ordered by what synchronises the warp: `bar.warp.sync` and barriers of the
//! block. Executing together orders nothing, as the PTX memory model has it.
//!
//! What is kept of each granule of memory: the last write, and of each warp the last read; where
//! several lanes of a warp have read unordered, that several have. A write that is ordered after the
//! last is ordered after all before, and so no race with an earlier one is lost.
//!
//! Seen: every race between accesses that both happen in the run, whichever came first. Not seen:
//! races on paths not taken; a missing `bar.warp.sync` before one lane arrives at a barrier object
//! for all, which is taken for the whole warp; order made through atomics on flags and fences, which is taken for none,
//! so that it reports a race; which lanes a partial `bar.warp.sync` leaves out, which is taken for
//! the whole warp.
//!
//! Asynchronous accesses carry the time *pending* until they are waited for: nothing is ordered after
//! them. An asynchronous copy is a write of the thread that issued it, a matrix product of `wgmma` a
//! read of the warp. The latter must also be ordered after writes by a proxy fence, of the writer
//! before the synchronisation or of the reader after it.

/// An access: packed time, atomicity, instruction, warp and lane (32, 1, 20, 5 and 6 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// The time of what is not finished.
const PENDING: u32 = u32::MAX;
/// Stands for several lanes of a warp.
const SEVERAL: u32 = 32;

/// Who accesses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessor {
    pub(crate) warp: usize,
    /// A lane, or 32 for the warp as a whole.
    pub(crate) lane: u32,
    pub(crate) instruction: u32,
}

impl Stamp {
    const NEVER: Self = Self(0);

    fn new(time: u32, atomic: bool, who: Accessor) -> Self {
        Self(
            u64::from(time) << 32
                | u64::from(atomic) << 31
                | u64::from(who.instruction) << 11
                | (who.warp as u64) << 6
                | u64::from(who.lane),
        )
    }

    const fn time(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) const fn is_atomic(self) -> bool {
        self.0 >> 31 & 1 == 1
    }

    pub(crate) const fn is_pending(self) -> bool {
        self.time() == PENDING
    }

    pub(crate) const fn instruction(self) -> u32 {
        (self.0 >> 11) as u32 & 0xf_ffff
    }

    pub(crate) const fn warp(self) -> usize {
        (self.0 >> 6 & 31) as usize
    }

    /// The lane; `None` where several were recorded.
    pub(crate) const fn lane(self) -> Option<u32> {
        let lane = self.0 as u32 & 63;
        if lane == SEVERAL { None } else { Some(lane) }
    }

    fn is_of_thread(self, who: Accessor) -> bool {
        self.0 as u32 & 0x7ff == (who.warp as u32) << 6 | who.lane
    }
}

/// Two accesses that nothing orders, or a read of what was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    Uninitialised,
    /// With an earlier write.
    Write(Stamp),
    /// With an earlier read.
    Read(Stamp),
    /// With a write that is ordered, but not by a proxy fence.
    Unfenced(Stamp),
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) races: bool,
    pub(crate) uninitialised: bool,
}

/// Stamps of the shared memory of a block, and what each warp knows.
pub(crate) struct Tracker {
    granule: usize,
    look: Look,
    warps: usize,
    writes: Vec<Stamp>,
    /// A plane for each warp.
    reads: Vec<Vec<Stamp>>,
    /// Unfinished matrix products that read each granule, a plane for each warp.
    products: Vec<Vec<u16>>,
    time: u32,
    /// `known[v * warps + w]`: up to when accesses of `w` come before what `v` does.
    known: Vec<u32>,
    /// The same for asynchronous readers: what proxy fences have made visible.
    fenced: Vec<u32>,
}

/// What a barrier object has been told by those that arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knowledge {
    known: Vec<u32>,
    fenced: Vec<u32>,
}

impl Tracker {
    pub(crate) fn new(
        bytes: usize,
        granule: usize,
        warps: usize,
        products: bool,
        look: Look,
    ) -> Self {
        let granules = bytes.div_ceil(granule);
        Self {
            granule,
            look,
            warps,
            writes: vec![Stamp::NEVER; granules],
            reads: vec![vec![Stamp::NEVER; granules]; warps],
            products: vec![vec![0; if products { granules } else { 0 }]; warps],
            time: 1,
            known: vec![0; warps * warps],
            fenced: vec![0; warps * warps],
        }
    }

    /// Forgets everything: the start of another block.
    pub(crate) fn reset(&mut self) {
        self.writes.fill(Stamp::NEVER);
        self.reads.iter_mut().for_each(|plane| plane.fill(Stamp::NEVER));
        self.products.iter_mut().for_each(|plane| plane.fill(0));
        self.time = 1;
        self.known.fill(0);
        self.fenced.fill(0);
    }

    fn span(&self, offset: usize, bytes: usize) -> std::ops::Range<usize> {
        offset / self.granule..(offset + bytes).div_ceil(self.granule)
    }

    /// Records a read; with the offset of the granule in conflict.
    pub(crate) fn read(
        &mut self,
        offset: usize,
        bytes: usize,
        who: Accessor,
    ) -> Result<(), (usize, Conflict)> {
        let span = self.span(offset, bytes);
        let known = &self.known[who.warp * self.warps..][..self.warps];
        let since = known[who.warp];
        let mine = Stamp::new(self.time, false, who);
        let writes = &self.writes[span.clone()];
        let reads = &mut self.reads[who.warp][span.clone()];
        for (at, (write, read)) in writes.iter().zip(reads).enumerate() {
            let is_ordered = write.time() <= known[write.warp()];
            if *write == Stamp::NEVER || !is_ordered {
                let found = unordered(*write, who, self.look);
                if let Some(conflict) = found {
                    return Err(((span.start + at) * self.granule, conflict));
                }
            }
            if read.is_pending() {
                continue;
            }
            *read = if read.time() > since && !read.is_of_thread(who) {
                Stamp::new(self.time, false, Accessor { lane: SEVERAL, ..who })
            } else {
                mine
            };
        }
        Ok(())
    }

    /// Records a write; `pending` until [`Tracker::complete_write`], `atomic` not in conflict with
    /// other such.
    pub(crate) fn write(
        &mut self,
        offset: usize,
        bytes: usize,
        who: Accessor,
        kind: WriteKind,
    ) -> Result<(), (usize, Conflict)> {
        let span = self.span(offset, bytes);
        let time = if kind == WriteKind::Pending { PENDING } else { self.time };
        let atomic = kind == WriteKind::Atomic;
        let mine = Stamp::new(time, atomic, who);
        if self.look.races || self.writes[span.clone()].iter().any(|write| write.is_pending()) {
            self.check_write(span.clone(), who, atomic)?;
        }
        if atomic && self.look.uninitialised {
            let never = self.writes[span.clone()].iter().position(|w| *w == Stamp::NEVER);
            if let Some(at) = never {
                return Err(((span.start + at) * self.granule, Conflict::Uninitialised));
            }
        }
        self.writes[span].fill(mine);
        Ok(())
    }

    fn check_write(
        &self,
        span: std::ops::Range<usize>,
        who: Accessor,
        atomic: bool,
    ) -> Result<(), (usize, Conflict)> {
        let known = &self.known[who.warp * self.warps..][..self.warps];
        let is_free = |stamp: Stamp| {
            stamp.time() <= known[stamp.warp()]
                || (!stamp.is_pending() && (stamp.is_of_thread(who) || !self.look.races))
        };
        for at in span.clone() {
            let write = self.writes[at];
            if !(is_free(write) || (atomic && write.is_atomic())) {
                return Err((at * self.granule, Conflict::Write(write)));
            }
        }
        for plane in &self.reads {
            for (at, read) in plane[span.clone()].iter().enumerate() {
                if !is_free(*read) {
                    return Err(((span.start + at) * self.granule, Conflict::Read(*read)));
                }
            }
        }
        Ok(())
    }

    /// An asynchronous copy is done: its write happens now.
    pub(crate) fn complete_write(&mut self, offset: usize, bytes: usize, who: Accessor) {
        let span = self.span(offset, bytes);
        let stamp = Stamp::new(self.time, false, who);
        self.writes[span].fill(stamp);
    }

    /// Records a read by an asynchronous matrix product of a warp, unfinished until
    /// [`Tracker::complete_product_read`].
    pub(crate) fn product_read(
        &mut self,
        offset: usize,
        bytes: usize,
        who: Accessor,
    ) -> Result<(), (usize, Conflict)> {
        let span = self.span(offset, bytes);
        let row = who.warp * self.warps;
        for at in span {
            let write = self.writes[at];
            let conflict = if write == Stamp::NEVER {
                self.look.uninitialised.then_some(Conflict::Uninitialised)
            } else if write.time() > self.known[row + write.warp()] {
                (self.look.races || write.is_pending()).then_some(Conflict::Write(write))
            } else if write.time() > self.fenced[row + write.warp()] {
                self.look.races.then_some(Conflict::Unfenced(write))
            } else {
                None
            };
            if let Some(conflict) = conflict {
                return Err((at * self.granule, conflict));
            }
            self.products[who.warp][at] += 1;
            self.reads[who.warp][at] = Stamp::new(PENDING, false, who);
        }
        Ok(())
    }

    /// A matrix product that read here is done.
    pub(crate) fn complete_product_read(&mut self, offset: usize, bytes: usize, who: Accessor) {
        for at in self.span(offset, bytes) {
            let count = &mut self.products[who.warp][at];
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.reads[who.warp][at] = Stamp::new(self.time, false, who);
            }
        }
    }

    /// Orders the lanes of a warp.
    pub(crate) fn synchronise_warp(&mut self, warp: usize) {
        self.known[warp * self.warps + warp] = self.time;
        self.advance();
    }

    /// A barrier: whoever `waits` comes after whoever `arrives`.
    pub(crate) fn synchronise(&mut self, arrives: &[usize], waits: &[usize]) {
        let mut merged = Knowledge::default();
        for &warp in arrives {
            self.release(warp, &mut merged);
        }
        for &warp in waits {
            self.acquire(warp, &merged);
        }
    }

    /// Adds what a warp knows, and all it did, to `knowledge`.
    pub(crate) fn release(&mut self, warp: usize, knowledge: &mut Knowledge) {
        self.synchronise_warp(warp);
        let row = warp * self.warps..(warp + 1) * self.warps;
        merge(&mut knowledge.known, &self.known[row.clone()]);
        merge(&mut knowledge.fenced, &self.fenced[row]);
    }

    /// Makes a warp know what `knowledge` has.
    pub(crate) fn acquire(&mut self, warp: usize, knowledge: &Knowledge) {
        if knowledge.known.is_empty() {
            return;
        }
        let row = warp * self.warps..(warp + 1) * self.warps;
        raise(&mut self.known[row.clone()], &knowledge.known);
        raise(&mut self.fenced[row], &knowledge.fenced);
    }

    /// A proxy fence of a warp: asynchronous readers see what the warp knows and what it wrote.
    pub(crate) fn fence(&mut self, warp: usize) {
        let row = warp * self.warps;
        for other in row..row + self.warps {
            self.fenced[other] = self.fenced[other].max(self.known[other]);
        }
        self.fenced[row + warp] = self.time;
        self.advance();
    }

    /// Time stands still before it would be taken for pending: no run comes so far.
    fn advance(&mut self) {
        self.time = (self.time + 1).min(PENDING - 1);
    }
}

/// How a write happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    Plain,
    Atomic,
    Pending,
}

/// What is wrong with a read after a write that is none, or that nothing orders before it.
fn unordered(write: Stamp, who: Accessor, look: Look) -> Option<Conflict> {
    if write == Stamp::NEVER {
        return look.uninitialised.then_some(Conflict::Uninitialised);
    }
    if write.is_pending() {
        return Some(Conflict::Write(write));
    }
    (look.races && !write.is_of_thread(who)).then_some(Conflict::Write(write))
}

fn merge(into: &mut Vec<u32>, from: &[u32]) {
    into.resize(from.len(), 0);
    raise(into, from);
}

fn raise(into: &mut [u32], from: &[u32]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into = (*into).max(*from);
    }
}
