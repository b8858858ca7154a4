//! UpdateFeatures (key 57), versions 0 to 2. Flexible. v1 validate only and kinds of upgrades; v2 one error for all. Rules: D-13.
//!
//! A directory is formatted with the highest level of every feature that this broker has, so there is nothing to upgrade to; levels are not
//! taken back. A feature that is at its level already is updated.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::metadata::features::supported;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::update_features::{
    Request, RequestFeatureUpdates, Response, ResponseResults,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split};

const UPGRADE: i8 = 1;
const UNSAFE_DOWNGRADE: i8 = 3;

pub fn split(
    cx: &Context<'_>,
    header: &RequestHeader,
    body: Bytes,
    _parts: &mut Parts,
    answer: &mut Answer<'_>,
) -> Result<Split, DecodeError> {
    let request = Request::decode(&mut Reader::new(body), header.api_version)?;
    let updates = request.feature_updates.iter();
    let refusals: Vec<Option<String>> = updates.map(|update| refusal(cx, update)).collect();
    let response = if header.api_version >= 2 {
        together(refusals)
    } else {
        each(&request.feature_updates, refusals)
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

/// Why an update can't be made, in Kafka's words.
fn refusal(cx: &Context<'_>, update: &RequestFeatureUpdates) -> Option<String> {
    let feature = &update.feature;
    let (level, asked) = (cx.image.feature(feature), update.max_version_level);
    if asked == level {
        return None;
    }
    // v0 only says whether a level may be taken back.
    let may_upgrade = update.upgrade_type == UPGRADE && !update.allow_downgrade;
    let node = cx.broker.node_id;
    let why = match supported(feature) {
        _ if asked < 0 => "A feature version cannot be less than 0.".to_owned(),
        None => format!("Local controller {node} does not support this feature."),
        Some(own) if !(own.min..=own.max).contains(&asked) => format!(
            "Local controller {node} only supports versions {}-{}",
            own.min, own.max
        ),
        Some(_) if asked < level && may_upgrade => {
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.".to_owned()
        }
        Some(_) if asked < level => {
            let why = if update.upgrade_type == UNSAFE_DOWNGRADE {
                "Unsafe metadata downgrade is not supported in this version."
            } else {
                "Refusing to perform the requested downgrade because it might delete metadata information."
            };
            return Some(format!(
                "Unsupported {feature} downgrade from {level} to {asked}. {why}"
            ));
        }
        Some(_) if !may_upgrade => "Can't downgrade to a newer version.".to_owned(),
        Some(_) => format!("Local controller {node} does not change levels yet."),
    };
    Some(format!(
        "Invalid update version {asked} for feature {feature}. {why}"
    ))
}

fn each(updates: &[RequestFeatureUpdates], refusals: Vec<Option<String>>) -> Response {
    let results = updates
        .iter()
        .zip(refusals)
        .map(|(update, refusal)| ResponseResults {
            feature: update.feature.clone(),
            error_code: code(refusal.as_ref()).0,
            error_message: refusal.map(Text::from),
        });
    Response {
        results: results.collect(),
        ..Response::default()
    }
}

/// One update that can't be made stops all of them.
fn together(refusals: Vec<Option<String>>) -> Response {
    let first = refusals.into_iter().flatten().next().map(|refusal| {
        format!(
            "The update failed for all features since the following feature had an error: {refusal}"
        )
    });
    Response {
        error_code: code(first.as_ref()).0,
        error_message: first.map(Text::from),
        ..Response::default()
    }
}

fn code(refusal: Option<&String>) -> ErrorCode {
    match refusal {
        Some(_) => ErrorCode::INVALID_UPDATE_VERSION,
        None => ErrorCode::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, call};
    use super::*;

    fn ask(bench: &Bench, version: i16, levels: &[(&'static str, i16)]) -> Response {
        let update = |(feature, max_version_level): &(&'static str, i16)| RequestFeatureUpdates {
            feature: Text::from_static(feature),
            max_version_level: *max_version_level,
            ..RequestFeatureUpdates::default()
        };
        let request = Request {
            feature_updates: levels.iter().map(update).collect(),
            ..Request::default()
        };
        call(
            bench,
            57,
            version,
            |out| request.encode(out, version),
            |reader| Response::decode(reader, version),
        )
    }

    /// The sentences are those of Apache Kafka 4.3.1.
    #[test]
    fn what_can_not_be_updated_says_why() {
        let bench = Bench::new();
        let why = |feature: &'static str, max_version_level, upgrade_type| {
            let request = Request {
                feature_updates: vec![RequestFeatureUpdates {
                    feature: Text::from_static(feature),
                    max_version_level,
                    upgrade_type,
                    ..RequestFeatureUpdates::default()
                }],
                ..Request::default()
            };
            let answer = call(
                &bench,
                57,
                2,
                |out| request.encode(out, 2),
                |reader| Response::decode(reader, 2),
            );
            assert_eq!(answer.error_code, 95);
            let text = answer.error_message.expect("a sentence").to_string();
            let (head, tail) = text.split_once(": ").expect("a colon");
            assert_eq!(
                head,
                "The update failed for all features since the following feature had an error"
            );
            tail.to_owned()
        };
        let invalid = |feature, level, rest: &str| {
            format!("Invalid update version {level} for feature {feature}. {rest}")
        };
        let versions = "Local controller 1 only supports versions 7-30";
        for (level, kind) in [(31, 1), (31, 2), (5, 2), (0, 3)] {
            assert_eq!(
                why("metadata.version", level, kind),
                invalid("metadata.version", level, versions)
            );
        }
        assert_eq!(
            why("nothing", 1, 1),
            invalid(
                "nothing",
                1,
                "Local controller 1 does not support this feature."
            )
        );
        assert_eq!(
            why("nothing", -1, 1),
            invalid("nothing", -1, "A feature version cannot be less than 0.")
        );
        assert_eq!(
            why("metadata.version", 21, 1),
            invalid(
                "metadata.version",
                21,
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
            )
        );
        let taken_back = "Unsupported metadata.version downgrade from 30 to 21. ";
        assert_eq!(
            why("metadata.version", 21, 2),
            format!(
                "{taken_back}Refusing to perform the requested downgrade because it might delete metadata information."
            )
        );
        assert_eq!(
            why("metadata.version", 21, 3),
            format!("{taken_back}Unsafe metadata downgrade is not supported in this version.")
        );
    }

    #[test]
    fn a_feature_stays_at_its_level() {
        let bench = Bench::new();
        let own = bench.image().feature("metadata.version");
        let same = [("metadata.version", own)];
        let higher = [("metadata.version", own + 1), ("nothing", 1)];
        for version in 0..=1 {
            assert_eq!(ask(&bench, version, &same).results[0].error_code, 0);
            let codes = ask(&bench, version, &higher).results;
            let codes: Vec<i16> = codes.iter().map(|own| own.error_code).collect();
            assert_eq!(codes, [95, 95]);
        }
        assert_eq!(ask(&bench, 2, &same).error_code, 0);
        assert_eq!(ask(&bench, 2, &higher).error_code, 95);
    }
}
