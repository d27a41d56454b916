"""The figures of lesson 04, layers."""

from minitf.course.figures import lines, matrices

__all__ = ["alike", "facts", "mixing", "order_of_norm", "residual", "units"]


def alike(apart, path):
    """Draw how far the positions are apart after each layer; apart: {stack: for each layer}."""
    lines(
        {name: (range(len(shares)), shares) for name, shares in apart.items()},
        x="layers",
        y="how far words are apart",
        title="Stacked attentions make all words alike",
        limits=(-0.05, 1.05),
        path=path,
    )


def facts(sizes, errors, best_additive, path):
    """Draw the error of networks of several sizes beside that of the best additive answer."""
    lines(
        {"feed-forward network": (sizes, errors)},
        x="units of the network, $d_{ff}$",
        y="mean square error of the answers",
        title="Who likes which dish? 16 units know all 64 facts, no sum does",
        log="x",
        limits=(-0.05, 1.05),
        levels={"the best sum f(person) + g(dish)": best_additive},
        notes={"every fact is known": (16, errors[sizes.index(16)], 14, 0.25)},
        path=path,
    )


def units(likes, added, answers, path):
    """Draw the facts, what one unit adds for each pair (nan: it is silent), and all answers."""
    matrices(
        {
            "the facts: likes (blue), or not": likes,
            "what one of 8 units adds": added,
            "all 8 units: nearly the facts": answers,
        },
        rows="person",
        columns="dish",
        row_labels="12345678",
        column_labels="12345678",
        signed=True,
        limits=(-2, 2),
        bar="+1: likes, \u22121: does not",
        title="Who likes which dish? Eight units know it together (hatched: the unit is silent)",
        path=path,
    )


def mixing(network, attention, path):
    """Draw how far output t moves when position s changes."""
    matrices(
        {"feed-forward: each alone": network, "attention: all mix": attention},
        rows="output t",
        columns="changed position s",
        bar="largest change",
        path=path,
    )


def residual(depths, gradients, path):
    """Draw the gradient that arrives at the input; gradients: {connection: for each depth}."""
    lines(
        {name: (depths, arriving) for name, arriving in gradients.items()},
        x="layers",
        y="gradient at the input (output: 1)",
        title="With a norm, the gradient keeps its size, with or without x",
        log="xy",
        path=path,
    )


def order_of_norm(depths, movement, path):
    """Draw how far a small change of all matrices moves the output; movement: {order: ...}."""
    lines(
        {name: (depths, moved) for name, moved in movement.items()},
        x="layers",
        y="change of the output",
        title="All matrices change by 2%: post-norm's output moves further",
        limits=(0, 0.12),
        path=path,
    )
