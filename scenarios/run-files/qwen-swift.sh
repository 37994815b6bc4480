# ms-swift: Qwen2.5-7B, sequences of 64K tokens on 8 GPUs: 28 heads, so Ulysses 4 and a ring of 2.
NPROC_PER_NODE=8 swift sft \
    --model Qwen/Qwen2.5-7B-Instruct \
    --train_type full \
    --dataset long.jsonl \
    --torch_dtype bfloat16 \
    --max_length 65536 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 8 \
    --sequence_parallel_size 8 \
    --attn_impl flash_attn \
    --packing true \
    --use_liger_kernel true \
    --deepspeed zero3
