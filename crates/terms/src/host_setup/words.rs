//! The names and addresses in the texts: they are pasted into shells, so nothing in them may have a meaning
//! there.

/// Why a text cannot be a word of a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The messages say it.
pub enum UnfitWord {
    #[error("{0:?} is not a name or an address; use letters, digits, and - . _ : [ ] %")]
    Plain(String),
    #[error("{0:?} is not a CHAP user name: it is empty, or contains control characters")]
    User(String),
}

/// An iSCSI name, an NAA name, or an address with or without a port: all characters are plain to a shell.
pub fn plain(text: &str) -> Result<String, UnfitWord> {
    let fits = |c: char| c.is_alphanumeric() || "-._:[]%".contains(c);
    match !text.is_empty() && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err(UnfitWord::Plain(text.to_owned())),
    }
}

/// A CHAP name, which is quoted where it is used.
pub fn user(text: &str) -> Result<String, UnfitWord> {
    match !text.is_empty() && !text.chars().any(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err(UnfitWord::User(text.to_owned())),
    }
}

/// Begins a group that [`SHELL_END`] ends, around a question and all that follows.
///
/// A shell reads a group before it runs any of it, so that lines pasted with the question do not become its
/// answer.
pub(super) const SHELL_BEGIN: &str = "\
{ # The shell reads up to the closing brace before it runs anything, so the prompt does not swallow pasted lines.
";
/// See [`SHELL_BEGIN`].
pub(super) const SHELL_END: &str = "}\n";

/// Quotes a word for POSIX shells.
pub(super) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Quotes a word for PowerShell, where typographic quotation marks also end a word (about_Quoting_Rules).
pub(super) fn powershell_word(word: &str) -> String {
    let mut quoted = String::from("'");
    for c in word.chars() {
        quoted.push(c);
        if "'\u{2018}\u{2019}\u{201a}\u{201b}".contains(c) {
            quoted.push(c);
        }
    }
    quoted + "'"
}

/// Adds iSCSI's port if the portal has none.
pub(super) fn with_port(portal: &str) -> String {
    let has_port = match portal.rsplit_once(':') {
        // In an IPv6 address, the port follows the brackets.
        Some((host, _)) => !host.contains(':') || host.ends_with(']'),
        None => false,
    };
    match has_port {
        true => portal.to_owned(),
        false if portal.contains(':') && !portal.starts_with('[') => format!("[{portal}]:3260"),
        false => format!("{portal}:3260"),
    }
}

/// The address, without brackets, and the port.
pub(super) fn address_and_port(portal: &str) -> (String, String) {
    let whole = with_port(portal);
    let (address, port) = whole.rsplit_once(':').expect("with_port has put one there");
    (address.trim_start_matches('[').trim_end_matches(']').to_owned(), port.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_gets_its_port() {
        for (given, whole, address) in [
            ("10.1.1.5", "10.1.1.5:3260", "10.1.1.5"),
            ("10.1.1.5:3261", "10.1.1.5:3261", "10.1.1.5"),
            ("san.example.org", "san.example.org:3260", "san.example.org"),
            ("fd00::5", "[fd00::5]:3260", "fd00::5"),
            ("[fd00::5]", "[fd00::5]:3260", "fd00::5"),
            ("[fd00::5]:3261", "[fd00::5]:3261", "fd00::5"),
        ] {
            assert_eq!(with_port(given), whole);
            let port = whole.rsplit(':').next().unwrap();
            assert_eq!(address_and_port(given), (address.to_owned(), port.to_owned()));
        }
    }

    #[test]
    fn nothing_that_means_something_to_a_shell_gets_into_one() {
        for good in ["iqn.2026-11.io.ursa:db", "10.1.1.5:3260", "[fe80::1%eth0]:3260", "SERVER", "san_1"] {
            assert_eq!(plain(good).as_deref(), Ok(good));
        }
        for bad in ["", "a b", "a;reboot", "$(reboot)", "a\nreboot", "a'", "a\"", "`a`", "a|b", "a,b"] {
            assert_eq!(plain(bad), Err(UnfitWord::Plain(bad.into())), "{bad:?}");
        }
        for bad in ["", "a\nb", "a\u{7f}"] {
            assert!(user(bad).is_err(), "{bad:?}");
        }
        let name = user("O'Neil & sons").unwrap();
        assert_eq!(shell_word(&name), r"'O'\''Neil & sons'");
        assert_eq!((shell_word("web"), powershell_word("web")), ("web".into(), "'web'".into()));
        assert_eq!(powershell_word("a'b\u{2019}c"), "'a''b\u{2019}\u{2019}c'");
    }
}
