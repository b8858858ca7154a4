//! Which names a topic may have (D-1).

use super::request::Refusal;
use crate::base::error_code::ErrorCode;

const LENGTH_MAX: usize = 249;

/// Refuses a name that no topic may have, in Kafka's words.
pub fn check(name: &str) -> Result<(), Refusal> {
    let reason = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        "'.' or '..' is not allowed".to_owned()
    } else if name.len() > LENGTH_MAX {
        format!("the length of '{name}' is longer than the max allowed length {LENGTH_MAX}")
    } else if !name.bytes().all(is_legal) {
        format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )
    } else {
        return Ok(());
    };
    Err(Refusal::new(
        ErrorCode::INVALID_TOPIC_EXCEPTION,
        format!("Topic name is invalid: {reason}"),
    ))
}

fn is_legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Names that differ in '.' and '_' alone collide: metrics can't tell them apart.
pub fn has_collision_chars(name: &str) -> bool {
    name.contains(['.', '_'])
}

/// The form in which colliding names are equal.
pub fn unified(name: &str) -> String {
    name.replace('.', "_")
}

/// Whether both names have the same unified form.
pub fn collide(one: &str, other: &str) -> bool {
    let unify = |byte: u8| if byte == b'.' { b'_' } else { byte };
    one.len() == other.len() && one.bytes().map(unify).eq(other.bytes().map(unify))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_dots_and_underscores_collide() {
        assert!(collide("a.b", "a_b") && unified("a.b") == unified("a_b"));
        assert!(!collide("a.b", "a-b") && !collide("a.b", "a.b.c"));
        assert!(has_collision_chars("a_b") && !has_collision_chars("ab"));
    }

    #[test]
    fn d1_names_are_1_to_249_of_the_legal_characters() {
        let longest = "a".repeat(249);
        for name in ["a", "A.b_c-9", "...", &longest] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        let too_long = "a".repeat(250);
        for name in ["", ".", "..", "a b", "ä", "a/b", &too_long] {
            let refusal = check(name).expect_err("the name is bad");
            assert_eq!(refusal.code, ErrorCode::INVALID_TOPIC_EXCEPTION, "{name}");
        }
    }
}
