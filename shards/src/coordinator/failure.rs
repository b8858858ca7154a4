//! What a client is told when the log refuses a coordinator's append (G-4).

use crate::base::error_code::ErrorCode;

/// The code for the client: all but the last can be tried again, here or at another coordinator.
pub fn code_for_client(append: ErrorCode) -> ErrorCode {
    match append {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | ErrorCode::REQUEST_TIMED_OUT => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::KAFKA_STORAGE_ERROR => {
            ErrorCode::NOT_COORDINATOR
        }
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

/// Whether the partition itself is gone, so that its state has to be forgotten and loaded anew before anything else.
pub fn ends_coordination(append: ErrorCode) -> bool {
    matches!(
        append,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::KAFKA_STORAGE_ERROR
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g4_what_a_failed_append_means_for_the_client() {
        let told = |code: i16| code_for_client(ErrorCode(code)).0;
        assert_eq!([3, 19, 20, 7].map(told), [15, 15, 15, 15]);
        assert_eq!([6, 56].map(told), [16, 16]);
        assert_eq!([10, 18, 4].map(told), [-1, -1, -1]);
    }
}
