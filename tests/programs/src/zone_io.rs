//! A file workload that measures itself, with nothing but the standard library: the same source runs
//! as a component and natively, so that runtimes and the system's own filesystem can be compared.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What can be measured; one operation of each is the unit.
pub const OPERATIONS: [&str; 15] = [
    "write-13",
    "create-4k",
    "read-4k",
    "stat",
    "list",
    "rename",
    "unlink",
    "walk",
    "write-64k",
    "read-64k",
    "random-read-4k",
    "random-write-4k",
    "append-fsync",
    "replace",
    "empty",
];

const SMALL: usize = 4 << 10;
const LARGE: usize = 64 << 10;
/// Bytes of the file that is read and written at random, and after which a sequential one begins anew.
const FILE: u64 = 32 << 20;
/// Files that lie in one folder.
const IN_FOLDER: u64 = 1_000;
/// Folders, and files in each, of the tree that is walked.
const TREE: (u64, u64) = (100, 100);

/// Takes `OPERATION COUNT FOLDER` and gives what one operation took, in nanoseconds.
pub fn run(args: &[String]) -> io::Result<f64> {
    let usage = || io::Error::new(io::ErrorKind::InvalidInput, "usage: zone-io OPERATION COUNT FOLDER");
    let [operation, count, folder] = args else { return Err(usage()) };
    let count: u64 = count.parse().map_err(|_| usage())?;
    let root = Path::new(folder);
    let folder = root.join("zone-io");
    if count == 0 || !OPERATIONS.contains(&operation.as_str()) {
        return Err(usage());
    }
    match fs::remove_dir_all(&folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs::create_dir(&folder)?;
    let (took, done) = match operation.as_str() {
        "walk" => walk_tree(&root.join("zone-io-tree"), count)?,
        _ => measure(operation, count, &folder)?,
    };
    fs::remove_dir_all(&folder)?;
    Ok(took.as_nanos() as f64 / done as f64)
}

fn time(count: u64, mut operation: impl FnMut(u64) -> io::Result<()>) -> io::Result<(Duration, u64)> {
    let begun = Instant::now();
    for number in 0..count {
        operation(number)?;
    }
    Ok((begun.elapsed(), count))
}

fn measure(operation: &str, count: u64, folder: &Path) -> io::Result<(Duration, u64)> {
    match operation {
        "write-13" => {
            let mut file = File::create(folder.join("file"))?;
            time(count, |_| file.write_all(b"thirteen byte"))
        }
        "create-4k" => {
            prepare(folder, count, None)?;
            time(count, |n| fs::write(path(folder, n), [7; SMALL]))
        }
        "read-4k" => {
            prepare(folder, count, Some(&[7; SMALL]))?;
            let mut into = [0; SMALL];
            time(count, |n| File::open(path(folder, n))?.read_exact(&mut into))
        }
        "stat" => {
            prepare(folder, count, Some(b"x"))?;
            time(count, |n| fs::metadata(path(folder, n)).map(drop))
        }
        "list" => list(folder, count),
        "rename" => {
            prepare(folder, count, Some(b"x"))?;
            time(count, |n| fs::rename(path(folder, n), path(folder, n).with_extension("new")))
        }
        "unlink" => {
            prepare(folder, count, Some(b"x"))?;
            time(count, |n| fs::remove_file(path(folder, n)))
        }
        "append-fsync" => {
            let mut file = OpenOptions::new().create(true).append(true).open(folder.join("file"))?;
            time(count, |_| {
                file.write_all(&[7; 100])?;
                file.sync_data()
            })
        }
        "replace" => {
            let (temporary, target) = (folder.join("temporary"), folder.join("target"));
            time(count, |_| {
                let mut file = File::create(&temporary)?;
                file.write_all(&[7; SMALL])?;
                file.sync_all()?;
                fs::rename(&temporary, &target)
            })
        }
        "empty" => time(count, |n| {
            std::hint::black_box(n);
            Ok(())
        }),
        _ => in_large_file(operation, count, folder),
    }
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{}/{}", number / IN_FOLDER, number % IN_FOLDER))
}

/// Makes folders for `count` files, and the files where there is content for them.
fn prepare(folder: &Path, count: u64, content: Option<&[u8]>) -> io::Result<()> {
    for number in 0..count.div_ceil(IN_FOLDER) {
        fs::create_dir(folder.join(number.to_string()))?;
    }
    if let Some(content) = content {
        (0..count).try_for_each(|n| fs::write(path(folder, n), content))?;
    }
    Ok(())
}

/// Lists a folder until so many entries were seen.
fn list(folder: &Path, count: u64) -> io::Result<(Duration, u64)> {
    prepare(folder, IN_FOLDER, Some(b"x"))?;
    let (begun, mut seen) = (Instant::now(), 0);
    while seen < count {
        for entry in fs::read_dir(folder.join("0"))? {
            std::hint::black_box(entry?.file_name());
            seen += 1;
        }
    }
    Ok((begun.elapsed(), seen))
}

/// Walks a tree, and asks each file for its size, until so many files were seen. The tree stays, since it
/// takes long to make.
fn walk_tree(folder: &Path, count: u64) -> io::Result<(Duration, u64)> {
    if !folder.exists() {
        let made = folder.with_extension("new");
        for outer in 0..TREE.0 {
            let place = made.join(outer.to_string());
            fs::create_dir_all(&place)?;
            (0..TREE.1).try_for_each(|n| fs::write(place.join(n.to_string()), b"x"))?;
        }
        fs::rename(made, folder)?;
    }
    let (begun, mut seen) = (Instant::now(), 0);
    while seen < count {
        let mut left = vec![folder.to_path_buf()];
        while let Some(place) = left.pop() {
            for entry in fs::read_dir(place)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    left.push(entry.path());
                } else {
                    std::hint::black_box(entry.metadata()?.len());
                    seen += 1;
                }
            }
        }
    }
    Ok((begun.elapsed(), seen))
}

fn in_large_file(operation: &str, count: u64, folder: &Path) -> io::Result<(Duration, u64)> {
    let name = folder.join("file");
    let mut file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(name)?;
    let (mut block, mut large) = ([7; SMALL], vec![7; LARGE]);
    for _ in 0..FILE / LARGE as u64 {
        file.write_all(&large)?;
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        SeekFrom::Start(state % (FILE / SMALL as u64) * SMALL as u64)
    };
    let begins_anew = |n: u64| n.is_multiple_of(FILE / LARGE as u64);
    match operation {
        "write-64k" => time(count, |n| {
            if begins_anew(n) {
                file.rewind()?;
            }
            file.write_all(&large)
        }),
        "read-64k" => time(count, |n| {
            if begins_anew(n) {
                file.rewind()?;
            }
            file.read_exact(&mut large)
        }),
        "random-read-4k" => time(count, |_| {
            file.seek(random())?;
            file.read_exact(&mut block)
        }),
        _ => time(count, |_| {
            file.seek(random())?;
            file.write_all(&block)
        }),
    }
}
