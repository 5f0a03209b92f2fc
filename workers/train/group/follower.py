"""What the ranks other than 0 do: as they are told, until they are told to stop. Knows no Celery and no ledger."""

from openrl.domain.errors import CallerError
from workers.train.engine import TrainEngine
from workers.train.group.engine import DONE, told
from workers.train.group.link import Link
from workers.train.group.verbs import Drop, Put, Step, Stop, Train, Verb, decode_verb


def follow(link: Link, engine: TrainEngine) -> None:
    """`engine` splits its packs over `link`. Raises what it cannot go on after: the process must end then."""
    while not isinstance(verb := decode_verb(link.receive()), Stop):
        try:
            outcome = _carry_out(link, engine, verb)
        except CallerError as error:  # rank 0 has the same one and tells whom it concerns
            outcome = type(error).__name__
        link.agree(outcome)


def _carry_out(link: Link, engine: TrainEngine, verb: Verb) -> str:
    """Answers what ranks must agree on."""
    match verb:
        case Put():
            engine.put(verb.run, engine.restored({name: link.receive() for name in verb.files}))
        case Drop():
            engine.drop(verb.run)
        case Train():
            return told(engine.forward_backward(verb.batches))
        case Step():
            return told(engine.optim_steps(verb.asked))
    return DONE
