//! The `antiphon` program: `antiphon --help` says what it does.

mod cli;

fn main() {
    std::process::exit(cli::run());
}
