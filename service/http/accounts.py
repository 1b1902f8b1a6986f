"""The account of a request is kept in the state of its ASGI scope."""

from starlette.types import Scope

from service.engine.caller import Account

__all__ = ["account_of"]

_ACCOUNT = "account"
"""Key of a request's state."""


def account_of(scope: Scope) -> Account:
    """Return the account of a request, a new one at the first call."""
    state = scope.setdefault("state", {})
    account: Account | None = state.get(_ACCOUNT)
    if account is None:
        account = state[_ACCOUNT] = Account()
    return account
