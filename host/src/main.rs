//! The command line of Dormouse.

fn main() -> std::process::ExitCode {
    dormouse::cli::main()
}
