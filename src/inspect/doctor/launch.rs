//! Checks of the launch itself: what was decided from where, and what it runs with.

use super::facts::{Facts, OnPath, Python};
use super::finding::Finding;
use crate::plan;
use crate::report::without_effect;

/// Why the launch would be refused.
pub(super) fn refusal(facts: &Facts) -> Vec<Finding> {
    let refusal = facts.refusal.iter();
    refusal.map(|it| Finding::error("launch", it)).collect()
}

/// What was decided, with where it came from, but for what has a check of its own.
pub(super) fn values(facts: &Facts) -> Vec<Finding> {
    let Some(plan) = &facts.plan else {
        return Vec::new();
    };
    let own_check = |name: &str| match name {
        "interpreter" => true,
        "workers here" | "devices" => facts.refusal.is_some(),
        "command" => plan.script.is_empty(),
        _ => false,
    };
    let values = plan::facts(plan).into_iter();
    let values = values.filter(|(name, _)| !own_check(name));
    values.map(|(name, it)| Finding::ok(name, it)).collect()
}

/// Advice on a launch that is right but perhaps not meant.
pub(super) fn hints(facts: &Facts) -> Vec<Finding> {
    let hints = facts.plan.iter().flat_map(|it| &it.hints);
    let hint = |it: &String| Finding::warn("devices", "perhaps not what is meant", it.as_str());
    hints.map(hint).collect()
}

/// Variables that the original would obey, and this launcher does not.
pub(super) fn variables(facts: &Facts) -> Vec<Finding> {
    let ignored = facts.plan.as_ref().map_or(&[][..], |it| &it.ignored);
    let said = without_effect(ignored).into_iter();
    said.map(|it| Finding::warning("variables", &it)).collect()
}

/// The interpreter and the packages that a script of Lightning Fabric needs.
pub(super) fn python(facts: &Facts) -> Vec<Finding> {
    let (Some(plan), Some(python)) = (&facts.plan, &facts.python) else {
        return Vec::new();
    };
    let path = plan.program.display();
    let from = format!("{path} ({})", plan.program_source);
    let python = match python {
        Ok(python) => python,
        Err(why) => {
            let way_out = "name another with --python PATH or the variable PYTHON_EXEC";
            return vec![Finding::bad(
                "interpreter",
                format!("{from} {why}"),
                way_out,
            )];
        }
    };
    vec![
        Finding::ok("interpreter", format!("{from}, Python {}", python.version)),
        torch(python, &path.to_string(), sees_gpus(facts)),
        Finding::ok(
            "lightning",
            python.lightning.as_deref().unwrap_or("not installed"),
        ),
    ]
}

fn sees_gpus(facts: &Facts) -> bool {
    facts.gpus.as_ref().is_ok_and(|it| !it.gpus.is_empty())
}

/// A wheel of torch without CUDA says so in its version (`2.9.0+cpu`).
fn torch(python: &Python, path: &str, gpus: bool) -> Finding {
    let Some(version) = &python.torch else {
        let way_out = format!(
            "{path} -m pip install torch, or name the interpreter that has it with --python PATH"
        );
        return Finding::warn("torch", "not installed for this interpreter", way_out);
    };
    if gpus && version.ends_with("+cpu") {
        let what = format!("{version} is built without CUDA: it uses none of the GPUs");
        return Finding::warn("torch", what, "install a build for CUDA (pytorch.org)");
    }
    Finding::ok("torch", version.as_str())
}

/// What people get who type `fabric`.
pub(super) fn program(facts: &Facts) -> Vec<Finding> {
    vec![match &facts.on_path {
        OnPath::Us(path) => Finding::ok("fabric", path.display().to_string()),
        OnPath::Nothing => Finding::ok("fabric", "not on PATH"),
        OnPath::Overwritten(said) => Finding::warning("fabric", said),
        OnPath::Another { path, python } => {
            let whose = if *python {
                "a script, probably the Python original"
            } else {
                "another program than this one"
            };
            let what = format!("on PATH it is {}, {whose}", path.display());
            let way_out = "put the folder of this one first on PATH, or call it by its path";
            Finding::warn("fabric", what, way_out)
        }
    }]
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn with_torch(version: Option<&str>) -> Python {
        Python {
            version: "3.11.7".to_owned(),
            torch: version.map(str::to_owned),
            lightning: None,
        }
    }

    #[test]
    fn a_torch_without_cuda_is_wrong_only_where_there_are_gpus() {
        let level = |version, gpus| torch(&with_torch(version), "py", gpus).level;
        assert_eq!(level(Some("2.9.0+cpu"), false), Level::Ok);
        assert_eq!(level(Some("2.9.0+cpu"), true), Level::Warn);
        assert_eq!(level(Some("2.9.0"), true), Level::Ok);
        assert_eq!(level(None, false), Level::Warn);
    }
}
