"""The cost model: terms are found in measurements, follow a changed speed, and ignore single pauses."""

import random

import pytest

from service.engine.cost_model import UNMEASURED, CostModel, Sample, Terms, fit

CPU = Terms(fixed=1e-3, item=1e-4, token=5e-5)
GPU = Terms(fixed=4e-3, item=0.0, token=1e-6)
SHAPES = [(items, longest) for items in (1, 8, 32) for longest in (1, 8, 32, 128)]


def measured(terms, shapes=SHAPES, noise=0.0, seed=7):
    chance = random.Random(seed)
    return [Sample(*shape, terms.seconds(*shape) * chance.lognormvariate(0, noise)) for shape in shapes]


def test_the_seconds_of_a_batch_by_hand():
    assert Terms(1.0, 0.5, 0.25).seconds(4, 10) == 1.0 + 4 * 0.5 + 0.25 * 4 * 10


@pytest.mark.parametrize(
    ("terms", "tokens"),
    [
        (CPU, 20.0),
        (GPU, 4000.0),
        (Terms(0.0, 1.0, 0.0), 0.0),
        (Terms(1.0, 0.0, 0.0), 1e6),
        (UNMEASURED, 0.0),
    ],
)
def test_the_fixed_cost_in_tokens(terms, tokens):
    assert terms.batch_cost == pytest.approx(tokens)


@pytest.mark.parametrize("terms", [CPU, GPU, Terms(0.0, 2e-3, 0.0), Terms(1e-3, 0.0, 0.0)])
def test_exact_measurements_are_reproduced(terms):
    assert tuple(fit(measured(terms))) == pytest.approx(tuple(terms), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_noisy_measurements_are_predicted_within_their_noise(seed):
    found = fit(measured(CPU, SHAPES * 4, noise=0.1, seed=seed))
    for shape in SHAPES:
        assert found.seconds(*shape) == pytest.approx(CPU.seconds(*shape), rel=0.1)


def test_one_pause_does_not_change_the_terms():
    samples = measured(CPU)
    samples[3] = samples[3]._replace(seconds=100 * samples[3].seconds)
    assert tuple(fit(samples)) == pytest.approx(tuple(CPU), rel=0.1)


def test_no_term_is_negative():
    falling = [Sample(1, 1, 1.0), Sample(1, 100, 0.5), Sample(8, 100, 0.2)]
    assert min(fit(falling)) >= 0


def test_equal_shapes_are_predicted_although_terms_cannot_be_told_apart():
    assert fit([Sample(4, 5, 0.1)] * 9).seconds(4, 5) == pytest.approx(0.1)


def test_nothing_cannot_be_fitted():
    with pytest.raises(ValueError, match="nothing was measured"):
        fit([])


def test_the_terms_follow_a_model_that_became_slower_and_ignore_pauses():
    model = CostModel(measured(CPU))
    twice = Terms(*(2 * term for term in CPU))
    for number, sample in enumerate(measured(twice, SHAPES * 30, noise=0.05)):
        model.record(sample if number % 20 else sample._replace(seconds=50 * sample.seconds))
    assert tuple(model.terms) == pytest.approx(tuple(twice), rel=0.15)


def test_traffic_of_one_shape_keeps_the_proportions_of_the_warm_up():
    model = CostModel(measured(CPU))
    for _ in range(300):
        model.record(Sample(1, 10, 3 * CPU.seconds(1, 10)))
    assert tuple(model.terms) == pytest.approx(tuple(3 * term for term in CPU), rel=0.1)
    assert model.batch_cost == pytest.approx(CPU.batch_cost, rel=0.1)


def test_new_terms_are_reported():
    reports = []
    model = CostModel(measured(CPU), report=reports.append)
    assert reports == [model.terms._asdict()]
    for sample in measured(GPU, SHAPES * 6):
        model.record(sample)
    assert len(reports) == 2
    assert reports[-1] == model.terms._asdict()


def test_a_given_batch_cost_is_used_instead():
    model = CostModel(measured(GPU), batch_cost=16)
    assert model.batch_cost == 16
    assert model.terms.batch_cost == pytest.approx(4000, rel=0.01)


def test_without_a_warm_up_the_terms_come_from_what_is_served():
    model = CostModel()
    assert model.terms == UNMEASURED
    for sample in measured(CPU, SHAPES * 6):
        model.record(sample)
    assert tuple(model.terms) == pytest.approx(tuple(CPU), rel=0.01)
