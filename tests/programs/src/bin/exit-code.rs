//! Ends with the status that its argument says, by `wasi:cli/exit.exit-with-code`.
//!
//! That call is not stable in WASI 0.2, and `std` does not use it: a program of its own, so that
//! no other one imports it.

fn main() {
    let code = std::env::args().nth(1).and_then(|code| code.parse().ok());
    println!("before exit");
    wasip2::cli::exit::exit_with_code(code.unwrap_or(0));
}
