"""``python -m torchscale`` is the same program as ``torchscale``."""

from torchscale.cli.main import main

if __name__ == "__main__":
    main()
