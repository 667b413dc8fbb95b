"""One test for many cheap cases, such as the files of a folder: it lists every case that fails."""

import functools
import inspect


def for_each(cases):
    """Decorator: run a test for each case, its first argument; the cases share the fixtures, its other arguments."""
    cases = list(cases)

    def decorate(check):
        @functools.wraps(check)
        def test(**fixtures):
            errors = []
            for case in cases:
                try:
                    check(case, **fixtures)
                except Exception as error:
                    errors.append(f"{case}: {type(error).__name__}: {error}")
            assert cases, "there are no cases"
            assert not errors, "\n".join([f"{len(errors)} of {len(cases)} cases failed", *errors])

        # pytest reads the names of the fixtures from the signature.
        signature = inspect.signature(check)
        test.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
        return test

    return decorate
