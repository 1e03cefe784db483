"""Words that tell nothing of a user: names in the sources of vLLM and SGLang. Data only.

A word that is missing here is replaced; that costs a reader a detail, and the analysis nothing.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


ARCHITECTURES = _words("""
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

BACKENDS = _words("""
    aiter ascend cutlass_mla dual_chunk_flash_attn fa3 fa4 flashinfer flashmla flex_attention hybrid intel_amx
    intel_xpu nsa torch_native triton trtllm_mha trtllm_mla wave CUTLASS_MLA FLASHINFER FLASHINFER_MLA FLASHMLA
    FLASHMLA_SPARSE FLASH_ATTN FLASH_ATTN_MLA FLEX_ATTENTION FlashMLA FlashMLASparse FlashInferMLA CutlassMLA
    ROCM_AITER_FA ROCM_AITER_MLA ROCM_AITER_UNIFIED_ATTN TORCH_SDPA TRITON_ATTN TRITON_MLA
""")

CACHES = _words("""
    ChunkCache HiMambaRadixCache HiRadixCache LMCRadixCache MambaRadixCache PureSWAChunkCache RadixCache RadixCacheCpp
    SWAChunkCache SWARadixCache UnifiedRadixCache
""")

CONNECTORS = _words("""
    DecodeBenchConnector ExampleConnector FlexKVConnectorV1 HF3FSKVConnector LMCacheConnector LMCacheConnectorV1
    LMCacheMPConnector MooncakeConnector MooncakeStoreConnector MoRIIOConnector MultiConnector NixlConnector
    OffloadingConnector P2pNcclConnector PyNcclConnector SharedStorageConnector SimpleCPUOffloadConnector
""")

DEVICES = _words("CPU GPU HPU NPU TPU XPU cpu cuda hpu mps neuron npu rocm tpu xpu host + None")

MANAGERS = _words("""
    ChunkedLocalAttentionManager CrossAttentionManager FullAttentionManager MambaManager SinkFullAttentionManager
    SlidingWindowManager
""")

ALGORITHMS = _words("""
    DFLASH EAGLE EAGLE3 NEXTN NGRAM STANDALONE deepseek_mtp dflash draft_model eagle eagle3 ernie_mtp glm4_moe_mtp
    longcat_flash_mtp medusa mimo_mtp mlp_speculator mtp ngram ngram_gpu pangu_ultra_moe_mtp pard qwen3_5_mtp
    qwen3_next_mtp suffix unknown
""")
"""Of speculative decoding."""

POLICIES = _words("dfs-weight fcfs hrrn lof lpm priority random routing-key")
"""Orders in which SGLang admits requests."""

OTHERS = _words("""
    align all none auto no_buffer extra_buffer extra_buffer_lazy null prefill decode PreemptionMode.RECOMPUTE
    PreemptionMode.SWAP
""")
"""Modes of a cache, of a server, and of a preemption."""

TASKS = _words("""
    classify embed encode generate plugin realtime render reward score token_classify token_embed transcription
    translation
""")

MORE_ENDPOINTS = _words("""
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
"""Of statuses of HTTP, and why SGLang does not use what it fetched."""
