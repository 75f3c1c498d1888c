//! Which streams of which workers, in torchrun's syntax (torch 2.15, `elastic/multiprocessing/api.py`).

/// Any of a worker's two output streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Streams {
    pub(crate) out: bool,
    pub(crate) err: bool,
}

/// Streams of all workers or of some; of none by default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StreamMap {
    All(Streams),
    /// By local rank; of others none.
    Some(Vec<(u32, Streams)>),
}

impl StreamMap {
    /// `3`, or `0:3,1:2`: a sum of 1 for stdout and 2 for stderr.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(all) = streams(text) {
            return Some(Self::All(all));
        }
        let pairs = text.split(',').map(|it| {
            let (rank, value) = it.split_once(':')?;
            let digits = rank.bytes().all(|it| it.is_ascii_digit());
            Some((rank.parse().ok().filter(|_| digits)?, streams(value)?))
        });
        pairs.collect::<Option<_>>().map(Self::Some)
    }

    /// Whether this is true of any worker.
    pub(crate) fn any(&self, has: impl Fn(Streams) -> bool) -> bool {
        match self {
            Self::All(streams) => has(*streams),
            Self::Some(pairs) => pairs.iter().any(|(_, it)| has(*it)),
        }
    }

    /// Those of one worker. Of what is said twice the last counts.
    pub(crate) fn of(&self, local_rank: u32) -> Streams {
        match self {
            Self::All(streams) => *streams,
            Self::Some(pairs) => {
                let own = pairs.iter().rev().find(|(rank, _)| *rank == local_rank);
                own.map_or_else(Streams::default, |(_, streams)| *streams)
            }
        }
    }
}

impl Default for StreamMap {
    fn default() -> Self {
        Self::All(Streams::default())
    }
}

impl Streams {
    pub(crate) fn any(self) -> bool {
        self.out || self.err
    }
}

fn streams(text: &str) -> Option<Streams> {
    let (out, err) = match text {
        "0" => (false, false),
        "1" => (true, false),
        "2" => (false, true),
        "3" => (true, true),
        _ => return None,
    };
    Some(Streams { out, err })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, workers: [&str; 3]) {
        let map = StreamMap::parse(text).unwrap();
        let name = |it: Streams| match (it.out, it.err) {
            (false, false) => "",
            (true, false) => "out",
            (false, true) => "err",
            (true, true) => "both",
        };
        assert_eq!([0, 1, 2].map(|it| name(map.of(it))), workers);
    }

    #[test]
    fn a_digit_is_for_all_workers() {
        check("0", ["", "", ""]);
        check("1", ["out", "out", "out"]);
        check("2", ["err", "err", "err"]);
        check("3", ["both", "both", "both"]);
    }

    #[test]
    fn a_map_is_for_those_it_names() {
        check("0:1,1:2", ["out", "err", ""]);
        check("2:3", ["", "", "both"]);
        check("10:3,1:0", ["", "", ""]);
        check("0:1,0:2", ["err", "", ""]);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", "4", "33", "0:", "0:4", ":1", "0:1,", "a:1", "+0:1", "-1:1", "0:1 ",
        ] {
            assert_eq!(StreamMap::parse(text), None, "{text:?}");
        }
    }
}
