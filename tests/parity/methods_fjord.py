"""Replays FjORD: a width drawn for every batch, with or without distillation from the client's largest width."""

import methods_common as common
import numpy as np
from methods_files import LEAVES, File, Gaps, variable_paths


def replay(path):
    """(stage, gap, tolerance) of one file."""
    fjord = Replay(File(path), Gaps())
    state = fjord.start()
    for number in range(len(fjord.file.cohorts)):
        plan = fjord.plan(number)
        covered = fjord.compare_clients(state, plan, number)
        state = fjord.compare_round(state, plan, number, covered)
    fjord.compare_prediction(state)
    stages = {"loss", "client", "round", "kept", "predict"}
    return fjord.gaps.told(fjord.file, stages if fjord.meta["kd"] else stages | {"reported"})


class Replay(common.Replay):
    """One file; a client counts as another one in each round, as its examples change there."""

    def __init__(self, file, gaps):
        meta, examples = file.meta, common.Examples()
        self.clients = len(meta["max_p"])
        # The names of the widths' levels, the widest first.
        self.levels = {width: chr(ord("a") + place) for place, width in enumerate(sorted(meta["p_s"], reverse=True))}
        self.batches = examples.rounds(file)
        sizes = [sum(map(len, own.get(client, [[0]]))) for own in self.batches for client in range(self.clients)]
        layers, stems = common.post_activation_resnet(meta, meta["blocks"], "wbn", "bn", "!w ")
        text = common.recipe_text(
            file,
            len(sizes),
            layers,
            {name: width for width, name in self.levels.items()},
            round={"weighting": "samples", "label_rows": "all"},
            client={
                "stages": {"name": "nested", "distill": meta["kd"]},
                "coupling": "self_distillation" if meta["kd"] else "sum",
            },
        )
        dataset = examples.dataset(len(file.arrays["global_init/linear.bias"]), file.name)
        process = common.build_process(text, dataset, sizes)
        super().__init__(file, gaps, process, _paths(process, stems))

    def plan(self, number):
        """The plan of a round; a stage stands for a width."""
        levels, widths, entries = list(self.levels), sorted(self.levels), []
        cohort = self.meta["rounds"][number]
        for client, drawn in zip(cohort["users"], cohort["draws"], strict=True):
            level, stages = levels.index(self.meta["max_p"][client]), [widths.index(width) for width in drawn]
            entries.append(common.Entry(number * self.clients + client, level, self.batches[number][client], stages))
        return common.plan(entries)

    def compare_clients(self, state, plan, number):
        """Every client of a round: `{path: mask of the entries that one of them covers}`."""
        covered, distill = {path: np.zeros(shape, bool) for path, shape in self.shapes.items()}, self.meta["kd"]
        for slot, client in enumerate(self.file.cohorts[number]):
            trained, place = self.trainer(state, plan, slot), f"round{number}/client{client}"
            full = self.file.result(f"{place}/full_loss") if distill else 0.0
            self.gaps.note("loss", trained.losses, self.file.result(f"{place}/loss") + full)
            if not distill:
                counts = np.count_nonzero(plan.rows[slot] >= 0, axis=-1)[: plan.steps[slot]]
                reported = self.file.result(f"{place}/reported_loss")
                self.gaps.note("reported", np.average(trained.losses, weights=counts), reported)
            # A client of this project holds the first channels only; the vectors' decays all of them.
            whole = self.expected(f"{place}/after")
            first = {path: tuple(map(slice, value.shape)) for path, value in trained.values.items()}
            self.gaps.note("client", trained.values, {path: whole[path][own] for path, own in first.items()})
            for path, own in first.items():
                covered[path][own] = True
        return covered

    def compare_prediction(self, state):
        """Logits, loss and accuracy of every width."""
        images, labels = self.file.input("eval/img"), self.file.input("eval/label")
        for width, level in self.levels.items():
            logits = common.predict(self.process, state, images, level)
            found = {
                "logits": logits,
                "loss": common.mean_loss(logits, labels),
                "accuracy": np.mean(np.argmax(logits, 1) == labels),
            }
            for name, value in found.items():
                self.gaps.note("predict", value, self.file.result(f"eval/p{width}/{name}"))


def _paths(process, stems):
    """`{PyTorch name: variable path}`; statistics have the number of their channels in both names."""
    found = variable_paths([path for path in process.paths if "/moving_" not in path], stems)
    layers = {layer: stem for stem, layer in stems.items()}
    for path in process.paths:
        layer, _, leaf = path.rpartition("/")
        if leaf.startswith("moving_"):
            kind, _, channels = leaf.rpartition("_")
            found[f"{layers[layer]}.bn.{channels}.{LEAVES[kind]}"] = path
    return found
