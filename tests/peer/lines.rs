//! Random command lines: valid ones, nearly valid ones, and noise.
//!
//! Options of our own appear only where the original would not take them for the script: after it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The original's options with good values.
const KNOWN: [(&str, &[&str]); 12] = [
    (
        "--accelerator",
        &["cpu", "gpu", "cuda", "mps", "tpu", "auto"],
    ),
    ("--strategy", &["ddp", "dp", "fsdp", "deepspeed_stage_2"]),
    ("--devices", &["1", "2", "-1", "0,", "auto"]),
    ("--num-nodes", INTEGERS),
    ("--num_nodes", INTEGERS),
    ("--node-rank", INTEGERS),
    ("--node_rank", INTEGERS),
    ("--main-address", &["127.0.0.1", "::1", "node-1", ""]),
    ("--main_address", &["127.0.0.1", "::1", "node-1", ""]),
    ("--main-port", INTEGERS),
    ("--main_port", INTEGERS),
    (
        "--precision",
        &["16-true", "bf16", "64", "transformer-engine"],
    ),
];

const INTEGERS: &[&str] = &[
    "0",
    "1",
    "2",
    " 3 ",
    "+3",
    "1_0",
    "٣",
    "１２",
    "𝟗",
    "-1",
    "99999999999999999999",
    "007",
    "-0",
];

const OURS: [&str; 8] = [
    "--dry-run",
    "-v",
    "-vq",
    "--python",
    "--python=x",
    "--shutdown_timeout",
    "--isolate",
    "--linger=1",
];

const ODD: [&str; 46] = [
    "",
    " ",
    "-",
    "--",
    "---",
    "-x",
    "-xyz",
    "-x=4",
    "-=x",
    "--=x",
    "-1",
    "--lr",
    "--lr=0.1",
    "-h",
    "--help",
    "--hel",
    "--devices",
    "--num_nodes=2",
    "--dry-run",
    "-v",
    "t.py",
    "dir",
    "fifo",
    "brokenlink",
    "noread.py",
    "nope.py",
    "sp ace.py",
    "CPU",
    "DDP",
    "_1",
    "1__0",
    "4_",
    "0x10",
    "1e3",
    "2.0",
    "Ⅷ",
    "²",
    "it's",
    "say \"hi\"",
    "'\"",
    "a\\b",
    "${local_rank}",
    "$$",
    "a b",
    "*.py",
    "@t.py",
];

const SCRIPTS: [&str; 6] = ["t.py", "t.py", "t.py", "dir", "nope.py", "./-x"];

/// What may stand instead of `run`.
const GROUP: [&[&str]; 22] = [
    &[],
    &["--"],
    &["--", "run"],
    &["--", "--", "run"],
    &["-x"],
    &["-h", "run"],
    &["--hel"],
    &["--help"],
    &["--help", "run"],
    &["--help=1"],
    &["--help", "--foo"],
    &["runn"],
    &["ru"],
    &["RUN"],
    &["--", "--help"],
    &["--", "-x"],
    &["--foo=1", "run"],
    &["-é"],
    &["---"],
    &["-=x"],
    &["consolidat"],
    &["--devices", "2", "run"],
];

/// Endless lines; the same ones for the same seed.
pub(super) fn random(seed: u64) -> impl Iterator<Item = Vec<OsString>> {
    let mut random = Random(seed);
    std::iter::from_fn(move || Some(random.line()))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn line(&mut self) -> Vec<OsString> {
        let start = if self.one_in(12) {
            self.pick(&GROUP)
        } else {
            &["run"]
        };
        let mut line: Vec<OsString> = start.iter().map(OsString::from).collect();
        if self.one_in(60) {
            line.push(self.noise());
        }
        let mut script_seen = false;
        for _ in 0..self.below(8) {
            self.item(&mut line, &mut script_seen);
        }
        if self.one_in(15) || line.is_empty() {
            line.push(self.pick(&KNOWN).0.into());
        }
        line
    }

    /// Adds one thing: an option with its value, the end of options, or a word.
    fn item(&mut self, line: &mut Vec<OsString>, script_seen: &mut bool) {
        let (name, good) = self.pick(&KNOWN);
        match self.below(20) {
            0..6 => line.extend([name.into(), self.value(good)]),
            6..9 => {
                let mut word = OsString::from(name);
                word.push("=");
                word.push(self.value(good));
                line.push(word);
            }
            9 if self.one_in(4) => line.push(self.pick(&["--help", "--help=1", "--help="]).into()),
            10 => {
                line.push("--".into());
                *script_seen = true;
            }
            11..16 => {
                let words: &[&str] = if *script_seen { &OURS } else { &SCRIPTS };
                line.push(self.pick(words).into());
                *script_seen = true;
            }
            16..19 if !*script_seen => {
                line.push("t.py".into());
                *script_seen = true;
            }
            _ => {
                let word = self.word();
                if *script_seen || is_script(&word) {
                    line.push(word);
                    *script_seen = true;
                }
            }
        }
    }

    fn value(&mut self, good: &[&str]) -> OsString {
        if self.one_in(10) {
            return self.word();
        }
        self.pick(good).into()
    }

    fn word(&mut self) -> OsString {
        match self.below(6) {
            0..3 => self.pick(&ODD).into(),
            3 => self.nearly_known().into(),
            4 => self.noise(),
            _ => self.pick(&SCRIPTS).into(),
        }
    }

    /// An option with a letter lost at the end, in another case, or with dashes changed.
    fn nearly_known(&mut self) -> String {
        let (name, _) = self.pick(&KNOWN);
        let cut = 3 + self.below(name.len() - 3);
        match self.below(5) {
            0 => name.to_uppercase(),
            1 => name[1..].to_owned(),
            2 => format!("{}=2", &name[..cut]),
            3 => name.replacen('-', "_", 2),
            _ => name[..cut].to_owned(),
        }
    }

    /// A few characters or bytes from everywhere; only blocks that Unicode has not touched since version 14.
    fn noise(&mut self) -> OsString {
        let mut bytes = Vec::new();
        for _ in 0..self.below(6) {
            let (from, to) = self.pick(&[
                (0x01, 0x80),
                (0x80, 0x530),
                (0x660, 0x66a),
                (0x2000, 0x2070),
                (0xe000, 0xe010),
                (0xff00, 0xff20),
                (0x1d7ce, 0x1d800),
                (0xd800, 0xd800),
            ]);
            match char::from_u32(from + self.below((to - from).max(1) as usize) as u32) {
                Some(it) => bytes.extend(it.to_string().bytes()),
                None => bytes.push(0x80 | self.next() as u8),
            }
        }
        OsString::from_vec(bytes)
    }
}

/// Whether everyone takes the word for the script: it is no known option, neither the original's nor ours.
fn is_script(word: &OsStr) -> bool {
    let name = word.as_bytes().split(|it| *it == b'=').next().unwrap();
    let letters = word.to_str().and_then(|it| it.strip_prefix('-'));
    let ours = letters.is_some_and(|it| !it.is_empty() && it.chars().all(|it| "vq".contains(it)));
    let theirs = KNOWN.iter().map(|(it, _)| it).chain(&["--", "--help"]);
    !ours && OURS.iter().chain(theirs).all(|it| name != it.as_bytes())
}
