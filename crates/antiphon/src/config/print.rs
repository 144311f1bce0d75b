//! Settings as a file.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::{Effective, Patience, Size};

impl Effective {
    /// The settings as a configuration file that gives the same settings.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let mut put = |key: &str, value: toml::Value| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{key} = {value}");
        };
        let text = |text: &dyn std::fmt::Display| toml::Value::String(text.to_string());
        put("cluster", text(&self.cluster));
        if let Some(name) = &self.name {
            put("name", text(name));
        }
        let list = |addresses: &[SocketAddr]| match addresses {
            [address] => text(address),
            several => toml::Value::Array(several.iter().map(|address| text(address)).collect()),
        };
        put("bind", list(&self.bind));
        if !self.advertise.is_empty() {
            put("advertise", list(&self.advertise));
        }
        let texts = |texts: &[String]| toml::Value::Array(texts.iter().map(|given| text(given)).collect());
        put("seeds", texts(&self.all_seeds()));
        if !self.locators.is_empty() {
            put("locators", texts(&self.locators));
        }
        if !self.dns_servers.is_empty() {
            let servers = &self.dns_servers;
            put(
                "dns-server",
                toml::Value::Array(servers.iter().map(|server| text(server)).collect()),
            );
        }
        match self.groups.as_slice() {
            [] => put("no-group", toml::Value::Boolean(true)),
            groups => put("group", texts(groups)),
        }
        put("order", text(&self.options.order));
        put("engine", text(&self.options.engine));
        put("dissemination", text(&self.options.dissemination));
        if let Some(multicast) = &self.multicast {
            put("multicast-group", text(&multicast.group));
            if let Some(interface) = &self.interface {
                put("multicast-interface", text(interface));
            }
            put("multicast-hops", toml::Value::Integer(multicast.hops.into()));
        }
        put("slow-after", text(&Patience(self.options.slow_after)));
        put("max-object", text(&Size(self.options.max_object_bytes)));
        put("object-memory", text(&Size(self.options.object_memory_bytes)));
        put("transport", text(&self.transport));
        if let Some(bytes) = self.max_datagram {
            put("max-datagram", toml::Value::Integer(bytes.into()));
        }
        put("profile", text(&self.profile.name));
        put("membership", text(&self.membership));
        put("policy", text(&self.policy));
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
        put("insecure", toml::Value::Boolean(self.insecure));
        put("allow-faults", toml::Value::Boolean(self.allow_faults));
        put(
            "metadata",
            toml::Value::Table(self.metadata.iter().map(|(k, v)| (k.clone(), text(v))).collect()),
        );
        out
    }
}
