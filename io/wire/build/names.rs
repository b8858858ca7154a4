//! From the names of the tables to Rust's.

/// `TopicName` and `topicName` become `topic_name`; words that Rust keeps for itself get a trailing underscore.
pub(crate) fn snake(name: &str) -> String {
    // Without this the name would be split as `k_raft`.
    let name = name.replace("KRaft", "Kraft");
    let mut snake = String::new();
    let mut previous = 'A';
    for character in name.chars() {
        if character.is_ascii_uppercase() && !previous.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
        previous = character;
    }
    if matches!(snake.as_str(), "type" | "match") {
        snake + "_"
    } else {
        snake
    }
}

/// The name with a capital first letter.
pub(crate) fn capital(name: &str) -> String {
    let mut rest = name.chars();
    rest.next().map_or_else(String::new, |first| {
        format!("{}{}", first.to_ascii_uppercase(), rest.as_str())
    })
}
