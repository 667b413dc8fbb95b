"""Deployment: the rounds of a recipe on a fleet of devices, which Flower connects.

`device_rounds` has the round runner of a process whose clients are devices. It sends requests to a `Fleet`; `waiting`
implements one over a network, and `grid` is Flower's. `device_index` selects the values to transfer, `messages` checks
responses. On a device, `tensorflow_client` or `litert_client` responds. `apps` contains the server and client apps that
Flower runs; `processes` starts Flower's programs. `calibration` measures a device, `measured_fleet` the devices of a
run, each as a fleet of the simulator. Only `grid`, `apps` and `flower_child` import Flower.

Modules:

    apps               The apps that Flower runs
    calibration        Measures how fast this device trains exported files, as a device class of a fleet
    certificates       Creates the certificate of the server and a key pair for every device of a fleet
    device_index       Indices of a device's values in the global values
    device_rounds      Rounds whose clients are devices, with the simulator's cut, merge and server
    endpoints          Endpoints of Flower's servers
    fleet_file         Fleet files with measured devices: text that the key `fleet` of a recipe reads
    flower_child       One of Flower's programs. It ends when its parent process ends for any reason
    grid               Flower's messages, and its connected devices as a `waiting.Network`
    job                The job that the command line passes to Flower's processes
    litert_client      A device with LiteRT
    machine            Builds the recipe, its plug-ins and the device of a machine from its job
    measured_fleet     The fleet of a run with real devices
    messages           Messages between a server and its devices, and their checks
    on_device          A client on a device
    processes          Starts Flower's programs: the server of a run, or a device
    tensorflow_client  A device with TensorFlow: it trains its sub-model with the simulator's graph
    transfers          Times the transfers of a device
    waiting            Devices that connect and disconnect
"""
