//! Which known words a mistyped one resembles: Python's `difflib.get_close_matches`, whose choice click shows.

/// What difflib asks for unless told otherwise, and click does not tell.
pub(super) const CUTOFF: f64 = 0.6;

/// At most three of `known`, the most similar first; similarity is 2 × matching characters / all characters.
pub(super) fn close_matches<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    cutoff: f64,
) -> Vec<&'a str> {
    let word: Vec<char> = word.chars().collect();
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|it| (ratio(&it.chars().collect::<Vec<_>>(), &word), it))
        .filter(|(score, _)| *score >= cutoff)
        .collect();
    // Python's `heapq.nlargest` compares (score, text) pairs.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(a.1)));
    scored.truncate(3);
    scored.into_iter().map(|(_, it)| it).collect()
}

fn ratio(a: &[char], b: &[char]) -> f64 {
    let total = a.len() + b.len();
    if total == 0 {
        return 1.0;
    }
    2.0 * matching(a, b) as f64 / total as f64
}

/// Ratcliff and Obershelp: the longest common run, and then the same to the left and to the right of it.
fn matching(a: &[char], b: &[char]) -> usize {
    let (at_a, at_b, size) = longest_run(a, b);
    if size == 0 {
        return 0;
    }
    let left = matching(&a[..at_a], &b[..at_b]);
    let right = matching(&a[at_a + size..], &b[at_b + size..]);
    left + size + right
}

/// The first longest run that both share, as its two starts and its size.
fn longest_run(a: &[char], b: &[char]) -> (usize, usize, usize) {
    let mut best = (0, 0, 0);
    for at_a in 0..a.len() {
        for at_b in 0..b.len() {
            let pairs = a[at_a..].iter().zip(&b[at_b..]);
            let size = pairs.take_while(|(a, b)| a == b).count();
            if size > best.2 {
                best = (at_a, at_b, size);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, known: &[&str], expected: &[&str]) {
        let found = close_matches(word, known.iter().copied(), CUTOFF);
        assert_eq!(found, expected, "{word}");
    }

    /// The expected lists are what CPython 3.11's difflib answers.
    #[test]
    fn as_difflib_answers() {
        let commands = ["run", "consolidate"];
        check("runn", &commands, &["run"]);
        check("ru", &commands, &["run"]);
        check("run ", &commands, &["run"]);
        check("consolidat", &commands, &["consolidate"]);
        check("RUN", &commands, &[]);
        check("", &commands, &[]);
        check(
            "appel",
            &["ape", "apple", "peach", "puppy"],
            &["apple", "ape"],
        );
        check("--hel", &["--help"], &["--help"]);
    }
}
