//! Addresses to listen on, in the notation of settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The words of a list of addresses.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',']).filter(|word| !word.is_empty())
}

/// An address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The IP address.
    pub ip: IpAddr,
    /// Whether the server starts without it, instead of failing, if the machine does not have it.
    pub is_optional: bool,
}

/// The addresses that one word of [`Kind::Addresses`] names; `None` if it is not valid.
pub(super) fn addresses(word: &str) -> Option<Vec<Address>> {
    let (is_optional, name) = match word.strip_prefix('-') {
        Some(name) => (true, name),
        None => (false, word),
    };
    let address = |ip| Address { ip, is_optional };
    Some(match name {
        // All of IPv4 and, since not every machine has it, IPv6 if available.
        "*" => vec![
            address(Ipv4Addr::UNSPECIFIED.into()),
            Address {
                ip: Ipv6Addr::UNSPECIFIED.into(),
                is_optional: true,
            },
        ],
        // Redis' notation for all of IPv6.
        "::*" => vec![address(Ipv6Addr::UNSPECIFIED.into())],
        "localhost" => vec![address(Ipv4Addr::LOCALHOST.into())],
        _ => vec![address(name.parse().ok()?)],
    })
}

/// The addresses that a value of [`Kind::Addresses`] names, without duplicates. An address named
/// both with and without a `-` is not optional.
pub(super) fn all_addresses(text: &str) -> Vec<Address> {
    let mut all: Vec<Address> = Vec::new();
    for address in words(text).filter_map(addresses).flatten() {
        match all.iter_mut().find(|other| other.ip == address.ip) {
            Some(other) => other.is_optional &= address.is_optional,
            None => all.push(address),
        }
    }
    all
}

/// The address and port that a value of [`Kind::Endpoint`] names.
pub(super) fn endpoint(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into()),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    #[test]
    fn an_address_is_listened_on_once() {
        assert_eq!(all_addresses("localhost,127.0.0.1 ::1").len(), 2);
        assert_eq!(all_addresses("* 0.0.0.0 -::*").len(), 2);
        for bad in ["256.0.0.1", "-", "--::1", "-256.0.0.1"] {
            assert!(Kind::Addresses.parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_need_not_be_there_if_it_is_always_named_so() {
        let is_optional = |text| -> Vec<bool> {
            let all = all_addresses(text);
            all.iter().map(|address| address.is_optional).collect()
        };
        assert_eq!(is_optional("127.0.0.1 -::1"), [false, true]);
        assert_eq!(is_optional("-::1 ::1"), [false]);
        assert_eq!(is_optional("-* 0.0.0.0"), [false, true]);
        assert_eq!(is_optional("* ::"), [false, false]);
    }

    #[test]
    fn an_endpoint_is_an_address_and_a_port() {
        for good in [
            "",
            "127.0.0.1:9121",
            "[::1]:0",
            "localhost:1",
            " 0.0.0.0:9121 ",
        ] {
            assert!(Kind::Endpoint.parse(good).is_ok(), "{good}");
        }
        for bad in [
            "9121",
            "127.0.0.1",
            "localhost:",
            "127.0.0.1:70000",
            "host:1",
        ] {
            assert!(Kind::Endpoint.parse(bad).is_err(), "{bad}");
        }
    }
}
