"""Packaging of hetero_tf: `pip install .`, or `pip install -e '.[test]'` to work on it."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def version():
    """The version that hetero_tf/base/version.py states, read as text: its needs are not installed yet."""
    text = (ROOT / "hetero_tf" / "base" / "version.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE).group(1)


# Lower bounds: TensorFlow 2.20 is the first that has wheels for every Python from 3.10 to 3.13.
REQUIRED = [
    "absl-py>=2.1",
    "importlib_resources>=6.0",  # tensorflow-datasets imports it without asking for it
    "keras>=3.10",
    "numpy>=1.26",
    "pyarrow>=16.0",  # tensorflow-datasets needs it too
    "pyyaml>=6.0",
    "tensorflow>=2.20",
    "tensorflow-datasets>=4.9.7",
]
PLOT = ["matplotlib>=3.8"]
# What exports are converted with, and run in after that.
ONNX = ["onnx>=1.17", "onnxruntime>=1.20", "tf2onnx>=1.16"]
LITERT = ["ai-edge-litert>=2.0"]
TENSORBOARD = ["tensorboard>=2.20"]
CRYPTOGRAPHY = ["cryptography>=42.0"]
SERVE = ["starlette>=0.40", "uvicorn>=0.30"]
EXTRAS = {
    "flower": [*CRYPTOGRAPHY, "flwr>=1.41; python_version >= '3.11'"],
    "gpu": ["tensorflow[and-cuda]>=2.20"],
    "litert": LITERT,
    "onnx": ONNX,
    "plot": PLOT,
    "serve": SERVE,
    "tensorboard": TENSORBOARD,
    "test": [
        *("jsonschema>=4.20", "mypy>=1.11", "pytest>=8.0", "pytest-xdist>=3.5", "ruff>=0.12"),
        *CRYPTOGRAPHY,  # keys of devices; Flower itself would hold other packages back
        *LITERT,
        *ONNX,
        *PLOT,
        *SERVE,
        *TENSORBOARD,
    ],
}

setup(
    name="hetero_tf",
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
    install_requires=REQUIRED,
    extras_require={**EXTRAS, "all": sorted({need for needs in EXTRAS.values() for need in needs})},
    # The recipes lie at the top of the checkout, where a person looks for them, and in the package once installed.
    packages=[*find_packages(include=["hetero_tf", "hetero_tf.*"]), "hetero_tf.recipes"],
    package_dir={"hetero_tf.recipes": "recipes"},
    package_data={
        "hetero_tf": ["py.typed"],
        "hetero_tf.data": ["embedded/*", "embedded/**/*"],
        "hetero_tf.reports": ["published.yaml", "report.html"],
        "hetero_tf.export.serve": ["page.html"],
        "hetero_tf.recipes": ["*", "**/*"],
    },
    entry_points={"console_scripts": ["hetero_tf=hetero_tf.cli.main:main"]},
)
