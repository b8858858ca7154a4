//! UpdateFeatures (key 57), versions 0 to 2. Flexible. v1 validate only and kinds of upgrades; v2 one error for all. Rules: D-13.
//!
//! A directory is formatted with the highest level of every feature that this broker has, so there is nothing to upgrade to; levels are not
//! taken back. A feature that is at its level already is updated.

use bytes::Bytes;
use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::update_features::{
    Request, RequestFeatureUpdates, Response, ResponseResults,
};
use corelog_wire::primitives::{DecodeError, Reader};

use super::{Answer, Context, Parts, Split};

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
        together(&request.feature_updates, refusals)
    } else {
        each(&request.feature_updates, refusals)
    };
    answer.write(header, |out| response.encode(out, header.api_version));
    Ok(Split::Ready)
}

/// Why an update can't be made.
fn refusal(cx: &Context<'_>, update: &RequestFeatureUpdates) -> Option<String> {
    let level = cx.image.feature(&update.feature);
    if update.max_version_level == level {
        return None;
    }
    let asked = update.max_version_level;
    let feature = &update.feature;
    Some(format!(
        "Invalid update version {asked} for feature {feature}. Local controller {} only supports version {level}",
        cx.broker.node_id
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
fn together(updates: &[RequestFeatureUpdates], refusals: Vec<Option<String>>) -> Response {
    let first = updates.iter().zip(refusals).find_map(|(update, refusal)| {
        let refusal = refusal?;
        let feature = &update.feature;
        Some(format!(
            "The update failed for all features since the following feature had an error: {feature}: {refusal}"
        ))
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
