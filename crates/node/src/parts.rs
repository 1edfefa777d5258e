//! Work for all volumes, in parts, so that requests of hosts come in between. What changes meanwhile is seen or not.

/// How many things are looked at in one turn of a core: some tens of microseconds of work, which is what a host's request may wait for it.
pub const A_TURN: usize = 8;

/// Calls `each` with a few items in each turn of this core.
pub async fn for_each<T>(items: impl IntoIterator<Item = T>, mut each: impl FnMut(T)) {
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 && number.is_multiple_of(A_TURN) {
            rt::next_turn().await;
        }
        each(item);
    }
}

/// What `of` makes of the items, a few in each turn of this core, but for those of which it makes nothing.
pub async fn filter_map<T, R>(
    items: impl IntoIterator<Item = T>,
    mut of: impl FnMut(T) -> Option<R>,
) -> Vec<R> {
    let mut all = Vec::new();
    for_each(items, |item| all.extend(of(item))).await;
    all
}
