"""The Samba language model: Mamba-3 and attention layers in any order."""
