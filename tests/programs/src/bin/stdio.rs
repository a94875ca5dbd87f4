//! Standard streams, arguments, environment and exit status, as a driver asks by argument.

use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;

const USAGE: &str = "usage: stdio cat|upper|both|large N|args|env|cwd|terminal|status CODE|ok|err|panic";
/// The most that `large` prints, in bytes.
const MAX_LARGE: usize = 1 << 30;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    match run(&words, &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stdio: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str], args: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match words {
        ["cat"] => {
            io::copy(&mut io::stdin().lock(), &mut out)?;
        }
        ["upper"] => {
            for line in io::stdin().lock().lines() {
                writeln!(out, "{}", line?.to_uppercase())?;
            }
        }
        ["both"] => {
            writeln!(out, "to stdout")?;
            writeln!(io::stderr(), "to stderr")?;
            let mut nothing = Vec::new();
            writeln!(out, "{} bytes of input", io::stdin().read_to_end(&mut nothing)?)?;
        }
        ["large", size] => {
            let size: usize = size.parse().map_err(io::Error::other)?;
            let block: Vec<u8> = (0..64 * 1024).map(|at| b"abcdefghijklmnopqrstuvwxyz"[at % 26]).collect();
            let mut left = size.min(MAX_LARGE);
            while left > 0 {
                let piece = left.min(block.len());
                out.write_all(&block[..piece])?;
                left -= piece;
            }
            out.flush()?;
        }
        ["args", ..] => args.iter().try_for_each(|arg| writeln!(out, "{arg:?}"))?,
        ["env"] => {
            std::env::vars().try_for_each(|(key, value)| writeln!(out, "{key}={value}"))?;
        }
        ["cwd"] => writeln!(out, "{:?}", wasip2::cli::environment::initial_cwd())?,
        ["terminal"] => {
            let terminals = (
                wasip2::cli::terminal_stdin::get_terminal_stdin().is_some(),
                wasip2::cli::terminal_stdout::get_terminal_stdout().is_some(),
                wasip2::cli::terminal_stderr::get_terminal_stderr().is_some(),
            );
            writeln!(out, "{terminals:?}")?;
        }
        // Written and not flushed by the guest: it must arrive all the same.
        ["status", code] => {
            let code: i32 = code.parse().map_err(io::Error::other)?;
            writeln!(out, "before exit")?;
            std::process::exit(code);
        }
        ["ok"] => wasip2::cli::exit::exit(Ok(())),
        ["err"] => wasip2::cli::exit::exit(Err(())),
        ["panic"] => panic!("told to panic"),
        _ => return Err(io::Error::other(USAGE)),
    }
    Ok(())
}
