"""Make `dist/adafactor-course.zip`, with which a learner takes the course to Colab while it is in no public repository.

The first cell of each notebook looks for it in the session; the class edition of `make classroom` serves as well.
"""

from __future__ import annotations

import classroom
import course as course_list
import setup_cell
from course import ROOT, Course, write

CONTENTS = (
    "LICENSE",
    "requirements.txt",
    "notebooks/*.ipynb",
    "exercises/*.ipynb",
    "course_lib/**/*.py",
    "course_lib/data/*.json",
)
README = f"""\
# {{title}}: in Colab

1. Unpack `{setup_cell.ZIP}.zip` on your machine, and keep the zip.
2. In [Colab](https://colab.research.google.com), choose *File → Upload notebook*, then `notebooks/{{first}}.ipynb` from
   the unpacked folder.
3. Open the session's files (the folder on the left), and drop the zip there. Wait until it is uploaded.
4. Run the cells from the top. The first one unpacks the zip and installs what the session lacks.

Each notebook has a session of its own, and the session's files go with it: for the next notebook, begin again at
step 2. Links from one notebook to another do not work in uploaded notebooks. To keep your work, choose *File → Save a
copy in Drive*, or *File → Download*.
"""


def edition(course: Course) -> bytes:
    """The zip: the same bytes for the same course."""
    paths = {path for pattern in CONTENTS for path in course.root.glob(pattern) if path.is_file()}
    contents = {path.relative_to(course.root).as_posix(): path.read_bytes() for path in paths}
    readme = README.format(title=course.title, first=course.lessons[0].name)
    return classroom.archive(contents | {"README.md": readme.encode()})


def main() -> None:
    course = course_list.load()
    path = ROOT / "dist" / f"{setup_cell.ZIP}.zip"
    write(path, edition(course))
    print(
        f"{path.relative_to(ROOT).as_posix()}: {path.stat().st_size / 2**20:.1f} MiB. Its README.md says how to go on."
    )


if __name__ == "__main__":
    main()
