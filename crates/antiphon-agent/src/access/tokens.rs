//! Tokens: texts that are as good as keys, one a line of a file.
//!
//! The agent keeps them as authentication codes under a key of this process, and compares codes. Nobody
//! outside can choose a code, so the time of a comparison says nothing of a token.

use std::path::Path;

use ring::{hmac, rand};

/// The most tokens of a file: while they are rotated there are two.
const MAX_TOKENS: usize = 64;
/// The longest token.
pub(super) const MAX_TOKEN_BYTES: usize = 512;
/// What a token must have that nobody can guess.
const MIN_TOKEN_BITS: usize = 128;

#[derive(Debug)]
pub(super) struct Tokens {
    key: hmac::Key,
    codes: Vec<hmac::Tag>,
}

impl Tokens {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = super::read_file("token file", path, true)?;
        let tokens = Self::parse(&text);
        tokens.map_err(|reason| format!("token file {}: {reason}", path.display()))
    }

    /// No error shows anything of a token.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new())
            .map_err(|_| "the system gives no random numbers".to_owned())?;
        let mut codes = Vec::new();
        for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let token = line.trim_ascii();
            if token.is_empty() || token.starts_with(b"#") {
                continue;
            }
            check(token).map_err(|reason| format!("line {}: {reason}", number + 1))?;
            if codes.len() == MAX_TOKENS {
                return Err(format!(
                    "there are more than {MAX_TOKENS} tokens: remove old ones"
                ));
            }
            codes.push(hmac::sign(&key, token));
        }
        match codes.is_empty() {
            false => Ok(Self { key, codes }),
            true => Err(
                "there is no token in it: write one a line; `antiphon key FILE` makes a file with one"
                    .to_owned(),
            ),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.codes.len()
    }

    /// Whether this is one of them.
    pub(super) fn have(&self, given: &[u8]) -> bool {
        if given.len() > MAX_TOKEN_BYTES {
            return false;
        }
        let given = hmac::sign(&self.key, given);
        // Compares with all of them, whichever it is: the time must not tell.
        let same = |code: &hmac::Tag| code.as_ref() == given.as_ref();
        self.codes.iter().fold(false, |found, code| found | same(code))
    }
}

/// Whether a text can be a token: of letters that a header can have, and too long to be guessed.
fn check(token: &[u8]) -> Result<(), String> {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if token.len() > MAX_TOKEN_BYTES {
        return Err(format!("a token has at most {MAX_TOKEN_BYTES} bytes"));
    }
    if !token.iter().all(is_letter) {
        return Err("a token has letters, digits and -._~+/= alone".to_owned());
    }
    let bits = if token.iter().all(u8::is_ascii_hexdigit) {
        4
    } else {
        6
    };
    if token.len() * bits < MIN_TOKEN_BITS {
        return Err(format!(
            "a token has at least {MIN_TOKEN_BITS} bits: 32 hexadecimal digits or 22 letters of base64, chosen at random"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef";

    fn parsed(text: &str) -> Result<usize, String> {
        Tokens::parse(text.as_bytes()).map(|tokens| tokens.len())
    }

    #[test]
    fn each_line_is_a_token_and_all_are_known() {
        let tokens =
            Tokens::parse(format!("# two\n{HEX}\r\n\n  AAAAAAAAAAAAAAAAAAAAAZ== \n").as_bytes()).unwrap();
        assert!(tokens.have(HEX.as_bytes()) && tokens.have(b"AAAAAAAAAAAAAAAAAAAAAZ=="));
        for wrong in ["", &HEX[1..], "0123456789abcdef0123456789abcdee", "# two"] {
            assert!(!tokens.have(wrong.as_bytes()), "{wrong}");
        }
        assert!(!tokens.have(HEX.repeat(100).as_bytes()));
    }

    #[test]
    fn what_can_be_guessed_or_sent_in_no_header_is_refused_without_showing_it() {
        for (text, expected) in [
            ("", "no token"),
            ("# nothing\n\n", "no token"),
            (&HEX[1..], "128 bits"),
            ("secretsecretsecret123", "128 bits"),
            ("\n0123456789abcdef 0123456789abcdef", "line 2"),
            ("0123456789abcdefé0123456789abcdef", "alone"),
            (&HEX.repeat(17), "512 bytes"),
            (&format!("{HEX}\n").repeat(MAX_TOKENS + 1), "64 tokens"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("secret") && !error.contains("0123"), "{error}");
        }
        assert_eq!(parsed(HEX), Ok(1));
        assert_eq!(parsed(&format!("{HEX}\n").repeat(MAX_TOKENS)), Ok(MAX_TOKENS));
    }
}
