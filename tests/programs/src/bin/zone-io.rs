//! Times file operations from the guest's side: see `zone_io`.
//!
//! usage: `zone-io OPERATION COUNT [FOLDER]`. It prints `OPERATION NANOSECONDS`, the mean of one.

use std::process::ExitCode;

#[path = "../zone_io.rs"]
mod zone_io;

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    if args.len() == 2 {
        args.push("/workspace".to_owned());
    }
    match zone_io::run(&args) {
        Ok(nanoseconds) => {
            println!("{} {nanoseconds:.1}", args[0]);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("zone-io: {error}");
            ExitCode::FAILURE
        }
    }
}
