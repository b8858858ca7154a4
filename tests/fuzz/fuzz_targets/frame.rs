//! A frame from a stranger: its header, then its body by every way that reads one.
//!
//! Run it in `tests/fuzz` with `RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir . frame`. It fails on a panic, on a body that
//! reads differently after it has been written again, on a cursor that disagrees with the codec, and (libFuzzer's own
//! limit) on memory out of proportion.

#![no_main]

use bytes::{Bytes, BytesMut};
use corelog_wire::frame::RequestHeader;
use corelog_wire::messages::fetch_cursor::FetchCursor;
use corelog_wire::messages::produce_cursor::ProduceCursor;
use corelog_wire::primitives::Reader;
use libfuzzer_sys::fuzz_target;

macro_rules! decode_all {
    ($($module:ident)*) => {
        /// Whether the request's body can be read; if so it must survive being written. A response is read as well, from
        /// the same bytes.
        fn decode(api_key: i16, version: i16, body: &Reader) -> bool {
            $({
                use corelog_wire::messages::$module::{Request, Response};
                if api_key == Request::KEY {
                    if let Ok(response) = Response::decode(&mut body.clone(), version) {
                        let again = written(|out| response.encode(out, version));
                        let read = Response::decode(&mut Reader::new(again.clone()), version);
                        assert_eq!(again, written(|out| read.expect("we wrote it").encode(out, version)));
                    }
                    let Ok(request) = Request::decode(&mut body.clone(), version) else {
                        return false;
                    };
                    let again = written(|out| request.encode(out, version));
                    let read = Request::decode(&mut Reader::new(again.clone()), version);
                    assert_eq!(again, written(|out| read.expect("we wrote it").encode(out, version)));
                    return true;
                }
            })*
            false
        }
    };
}

corelog_wire::with_every_rpc!(decode_all);

fn written(write: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    write(&mut out);
    out.freeze()
}

fuzz_target!(|frame: &[u8]| {
    let Ok((header, body)) = RequestHeader::parse(Bytes::copy_from_slice(frame)) else {
        return;
    };
    let readable = decode(header.api_key, header.api_version, &body);
    match header.api_key {
        0 => {
            let cursor = ProduceCursor::parse(body, header.api_version);
            assert_eq!(cursor.is_ok(), readable);
            if let Ok(cursor) = cursor {
                assert_eq!(cursor.partitions().count(), cursor.partition_count());
            }
        }
        1 => {
            let cursor = FetchCursor::parse(body, header.api_version);
            assert_eq!(cursor.is_ok(), readable);
            if let Ok(cursor) = cursor {
                assert_eq!(cursor.partitions().count(), cursor.partition_count());
            }
        }
        _ => {}
    }
});
