"""Ways to attend to long sequences. Each name is imported from the module that holds it.

=================  ==========================================================================
``tiled``          The exact answer, tile by tile: what is kept grows with the length alone.
``longformer``     Each token sees a window around it, and a few tokens see everything.
``bigbird``        Blocks see their neighbours, a few blocks for all, and some drawn at random.
``linformer``      Keys and values are mixed down to a fixed number of learned summaries.
``checkpointing``  Activations are computed again in the backward pass, not kept.
``parallel``       Heads and hidden units are dealt out to several processes.
=================  ==========================================================================
"""
