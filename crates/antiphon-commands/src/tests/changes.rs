//! Lists and keys that become others at one node after the other.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn reload(member: &Member, list: &str) {
    std::fs::write(&member.list, list).unwrap();
    member.commands.reload().unwrap();
}

fn key_file(key: [u8; 32]) -> PathBuf {
    let path = list_file(&key.map(|byte| format!("{byte:02x}")).concat());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_changed_one_node_after_the_other() {
    let members = members(&["a", "b"], LIST).await;
    let (old, new) = (key_file(KEY), key_file([8; 32]));
    for keys in [&[&old, &new][..], &[&new, &old], &[&new]] {
        let list = format!("key-files = {keys:?}\n{LIST}");
        for changed in [1, 0] {
            reload(&members[changed], &list);
            for (asks, asked) in [(0, "b"), (1, "a")] {
                let done = echo(&members[asks], &[asked], Way::Library).await;
                assert_eq!(done.replies.len(), 1, "{changed} has {keys:?}: {done:?}");
            }
        }
    }
    let by_the_old = envelope(&members, |_| {});
    assert_eq!(post(members[1].gate, &by_the_old).await.0, 403);
    for file in [old, new] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_is_that_of_the_node_that_is_asked() {
    let members = members(&["a", "b"], LIST).await;
    let argument = r#"args.number = { type = "integer", min = 0, max = 9, default = 4 }"#;
    let other = LIST.replace("default = 4", "default = 7");
    let older = LIST.replace(argument, "").replace(r#", { arg = "number" }"#, "");
    for (list, printed) in [(other, "-- x x y 7\n"), (older, "-- x x y\n")] {
        reload(&members[1], &list);
        let command = asked("print", r#"{"text":"x"}"#, to(&["b"]), Way::Library);
        let done = members[0].commands.hand_over(command).unwrap().replies().await;
        assert_eq!(done.replies.get("b"), Some(&Bytes::from(printed)), "{done:?}");
    }
}
