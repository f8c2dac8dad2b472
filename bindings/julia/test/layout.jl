# SPDX-License-Identifier: Apache-2.0
const CAPI = MixedPrec.CAPI

@test library_version() >= v"0.2"
@test occursin("0.2", library_info())
@test length(CAPI.ADDRESSES) == length(CAPI.NAMES) && all(!=(C_NULL), CAPI.ADDRESSES)
CAPI.check_layout()
@test CAPI.mp_step_args().step == 1 && CAPI.mp_gemm_desc().struct_size == sizeof(CAPI.mp_gemm_desc)
# Every name that is exported is there and says what it is.
for name in names(MixedPrec)
    @test isdefined(MixedPrec, name)
    @test !startswith(string(Base.Docs.doc(Base.Docs.Binding(MixedPrec, name))), "No documentation found")
end
@test isempty(detect_ambiguities(MixedPrec))
@test isempty(detect_unbound_args(MixedPrec))
