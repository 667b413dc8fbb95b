"""benchmarks/similarity.py: linear CKA and SVCCA of representations with known similarities, and of the clients of a run."""

import json

import numpy as np
import programs
import pytest

similarity = programs.script("benchmarks/similarity.py")
MEASURES, linear_cka, svcca = similarity.MEASURES, similarity.linear_cka, similarity.svcca


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def rotation(rng, size):
    return np.linalg.qr(rng.normal(size=(size, size)))[0]


@pytest.mark.parametrize("measure", MEASURES.values())
def test_a_rotated_scaled_and_shifted_copy_has_similarity_1(measure, rng):
    representation = rng.normal(size=(60, 5))
    assert measure(representation, 3 * representation @ rotation(rng, 5) + 2) == pytest.approx(1)


def test_linear_cka_equals_its_form_of_features_and_svcca_ignores_directions_without_variance(rng):
    first, second = (values - values.mean(0) for values in (rng.normal(size=(30, 4)), rng.uniform(size=(30, 7))))
    norm = np.linalg.norm
    expected = norm(first.T @ second) ** 2 / (norm(first.T @ first) * norm(second.T @ second))
    assert linear_cka(first, second) == pytest.approx(expected)
    first, noise = rng.normal(size=(50, 2)), 1e-3 * rng.normal(size=(50, 6))
    assert svcca(np.hstack([first, noise]), first) == pytest.approx(1, abs=1e-3)


def test_svcca_without_truncation_is_the_mean_canonical_correlation(rng):
    first, second = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    second = second + first[:, :2]
    covariance = np.cov(first.T, second.T)
    xx, yy, xy = covariance[:3, :3], covariance[3:, 3:], covariance[:3, 3:]
    squared = np.linalg.eigvals(np.linalg.solve(yy, xy.T) @ np.linalg.solve(xx, xy))
    assert svcca(first, second) == pytest.approx(np.sqrt(squared).mean())


def test_values_that_the_examples_do_not_define_are_missing(rng):
    noise, other = rng.normal(size=(2, 20, 64))
    assert np.isnan(svcca(noise, other)) and np.isfinite(linear_cka(noise, other))
    constant = np.full((20, 64), 0.1)
    assert all(
        np.isnan(measure(noise, constant)) and np.isnan(measure(constant, noise)) for measure in MEASURES.values()
    )
    narrow = noise[:, :2] @ rng.normal(size=(2, 64))
    assert svcca(narrow, 2 * narrow + 1) == pytest.approx(1)
    matrices = {
        name: np.array([[measure(noise, other), 0], [0, measure(noise, constant)]])
        for name, measure in MEASURES.items()
    }
    assert similarity.notes_on(matrices, ((noise, noise), (other, constant))) == [
        "-: the outputs of a unit are the same for all examples",
        "-: SVCCA needs more examples than the main directions of both models. Received: 20",
        "20 test examples are few for 64 channels: linear CKA of unrelated models is high too",
    ]


@pytest.mark.long
def test_similarity_compares_the_local_models_of_two_clients(tmp_path):
    programs.recipe_file(tmp_path)
    program = programs.shared()
    assert program.run("--recipe", "small.yaml", "--run_dir", "run", cwd=tmp_path).code == 0

    def compared(*flags):
        done = program.run("--run_dir", "run", *flags, "--json", script="benchmarks/similarity.py", cwd=tmp_path)
        assert done.code == 0, done.err
        return json.loads(done.out)

    equal, different = compared("--pair", "1,1"), compared("--pair", "0,1", "--draw", "pair.png")
    for name in MEASURES:
        assert np.diagonal(equal[name]) == pytest.approx(1) and np.max(np.diagonal(different[name])) < 0.9999
    assert (tmp_path / "pair.png").read_bytes()[1:4] == b"PNG" and different["clients"] == [0, 1]
    words = ("--run_dir", "run", "--pair", "0,x")
    refused = program.run(*words, script="benchmarks/similarity.py", cwd=tmp_path)
    assert refused.code == 2 and "--pair must be two ids of clients below " in refused.err
