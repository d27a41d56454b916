"""my_transformer.py: made of the page, its pieces checked one by one."""

import ast

import pytest
from lesson_files import LESSONS

from minitf.course import building
from minitf.course.building import PAGE, answer, checked, page, skeleton
from minitf.course.pieces import PIECES

each_piece = pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)


@each_piece
def test_the_page_is_right_and_each_typical_mistake_is_named(piece):
    assert checked(page(), piece, "page.py").state == "right"
    said = [words for _, _, words in piece.wrong]
    assert len(set(said)) == len(said), "two mistakes have the same words"
    for old, new, words in piece.wrong:
        verdict = checked(answer(piece, old, new), piece, "answer.py")
        assert verdict.state == "wrong", f"accepted: {words}"
        assert verdict.message.endswith(words), f"{words}: {verdict.message}"


def test_the_empty_file_has_everything_to_do_and_runs():
    text = skeleton()
    for piece in PIECES:
        assert checked(text, piece, "my_transformer.py").state == "to do", piece.name
    names = building.module_with(ast.parse(text), None, "my_transformer.py")
    assert names.load and names.train and not hasattr(names, "learn_toy_corpus")


def test_the_pieces_are_in_the_order_of_the_page_and_of_the_lessons():
    names = [name for name in building.definitions(ast.parse(page()))]
    places = [names.index(piece.name) for piece in PIECES]
    assert places == sorted(places)
    lessons = [piece.lesson for piece in PIECES]
    assert lessons == sorted(lessons) and set(lessons) == {f"0{n}" for n in range(1, 10)}


@each_piece
def test_the_lesson_has_the_section_that_derives_a_piece(piece):
    lesson = next(path for path in LESSONS if path.stem.startswith(piece.lesson))
    assert f"# ## {piece.section}\n" in lesson.read_text(encoding="utf-8")


def test_the_page_is_where_the_course_looks_for_it():
    assert PAGE.exists()
