//! What the floor reads of the load's requests, and what it answers.

use bytes::{Buf as _, BufMut as _, BytesMut};

use crate::frames::{CREATE_TOPICS, Malformed, expect, skip, skip_text, text};

/// What the floor reads of a Produce of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProduceSeen<'a> {
    pub(crate) correlation: i32,
    pub(crate) acks: i16,
    pub(crate) topic: &'a [u8],
    pub(crate) partition: u32,
    pub(crate) batch: &'a [u8],
}

/// The api key, version and correlation id of a request, and its body; `frame` is without its length.
pub(crate) fn request_head(mut frame: &[u8]) -> Result<(i16, i16, i32, &[u8]), Malformed> {
    let (key, version) = (frame.try_get_i16()?, frame.try_get_i16()?);
    let correlation = frame.try_get_i32()?;
    skip_text(&mut frame)?;
    Ok((key, version, correlation, frame))
}

pub(crate) fn produce_seen(
    correlation: i32,
    mut body: &[u8],
) -> Result<ProduceSeen<'_>, Malformed> {
    skip_text(&mut body)?;
    let acks = body.try_get_i16()?;
    skip(&mut body, 4)?;
    expect(body.try_get_i32()?, 1)?;
    let topic = text(&mut body)?;
    expect(body.try_get_i32()?, 1)?;
    let partition = body.try_get_i32()? as u32;
    let length = body.try_get_i32()?.max(0) as usize;
    Ok(ProduceSeen {
        correlation,
        acks,
        topic,
        partition,
        batch: body.get(..length).ok_or(Malformed)?,
    })
}

/// The floor's answer to a Produce.
pub(crate) fn put_produced(
    out: &mut BytesMut,
    seen: &ProduceSeen<'_>,
    error: i16,
    base_offset: i64,
) {
    put_framed(out, seen.correlation, |out| {
        out.put_i32(1);
        out.put_i16(seen.topic.len() as i16);
        out.extend_from_slice(seen.topic);
        out.put_i32(1);
        out.put_i32(seen.partition as i32);
        out.put_i16(error);
        out.put_i64(base_offset);
        out.put_i64(-1);
        out.put_i64(0);
        out.put_i32(0);
        out.put_i16(-1);
        out.put_i32(0);
    });
}

/// The floor's answer to the creation or deletion of one topic: done.
pub(crate) fn put_topic_done(
    out: &mut BytesMut,
    key: i16,
    correlation: i32,
    mut body: &[u8],
) -> Result<(), Malformed> {
    expect(body.try_get_i32()?, 1)?;
    let name = text(&mut body)?;
    put_framed(out, correlation, |out| {
        out.put_i32(0);
        out.put_i32(1);
        out.put_i16(name.len() as i16);
        out.extend_from_slice(name);
        out.put_i16(0);
        if key == CREATE_TOPICS {
            out.put_i16(-1);
        }
    });
    Ok(())
}

/// The floor's answer to InitProducerId: everybody is the same producer.
pub(crate) fn put_producer_id(out: &mut BytesMut, correlation: i32) {
    put_framed(out, correlation, |out| {
        out.put_i32(0);
        out.put_i16(0);
        out.put_i64(1);
        out.put_i16(0);
    });
}

/// The floor's answer to ApiVersions 0: nothing is named, it answers.
pub(crate) fn put_api_versions(out: &mut BytesMut, correlation: i32) {
    put_framed(out, correlation, |out| {
        out.put_i16(0);
        out.put_i32(0);
    });
}

fn put_framed(out: &mut BytesMut, correlation: i32, body: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_i32(0);
    out.put_i32(correlation);
    body(out);
    let length = (out.len() - at - 4) as i32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{
        PRODUCE, PRODUCE_VERSION, Produced, ProducerId, batch, create_topic, created, delete_topic,
        produce, produced, producer_id,
    };
    use crate::workload::Workload;

    #[test]
    fn the_floor_reads_what_the_load_sends_and_is_read_by_it() {
        let batch = batch(&Workload::find("b2").unwrap(), 7).unwrap();
        let frame = produce("t", 5, 17, 1, &batch);
        let (key, version, correlation, body) = request_head(&frame[4..]).unwrap();
        assert_eq!((key, version), (PRODUCE, PRODUCE_VERSION));
        let seen = produce_seen(correlation, body).unwrap();
        assert_eq!(
            (seen.acks, seen.topic, seen.batch),
            (1, &b"t"[..], &batch[..])
        );
        let mut answer = BytesMut::new();
        put_produced(&mut answer, &seen, 2, 0);
        assert_eq!(
            produced(&answer[4..]),
            Ok(Produced {
                number: 17,
                partition: 5,
                error: 2
            })
        );
    }

    #[test]
    fn creating_and_deleting_a_topic_are_answered_by_the_floor() {
        let none = std::collections::BTreeMap::new();
        for frame in [create_topic("t", 3, none.iter()), delete_topic("t")] {
            let (key, _, correlation, body) = request_head(&frame[4..]).unwrap();
            let mut answer = BytesMut::new();
            put_topic_done(&mut answer, key, correlation, body).unwrap();
            assert_eq!(created(&answer[4..]), Ok(0));
        }
    }

    #[test]
    fn the_floor_knows_its_producer() {
        let mut answer = BytesMut::new();
        put_producer_id(&mut answer, 0);
        let known = ProducerId { id: 1, epoch: 0 };
        assert_eq!(producer_id(&answer[4..]), Ok(Ok(known)));
        assert_eq!(
            producer_id(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 15]),
            Ok(Err(15)),
            "not available yet"
        );
    }
}
