"""What every other room uses: errors, seeds, the registry of plug-ins, the console, threads and files."""
