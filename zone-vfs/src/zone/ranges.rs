/// More separate ranges than this become one that spans them all.
const MAX_RANGES: usize = 16;

/// The parts of one chunk that were written: sorted, apart from each other, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.0.iter().map(|(from, to)| (*from as usize, *to as usize))
    }

    /// The bytes they span together.
    pub(super) fn total(&self) -> usize {
        self.iter().map(|(from, to)| to - from).sum()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds `from..to`.
    #[inline]
    pub(super) fn add(&mut self, from: usize, to: usize) {
        let (from, to) = (from as u32, to as u32);
        match self.0.last_mut() {
            Some(last) if last.0 <= from && from <= last.1 => last.1 = last.1.max(to),
            _ if from < to => self.add_apart(from, to),
            _ => {}
        }
    }

    #[cold]
    fn add_apart(&mut self, from: u32, to: u32) {
        let first = self.0.partition_point(|range| range.1 < from);
        let after = self.0.partition_point(|range| range.0 <= to);
        let mut joined = (from, to);
        for range in &self.0[first..after] {
            joined = (joined.0.min(range.0), joined.1.max(range.1));
        }
        self.0.splice(first..after, [joined]);
        if self.0.len() > MAX_RANGES {
            let all = (self.0[0].0, self.0[self.0.len() - 1].1);
            self.0.clear();
            self.0.push(all);
        }
    }

    pub(super) fn merge(&mut self, other: &Ranges) {
        for (from, to) in other.iter() {
            self.add(from, to);
        }
    }

    /// Leaves only what lies below `len`.
    pub(super) fn clip(&mut self, len: usize) {
        let len = len as u32;
        self.0.retain(|range| range.0 < len);
        if let Some(last) = self.0.last_mut() {
            last.1 = last.1.min(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cover_what_was_added(steps in vec((0..300usize, 0..40usize, any::<bool>()), 0..60)) {
            let mut ranges = Ranges::default();
            let mut marked = vec![false; 400];
            for (from, len, clip) in steps {
                if clip && len == 0 {
                    ranges.clip(from);
                    marked[from..].fill(false);
                } else {
                    ranges.add(from, from + len);
                    marked[from..from + len].fill(true);
                }
            }
            let mut covered = vec![false; 400];
            let mut end = None;
            for (from, to) in ranges.iter() {
                prop_assert!(from < to && end.is_none_or(|end| end < from));
                end = Some(to);
                covered[from..to].fill(true);
            }
            prop_assert!(ranges.iter().count() <= MAX_RANGES);
            let first = marked.iter().position(|at| *at).unwrap_or(0);
            let last = marked.iter().rposition(|at| *at).map_or(0, |last| last + 1);
            for (at, (covered, marked)) in covered.iter().zip(&marked).enumerate() {
                prop_assert!(covered == marked || *covered && (first..last).contains(&at));
            }
        }
    }
}
