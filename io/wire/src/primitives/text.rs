//! Strings of the protocol: shared slices of a frame.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::str;

use bytes::Bytes;

/// An immutable UTF-8 string that is cheap to clone; one that was read from a frame is a slice of it and keeps the whole
/// frame alive. Copy what is to be kept for long ([`Text::detached`]).
#[derive(Clone, Default)]
pub struct Text(Bytes);

impl Text {
    /// The text in `bytes`, or `None` if they are not UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Option<Self> {
        str::from_utf8(&bytes).is_ok().then_some(Self(bytes))
    }

    /// A text without content.
    pub const fn empty() -> Self {
        Self(Bytes::new())
    }

    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("every constructor checks that the bytes are UTF-8")
    }

    /// A copy in memory of its own, for state that outlives the frame.
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self::from_static(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.as_str().to_owned()
    }
}

// UTF-8 keeps order and identity of strings in its bytes, so none of these has to look at characters.
impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // As `str`, so that a map of `Text` can be asked with a `&str`.
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    #[test]
    fn maps_of_text_are_asked_with_str() {
        let hashed = HashMap::from([(Text::from("a"), 1)]);
        let sorted = BTreeMap::from([(Text::from(String::from("b")), 2)]);
        assert_eq!(hashed.get("a"), Some(&1));
        assert_eq!(sorted.get("b"), Some(&2));
    }

    #[test]
    fn text_is_utf8_and_shows_itself_as_a_string() {
        assert_eq!(Text::from_utf8(Bytes::from_static(b"\xff")), None);
        let text = Text::from("tö");
        assert_eq!(
            (format!("{text}"), format!("{text:?}")),
            ("tö".to_owned(), "\"tö\"".to_owned())
        );
        assert_eq!(text.detached(), *"tö");
        assert_eq!(text.len(), 3);
    }
}
