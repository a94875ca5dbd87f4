//! Every filesystem function of WASI 0.2 and of `std` on an ordinary (workspace) zone.
//!
//! Takes the preopened folder to work in; `/workspace` unless another is named. It leaves the
//! folder as empty as it found it.

mod dirs;
mod files;
mod links;
mod raw_files;
mod raw_paths;
mod rename;
mod streams;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use test_programs::{Checks, holds, preopen};
use wasip2::filesystem::types::{Descriptor, DescriptorFlags, OpenFlags, PathFlags};

/// Where a group of checks works: the same fresh folder, by path and by descriptor.
struct Place {
    path: PathBuf,
    folder: Descriptor,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file below the folder by the raw call.
    fn open(
        &self,
        name: &str,
        open: OpenFlags,
        flags: DescriptorFlags,
    ) -> Result<Descriptor, wasip2::filesystem::types::ErrorCode> {
        self.folder.open_at(PathFlags::empty(), name, open, flags)
    }

    /// A new file with this content, open to read and write.
    fn file(&self, name: &str, content: &[u8]) -> Result<Descriptor, wasip2::filesystem::types::ErrorCode> {
        let flags = DescriptorFlags::READ | DescriptorFlags::WRITE;
        let file = self.open(name, OpenFlags::CREATE | OpenFlags::TRUNCATE, flags)?;
        let mut at = 0;
        while at < content.len() {
            at += file.write(&content[at..], at as u64)? as usize;
        }
        Ok(file)
    }
}

/// A group of checks.
type Group = fn(&mut Checks, &Place);

fn main() -> ExitCode {
    let root = std::env::args().nth(1).unwrap_or_else(|| "/workspace".into());
    let groups: [(&str, Group); 7] = [
        ("files", files::all),
        ("dirs", dirs::all),
        ("links", links::all),
        ("rename", rename::all),
        ("raw-files", raw_files::all),
        ("raw-paths", raw_paths::all),
        ("streams", streams::all),
    ];
    let mut checks = Checks::new();
    for (name, group) in groups {
        let path = PathBuf::from(&root).join(format!("fs-all-{name}"));
        let mut place = None;
        checks.check(&format!("{name}: a fresh folder"), || {
            fs::create_dir(&path)?;
            let below = path.strip_prefix(&root)?.to_str().ok_or("a path that is not UTF-8")?;
            let flags = DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY;
            let folder = preopen(&root)?.open_at(PathFlags::empty(), below, OpenFlags::DIRECTORY, flags)?;
            place = Some(Place { path: path.clone(), folder });
            Ok(())
        });
        if let Some(place) = &place {
            group(&mut checks, place);
        }
        drop(place);
        checks.check(&format!("{name}: the folder is removed with all in it"), || {
            fs::remove_dir_all(&path)?;
            holds(!path.exists(), "the folder is still there")
        });
    }
    checks.finish()
}
