"""Which cause the doctor must name for each fault: to be read beside ``META["expected"]``.

One of the causes of a row must be among the faults and warnings of the report.
"""

DIAGNOSES = {
    # block structure: projections act on one head's slice only, identical for all heads
    "all_heads_share_one_projection": {"heads-see-own-slice"},
    # cached decoding differs only for layers above the first: position offset off by one
    "cache_length_counted_too_early": {"cache-positions-upper"},
    # future leak in the call without a mask
    "causal_flag_needs_a_mask": {"leak-without-mask"},
    # NaN at position 0: the triangle excludes the diagonal
    "causal_mask_hides_self": {"nan-diagonal-hidden"},
    # intended bidirectional, but outputs never depend on later tokens
    "causal_mask_left_in_an_encoder": {"unwanted-causal"},
    # output does not depend on the memory: wrong keys and values
    "cross_attention_ignores_the_encoder": {"memory-ignored"},
    # early memory tokens have no influence on any output
    "cross_attention_inherits_the_sliding_window": {"memory-truncated"},
    # cross attention uses the target padding mask
    "cross_attention_masked_with_target_padding": {"memory-mask-from-target"},
    # effective score scale is sqrt(head_dim): inverted scaling
    "divides_by_the_inverse_scale": {"scale-inverted"},
    # behaviour in train mode differs before and after an eval call
    "dropout_switched_off_for_good": {"eval-changes-train"},
    # token outputs do not depend on any other token
    "einsum_repeats_an_index": {"no-mixing"},
    # NaN in float16 with left padding: additive finfo.min overflows to -inf
    "finfo_min_added_in_half": {"half-masks-added"},
    # d_model (20) is not divisible by heads (3)
    "heads_do_not_divide_the_width": {"heads-do-not-divide"},
    # heads split across tokens
    "heads_split_without_transpose": {"heads-cut-across-tokens"},
    # cached decoding differs from the full pass: causal mask aligned top-left
    "is_causal_with_cache": {"cache-mask-alignment"},
    # future leak through LayerNorm over the sequence axis
    "layernorm_over_time_and_features": {"leak-through-norm"},
    # cached decoding differs from the full pass: absolute position offset ignored
    "learned_positions_ignore_the_cache": {"cache-positions"},
    # padding leak at batch size == kv heads, shape error at other batch sizes
    "mask_broadcasts_onto_wrong_axis_when_sizes_agree": {"needs-these-sizes"},
    # padding leak: mask multiplied into the scores
    "mask_multiplies_scores": {"mask-multiplied"},
    # mask order (batch, head) is wrong
    "mask_repeat_instead_of_repeat_interleave": {"mask-head-batch-order"},
    # future leak only for large activations: finite additive mask value too small
    "mask_value_too_small_for_large_scores": {"mask-value-too-small"},
    # NaN in all rows that have a masked key: mask value is +inf
    "mask_with_plus_infinity": {"nan-plus-infinity"},
    # pooling includes padding although the attention is masked
    "mean_pooling_over_padding": {"pooling-includes-padding"},
    # attention layers are not registered
    "modules_in_a_plain_list": {"unregistered"},
    # effective score scale is 1.0: missing scaling
    "no_scale": {"scale-missing"},
    # three layers, one set of parameters
    "one_layer_repeated": {"layers-shared"},
    # tokens of one document change when another document in the same row changes
    "packed_documents_see_each_other": {"documents-mix"},
    # mask broadcast on the query axis
    "padding_mask_on_query_rows": {"padding-on-rows"},
    # future leak only when a padding mask is passed
    "padding_mask_replaces_causal": {"leak-with-mask"},
    # logits of sample i do not depend on sample i: wrong axis selected as [CLS]
    "pooling_takes_the_wrong_axis": {"not-batch-first", "wrong-sample"},
    # positions on the batch axis
    "positions_added_along_the_batch_axis": {"positions-on-batch"},
    # parameters q_norm/k_norm are unused; scores still depend on the scale of x
    "qk_norm_created_but_not_used": {"norm-not-applied", "unused-parameters"},
    # position score of (i, j) depends on query i+1: relative shift without causal mask
    "relative_shift_for_bidirectional_use": {"score-reads-another-query"},
    # relative positions carry distance without direction
    "relative_sinusoid_without_direction": {"direction-invisible"},
    # tokens become indistinguishable with depth: residual missing
    "residual_adds_the_branch_to_itself": {"residual-lost"},
    # permutation equivariant although RoPE is present: rotated along the head axis
    "rope_on_the_head_axis": {"positions-wrong-axis"},
    # output grows with the position for constant values: context not normalised
    "running_sum_instead_of_mean": {"unnormalised"},
    # first and last token influence each other: cyclic shift not masked
    "shifted_windows_wrap_around": {"window-wraps"},
    # sinusoidal table is not shift-consistent
    "sinusoid_exponent_not_paired": {"sinusoid-formula"},
    # adjacent positions are as different as far ones: frequencies grow
    "sinusoid_multiplies_instead_of_divides": {"sinusoid-multiplied"},
    # all attention weights are exactly 1: softmax over a singleton axis
    "softmax_over_a_singleton_axis": {"softmax-singleton"},
    # weights sum to 1 over heads
    "softmax_over_heads": {"softmax-over-heads"},
    # weights sum to 1 over queries, not over keys
    "softmax_over_queries": {"softmax-over-queries"},
    # sample 0 changes with the other samples: view used instead of transpose
    "view_used_to_swap_batch_and_time": {"view-for-transpose"},
}
