//! How a refusal looks: with colour on a terminal, plain elsewhere.

use std::io::IsTerminal as _;

use warpbpf_session::SessionError;

/// Colour on standard error: it is a terminal and `NO_COLOR` is unset or empty (no-color.org).
pub fn errors_in_colour() -> bool {
    std::io::stderr().is_terminal() && colour_wanted()
}

/// Colour on standard output.
pub fn output_in_colour() -> bool {
    std::io::stdout().is_terminal() && colour_wanted()
}

fn colour_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The whole message, for standard error.
pub fn refusal(error: &SessionError) -> String {
    match error {
        SessionError::Rejected { rejection } => format!(
            "program `{}` was refused\n{}",
            rejection.program,
            rejection.render_with(errors_in_colour())
        ),
        SessionError::Several { errors } => {
            let all: Vec<String> = errors.iter().map(refusal).collect();
            all.join("\n\n")
        }
        _ => error.to_string(),
    }
}
