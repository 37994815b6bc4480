# Megatron-SWIFT: Qwen2.5-14B on 8 GPUs.
megatron sft \
    --load Qwen2.5-14B-Instruct-mcore \
    --model Qwen/Qwen2.5-14B-Instruct \
    --tensor_model_parallel_size 4 \
    --sequence_parallel true \
    --micro_batch_size 1 \
    --global_batch_size 16 \
    --recompute_granularity full \
    --recompute_method uniform \
    --recompute_num_layers 1 \
    --max_length 8192
