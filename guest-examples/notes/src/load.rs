//! Memory and time taken on purpose, to measure a pause or to meet a limit.

/// The most that one `grow` takes, in MiB, so that a typing error stays harmless.
const MAX_GROW: usize = 2048;
/// The size of a page of the host, in bytes.
const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// Memory that was taken and is held.
#[derive(Default)]
pub struct Ballast {
    blocks: Vec<Vec<u8>>,
}

impl Ballast {
    /// Takes `mebibytes` more, writes to each page, and answers how much is held.
    pub fn grow(&mut self, mebibytes: usize) -> Result<String, String> {
        if mebibytes > MAX_GROW {
            return Err(format!("grow takes at most {MAX_GROW}"));
        }
        let bytes = mebibytes * MIB;
        let mut block = Vec::new();
        block.try_reserve_exact(bytes).map_err(|_| format!("there is no memory for {mebibytes} MiB"))?;
        block.resize(bytes, 1);
        self.blocks.push(block);
        let held: usize = self.blocks.iter().map(Vec::len).sum();
        Ok(format!("holding {} MiB", held / MIB))
    }

    /// Writes to the first `count` pages held.
    pub fn touch(&mut self, count: usize) -> Result<String, String> {
        let pages = self.blocks.iter_mut().flat_map(|block| block.chunks_mut(PAGE)).take(count);
        let touched = pages.map(|page| page[0] = page[0].wrapping_add(1)).count();
        if touched < count {
            return Err(format!("only {touched} pages are held; grow first"));
        }
        Ok(format!("touched {touched} pages"))
    }
}

/// Never comes back.
pub fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}
