"""Messages to tokens and replies to text, by the model's own chat template. Knows no SQL and no service."""

from typing import Any

MARK = "SELECT"  #: a reply whose end is looked for, to see what the template closes it with


class Chat:
    """Wraps a tokenizer. A model without a chat template (one that is not instruction-tuned) reads the texts of the
    messages, a line each, and closes a reply with its end of text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._has_template = bool(getattr(tokenizer, "chat_template", None))
        self.closing = self._closing()  #: the token that ends a reply

    def prompt(self, messages: list[dict[str, str]]) -> list[int]:
        """What the model reads before it replies."""
        if not self._has_template:
            text = "".join(f"{message['content']}\n" for message in messages)
            return list(self._tokenizer.encode(text))
        return list(
            self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=False, enable_thinking=False
            )
        )

    def reply(self, text: str) -> list[int]:
        """What it should have replied, to its closing token."""
        return [*self._tokenizer.encode(text, add_special_tokens=False), self.closing]

    def text(self, tokens: list[int]) -> str:
        """What it did reply. Only the closing token is taken off: stray special tokens are the reply's."""
        spoken = tokens[:-1] if tokens and tokens[-1] == self.closing else tokens
        return str(self._tokenizer.decode(spoken))

    def _closing(self) -> int:
        if not self._has_template:
            return int(self._tokenizer.eos_token_id)
        messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": MARK}]
        rendered = self._tokenizer.apply_chat_template(messages, tokenize=False, enable_thinking=False)
        after = rendered.rpartition(MARK)[2].lstrip()
        return int(self._tokenizer.encode(after, add_special_tokens=False)[0])
