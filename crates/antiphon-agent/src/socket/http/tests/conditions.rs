//! Conditions of writes that cannot hold.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_with_a_weak_or_foreign_tag_is_told_the_version_that_is_there() {
    let node = Agent::alone().await;
    let put = node.ask("PUT /v1/maps/m/k", &[], "x").await;
    let version = put.json()["version"].as_u64();
    let tag = put.header("etag");
    let weak = format!("If-Match: W/\"{}\"", version.unwrap());
    for condition in [weak.as_str(), "If-Match: \"foreign\""] {
        for write in ["PUT /v1/maps/m/k", "DELETE /v1/maps/m/k"] {
            let said = node.ask(write, &[condition], "").await;
            assert_eq!(
                said.failed(),
                (412, "conflict".into(), "no".into()),
                "{condition}"
            );
            assert_eq!(said.json()["version"].as_u64(), version, "{condition}");
            assert_eq!(said.header("etag"), tag, "{condition}");
        }
        // There is none.
        let said = node.ask("PUT /v1/maps/m/other", &[condition], "").await;
        assert_eq!(said.failed().0, 412, "{condition}");
        assert!(said.json().get("version").is_none(), "{condition}");
    }
    assert_eq!(node.get("/v1/maps/m/k").await.body, b"x");
}
