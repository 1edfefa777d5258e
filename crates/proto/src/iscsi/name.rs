//! iSCSI names: permanent, worldwide unique names of initiators and targets (RFC 7143 4.2.7, RFC 3722, RFC
//! 3980).

/// RFC 7143 4.2.7.1: a name has at most 223 bytes.
pub const NAME_MAX: usize = 223;

/// A valid name in its normal form, lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IscsiName(String);

/// Why a text is not an iSCSI name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or longer than [`NAME_MAX`].
    #[error("an iSCSI name has 1 to 223 characters")]
    Length,
    /// A character that is not allowed in names.
    #[error("an iSCSI name consists of letters, digits, '.', '-', ':' and '_'")]
    Character,
    /// Neither iqn., eui. nor naa., or what follows is wrong.
    #[error(
        "an iSCSI name is iqn.YYYY-MM.reversed.domain[:anything], eui. and 16 hexadecimal digits, or naa. and 16 or 32"
    )]
    Format,
}

impl IscsiName {
    /// Checks a name and converts it to its normal form.
    ///
    /// RFC 3722 requires full stringprep. We convert ASCII to lower case and refuse all other characters,
    /// which gives the same result for every name written with a keyboard's letters. In addition to the RFC
    /// we accept the underscore, because QEMU creates initiator names from names of virtual machines, which
    /// may contain it.
    pub fn parse(text: &str) -> Result<IscsiName, NameError> {
        if text.is_empty() || text.len() > NAME_MAX {
            return Err(NameError::Length);
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-:_".contains(&byte);
        if !text.bytes().all(allowed) {
            return Err(NameError::Character);
        }
        let name = text.to_ascii_lowercase();
        let valid = match name.split_once('.') {
            Some(("iqn", rest)) => is_qualified(rest),
            Some(("eui", digits)) => digits.len() == 16 && is_hexadecimal(digits),
            Some(("naa", digits)) => matches!(digits.len(), 16 | 32) && is_hexadecimal(digits),
            _ => false,
        };
        if valid { Ok(IscsiName(name)) } else { Err(NameError::Format) }
    }

    /// The name in its normal form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in its normal form.
    pub fn into_string(self) -> String {
        self.0
    }
}

base::shows!(Display for IscsiName, |it| "{}", it.0);

/// Checks what follows `iqn.`: a month in which the naming authority owned a domain, the domain reversed, and
/// optionally more after a colon.
fn is_qualified(rest: &str) -> bool {
    let Some((date, name)) = rest.split_once('.') else { return false };
    let domain = name.split_once(':').map_or(name, |(domain, _)| domain);
    is_month(date) && !domain.is_empty()
}

/// `YYYY-MM`.
fn is_month(date: &str) -> bool {
    let Some((year, month)) = date.split_once('-') else { return false };
    let digits = |text: &str, len| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(year, 4) && digits(month, 2) && ("01"..="12").contains(&month)
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_rfc_and_of_real_initiators() {
        for name in [
            "iqn.2001-04.com.example:storage:diskarrays-sn-a8675309",
            "iqn.2001-04.com.example",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
            "naa.62004567ba64678d0123456789abcdef",
            "iqn.1993-08.org.debian:01:8d7b8c7f2d5a",
            "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq",
            "iqn.2008-11.org.linux-kvm:my_vm",
        ] {
            assert_eq!(IscsiName::parse(name).unwrap().as_str(), name);
        }
        assert_eq!(
            IscsiName::parse("IQN.1991-05.COM.Microsoft:Host").unwrap().as_str(),
            "iqn.1991-05.com.microsoft:host"
        );
    }

    #[test]
    fn invalid_names_are_refused() {
        assert_eq!(IscsiName::parse(""), Err(NameError::Length));
        assert_eq!(
            IscsiName::parse(&format!("iqn.2001-04.com.example:{}", "x".repeat(200))),
            Err(NameError::Length)
        );
        for text in [
            "iqn.2001-04.com.example:a b",
            "iqn.2001-04.com.exämple",
            "iqn.2001-04.com.example:\u{7}",
            "iqn/",
        ] {
            assert_eq!(IscsiName::parse(text), Err(NameError::Character), "{text}");
        }
        for text in [
            "iqn",
            "iqn.",
            "iqn.2001-04",
            "iqn.2001-04.",
            "iqn.2001-04.:x",
            "iqn.2001-13.com.example",
            "iqn.2001-4.com.example",
            "iqn.20x1-04.com.example",
            "eui.02004567a425678",
            "eui.02004567a425678g",
            "naa.52004567ba64678",
            "disk1",
        ] {
            assert_eq!(IscsiName::parse(text), Err(NameError::Format), "{text}");
        }
    }
}
