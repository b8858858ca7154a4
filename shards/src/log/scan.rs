//! Walking over the batches that lie in some bytes of a segment.

use corelog_wire::batch::{BatchError, BatchHeader, HEADER_LEN};

use super::read::ReadRequest;

/// Walks over the headers of batches that lie one after the other.
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

pub(super) enum Scanned {
    /// A batch begins at `at`; it may end behind the bytes.
    Batch { at: usize, header: BatchHeader },
    /// The bytes end before the header at `at`, or before that byte; so many are needed from there.
    Cut { at: usize, needs: u64 },
    /// No batch begins here.
    Nonsense,
}

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Scan<'a> {
        Scan { bytes, at: 0 }
    }

    pub(super) fn next(&mut self) -> Scanned {
        let at = self.at;
        let rest = self.bytes.get(at..).unwrap_or(&[]);
        let header = match BatchHeader::parse(rest) {
            Ok(header) if header.last_offset_delta >= 0 => header,
            Err(BatchError::TooShort { .. }) => {
                return Scanned::Cut {
                    at,
                    needs: HEADER_LEN as u64,
                };
            }
            Ok(_) | Err(_) => return Scanned::Nonsense,
        };
        self.at = at + header.total_len();
        Scanned::Batch { at, header }
    }
}

pub(super) enum Whole {
    Batches {
        len: usize,
        next_offset: i64,
    },
    /// The first batch needs so many bytes.
    Needs(u64),
    DoesNotFit,
    Nonsense,
}

/// How many of the bytes are whole batches that the request may have; the first batch begins at 0 and is below the bound.
pub(super) fn whole_batches(bytes: &[u8], request: &ReadRequest) -> Whole {
    let mut scan = Scan::new(bytes);
    let (mut len, mut next_offset) = (0, request.offset);
    loop {
        match scan.next() {
            Scanned::Batch { at, header } => {
                let end = at + header.total_len();
                let fits = end <= request.max_bytes as usize;
                if at == 0 && !fits && !request.at_least_one {
                    return Whole::DoesNotFit;
                }
                if at == 0 && end > bytes.len() {
                    return Whole::Needs(end as u64);
                }
                let may = at == 0 || (fits && header.base_offset < request.bound);
                if !may || end > bytes.len() {
                    return Whole::Batches { len, next_offset };
                }
                len = end;
                next_offset = header.last_offset() + 1;
            }
            Scanned::Cut { .. } => return Whole::Batches { len, next_offset },
            Scanned::Nonsense => return Whole::Nonsense,
        }
    }
}
