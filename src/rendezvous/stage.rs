//! Where a launcher that joins has got to.

/// Who hosts the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    Unknown,
    Ours,
    /// Torch 2.4 and later.
    Torch,
    /// Torch before 2.4.
    OldTorch,
}

/// Which answer is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// There is no connection.
    Away,
    /// Who hosts?
    Looking,
    VerdictComes,
    Verdict,
    NewsComes,
    News,
    /// At torch's: how many clients have come,
    Counting,
    /// has node 0 written its role info in the new way, and in the old?
    NewWay,
    OldWay,
    /// Neither yet: ask again later.
    NoWay,
    RanksCome,
    Ranks,
    InfosCome,
    Infos,
    /// Nothing is due until the workers have ended.
    Working,
    Exits,
    LastExitComes,
    Over,
}
