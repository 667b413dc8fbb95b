"""`for_each` fails with every case that fails, and without cases."""

from each import for_each
from refusals import refusal


@for_each(["a", "b"])
def test_cases_share_the_fixtures(case, tmp_path):
    (tmp_path / case).touch()
    assert (tmp_path / "a").exists()


def test_every_case_that_fails_is_listed():
    @for_each([1, 0, -1])
    def check(number):
        assert 1 / number > 0, "negative"

    message = "2 of 3 cases failed\n0: ZeroDivisionError: division by zero\n-1: AssertionError: negative\nassert "
    assert refusal(check, kind=AssertionError).startswith(message)
    assert refusal(for_each([])(check), kind=AssertionError) == "there are no cases"
