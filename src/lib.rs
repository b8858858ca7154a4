//! corelog: a Kafka broker, one pinned thread per core.
