"""What a store shows: the watch, with our own writes laid over it until the watch has passed them (design, section 5)."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.resource import Meta
from kube.store import Change, Entry, Store


def entry(version: str, value: str | None, uid: str = "u") -> Entry[str]:
    return Entry(uid, version, value)


def answer(version: str, uid: str = "u") -> Meta:
    return Meta("a", "ns", uid, version)


def listed(version: str = "10", **entries: Entry[str]) -> Store[str]:
    """A store after a list; keyword `a` is the object ns/a."""
    store: Store[str] = Store()
    store.replace(keyed(entries), version)
    return store


def keyed(entries: Mapping[str, Entry[str]]) -> dict[str, Entry[str]]:
    return {f"ns/{name}": value for name, value in entries.items()}


def test_a_list_is_compared_with_what_was_known_so_that_a_missed_deletion_is_told() -> None:
    store = listed(a=entry("1", "a1"), b=entry("2", "b2"), c=entry("3", "c3"))
    changes = store.replace(keyed({"a": entry("1", "a1"), "b": entry("12", "b12"), "d": entry("13", "d13")}), "20")
    assert changes == (Change("ns/b", "b2", "b12"), Change("ns/c", "c3", None), Change("ns/d", None, "d13"))
    assert store.list() == ("a1", "b12", "d13")


def test_the_snapshot_is_the_same_object_until_something_changes() -> None:
    store = listed(a=entry("1", "a1"))
    before, version = store.list(), store.version
    assert store.observe("ns/a", entry("11", "a1")) is None, "a new version of an equal projection changes nothing"
    assert (store.list(), store.version) == (before, version)
    assert store.list() is before
    store.observe("ns/a", entry("12", "a12"))
    assert store.list() == ("a12",)
    assert before == ("a1",)
    assert store.version > version


def test_an_old_event_that_is_repeated_changes_nothing() -> None:
    """R03"""
    store = listed(a=entry("9", "new"))
    assert store.observe("ns/a", entry("5", "old")) is None
    assert store.get("ns/a") == "new"


def test_versions_are_ordered_as_numbers_not_as_text() -> None:
    store = listed(a=entry("9", "nine"))
    assert store.observe("ns/a", entry("10", "ten")) == Change("ns/a", "nine", "ten")


def test_versions_that_are_no_numbers_are_never_ordered() -> None:
    store = listed("z", a=entry("y", "one"))
    assert store.observe("ns/a", entry("b", "two")) == Change("ns/a", "one", "two")
    store.lay_over(answer("zz"), "ours")
    assert store.get("ns/a") == "two", "the watch wins where nothing can be compared"


def test_an_object_that_is_no_longer_kept_leaves_the_store() -> None:
    store = listed(a=entry("1", "a1"))
    assert store.observe("ns/a", entry("11", None)) == Change("ns/a", "a1", None)
    assert store.list() == ()


def test_the_deletion_of_an_earlier_object_of_that_name_is_ignored() -> None:
    store = listed(a=entry("9", "second", uid="u2"))
    assert store.remove("ns/a", "u1", "7") is None
    assert store.get("ns/a") == "second"


def test_indexes_follow_every_change() -> None:
    store: Store[str] = Store({"letter": lambda value: [value[0], value[0]], "none": lambda _: ()})
    store.replace(keyed({"a": entry("1", "x1"), "b": entry("2", "x2")}), "10")
    assert store.by_index("letter", "x") == ("x1", "x2")
    store.observe("ns/a", entry("11", "y11"))
    assert (store.by_index("letter", "x"), store.by_index("letter", "y")) == (("x2",), ("y11",))
    store.lay_over(Meta("b", "ns", "u", "12"), "z12")
    assert (store.by_index("letter", "x"), store.by_index("letter", "z")) == ((), ("z12",))
    store.remove("ns/a", "u", "13")
    assert (store.by_index("letter", "y"), store.by_index("none", "x")) == ((), ())
    with pytest.raises(KeyError, match="colour"):
        store.by_index("colour", "x")


class TestOwnWrites:
    """`a` is listed at version 10 of the list; our write is answered as version 12."""

    @pytest.fixture
    def store(self) -> Store[str]:
        store = listed(a=entry("5", "before"))
        store.lay_over(answer("12"), "ours")
        return store

    def test_are_visible_at_once(self, store: Store[str]) -> None:
        assert (store.get("ns/a"), store.list()) == ("ours", ("ours",))

    def test_are_not_hidden_by_an_event_that_was_on_its_way(self, store: Store[str]) -> None:
        assert store.observe("ns/a", entry("11", "other")) == Change("ns/a", "before", "other")
        assert store.get("ns/a") == "ours"

    def test_give_way_to_their_own_echo_of_which_handlers_are_told(self, store: Store[str]) -> None:
        version = store.version
        assert store.observe("ns/a", entry("12", "ours")) == Change("ns/a", "before", "ours")
        assert (store.get("ns/a"), store.version) == ("ours", version)

    def test_give_way_to_a_later_write_of_someone_else(self, store: Store[str]) -> None:
        store.observe("ns/a", entry("13", "theirs"))
        assert store.get("ns/a") == "theirs"

    def test_outlive_a_list_that_was_read_before_them(self, store: Store[str]) -> None:
        store.replace(keyed({"a": entry("11", "other")}), "11")
        assert store.get("ns/a") == "ours"

    def test_give_way_to_a_list_that_was_read_after_them(self, store: Store[str]) -> None:
        store.replace({}, "14")
        assert store.list() == ()

    def test_give_way_to_a_bookmark_that_has_passed_them(self, store: Store[str]) -> None:
        store.passed("11")
        assert store.get("ns/a") == "ours"
        store.passed("12")
        assert store.get("ns/a") == "before"

    def test_are_gone_with_their_object(self, store: Store[str]) -> None:
        store.remove("ns/a", "u", "15")
        assert store.list() == ()

    def test_are_not_taken_back_by_an_older_answer(self, store: Store[str]) -> None:
        store.lay_over(answer("11"), "slower")
        assert store.get("ns/a") == "ours"

    def test_that_the_watch_has_already_passed_do_not_bring_an_object_back(self) -> None:
        """The watch can be quicker than our thread: written at 12, deleted at 13, and only then laid over."""
        store = listed(a=entry("5", "before"))
        store.observe("ns/a", entry("12", "ours"))
        store.remove("ns/a", "u", "13")
        store.lay_over(answer("12"), "ours")
        assert store.list() == ()

    def test_may_take_an_object_out_of_what_is_kept(self) -> None:
        store = listed(a=entry("5", "before"))
        store.lay_over(answer("12"), None)
        assert store.list() == ()
        store.observe("ns/a", entry("14", "back"))
        assert store.list() == ("back",)

    def test_survive_an_etcd_that_was_restored_only_until_they_are_passed(self) -> None:
        store = listed("100", a=entry("90", "before"))
        store.replace(keyed({"a": entry("40", "restored")}), "50")
        store.lay_over(answer("51"), "ours")
        assert store.get("ns/a") == "ours", "the list has set the clock back"


class TestOwnDeletions:
    @pytest.fixture
    def store(self) -> Store[str]:
        store = listed(a=entry("5", "doomed"))
        store.lay_over_deleted("ns/a", "u")
        return store

    def test_are_visible_at_once_and_told_by_the_watch_later(self, store: Store[str]) -> None:
        assert store.list() == ()
        assert store.remove("ns/a", "u", "12") == Change("ns/a", "doomed", None)

    def test_are_not_undone_by_an_event_that_was_on_its_way(self, store: Store[str]) -> None:
        store.observe("ns/a", entry("11", "doomed still"))
        assert store.list() == ()

    def test_give_way_to_a_new_object_of_that_name(self, store: Store[str]) -> None:
        store.observe("ns/a", entry("13", "reborn", uid="u2"))
        assert store.list() == ("reborn",)

    def test_come_too_late_for_an_object_that_has_been_replaced(self) -> None:
        store = listed(a=entry("5", "reborn", uid="u2"))
        store.lay_over_deleted("ns/a", "u")
        assert store.list() == ("reborn",)

    def test_are_believed_until_the_next_list(self, store: Store[str]) -> None:
        store.replace(keyed({"a": entry("14", "finalizing")}), "15")
        assert store.list() == ("finalizing",)


@given(st.data())
def test_what_is_visible_is_never_older_than_our_last_answer_and_ends_as_the_truth(data: st.DataObject) -> None:
    """The law of own writes: any history of one object, watched in order while answers come in at any moment."""
    ours = data.draw(st.lists(st.booleans(), min_size=1, max_size=12), label="whether each write is ours")
    store: Store[str] = listed("0")
    delivered = newest_laid = 0
    told: list[Change[str]] = []
    while delivered < len(ours):
        answered = [v for v in range(newest_laid + 1, len(ours) + 1) if ours[v - 1]]
        if answered and data.draw(st.booleans(), label="an answer arrives"):
            newest_laid = data.draw(st.sampled_from(answered))
            store.lay_over(answer(str(newest_laid)), str(newest_laid))
        else:
            delivered += 1
            change = store.observe("ns/a", entry(str(delivered), str(delivered)))
            told += [change] if change else []
        assert int(store.get("ns/a") or 0) == max(newest_laid, delivered)
    assert store.get("ns/a") == str(len(ours))
    assert [change.old for change in told] == [None, *(change.new for change in told[:-1])], "each old is the last new"
