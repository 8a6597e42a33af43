//! `lctl conf_param`: Lustre's older command for permanent settings, by target and kind of device.
//! `sheen-OST0001.osc.active=0` means `set_param -P osc.sheen-OST0001-osc-*.active=0`.
//! `sheen.srpc.flavor.default=privacy` means `set_param -P srpc.sheen.flavor=privacy`.

use std::io;

use sheen_wire::Errno;
use sheen_wire::mgs::{TARGETS_MAX, parse_ost};

use super::options;
use super::{permanent, tool::Tool, usage};
use crate::host::flavor;
use crate::lfs::getopt::{Spec, Value};

const OPTIONS: Spec = Spec { short: "d", long: &[("delete", Value::No, "d")] };

/// `conf_param TARGET.DEVICE.PARAM=VALUE`, `conf_param -d TARGET.DEVICE.PARAM`
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = options::parse("conf_param", &OPTIONS, args, tool)? else { return Ok(usage::EXIT) };
    let [arg] = &given.rest[..] else {
        tool.out.write_all(usage::of("conf_param").unwrap_or_default().as_bytes())?;
        return Ok(usage::EXIT);
    };
    let (keyword, value) = arg.split_once('=').map_or((&arg[..], None), |(keyword, value)| (keyword, Some(value)));
    if let Some(value) = value.filter(|_| names_quotas(keyword)) {
        return enable_quotas(value, tool);
    }
    let Some(pattern) = pattern(keyword) else {
        writeln!(
            tool.err,
            "error: conf_param: invalid keyword '{keyword}': expected FSNAME-OST0000.{{osc,ost}}.PARAM, \
             FSNAME-MDT0000.{{mdc,mdt,lov}}.PARAM, FSNAME.{{osc,mdc,llite}}.PARAM or FSNAME.srpc.flavor.default; \
             'set_param -P' accepts any pattern"
        )?;
        return Ok(Errno::EINVAL.0);
    };
    // An MGS in a process of its own has no such parameter that would refuse the value.
    if let Some(value) = value.filter(|value| pattern.starts_with("srpc.") && flavor::parse(value).is_err()) {
        writeln!(
            tool.err,
            "error: conf_param: invalid flavor '{value}': expected null, integrity, privacy or default"
        )?;
        return Ok(Errno::EINVAL.0);
    }
    let arg = value.map_or_else(|| pattern.clone(), |value| format!("{pattern}={value}"));
    permanent::set(&[arg], given.has("d"), true, tool)
}

/// Whether a keyword is `FSNAME.quota.ost` or `FSNAME.quota.mdt`, by which Lustre enables quotas.
fn names_quotas(keyword: &str) -> bool {
    keyword
        .split_once('.')
        .is_some_and(|(fsname, rest)| !fsname.is_empty() && matches!(rest, "quota.ost" | "quota.mdt"))
}

/// Accepts what Sheen does anyway: limits apply as soon as they are set, of all kinds.
fn enable_quotas(value: &str, tool: &mut Tool<'_>) -> io::Result<i32> {
    if !value.is_empty() && value.bytes().all(|kind| b"ugp".contains(&kind)) {
        return Ok(0);
    }
    writeln!(
        tool.err,
        "error: conf_param: '{value}' does not switch quotas off: they always apply; \
         remove limits with 'lfs setquota --delete'"
    )?;
    Ok(Errno::EOPNOTSUPP.0)
}

/// Returns the pattern that names the same parameters.
fn pattern(keyword: &str) -> Option<String> {
    let (target, rest) = keyword.split_once('.')?;
    let (device, param) = rest.split_once('.').filter(|(_, param)| !param.is_empty())?;
    // A file system's name may contain `-`.
    let (fsname, name) = match target.rsplit_once('-') {
        Some((fsname, name)) if name.starts_with("OST") || name.starts_with("MDT") => (fsname, Some(name)),
        _ => (target, None),
    };
    if fsname.is_empty() {
        return None;
    }
    let devices = match (name, device) {
        // There is one network besides `lo`, which needs no protection, and one flavor for all
        // directions.
        (None, "srpc") => {
            return matches!(param, "flavor.default" | "flavor.tcp").then(|| format!("srpc.{fsname}.flavor"));
        }
        (None, "osc") => format!("osc.{fsname}-OST*-osc-*"),
        (None, "mdc") => format!("mdc.{fsname}-MDT*-mdc-*"),
        (None, "llite") => format!("llite.{fsname}-*"),
        (Some(name), "osc") if parse_ost(fsname, name).is_some() => format!("osc.{target}-osc-*"),
        (Some(name), "ost" | "obdfilter") if parse_ost(fsname, name).is_some() => format!("obdfilter.{target}"),
        (Some(name), "mdc") if is_mdt(name) => format!("mdc.{target}-mdc-*"),
        (Some(name), "mdt") if is_mdt(name) => format!("mdt.{target}"),
        (Some(name), "lov" | "lod") if is_mdt(name) => format!("lod.{target}-mdtlov"),
        _ => return None,
    };
    Some(format!("{devices}.{param}"))
}

fn is_mdt(name: &str) -> bool {
    let digits = name.strip_prefix("MDT").filter(|digits| digits.len() == 4);
    digits.and_then(|digits| usize::from_str_radix(digits, 16).ok()).is_some_and(|index| index < TARGETS_MAX)
}

#[cfg(test)]
mod tests {
    use super::{names_quotas, pattern};

    #[test]
    fn names_quotas_recognizes_only_the_keywords_of_quotas() {
        assert!(["sheen.quota.ost", "a-b.quota.mdt"].into_iter().all(names_quotas));
        assert!(![".quota.ost", "sheen.quota", "sheen.quota.mgs", "quota.ost"].into_iter().any(names_quotas));
    }

    #[test]
    fn conf_param_converts_keywords_to_patterns() {
        for (keyword, want) in [
            ("sheen-OST0001.osc.active", "osc.sheen-OST0001-osc-*.active"),
            ("sheen-OST001f.ost.degraded", "obdfilter.sheen-OST001f.degraded"),
            ("sheen-MDT0000.mdt.commit_interval_ms", "mdt.sheen-MDT0000.commit_interval_ms"),
            ("sheen-MDT0000.lov.stripecount", "lod.sheen-MDT0000-mdtlov.stripecount"),
            ("sheen-MDT0000.mdc.max_rpcs_in_flight", "mdc.sheen-MDT0000-mdc-*.max_rpcs_in_flight"),
            ("sheen.llite.statahead_max", "llite.sheen-*.statahead_max"),
            ("sheen.osc.max_dirty_mb", "osc.sheen-OST*-osc-*.max_dirty_mb"),
            ("a-b-OST0000.ost.degraded", "obdfilter.a-b-OST0000.degraded"),
            ("a-b.llite.statahead_max", "llite.a-b-*.statahead_max"),
            ("a-b.srpc.flavor.default", "srpc.a-b.flavor"),
            ("sheen.srpc.flavor.tcp", "srpc.sheen.flavor"),
        ] {
            assert_eq!(pattern(keyword).as_deref(), Some(want), "{keyword}");
        }
        for keyword in
            ["", "sheen", "sheen.osc", "sheen.osc.", "sheen.sys.timeout", "sheen-OST1.osc.a", "sheen-MDT0.mdt.a"]
        {
            assert_eq!(pattern(keyword), None, "{keyword}");
        }
        for keyword in [
            "-OST0000.osc.a",
            "sheen-OST0000.mdt.a",
            "sheen.srpc.flavor.tcp.cli2ost",
            "sheen-OST0000.srpc.flavor.tcp",
            "sheen-MDT0000.osc.a",
            "sheen-MDTffff.mdt.a",
        ] {
            assert_eq!(pattern(keyword), None, "{keyword}");
        }
    }
}
