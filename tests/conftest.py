"""What holds for all tests; their fixtures are in `tests/fixtures`."""

import gc
import logging
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_TESTS = Path(__file__).parent
_SLOW = (
    "training/tasks/language_model/test_served_history.py",
    "benchmarks/test_causal_quantization.py",
    "benchmarks/test_gpu_parts.py",
    "benchmarks/test_gpu.py",
    "benchmarks/test_hostile.py",
    "service/api/test_experiments.py",
    "models/bundle/test_bill_of_materials.py",
    "training/run/test_interruption.py",
    "training/cli/test_new.py",
    "training/cli/test_calibrating.py",
    "training/run/test_new_data.py",
    "service/test_multiprocess.py",
    "service/test_multiprocess_administration.py",
    "service/test_hanging_models.py",
    "training/search/test_tune.py",
    "training/search/tables/test_side_by_side.py",
    "training/test_devices.py",
    "docs/test_tutorials.py",
    "training/bundling/test_cuda_kernels.py",
    "benchmarks/test_serving.py",
    "clients/test_open_inference.py",
    "training/tasks/translation/test_confidence.py",
    "containers/test_helm_rules.py",
    "containers/test_signatures.py",
    "service/web/test_playground.py",
    "service/web/test_encoder_views.py",
    "service/web/test_translation_view.py",
    "training/tasks/text_generation/test_export.py",
    "training/importing/test_classification.py",
    "training/importing/test_token_classification.py",
    "training/tasks/token_classification/test_task.py",
    "training/bundling/test_best_classes.py",
    "training/importing/test_embedding.py",
    "training/tasks/causal_language_model/test_export.py",
    "training/importing/test_causal.py",
    "training/importing/test_causal_quantization.py",
    "training/importing/test_replaced_heads.py",
    "training/search/test_comparison.py",
    "training/tasks/translation/test_guided_alignment.py",
    "service/test_garbage.py",
    "service/engine/test_signatures.py",
    "service/jobs/test_documents.py",
    "service/jobs/test_killed.py",
    "service/offline/test_array_files.py",
    "models/tasks/test_windowed.py",
    "training/importing/test_setfit.py",
    "training/tasks/translation/test_copying_export.py",
    "training/tasks/translation/test_copying.py",
    "training/tasks/causal_language_model/test_pretrained.py",
    "training/importing/test_regression.py",
    "training/importing/test_zero_shot.py",
    "training/importing/test_onnx_embedding.py",
    "training/importing/test_onnx_regression.py",
    "training/importing/test_onnx_tagger.py",
    "training/importing/test_other_classifier.py",
    "service/api/v1/test_zero_shot.py",
    "clients/test_encoders.py",
    "clients/test_imported_translators.py",
    "service/protocols/test_encoders.py",
    "training/tasks/translation/test_task.py",
    "training/cli/test_cli_translation.py",
    "training/softmax/test_loss.py",
    "training/softmax/test_inference_mode.py",
    "training/softmax/test_huggingface.py",
    "training/softmax/test_distributed_training.py",
    "training/softmax/test_parallel.py",
    "training/softmax/test_distribution.py",
    "docs/test_tutorials_own.py",
    "training/run/test_two_machines.py",
    "service/offline/test_command.py",
    "service/offline/test_rescore_command.py",
    "containers/test_proxies.py",
    "service/test_server.py",
    "service/test_protocol_errors.py",
    "service/test_cache_tenants.py",
    "service/test_tenants.py",
    "service/test_result_cache.py",
    "service/test_watchdog.py",
    "service/test_native_timer.py",
    "training/tasks/translation/test_bundle_weights.py",
    "extension/test_package.py",
    "training/bundling/test_layers.py",
    "training/importing/test_bundle.py",
    "training/importing/test_module.py",
    "training/importing/test_marian.py",
    "training/importing/test_multilingual.py",
    "service/engine/test_loading.py",
    "service/hostile/test_bundles.py",
    "service/engine/test_trial.py",
    "service/engine/test_trial_process.py",
    "benchmarks/load/test_run.py",
    "docs/test_bundled.py",
    "service/api/v1/test_translation.py",
    "training/cli/test_cli.py",
    "models/decoding/test_continuous.py",
    "training/run/test_distributed.py",
    "training/run/test_loop.py",
    "training/run/test_loss_curves.py",
    "training/run/test_trained.py",
    "containers/test_dashboard.py",
    "extension/test_kernels.py",
    "service/api/test_admin.py",
    "benchmarks/test_profile.py",
    "training/tasks/translation/test_export.py",
    "training/cli/test_tune_command.py",
    "models/test_start.py",
    "models/image/test_decoding.py",
    "benchmarks/peers/test_environments.py",
    "clients/test_huggingface.py",
    "models/tasks/test_bundled_translator.py",
    "training/tasks/text_classification/test_export.py",
    "models/text/test_sentence_pieces.py",
    "benchmarks/test_translation.py",
    "service/web/test_failures.py",
    "benchmarks/test_batching.py",
    "clients/test_deepl.py",
    "clients/test_deepl_glossaries.py",
    "service/api/v1/test_glossaries.py",
    "clients/test_examples.py",
    "models/tasks/test_language_model.py",
    "containers/test_helm.py",
    "service/api/v1/test_rescore.py",
    "service/api/v1/test_translation_languages.py",
    "service/api/v1/test_pivot.py",
    "service/test_validation.py",
    "service/test_timed_protocol.py",
    "clients/test_libretranslate.py",
    "training/bundling/test_onnx.py",
    "extension/test_tasks.py",
    "models/tasks/test_text_classification.py",
    "benchmarks/peers/test_texts.py",
    "service/protocols/mcp/test_tools.py",
    "training/bundling/test_bundle.py",
    "training/test_open_tasks.py",
    "service/test_openapi.py",
    "training/tasks/text_classification/test_task.py",
    "benchmarks/test_memory_sweep.py",
    "models/tasks/test_translation.py",
    "training/networks/test_translation_model.py",
    "training/importing/test_command.py",
    "benchmarks/load/test_generator.py",
    "training/importing/test_sentence_pieces.py",
    "service/test_http_protocol.py",
    "service/protocols/test_capabilities.py",
    "service/test_short_deadlines.py",
    "service/test_app.py",
    "service/engine/test_served_models.py",
    "service/test_forced_exit.py",
    "training/search/analyses/test_grid.py",
    "service/api/v1/test_language_model_busy.py",
    "benchmarks/test_in_process.py",
    "models/test_devices.py",
    "training/run/test_resumption.py",
    "training/run/test_loop_steps.py",
    "training/cli/test_cli_devices.py",
    "support/test_translation_bundle.py",
    "training/data/test_pair_batching.py",
    "clients/test_openai.py",
    "models/test_reading_sections.py",
    "training/search/analyses/test_gradients.py",
    "training/search/tables/test_command.py",
    "training/search/tables/test_runner.py",
    "service/protocols/open_inference/grpc/test_server.py",
    "service/api/v1/test_tagging.py",
    "service/test_connections.py",
    "service/test_native_errors.py",
)
"""Files of 6 seconds and more, the longest first: they have the marker `slow`."""
_TIMED = (
    "clients",
    "containers",
    "docs/test_bundled.py",
    "extension/test_package.py",
    "service/deploy",
    "service/hostile",
    "service/web",
)
"""Tests that drive a browser, a cluster or a clock, or processes that train together, in addition to the files directly
in `service`: in continuous integration, such a test runs once more where it fails, and the summary names it. Others
never do."""
_FIXTURES = ("words", "classification", "encoders", "generation", "images", "marian", "pivot")

settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures where tests run, and not in the process that hands them out to others."""
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        return
    for name in _FIXTURES:
        config.pluginmanager.import_plugin(f"tests.fixtures.{name}")
    import torch

    torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
    # pytest listens to every logger; torch's trace log would slow exports down and fill the report of a failed test.
    logging.getLogger("torch.__trace").disabled = True


@pytest.hookimpl(tryfirst=True)  # before marks select tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow files and those of benchmarks; begin with the longest, so that no process runs one alone in the end."""
    slow = {str(_TESTS / file): place for place, file in enumerate(_SLOW)}
    items.sort(key=lambda item: slow.get(str(item.path), len(slow)))
    again = "SOFTSERVE_RERUN" in os.environ
    for item in items:
        if str(item.path) in slow:
            item.add_marker(pytest.mark.slow)
        programs = _TESTS / "benchmarks"  # the load generator is used as a tool
        if item.path.is_relative_to(programs) and not item.path.is_relative_to(programs / "load"):
            item.add_marker(pytest.mark.benchmarks)
        of_clocks = any(item.path.is_relative_to(_TESTS / each) for each in _TIMED)
        if again and (of_clocks or item.path.parent == _TESTS / "service"):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that ran a second time, and why the first time failed."""
    for report in terminalreporter.stats.get("rerun", []):
        crash = getattr(report.longrepr, "reprcrash", None)
        terminalreporter.write_line(f"FLAKY {report.nodeid}: {crash.message if crash else report.longrepr}")


def pytest_collection_finish() -> None:
    """Let collections of garbage leave out all that was imported; each export asks for several."""
    gc.collect()
    gc.freeze()
