"""``python -m attn_tutor.failures``: list the checks, what each is called with, and what it asks."""

import inspect

from attn_tutor import failures


def main() -> None:
    for name in failures.__all__:
        check = getattr(failures, name)
        if inspect.isfunction(check) and check.__doc__:
            arguments = ", ".join(inspect.signature(check).parameters)
            print(f"{name}({arguments})\n    {check.__doc__.splitlines()[0]}")


if __name__ == "__main__":
    main()
