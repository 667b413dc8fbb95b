"""Replays FjORD: a random width for every batch, with or without distillation from the client's largest width."""

import methods_common as common
import numpy as np
from methods_files import File, Gaps


def replay(path):
    """Replay a file: (stage, gap, tolerance) of every stage."""
    fjord = Replay(File(path), Gaps())
    state = fjord.start()
    for number in range(len(fjord.file.cohorts)):
        plan = fjord.plan(number)
        covered = fjord.compare_clients(state, plan, number)
        state = fjord.compare_round(state, plan, number, covered)
    fjord.compare_prediction(state)
    stages = {"loss", "client", "round", "unchanged", "predict"}
    return fjord.gaps.check_stages(fjord.file, stages if fjord.meta["kd"] else stages | {"reported"})


class Replay(common.Replay):
    """One file as a learning process. Each round has new clients, since a client's examples change."""

    def __init__(self, file, gaps):
        meta, examples = file.meta, common.Examples()
        self.clients = len(meta["max_p"])
        self.levels = common.named_levels(meta["p_s"])
        self.batches = examples.rounds(file)
        sizes = [
            sum(map(len, batches_by_client.get(client, [[0]])))
            for batches_by_client in self.batches
            for client in range(self.clients)
        ]
        layers, stems = common.post_activation_resnet(meta, meta["blocks"], "wbn", "bn", "!w ")
        text = common.recipe_text(
            file,
            len(sizes),
            layers,
            self.levels,
            round={"weighting": "samples", "label_rows": "all"},
            client={
                "stages": {"name": "nested", "distill": meta["kd"]},
                "coupling": "self_distillation" if meta["kd"] else "sum",
            },
            engine="auto",
        )
        dataset = examples.dataset(len(file.arrays["global_init/linear.bias"]), file.name)
        process = common.build_process(text, dataset, sizes)
        super().__init__(file, gaps, process, stems)

    def plan(self, number):
        """Build the plan of a round; a stage is a width."""
        levels, widths, entries = list(self.levels.values()), sorted(self.levels.values()), []
        cohort = self.meta["rounds"][number]
        for client, drawn in zip(cohort["users"], cohort["draws"], strict=True):
            level, stages = levels.index(self.meta["max_p"][client]), [widths.index(width) for width in drawn]
            entries.append(common.Entry(number * self.clients + client, level, self.batches[number][client], stages))
        return common.plan(entries)

    def compare_clients(self, state, plan, number):
        """Compare every client of a round; return `{path: mask of the covered entries}`."""
        covered, distill = {path: np.zeros(shape, bool) for path, shape in self.shapes.items()}, self.meta["kd"]
        for slot, client in enumerate(self.file.cohorts[number]):
            trained, prefix = self.trainer(state, plan, slot), f"round{number}/client{client}"
            full = self.file.result(f"{prefix}/full_loss") if distill else 0.0
            self.gaps.note("loss", trained.losses, self.file.result(f"{prefix}/loss") + full)
            if not distill:
                counts = np.count_nonzero(plan.rows[slot] >= 0, axis=-1)[: plan.steps[slot]]
                reported = self.file.result(f"{prefix}/reported_loss")
                self.gaps.note("reported", np.average(trained.losses, weights=counts), reported)
            # A client of this project has only the first channels; the vectors' client decays all of them.
            whole = self.expected(f"{prefix}/after")
            first = {path: tuple(map(slice, value.shape)) for path, value in trained.values.items()}
            self.gaps.note("client", trained.values, {path: whole[path][slices] for path, slices in first.items()})
            for path, slices in first.items():
                covered[path][slices] = True
        return covered

    def compare_prediction(self, state):
        """Compare logits, loss and accuracy of every width."""
        images, labels = self.file.input("eval/img"), self.file.input("eval/label")
        for level, width in self.levels.items():
            logits = common.predict(self.process, state, images, level)
            self.note("predict", logits, f"eval/p{width}/logits")
            self.note("predict", common.mean_loss(logits, labels), f"eval/p{width}/loss")
            self.note("predict", np.mean(np.argmax(logits, 1) == labels), f"eval/p{width}/accuracy")
