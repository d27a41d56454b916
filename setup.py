"""What setup.cfg cannot say: a wheel has the files of lessons/ that a lesson reads.

So a notebook of a lesson runs wherever pip installed minitf. An editable install reads them from
the clone.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

READ_BY_LESSONS = ("results", "toy-model", "toy-model-early")


class BuildWithLessons(build_py):
    def run(self):
        super().run()
        if not self.editable_mode:
            for name in READ_BY_LESSONS:
                copied = Path(self.build_lib, "minitf", "course", "lessons", name)
                self.copy_tree(str(Path("lessons", name)), str(copied))


setup(cmdclass={"build_py": BuildWithLessons})
