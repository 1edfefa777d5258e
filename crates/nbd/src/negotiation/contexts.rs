//! Metadata contexts (section *Metadata querying*).

use crate::export::{Export, Map};

const ALLOCATION: &str = "base:allocation";
const BITMAPS: &str = "qemu:dirty-bitmap:";

/// Contexts of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contexts(Vec<Map>);

impl Contexts {
    /// What each of them says, with its ID, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, Map)> {
        self.0.iter().map(|map| (id(*map), *map))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their IDs and names.
    pub(super) fn named(&self, export: &Export) -> impl Iterator<Item = (u32, String)> {
        self.iter().map(|(id, map)| (id, name(map, export)))
    }

    /// Those with exactly these names. Others are ignored, as the protocol demands.
    pub(super) fn selected<'a>(export: &Export, queries: impl Iterator<Item = &'a [u8]>) -> Contexts {
        let queries: Vec<&[u8]> = queries.collect();
        Contexts::of(export, |name| queries.contains(&name.as_bytes()))
    }

    /// Those with these names, or in these namespaces; without queries: all.
    pub(super) fn listed<'a>(export: &Export, queries: impl Iterator<Item = &'a [u8]>) -> Contexts {
        let queries: Vec<&[u8]> = queries.collect();
        let is_wanted = |name: &str, query: &[u8]| {
            let is_wildcard = ["base:", "qemu:", BITMAPS].iter().any(|all| all.as_bytes() == query);
            name.as_bytes() == query || is_wildcard && name.as_bytes().starts_with(query)
        };
        Contexts::of(export, |name| queries.is_empty() || queries.iter().any(|query| is_wanted(name, query)))
    }

    fn of(export: &Export, is_wanted: impl Fn(&str) -> bool) -> Contexts {
        let all = [Some(Map::Allocation), export.bitmap.as_ref().map(|_| Map::Changes)];
        Contexts(all.into_iter().flatten().filter(|map| is_wanted(&name(*map, export))).collect())
    }
}

fn id(map: Map) -> u32 {
    match map {
        Map::Allocation => 1,
        Map::Changes => 2,
    }
}

fn name(map: Map, export: &Export) -> String {
    match map {
        Map::Allocation => ALLOCATION.into(),
        Map::Changes => format!("{BITMAPS}{}", export.bitmap.as_deref().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(bitmap: Option<&str>) -> Export {
        let bitmap = bitmap.map(str::to_owned);
        Export { name: "db@b".into(), description: String::new(), size: 4096, bitmap }
    }

    fn ids(contexts: Contexts) -> Vec<u32> {
        contexts.iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn contexts_are_selected_by_their_whole_names() {
        let export = export(Some("a"));
        let selected =
            |queries: &[&str]| ids(Contexts::selected(&export, queries.iter().map(|query| query.as_bytes())));
        assert_eq!(selected(&["base:allocation"]), [1]);
        assert_eq!(selected(&["qemu:dirty-bitmap:a", "base:allocation", "qemu:dirty-bitmap:a"]), [1, 2]);
        for query in ["base:", "qemu:", "qemu:dirty-bitmap:", "qemu:dirty-bitmap:b", "x-y:z", "base", ""] {
            assert_eq!(selected(&[query]), Vec::<u32>::new(), "{query}");
        }
        assert_eq!(selected(&[]), Vec::<u32>::new(), "no queries select none");
    }

    #[test]
    fn contexts_are_listed_by_namespace() {
        let (with, without) = (export(Some("a")), export(None));
        let listed = |export: &Export, queries: &[&str]| {
            ids(Contexts::listed(export, queries.iter().map(|query| query.as_bytes())))
        };
        assert_eq!(listed(&with, &[]), [1, 2]);
        assert_eq!(listed(&with, &["base:"]), [1]);
        for query in ["qemu:", "qemu:dirty-bitmap:", "qemu:dirty-bitmap:a"] {
            assert_eq!(listed(&with, &[query]), [2], "{query}");
            assert_eq!(listed(&without, &[query]), Vec::<u32>::new(), "{query}");
        }
        assert_eq!(listed(&without, &[]), [1]);
        assert_eq!(listed(&with, &["qemu:dirty", "b", ""]), Vec::<u32>::new());
        let names: Vec<_> = Contexts::listed(&with, std::iter::empty()).named(&with).collect();
        assert_eq!(names, [(1, "base:allocation".into()), (2, "qemu:dirty-bitmap:a".into())]);
    }
}
