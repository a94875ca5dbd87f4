//! A command line program like any other. It knows nothing of Dormouse: zones are folders, and
//! what they forbid comes back as an ordinary I/O error.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::process::ExitCode;

const VISITS: &str = "/workspace/visits.txt";
const JOURNAL: &str = "/memory/episodic/journal.log";

const USAGE: &str = "\
usage: hello-command [COMMAND]
  hello            greets $NAME, and counts the visits (the default)
  wc [FILE...]     counts lines, words and bytes of files, or of the input
  journal [TEXT]   appends a line to the journal, or shows it
  cat FILE...      shows files
  put FILE         writes the input to a file
  ls [FOLDER]      lists a folder
  rm FILE          removes a file
  env              lists the environment
  fail             ends with a status that is not zero
  trap             ends as a program with a bug does";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("hello-command: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> io::Result<ExitCode> {
    match words {
        [] | ["hello"] => hello()?,
        ["wc", files @ ..] => wc(files)?,
        ["journal"] => copy(JOURNAL)?,
        ["journal", text @ ..] => journal(&text.join(" "))?,
        ["cat", files @ ..] if !files.is_empty() => files.iter().try_for_each(|file| copy(file))?,
        ["put", file] => put(file)?,
        ["ls"] => ls("/workspace")?,
        ["ls", folder] => ls(folder)?,
        ["rm", file] => fs::remove_file(file).map_err(|error| about(file, &error))?,
        ["env"] => environment()?,
        ["fail"] => return Err(io::Error::other("told to fail")),
        ["trap"] => panic!("told to trap"),
        _ => {
            eprintln!("{USAGE}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn about(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

fn open(path: &str) -> io::Result<File> {
    File::open(path).map_err(|error| about(path, &error))
}

/// A program that forgets everything still finds what it wrote the last time.
fn hello() -> io::Result<()> {
    let before: u64 = match fs::read_to_string(VISITS) {
        Ok(text) => text.trim().parse().unwrap_or(0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(about(VISITS, &error)),
    };
    let visits = before + 1;
    fs::write(VISITS, format!("{visits}\n")).map_err(|error| about(VISITS, &error))?;
    let name = env::var("NAME").unwrap_or_else(|_| "world".into());
    journal(&format!("greeted {name}"))?;
    writeln!(io::stdout(), "hello, {name}: visit {visits}")
}

fn journal(text: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().append(true).create(true).open(JOURNAL).map_err(|e| about(JOURNAL, &e))?;
    writeln!(file, "{text}").map_err(|error| about(JOURNAL, &error))
}

fn wc(files: &[&str]) -> io::Result<()> {
    if files.is_empty() {
        return count("-", io::stdin().lock());
    }
    files.iter().try_for_each(|file| count(file, open(file)?))
}

fn count(name: &str, mut input: impl Read) -> io::Result<()> {
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|error| about(name, &error))?;
    let lines = bytes.split(|byte| *byte == b'\n').count() - 1;
    let words = bytes.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count();
    writeln!(io::stdout(), "{lines} {words} {} {name}", bytes.len())
}

fn copy(path: &str) -> io::Result<()> {
    io::copy(&mut open(path)?, &mut io::stdout().lock())?;
    Ok(())
}

fn put(path: &str) -> io::Result<()> {
    let mut file = File::create(path).map_err(|error| about(path, &error))?;
    io::copy(&mut io::stdin().lock(), &mut file).map_err(|error| about(path, &error))?;
    Ok(())
}

fn ls(folder: &str) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| about(folder, &error))? {
        let entry = entry?;
        let mark = if entry.file_type()?.is_dir() { "/" } else { "" };
        names.push(format!("{}{mark}", entry.file_name().to_string_lossy()));
    }
    names.sort();
    names.iter().try_for_each(|name| writeln!(io::stdout(), "{name}"))
}

fn environment() -> io::Result<()> {
    let mut pairs: Vec<(String, String)> = env::vars().collect();
    pairs.sort();
    pairs.iter().try_for_each(|(key, value)| writeln!(io::stdout(), "{key}={value}"))
}
