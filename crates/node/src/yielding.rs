//! Work over all volumes, divided into parts so that requests of hosts run in between. A change that happens
//! meanwhile may or may not be seen.

use std::collections::BTreeMap;
use std::ops::Bound;

/// How many items are processed in one turn of a core: some tens of microseconds of work, which a host's
/// request may have to wait for.
pub const ITEMS_PER_TURN: usize = 8;

/// The same for items that take less than half a microsecond: those that are only looked at.
pub const QUICK_ITEMS_PER_TURN: usize = 64;

/// Calls `each` with a few items in each turn of this core.
pub async fn for_each<T>(items: impl IntoIterator<Item = T>, mut each: impl FnMut(T)) {
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 && number.is_multiple_of(ITEMS_PER_TURN) {
            rt::next_turn().await;
        }
        each(item);
    }
}

/// Calls `each` with the next [`QUICK_ITEMS_PER_TURN`] items of the map, in order, starting behind `after`.
///
/// Returns the last of their keys if there may be more: the next turn continues behind it.
pub fn look_at_some<K: Copy + Ord, V>(
    map: &mut BTreeMap<K, V>,
    after: Option<K>,
    mut each: impl FnMut(K, &mut V),
) -> Option<K> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let (mut looked_at, mut last) = (0, None);
    for (key, value) in map.range_mut::<K, _>((from, Bound::Unbounded)).take(QUICK_ITEMS_PER_TURN) {
        each(*key, value);
        (looked_at, last) = (looked_at + 1, Some(*key));
    }
    last.filter(|_| looked_at == QUICK_ITEMS_PER_TURN)
}

/// Maps the items with `of`, a few in each turn of this core, and collects the results that are `Some`.
pub async fn filter_map<T, R>(
    items: impl IntoIterator<Item = T>,
    mut of: impl FnMut(T) -> Option<R>,
) -> Vec<R> {
    let mut all = Vec::new();
    for_each(items, |item| all.extend(of(item))).await;
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many items each turn looks at, if `meanwhile` happens after each turn.
    fn turns(
        map: &mut BTreeMap<usize, usize>,
        mut meanwhile: impl FnMut(&mut BTreeMap<usize, usize>),
    ) -> Vec<usize> {
        let (mut turns, mut after) = (Vec::new(), None);
        loop {
            let mut looked_at = 0;
            after = look_at_some(map, after, |_, looks| {
                *looks += 1;
                looked_at += 1;
            });
            turns.push(looked_at);
            if after.is_none() {
                return turns;
            }
            meanwhile(map);
        }
    }

    fn of(count: usize) -> BTreeMap<usize, usize> {
        (0..count).map(|key| (key, 0)).collect()
    }

    #[test]
    fn each_volume_is_visited_once_and_few_per_turn() {
        const MANY: usize = 2 * QUICK_ITEMS_PER_TURN;
        for (count, expected) in [
            (0, vec![0]),
            (1, vec![1]),
            (QUICK_ITEMS_PER_TURN - 1, vec![QUICK_ITEMS_PER_TURN - 1]),
            (QUICK_ITEMS_PER_TURN, vec![QUICK_ITEMS_PER_TURN, 0]),
            (MANY + 3, vec![QUICK_ITEMS_PER_TURN, QUICK_ITEMS_PER_TURN, 3]),
        ] {
            let mut map = of(count);
            assert_eq!(turns(&mut map, |_| {}), expected, "of {count}");
            assert!(map.values().all(|looks| *looks == 1), "of {count}");
        }
    }

    #[test]
    fn objects_that_stay_are_visited_once_while_others_come_and_go() {
        let mut map = of(QUICK_ITEMS_PER_TURN + 2);
        // The second turn continues behind this key.
        let last = QUICK_ITEMS_PER_TURN - 1;
        let looked_at = turns(&mut map, |map| {
            map.remove(&last);
            map.insert(QUICK_ITEMS_PER_TURN + 7, 0);
        });
        assert_eq!(looked_at, [QUICK_ITEMS_PER_TURN, 3]);
        assert!(map.values().all(|looks| *looks == 1), "{map:?}");
    }
}
