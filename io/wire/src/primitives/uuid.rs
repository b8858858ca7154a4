//! Kafka's 128-bit ids and their text form (W-6).

use std::fmt;
use std::str::FromStr;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Characters of the text form: 128 bits at 6 bits a character.
const TEXT_LENGTH: usize = 22;

/// The id of a topic, a directory, an incarnation or a client, as its 16 bytes in network order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// "No id".
    pub const ZERO: Self = Self([0; 16]);

    pub const fn from_u128(value: u128) -> Self {
        Self(value.to_be_bytes())
    }

    pub const fn as_u128(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Ids below 100 have fixed meanings (1 is the metadata topic); none of them is ever drawn at random.
    pub const fn is_reserved(self) -> bool {
        self.as_u128() < 100
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.as_u128();
        for character in 0..TEXT_LENGTH {
            // The last character holds the two bits that are left, on its high side.
            let shift = 128_i32 - 6 * (character as i32 + 1);
            let bits = if shift >= 0 {
                value >> shift
            } else {
                value << -shift
            };
            write!(f, "{}", char::from(ALPHABET[(bits & 63) as usize]))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not the 22 characters of url-safe base64 that stand for 128 bits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id is 22 characters of url-safe base64 without padding")]
pub struct ParseUuidError;

impl FromStr for Uuid {
    type Err = ParseUuidError;

    /// Accepts the padded form too, as Kafka does.
    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        let text = text.strip_suffix("==").unwrap_or(text).as_bytes();
        if text.len() != TEXT_LENGTH {
            return Err(ParseUuidError);
        }
        let (last, head) = text.split_last().ok_or(ParseUuidError)?;
        let mut value = 0_u128;
        for character in head {
            value = (value << 6) | digit(*character)?;
        }
        let tail = digit(*last)?;
        if tail & 0x0f != 0 {
            return Err(ParseUuidError);
        }
        Ok(Self::from_u128((value << 2) | (tail >> 4)))
    }
}

fn digit(character: u8) -> Result<u128, ParseUuidError> {
    let at = ALPHABET
        .iter()
        .position(|known| *known == character)
        .ok_or(ParseUuidError)?;
    Ok(at as u128)
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        reason = "a failed conversion is the test's failure"
    )]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_ids_have_kafkas_text() {
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid::from_u128(1).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        let id = Uuid::from_u128(0x11223344_5566_7788_8899_aabbccddeeff);
        assert_eq!(id.to_string(), "ESIzRFVmd4iImaq7zN3u_w");
        assert_eq!("ESIzRFVmd4iImaq7zN3u_w==".parse(), Ok(id));
        assert!(Uuid::from_u128(99).is_reserved());
        assert!(!Uuid::from_u128(100).is_reserved());
        assert!(!id.is_reserved());
    }

    #[test]
    fn text_that_is_not_an_id_is_refused() {
        for text in [
            "",
            "A",
            "AAAAAAAAAAAAAAAAAAAAAB",
            "AAAAAAAAAAAAAAAAAAAA+A",
            "AAAAAAAAAAAAAAAAAAAAAAA",
            "äAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert_eq!(text.parse::<Uuid>(), Err(ParseUuidError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_id_survives_its_text(value: u128) {
            let id = Uuid::from_u128(value);
            prop_assert_eq!(id.to_string().len(), TEXT_LENGTH);
            prop_assert_eq!(id.to_string().parse::<Uuid>().unwrap(), id);
        }
    }
}
