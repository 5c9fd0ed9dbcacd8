"""What runs inside the sandbox: the template process, the walls that its children put around themselves, and what they then do.

Standard library only, and nothing else of this project: bubblewrap shows this one folder to it. The host trusts nothing that comes out.
"""
