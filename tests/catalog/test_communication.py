"""What communicates, by the names of kernels and operators."""

from __future__ import annotations

import pytest

from torchscale.catalog.communication import (
    communicates,
    function_of,
    is_communication_operator,
    is_general,
    may_communicate,
    op_of,
)

KERNELS = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs)": "all_gather",
    "void rcclGenericKernel<1, false>(ncclDevComm*, channelMasks, ncclWork*)": "rcclGenericKernel",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>"
    "(c10::BFloat16**, unsigned long)": "all_reduce",
    "void (anonymous namespace)::multimem_all_gather_kernel<float, 8>(float*)": "all_gather",
    "c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int)": "barrier",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)": "all_reduce",
    "cross_device_reduce_2stage<half, 8>": "all_reduce",
    "void aiter::cross_device_reduce_1stage_naive<float, 8>(x)": "all_reduce",
    "void quickreduce::allreduce_prototype_twoshot<quickreduce::X<int>>(half*)": "all_reduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<0>(x)": (
        "all_reduce"
    ),
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>(P)": "all_reduce",
    "void kuserbuffers_pushrecv(int, int*)": "send_recv",
    "void deep_ep::intranode::dispatch<8, 768>(int4*, float*)": "all_to_all",
    "void deep_ep::internode_ll::combine<7168, 9>(void*)": "all_to_all",
    "void mori::moe::EpDispatchIntraNodeKernel<x>(y)": "all_to_all",
    "nvshmemi_barrier_all_on_stream_kernel(int)": "barrier",
    "void mscclKernel_Sum_half_LL(x)": "mscclKernel_Sum_half_LL",
    "mscclpp::allreduce7<half>(x)": "all_reduce",
    "oneccl_allgatherv_topo<float>": "all_gather",
    "hcom_reduceScatter__361_1_1": "reduce_scatter",
    "mcclKernel_Broadcast(x)": "broadcast",
    "one_shot_all_reduce_kernel": "all_reduce",
    "my_company::fused_allreduce_rmsnorm<bf16>(x*)": "all_reduce",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<half>(P)": "all_to_all",
    "a2a_combine_recv_kernel": "all_to_all",
    "barrier_on_stream_kernel_threadgroup(int)": "barrier",
    "void hybrid_ep::dispatch_kernel<8>(x)": "all_to_all",
    "EpCombineInterNodeKernel_bf16": "all_to_all",
}
COMPUTE = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::AUnaryFunctor<c10::Half>>(int)",
    "nvjet_sm90_tst_64x32_64x16_1x2_h_bz_NNT",
    "void cublasLt::splitKreduce_kernel<32, 16, int>(x)",
    "void LayerNormWarpImpl<BlockAllReduce<float>>(int)",
    "void blockAllReduceSum(float*)",
    "void warp_all_reduce_max<4>(x)",
    "deep_ep::layout::get_dispatch_layout<256>(x)",
    "triton_poi_fused_all_gather_into_tensor_wait_tensor_3",
    "triton_spl_fused_all_reduce_cumsum_1",
    "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(P)",
    "flash_fwd_mla_combine_kernel",
    "moe_align_block_size_kernel<int>(x)",
    "small_reduce_kernel",
    "call_reduce",
    "SmallGatherKernel<4>(x)",
    "fsdp_copy_in_kernel",
    "void at::native::index_elementwise_kernel<128, 4>(x)",
    "gatherTopK<float>(x)",
    "scatter_add_kernel",
    "softmax_warp_forward",
)


@pytest.mark.parametrize(("kernel", "op"), KERNELS.items())
def test_kernels_of_communication_are_known_with_their_operation(kernel: str, op: str) -> None:
    assert communicates(kernel)
    assert op_of(function_of(kernel)) == op


@pytest.mark.parametrize("kernel", COMPUTE)
def test_what_computes_is_not_called_communication(kernel: str) -> None:
    assert not communicates(kernel)
    assert not may_communicate(kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        "void acme::nvls_push<8>(x)",
        "p2p_write_kernel",
        "acme_lamport_ring",
        "kernel_dispatch_token",
        "moe_combine_kernel",
        "void intra_node_exchange<4>(x)",
    ],
)
def test_unknown_names_that_look_like_it_are_told(kernel: str) -> None:
    assert may_communicate(kernel)
    assert not communicates(kernel)


@pytest.mark.parametrize(
    ("operator", "does"),
    [
        ("symm_mem::one_shot_all_reduce", True),
        ("c10d::allreduce_", True),
        ("vllm::all_reduce", True),
        ("_C_custom_ar::all_reduce", True),
        ("trtllm::allreduce", True),
        ("record_param_comms", True),
        ("nccl:all_reduce", True),
        ("aten::mm", False),
        ("aten::all", False),
        ("vllm::unified_attention", False),
    ],
)
def test_operators_that_communicate(operator: str, does: bool) -> None:
    assert is_communication_operator(operator) is does


def test_what_an_operator_runs_besides_is_general() -> None:
    assert is_general("void at::native::elementwise_kernel<128>(x)")
    assert is_general("nvjet_sm90_tst_64x32_64x16")
    assert not is_general("exchange_tokens<4>(x)")
    assert not is_general("void acme::push<half>(x)")


def test_a_name_of_any_length_and_depth_is_looked_at_in_no_time() -> None:
    deep = "void f" + "<a" * 5000 + ">" * 5000 + "(x)"
    assert not communicates(deep)
    assert not communicates("all_" * 100_000)
