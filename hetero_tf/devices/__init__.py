"""Deployment: the rounds of a recipe on a fleet of devices, which Flower connects.

`deployed` is the learning process of a recipe whose clients are devices; the rest of the package uses it like any
other. It sends requests to a `Fleet`; `grid` implements one over Flower's network. `device_index` selects the values to
transfer, `messages` checks responses. On a device, `tensorflow_client` or `litert_client` responds. `apps` contains the
server and client apps that Flower runs; `processes` starts Flower's programs. Only `grid`, `apps` and `flower_child`
import Flower.

Modules:

    apps               The apps that Flower runs
    certificates       Creates the certificate of the server and a key pair for every device of a fleet
    deployed           The learning process of a recipe whose clients are devices
    device_index       Indices of a device's values in the global values
    endpoints          Endpoints of Flower's servers
    flower_child       One of Flower's programs. It ends when its parent process ends for any reason
    grid               Flower's connected devices as a `deployed.Fleet`
    job                The job that the command line passes to Flower's processes
    litert_client      A device with LiteRT
    machine            Builds the recipe, its plug-ins and the device of a machine from its job
    messages           Messages between a server and its devices, and their checks
    on_device          A client on a device
    processes          Starts Flower's programs: the server of a run, or a device
    tensorflow_client  A device with TensorFlow: it trains its sub-model with the simulator's graph
    waiting            Devices that connect and disconnect
"""
