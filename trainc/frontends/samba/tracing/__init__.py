"""What is traced and compiled of a Samba model; imported only when something is compiled.

The modules here need trainc.ir and trainc.compiler, and with them the compiler's bindings; everything else in the
frontend works without and imports this package inside functions only.
"""
