"""Tests of the prediction of a training's time."""

from training.search.time_trial import TimeTrial


def test_the_time_has_all_its_parts() -> None:
    trial = TimeTrial(
        preparation=1.0,
        step=0.5,
        evaluation=2.0,
        epoch_steps=4,
        metric="accuracy",
        baselines={"most frequent class": 0.5},
        baselines_time=3.0,
    )
    assert trial.seconds(2) == 1.0 + 3.0 + 2 * (4 * 0.5 + 2.0)
    assert [trial.epochs_within(seconds) for seconds in (3.0, 12.0, 15.9, 16.0)] == [1, 2, 2, 3]
