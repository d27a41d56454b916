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
        x="units, $d_{ff}$",
        y="mean square error of 64 facts",
        title="Units learn what no sum can",
        log="x",
        limits=(-0.05, 1.05),
        levels={"best additive answer": best_additive},
        path=path,
    )


def units(likes, added, answers, path):
    """Draw the facts, what one unit adds for each pair (nan: it is silent), and all answers."""
    matrices(
        {
            "the facts": likes,
            "what one of 8 units adds": added,
            "all 8 units: nearly the facts": answers,
        },
        rows="person",
        columns="dish",
        row_labels="12345678",
        column_labels="12345678",
        signed=True,
        limits=(-2, 2),
        bar="added to the answer",
        path=path,
    )


def mixing(network, attention, path):
    """Draw how far output t moves when position s changes."""
    matrices(
        {"the network: each alone": network, "attention: all mix": attention},
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
        title="With a norm, the gradient keeps its size",
        log="xy",
        path=path,
    )


def order_of_norm(depths, movement, path):
    """Draw how far a small change of all matrices moves the output; movement: {order: ...}."""
    lines(
        {name: (depths, moved) for name, moved in movement.items()},
        x="layers",
        y="change of the output",
        title="The same small change moves post-norm's output further",
        limits=(0, 0.12),
        path=path,
    )
