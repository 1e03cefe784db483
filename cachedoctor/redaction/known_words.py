"""Words that show nothing about a user: names from the sources of llama.cpp, vLLM and SGLang. Data only."""

from __future__ import annotations


def _words_known_words(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


_FUNCTIONS = """
    INFO ~Server ~llama_context adapters_lora_are_same add_media add_prompt_mixed add_text add_waiting_tasks alloc
    alloc_compute_meta apply_checkpoint attach_threadpool build build_info cancel_tasks clear clear_adapter_lora
    clear_slot clip_ctx clip_encode clip_model_loader common_chat_templates_apply_jinja common_context_can_seq_rm
    common_fit_params common_init common_init_from_params common_init_result common_memory_breakdown_print
    common_param common_params_fit_impl common_params_print_info common_sampler_init common_speculative_init
    common_speculative_is_compat create_check create_checkpoint create_memory create_tensor decode
    done_getting_tensors encode_mtmd_chunk eval_llama_cmd find_slot get_available_slot get_dummy_batch
    ggml_cuda_init ggml_metal_init ggml_vulkan graph_reserve handle_last_ handle_sleeping_state init init_listener
    init_routes init_sampler init_tokenizer kv_cache_clear launch_slot_with_task launch_slots llama_context
    llama_graph_n_input_tensors llama_kv_cache llama_kv_cache_dsa_iswa llama_kv_cache_iswa llama_kv_cache_recurrent
    llama_kv_cache_unified llama_kv_cache_unified_iswa llama_memory_breakdown_print llama_memory_hybrid
    llama_memory_recurrent llama_model_load llama_model_load_from_file_impl llama_model_loader llama_params_fit
    llama_params_fit_impl llama_perf_context_print llama_print_timings llama_server load load_hparams load_model
    load_slot_checkpoints load_tensors log_info log_server_request main make_llama_cmpl_schema message_spans
    mtmd_batch_encode_impl mtmd_group_mergeable_bitmaps mtmd_helper_decode_image_chunk mtmd_helper_eval_chunk_single
    normalize_anthropic_billing_header on_line operator() params_from_json_cmpl post post_decode pre_decode
    print_info print_timing print_timings print_timings_pp print_timings_tg process_chunk process_mtmd_chunk
    process_new_tasks process_single_task process_token prompt_clear prompt_get_n_before_user prompt_load
    prompt_save proxy_request release remove remove_waiting_task_id reserve_compute_meta reset resolve_fused_ops run
    save_slot_checkpoints sched_reserve send send_error server_stream set_abort_callback set_adapters_lora
    set_embeddings slot_save_and_clear start start_loop state_read_meta stop system_info try_clear_idle_slots unload
    unload_all unload_lru update update_batch update_chat_ update_slots warmup yield_to_queue
"""
FUNCTIONS = _words_known_words(_FUNCTIONS) | frozenset(word[:12] for word in _words_known_words(_FUNCTIONS))
"""Functions that print a line; after ``slot`` and ``srv`` they are truncated to 12 characters."""

SAMPLERS = _words_known_words("""
    logits logit-bias penalties dry top-n-sigma top-k typical top-p min-p xtc temp temp-ext temperature dist greedy
    mirostat mirostat-v2 infill adaptive-p grammar reasoning-budget
""")

TYPES = _words_known_words("""
    f16 f32 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q8_1 iq4_nl q2_K q3_K q4_K q5_K q6_K mxfp4 nvfp4 str u8 i8 u16 i16 u32 i32
    u64 i64 f64 bool
""")
"""Types of tensors, and of metadata."""

ARCHITECTURES = _words_known_words("""
    llama llama4 deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder refact bert modern-bert nomic-bert
    nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 bloom stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe
    qwen3next qwen3vl qwen3vlmoe qwen35 qwen35moe phi2 phi3 phimoe plamo plamo2 plamo3 codeshell orion internlm2
    minicpm minicpm3 gemma gemma2 gemma3 gemma3n gemma4 gemma-embedding starcoder2 mamba mamba2 jamba falcon-h1 xverse
    command-r cohere2 dbrx olmo olmo2 olmoe olmo-hybrid openelm arctic deepseek deepseek2 deepseek2-ocr deepseek32
    chatglm glm4 glm4moe glm-dsa bitnet t5 t5encoder jais jais2 nemotron nemotron_h nemotron_h_moe exaone exaone4
    exaone-moe rwkv6 rwkv6qwen2 rwkv7 arwkv7 granite granitemoe granitehybrid chameleon wavtokenizer-dec plm
    bailingmoe bailingmoe2 dots1 arcee afmoe ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense smollm3 gpt-oss lfm2
    lfm2moe dream smallthinker llada llada-moe seed_oss grovemoe apertus minimax-m2 cogvlm rnd1 pangu-embedded
    mistral3 mistral4 mimo2 step35 bamba kimi-linear maincoder paddleocr clip
""")

CHAT_FORMATS = frozenset(b"""
Content-only|Generic|Mistral Nemo|Magistral|Llama 3.x|Llama 3.x with builtin tools|DeepSeek R1|FireFunction v2
Functionary v3.2|Functionary v3.1 Llama 3.1|DeepSeek V3.1|Hermes 2 Pro|Command R7B|Granite|GPT-OSS|Seed-OSS
Nemotron V2|Apertus|LFM2 with JSON tools|MiniMax-M2|GLM 4.5|Kimi K2|Qwen3 Coder|Apriel 1.5|Xiaomi MiMo|Solar Open
EXAONE MoE|peg-simple|peg-native|peg-constructed|peg-gemma4
""".replace(b"\n", b"|").strip(b"|").split(b"|"))  # fmt: skip

METHODS = _words_known_words("GET POST PUT PATCH DELETE HEAD OPTIONS")

ENDPOINTS = _words_known_words("""
    / /health /v1/health /metrics /props /slots /models /v1/models /api/tags /api/show /models/load /models/unload
    /completion /completions /v1/completions /chat/completions /v1/chat/completions /api/chat /v1/responses /responses
    /v1/messages /v1/messages/count_tokens /v1/chat/completions/input_tokens /v1/responses/input_tokens /infill
    /embedding /embeddings /v1/embeddings /rerank /reranking /v1/rerank /v1/reranking /tokenize /detokenize
    /apply-template /lora-adapters /v1/audio/transcriptions /index.html /favicon.ico
""")

METADATA = (
    _words_known_words("""
    general tokenizer ggml split quantize adapter architecture type name size_label file_type quantization_version
    alignment model pre tokens scores token_type merges bos_token_id eos_token_id eot_token_id unknown_token_id
    padding_token_id add_bos_token add_eos_token add_space_prefix chat_template context_length embedding_length
    block_count feed_forward_length attention head_count head_count_kv key_length value_length layer_norm_rms_epsilon
    layer_norm_epsilon sliding_window rope freq_base dimension_count dimension_sections scaling factor
    original_context_length vocab_size expert_count expert_used_count ssm conv_kernel inner_size state_size
    time_step_rank group_count full_attention_interval clip vision has_vision_encoder has_llava_projector
    projector_type image_size patch_size projection_dim image_mean image_std use_gelu count no tensors parameter_count
    license
""")
    | ARCHITECTURES
)
"""Parts of the names of metadata in a GGUF file, between the dots."""

HEADER_FIELDS = _words_known_words("cch cc_version cc_entrypoint cc_prev_req cc_prompt_id")
"""Fields of Claude Code's billing header."""


def _words_known_words_measured(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


MEASURED_ARCHITECTURES = _words_known_words_measured("""
    ApertusForCausalLM ArceeForCausalLM BaichuanForCausalLM BailingMoeForCausalLM BailingMoeV2ForCausalLM
    BailingMoeV2_5ForCausalLM BambaForCausalLM ChatGLMForConditionalGeneration CohereForCausalLM Cohere2ForCausalLM
    DbrxForCausalLM DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM DeepseekV32ForCausalLM
    DeepseekV4ForCausalLM Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM Exaone4ForCausalLM FalconForCausalLM
    FalconH1ForCausalLM FalconMambaForCausalLM GemmaForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM
    Gemma3ForConditionalGeneration Gemma3nForConditionalGeneration Gemma4ForCausalLM Gemma4ForConditionalGeneration
    GlmForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM Glm4vForConditionalGeneration GlmMoeDsaForCausalLM
    GPT2LMHeadModel GPTNeoXForCausalLM GptOssForCausalLM GraniteForCausalLM GraniteMoeForCausalLM
    GraniteMoeHybridForCausalLM Grok1ForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM
    InternLM2ForCausalLM InternLM3ForCausalLM InternS2PreviewForConditionalGeneration InternVLChatModel
    JambaForCausalLM JetNemotronForCausalLM JetVLMForConditionalGeneration KimiK25ForConditionalGeneration
    KimiLinearForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM LlamaForCausalLM Llama4ForCausalLM
    Llama4ForConditionalGeneration LlavaForConditionalGeneration Mamba2ForCausalLM MambaForCausalLM
    MiMoForCausalLM MiMoV2FlashForCausalLM MiniCPMForCausalLM MiniCPM3ForCausalLM MiniMaxM1ForCausalLM
    MiniMaxM2ForCausalLM MiniMaxText01ForCausalLM Mistral3ForConditionalGeneration MistralForCausalLM
    MixtralForCausalLM NemotronForCausalLM NemotronHForCausalLM NemotronHPuzzleForCausalLM OlmoForCausalLM
    Olmo2ForCausalLM Olmo3ForCausalLM OlmoHybridForCausalLM OlmoeForCausalLM OPTForCausalLM PhiForCausalLM
    Phi3ForCausalLM Phi4FlashForCausalLM PhiMoEForCausalLM PixtralForConditionalGeneration Plamo2ForCausalLM
    Plamo3ForCausalLM QWenLMHeadModel Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration
    Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration
    Qwen3_5MoeForConditionalGeneration Qwen3OmniMoeForConditionalGeneration SeedOssForCausalLM SmolLM3ForCausalLM
    Step3p5ForCausalLM StableLmForCausalLM Starcoder2ForCausalLM WhisperForConditionalGeneration Zamba2ForCausalLM
""")

BACKENDS = _words_known_words_measured("""
    aiter ascend cutlass_mla dual_chunk_flash_attn fa3 fa4 flashinfer flashmla flex_attention hybrid intel_amx
    intel_xpu nsa torch_native triton trtllm_mha trtllm_mla wave CUTLASS_MLA FLASHINFER FLASHINFER_MLA FLASHMLA
    FLASHMLA_SPARSE FLASH_ATTN FLASH_ATTN_MLA FLEX_ATTENTION FlashMLA FlashMLASparse FlashInferMLA CutlassMLA
    ROCM_AITER_FA ROCM_AITER_MLA ROCM_AITER_UNIFIED_ATTN TORCH_SDPA TRITON_ATTN TRITON_MLA
""")

CACHES = _words_known_words_measured("""
    ChunkCache HiMambaRadixCache HiRadixCache LMCRadixCache MambaRadixCache PureSWAChunkCache RadixCache RadixCacheCpp
    SWAChunkCache SWARadixCache UnifiedRadixCache
""")

CONNECTORS = _words_known_words_measured("""
    DecodeBenchConnector ExampleConnector FlexKVConnectorV1 HF3FSKVConnector LMCacheConnector LMCacheConnectorV1
    LMCacheMPConnector MooncakeConnector MooncakeStoreConnector MoRIIOConnector MultiConnector NixlConnector
    OffloadingConnector P2pNcclConnector PyNcclConnector SharedStorageConnector SimpleCPUOffloadConnector
""")

DEVICES = _words_known_words_measured("CPU GPU HPU NPU TPU XPU cpu cuda hpu mps neuron npu rocm tpu xpu host + None")

MANAGERS = _words_known_words_measured("""
    ChunkedLocalAttentionManager CrossAttentionManager FullAttentionManager MambaManager SinkFullAttentionManager
    SlidingWindowManager
""")

ALGORITHMS = _words_known_words_measured("""
    DFLASH EAGLE EAGLE3 NEXTN NGRAM STANDALONE deepseek_mtp dflash draft_model eagle eagle3 ernie_mtp glm4_moe_mtp
    longcat_flash_mtp medusa mimo_mtp mlp_speculator mtp ngram ngram_gpu pangu_ultra_moe_mtp pard qwen3_5_mtp
    qwen3_next_mtp suffix unknown
""")
"""Algorithms of speculative decoding."""

POLICIES = _words_known_words_measured("dfs-weight fcfs hrrn lof lpm priority random routing-key")
"""Orders in which SGLang admits requests."""

OTHERS = _words_known_words_measured("""
    align all none auto no_buffer extra_buffer extra_buffer_lazy null prefill decode PreemptionMode.RECOMPUTE
    PreemptionMode.SWAP
""")
"""Modes of a cache, of a server, and of a preemption."""

TASKS = _words_known_words_measured("""
    classify embed encode generate plugin realtime render reward score token_classify token_embed transcription
    translation
""")

MORE_ENDPOINTS = _words_known_words_measured("""
    /api/generate /classify /docs /flush_cache /generate /get_load /get_model_info /get_server_info /health_generate
    /inference/v1/generate /invocations /is_sleeping /load /model_info /openapi.json /ping /pooling
    /reset_prefix_cache /score /server_info /sleep /start_profile /stop_profile /update_weights_from_disk
    /v1/load_lora_adapter /v1/score /v1/unload_lora_adapter /version /wake_up
""")

PHRASES = frozenset(b"""
OK|Created|Accepted|No Content|Temporary Redirect|Bad Request|Unauthorized|Forbidden|Not Found|Method Not Allowed
Request Timeout|Conflict|Payload Too Large|Request Entity Too Large|Unprocessable Entity|Unprocessable Content
Too Many Requests|Client Closed Request|Internal Server Error|Not Implemented|Bad Gateway|Service Unavailable
Gateway Timeout|aux_miss|unservable_prefix
""".replace(b"\n", b"|").strip(b"|").split(b"|"))  # fmt: skip
"""Phrases of HTTP statuses, and SGLang's reasons for not using fetched data."""
