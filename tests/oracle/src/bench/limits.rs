//! The project's limits on what is measured beside the rows of single calls.

use super::figure::FigureLine;
use super::scale;

/// What finding a queue pair among many may cost, against one: instructions per completion.
const MANY: f64 = 1.1;

/// Our columns.
const OURS: [&str; 3] = ["shim_default", "shim_best", "native"];

/// Notes what is missed.
pub fn judge(lines: &mut [FigureLine]) {
    let [one, .., many] = scale::SIZES;
    for batch in [1, 16] {
        let find = |size: usize| {
            let case = scale::case(batch, size);
            lines.iter().position(|line| {
                line.section == scale::SECTION && line.case == case && line.what == "instructions"
            })
        };
        let (Some(one), Some(many)) = (find(one), find(many)) else {
            continue;
        };
        for column in OURS {
            let (Some(one), Some(most)) = (
                lines[one].values.get(column),
                lines[many].values.get(column),
            ) else {
                continue;
            };
            let ratio = most / one;
            if ratio > MANY {
                let text = format!("instructions: {column} {ratio:.2}x those at 1 (limit {MANY})");
                lines[many].missed.push(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_instructions_at_many_queue_pairs_are_a_miss() {
        let line = |size, value| FigureLine {
            section: scale::SECTION.to_owned(),
            case: scale::case(16, size),
            what: "instructions".to_owned(),
            values: [("native", value)].into(),
            missed: Vec::new(),
        };
        let judged = |value| {
            let mut lines = [line(1, 50.0), line(100_000, value)];
            judge(&mut lines);
            lines[1].missed.len()
        };
        assert_eq!(judged(54.9), 0);
        assert_eq!(judged(55.1), 1);
    }
}
