"""The line of a benchmark has the form that the design fixes, and its percentile is by nearest rank."""

from tests.bench.figures import Figure, percentile


def test_a_figure_says_its_bar_and_whether_it_holds():
    assert Figure("webhook.p99", 3.84, "ms", "<=", 8).line() == "bench webhook.p99 3.8 ms bar <= 8 ok"
    assert Figure("webhook.rate", 1499, "reviews/s", ">=", 1500).line() == (
        "bench webhook.rate 1499 reviews/s bar >= 1500 short"
    )


def test_a_percentile_is_one_of_the_values():
    assert percentile([5, 1, 4, 2, 3], 0.5) == 3
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile([7], 0.99) == 7
