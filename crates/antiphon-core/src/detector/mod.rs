//! Failure detection.
