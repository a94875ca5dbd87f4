//! The command `dormouse`, for the benchmarks that start it.

fn main() -> std::process::ExitCode {
    dormouse::cli::main()
}
