//! Control data: stanzas of `Field: value` lines (Debian Policy §5.1), used by indexes, releases and deb822 sources.

/// One stanza: fields in file order, continuation lines joined by `\n` without their leading space.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stanza<'a> {
    fields: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Stanza<'a> {
    /// First line of a field; field names are compared without case.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.lines(name).and_then(|lines| lines.first().copied())
    }

    /// All lines of a field: what follows the colon, then each continuation line, trimmed.
    pub fn lines(&self, name: &str) -> Option<&[&'a str]> {
        self.fields
            .iter()
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, lines)| lines.as_slice())
    }

    /// All words of a field over all its lines.
    pub fn words(&self, name: &str) -> Vec<&'a str> {
        self.lines(name)
            .unwrap_or_default()
            .iter()
            .flat_map(|line| line.split_whitespace())
            .collect()
    }
}

/// Splits a control file into stanzas. Comment lines (`#`) are dropped; a line without a colon is an error with its number.
pub fn stanzas(text: &str) -> impl Iterator<Item = Result<Stanza<'_>, String>> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let mut stanza = Stanza::default();
        for (number, line) in lines.by_ref() {
            if line.trim().is_empty() {
                if stanza.fields.is_empty() {
                    continue;
                }
                break;
            }
            if line.starts_with('#') {
                continue;
            }
            if line.starts_with([' ', '\t']) {
                match stanza.fields.last_mut() {
                    Some((_, lines)) => lines.push(line.trim()),
                    None => {
                        return Some(Err(format!("line {}: continuation of nothing", number + 1)));
                    }
                }
            } else if let Some((name, value)) = line.split_once(':') {
                stanza.fields.push((name, vec![value.trim()]));
            } else {
                return Some(Err(format!("line {}: no colon in {line:?}", number + 1)));
            }
        }
        (!stanza.fields.is_empty()).then_some(Ok(stanza))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_continuations_and_comments() {
        let text = "\n\nPackage: a\nDescription: short\n long one\n .\n end\n# remark\nsize: 12\n\nPackage: b\nURL: http://x/\n";
        let all: Vec<_> = stanzas(text).collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].get("package"), Some("a"));
        assert_eq!(
            all[0].lines("Description").unwrap(),
            ["short", "long one", ".", "end"]
        );
        assert_eq!(all[0].get("Size"), Some("12"));
        assert_eq!(all[1].get("URL"), Some("http://x/"));
        assert_eq!(all[1].get("Missing"), None);
        assert_eq!(
            all[0].words("Description"),
            ["short", "long", "one", ".", "end"]
        );
    }

    #[test]
    fn damage_is_named_by_line() {
        assert_eq!(
            stanzas("A: 1\nnonsense\n").next().unwrap().unwrap_err(),
            "line 2: no colon in \"nonsense\""
        );
        assert!(stanzas(" orphan\n").next().unwrap().is_err());
        assert_eq!(stanzas("").count(), 0);
        assert_eq!(stanzas("\n\n").count(), 0);
    }
}
