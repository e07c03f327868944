"""Models: one file an adapter, each behind `hansard.ports.model.Model`. Slow libraries are imported when first used."""
