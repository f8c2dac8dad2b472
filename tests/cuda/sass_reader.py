#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sass.py and machine_code.py make of a kernel that is written down here: its loops, the turn by whole groups, and what that
turn waits for. Needs none of NVIDIA's programs."""
import unittest

import machine_code
import sass

# A loop whose turn goes by one 16-byte load or by two of 4 bytes, with a subroutine for what is not a number, and after it a
# loop that reads nothing.
KERNEL = """
\t.section\t.text.one,"ax",@progbits
.text.one:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   ISETP.NE.AND P0, PT, R2, 0x8, PT ;
        /*0020*/              @!P0 BRA P4, `(.L_x_1) ;
        /*0030*/                   LDG.E R4, desc[UR4][R8.64] ;
        /*0040*/                   LDG.E R5, desc[UR4][R8.64+0x4] ;
        /*0050*/                   BRA `(.L_x_2) ;
.L_x_1:
        /*0060*/                   BSSY B0, `(.L_x_2) ;
        /*0070*/                   LDG.E.128 R4, desc[UR4][R8.64] ;
        /*0080*/                   LDG.E.128 R12, desc[UR4][R8.64+0x10] ;
        /*0090*/                   FADD R7, R7, 1 ;
        /*00a0*/                   LD.E.128 R16, [R8.64+0x20] ;
        /*00b0*/                   BSYNC B0 ;
.L_x_2:
        /*00c0*/                   FADD R4, R4, R16 ;
        /*00d0*/                   FSETP.NAN.AND P1, PT, R4, R4, PT ;
        /*00e0*/              @!P1 BRA `(.L_x_3) ;
        /*00f0*/                   CALL.REL.NOINC `(.L_x_6) ;
.L_x_3:
        /*0100*/                   STG.E desc[UR4][R10.64], R4 ;
        /*0110*/                   IADD3 R2, R2, -0x1, RZ ;
        /*0120*/                   ISETP.NE.AND P2, PT, R2, RZ, PT ;
        /*0130*/               @P2 BRA `(.L_x_0) ;
.L_x_4:
        /*0140*/                   IADD3 R3, R3, 0x1, RZ ;
        /*0150*/               @P3 BRA `(.L_x_4) ;
        /*0160*/                   EXIT ;
.L_x_6:
        /*0170*/                   MUFU.RCP R4, R4 ;
        /*0180*/                   RET.REL.NODEC R20 `(one) ;
\t.section\t.nv.info,"",@"SHT_CUDA_INFO"
"""


class Reader(unittest.TestCase):
    def setUp(self):
        self.kernel = sass.parse(KERNEL)["one"]

    def test_finds_every_instruction_and_loop(self):
        self.assertEqual(len(self.kernel.code), 25)
        self.assertEqual(len(self.kernel.loops), 2)

    def test_goes_by_the_widest_loads_and_round_the_subroutine(self):
        way = self.kernel.way_round(*self.kernel.main_loop())
        self.assertEqual([x.opcode for x in way],
                         ["ISETP.NE.AND", "BRA", "BSSY", "LDG.E.128", "LDG.E.128", "FADD", "LD.E.128", "BSYNC", "FADD",
                          "FSETP.NAN.AND", "BRA", "STG.E", "IADD3", "ISETP.NE.AND", "BRA"])

    def test_counts_by_the_bytes_of_an_element(self):
        figures = machine_code.loop_figures(self.kernel, 4)
        # The addition waits for the first load, when two were begun; the next addition for the third.
        self.assertEqual(figures, {"elements": 12.0, "instructions": 1.2, "issue": 1.2, "loads_first": 2, "rounds": 2})

    def test_blocks_are_limited_by_registers_memory_and_threads(self):
        self.assertEqual(machine_code.blocks(32, 1024, 256), 8)
        self.assertEqual(machine_code.blocks(123, 0, 256), 2)
        self.assertEqual(machine_code.blocks(16, 100 * 1024, 256), 2)

    def test_a_tenth_differs(self):
        self.assertFalse(machine_code.differs(100, 110))
        self.assertTrue(machine_code.differs(100, 111))
        self.assertTrue(machine_code.differs(0, 1))
        self.assertTrue(machine_code.differs([], ["F2FP.BF16.F32.PACK_AB"]))
        self.assertTrue(machine_code.differs(4, None))


if __name__ == "__main__":
    unittest.main()
