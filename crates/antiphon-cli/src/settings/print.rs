//! Settings as a file.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::Settings;

impl Settings {
    /// The settings as a configuration file that gives the same settings.
    pub(crate) fn to_toml(&self) -> String {
        let mut out = String::new();
        let mut put = |key: &str, value: toml::Value| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{key} = {value}");
        };
        let text = |text: &dyn std::fmt::Display| toml::Value::String(text.to_string());
        put("cluster", text(&self.cluster));
        put("name", text(&self.name));
        let list = |addresses: &[SocketAddr]| match addresses {
            [address] => text(address),
            several => toml::Value::Array(several.iter().map(|address| text(address)).collect()),
        };
        put("bind", list(&self.bind));
        if !self.advertise.is_empty() {
            put("advertise", list(&self.advertise));
        }
        let texts = |texts: &[String]| toml::Value::Array(texts.iter().map(|given| text(given)).collect());
        put("seeds", texts(&self.discovery.all_seeds(&self.seeds)));
        if !self.discovery.locators.is_empty() {
            put("locators", texts(&self.discovery.locators));
        }
        if !self.discovery.dns_servers.is_empty() {
            let servers = &self.discovery.dns_servers;
            put(
                "dns-server",
                toml::Value::Array(servers.iter().map(|server| text(server)).collect()),
            );
        }
        match self.groups.as_slice() {
            [] => put("no-group", toml::Value::Boolean(true)),
            groups => put("group", texts(groups)),
        }
        put("order", text(&self.order.as_str()));
        put("engine", text(&self.engine.as_str()));
        put("dissemination", text(&self.dissemination.as_str()));
        if let Some(multicast) = &self.multicast {
            put("multicast-group", text(&multicast.group));
            if let Some(interface) = &multicast.interface {
                put("multicast-interface", text(interface));
            }
            put("multicast-hops", toml::Value::Integer(multicast.hops.into()));
        }
        put("slow-after", text(&self.slow_after));
        put("max-object", text(&self.max_object));
        put("object-memory", text(&self.object_memory));
        if let Some(path) = &self.spool {
            put("spool", text(&path.display()));
        }
        put("transport", text(&self.transport.as_str()));
        if let Some(bytes) = self.max_datagram {
            put("max-datagram", toml::Value::Integer(bytes.into()));
        }
        put("profile", text(&self.profile.name));
        put("membership", text(&self.membership.as_str()));
        put("policy", text(&self.policy.as_str()));
        put("primary-lease", toml::Value::Boolean(self.primary_lease));
        put("udp-probes", toml::Value::Boolean(self.udp_probes));
        put("weight", toml::Value::Integer(self.weight.into()));
        if let Some(expect) = self.expect {
            put("expect", toml::Value::Integer(expect.into()));
        }
        put("found", toml::Value::Boolean(self.found));
        if let Some(path) = &self.key_file {
            put("key-file", text(&path.display()));
        }
        put("witness", toml::Value::Boolean(self.witness));
        put("insecure", toml::Value::Boolean(self.insecure));
        put("allow-faults", toml::Value::Boolean(self.allow_faults));
        if let Some(path) = &self.socket {
            put("socket", text(&path.display()));
        }
        put("json", toml::Value::Boolean(self.json));
        put(
            "metadata",
            toml::Value::Table(self.metadata.iter().map(|(k, v)| (k.clone(), text(v))).collect()),
        );
        out
    }
}
