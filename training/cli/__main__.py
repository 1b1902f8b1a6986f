"""`python -m training.cli`, which torchrun starts."""

from training.cli import main

if __name__ == "__main__":
    main()
