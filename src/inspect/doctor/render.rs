//! The doctor's answer for people and for programs.

use serde_json::{Value, json};

use super::examine::Examined;
use super::finding::{Finding, Level};
use crate::report::{Paint, wrap};

/// Columns before the text of a finding, and of the whole.
const LABELS: usize = 22;
const WIDTH: usize = 80;

/// Lines of at most 80 columns; the last says how many are not ok.
pub(crate) fn text(parts: &[Examined], paint: Paint) -> String {
    let mut text = String::new();
    for Examined { part, findings } in parts {
        text.push_str(&format!("{}\n", paint.bold(part)));
        for it in findings {
            add(&mut text, it, paint);
        }
    }
    let (bad, warnings) = (count(parts, Level::Bad), count(parts, Level::Warn));
    text.push_str(&match (bad, warnings) {
        (0, 0) => "all is well\n".to_owned(),
        (0, _) => format!("nothing is bad, {}\n", warned(warnings)),
        (_, 0) => format!("{}\n", paint.red(&format!("{bad} bad"))),
        _ => format!(
            "{}, {}\n",
            paint.red(&format!("{bad} bad")),
            warned(warnings)
        ),
    });
    text
}

fn warned(count: usize) -> String {
    format!("{count} warning{}", if count == 1 { "" } else { "s" })
}

fn add(text: &mut String, finding: &Finding, paint: Paint) {
    let level = format!("{:<4}", finding.level.name());
    let level = match finding.level {
        Level::Ok => level,
        Level::Warn => paint.yellow(&level),
        Level::Bad => paint.red(&level),
    };
    let mut label = format!("  {level}  {:<width$}", finding.subject, width = LABELS - 8);
    let way_out = finding.way_out.iter().map(|it| format!("hint: {it}"));
    for paragraph in std::iter::once(finding.what.clone()).chain(way_out) {
        // A text from elsewhere may have lines of its own.
        for line in paragraph.lines().flat_map(|it| wrap(it, WIDTH - LABELS)) {
            text.push_str(&format!("{label}{line}\n"));
            label = " ".repeat(LABELS);
        }
    }
}

/// One object: the findings, each with its part, and how many are bad or warnings.
pub(crate) fn json(parts: &[Examined]) -> String {
    let findings = parts.iter().flat_map(|part| {
        part.findings.iter().map(|it| {
            json!({
                "part": part.part,
                "level": it.level.name(),
                "subject": it.subject,
                "what": it.what,
                "way_out": it.way_out,
            })
        })
    });
    let value = json!({
        "findings": findings.collect::<Vec<Value>>(),
        "bad": count(parts, Level::Bad),
        "warnings": count(parts, Level::Warn),
    });
    format!("{value:#}\n")
}

/// How many findings are of this level.
pub(crate) fn count(parts: &[Examined], level: Level) -> usize {
    let findings = parts.iter().flat_map(|it| &it.findings);
    findings.filter(|it| it.level == level).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<Examined> {
        let long =
            "a long way out that goes on and on until it does not fit one line of the screen";
        vec![Examined {
            part: "machine",
            findings: vec![
                Finding::ok("CPUs", "may use 2 of 2"),
                Finding::warn("/dev/shm", "64 MiB", "more"),
                Finding::bad("main port", "taken", long),
            ],
        }]
    }

    #[test]
    fn every_line_fits_eighty_columns() {
        let expected = "\
machine
  ok    CPUs          may use 2 of 2
  warn  /dev/shm      64 MiB
                      hint: more
  bad   main port     taken
                      hint: a long way out that goes on and on until it does not
                      fit one line of the screen
1 bad, 1 warning
";
        assert_eq!(text(&parts(), Paint { on: false }), expected);
    }

    #[test]
    fn programs_get_the_same() {
        let value: Value = serde_json::from_str(&json(&parts())).unwrap();
        assert_eq!(value["bad"], 1);
        assert_eq!(value["findings"][1]["level"], "warn");
        assert_eq!(value["findings"][1]["way_out"], "more");
        assert_eq!(value["findings"][0]["way_out"], Value::Null);
    }
}
