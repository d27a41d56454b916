"""Public translation models to and from minitf's format."""

from minitf.public.export import export_model
from minitf.public.importing import import_model

__all__ = ["export_model", "import_model"]
