#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ABI checks must catch planted errors: a lost symbol, a wildcard, a moved field, a comment without its tags."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/generate"))
import check_baseline
import check_docs
import check_names
import check_symbols
import check_writers
import headers
import layout

COMPLETE = """/** Does a thing. Enqueues.
 * @param[in] queue  NULL: the default queue
 * @returns MP_STATUS_OK
 * @threads B
 * @since 0.1 */
MP_API mp_status mp_thing_do(mp_queue* queue) MP_MUST_CHECK;
"""


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()


class Names(Folder):
    def problems_of(self, text):
        (self.root / "a.h").write_text(text)
        return check_names.problems(self.root)

    def test_each_broken_rule_is_named(self):
        struct = "typedef struct mp_gemm_desc {\n    uint32_t struct_size;\n} mp_gemm_desc;\n"
        complete = struct + "#define MP_GEMM_DESC_INIT { 0 }\n"
        self.assertEqual(self.problems_of(complete), [])
        for text, problem in (
                (struct, "no MP_GEMM_DESC_INIT"),
                ("MP_API mp_status mp_thing_do(mp_thing* thing);", "none of the nouns"),
                ("MP_API mp_status mp_gemm_run(mp_queue* queue, mp_gemm* gemm);", "must be the first"),
                ("MP_API mp_status mp_gemm_run(mp_gemm* gemm, int32_t a, mp_queue* queue);", "queue must follow"),
                ("MP_API mp_status mp_gemm_run(mp_gemm* const* gemms, mp_queue* queue, int32_t n);", "array and its count"),
                ("MP_API mp_status mp_gemm_create(mp_gemm** out, mp_context* context);", "must be the last"),
                ("MP_API mp_status mp_gemm_size(const mp_gemm* gemm, int64_t* size);", "needs _get_"),
                ("/* mp_gemm_desc.flags */\n#define MP_GEMM_A 1u\n/* mp_gemm_run flags */\n#define MP_GEMM_B 1u\n",
                 "several sets")):
            with self.subTest(problem):
                self.assertIn(problem, "\n".join(self.problems_of(text)))


class Writers(Folder):
    def test_a_writer_that_no_table_has_is_named(self):
        (self.root / "a.h").write_text("MP_API mp_status mp_tensor_smear(mp_tensor* tensor);\n")
        functions = headers.functions() + headers.functions(self.root)
        tables = "".join(path.read_text() for path in check_writers.TABLES)
        self.assertEqual([problem.split()[0] for problem in check_writers.problems(functions, tables)], ["mp_tensor_smear"])
        self.assertEqual(check_writers.problems(functions, tables + '"mp_tensor_smear"'), [])


class Symbols(Folder):
    def test_a_name_missing_from_one_list_is_named(self):
        self.assertEqual(check_symbols.compare({"mp_a"}, {"mp_a": "V"}, {"mp_a": "V"}), [])
        self.assertIn("NOT declared", check_symbols.compare(set(), {"mp_a": "V"}, {"mp_a": "V"})[0])
        self.assertIn("NOT listed", check_symbols.compare({"mp_a"}, {}, {"mp_a": "V"})[0])
        self.assertIn("NOT exported", check_symbols.compare({"mp_a"}, {"mp_a": "V"}, {})[0])
        self.assertIn("version", check_symbols.compare({"mp_a"}, {"mp_a": "V"}, {"mp_a": "W"})[0])

    def test_the_map_is_read_and_wildcards_are_refused(self):
        path = self.root / "x.map"
        path.write_text("V_0.1 { global: mp_a; mp_b; local: *; };\nV_0.2 { global: mp_c; } V_0.1;\n")
        self.assertEqual(headers.map_symbols(path), {"mp_a": "V_0.1", "mp_b": "V_0.1", "mp_c": "V_0.2"})
        path.write_text("{ global: mp_entry; local: *; };\n")
        self.assertEqual(headers.map_symbols(path), {"mp_entry": ""})
        path.write_text("V_0.1 { global: mp_*; local: *; };\n")
        with self.assertRaises(ValueError):
            headers.map_symbols(path)

    @unittest.skipUnless(shutil.which("g++"), "needs g++")
    def test_a_leaked_symbol_and_a_shared_libstdcxx_are_found(self):
        source, library = self.root / "x.cpp", self.root / "x.so"
        source.write_text('#include <string>\nextern "C" int mp_a() { return 0; }\n'
                          'std::string leak(int x) { return std::to_string(x); }\n')
        subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
        symbols, wrong = check_symbols.exported(library)
        self.assertIn("mp_a", symbols)
        self.assertTrue(any("leak" in text for text in wrong))
        self.assertFalse(all(check_symbols.ALLOWED.search(name) for name in check_symbols.needed(library)[0]))


@unittest.skipUnless(shutil.which("abidiff") and shutil.which("gcc"), "needs abidiff and gcc")
class Baseline(Folder):
    """Three-line libraries stand for releases."""

    def library(self, name, field="int b;", function="int mp_b(void) { return 0; }"):
        (self.root / name).mkdir()
        header, source, library = (self.root / name / file for file in ("x.h", "x.c", "x.so"))
        header.write_text(f"struct desc {{ int a; {field} }};\nint mp_a(const struct desc* d);\nint mp_b(void);\n")
        source.write_text(f'#include "x.h"\nint mp_a(const struct desc* d) {{ return d->a; }}\n{function}\n')
        subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-o", library, source], check=True)
        return library

    def verdict(self, **changes):
        old, new = self.library("old"), self.library("new", **changes)
        baseline = self.root / "baseline" / "x.abi"
        check_baseline.write(old, old.parent, baseline, self.root)
        self.assertNotIn(str(self.root), baseline.read_text())
        return check_baseline.compare(baseline, new, new.parent).returncode

    def test_the_same_library_passes(self):
        self.assertEqual(self.verdict(), 0)

    def test_an_added_function_passes(self):
        self.assertEqual(self.verdict(function="int mp_b(void) { return 0; } int mp_c(void) { return 0; }"), 0)

    def test_a_removed_function_fails(self):
        self.assertNotEqual(self.verdict(function=""), 0)

    def test_a_changed_field_fails(self):
        for field in ("long b;", "float b;", "unsigned b;", "int renamed;", "int b; int c;"):
            with self.subTest(field=field):
                shutil.rmtree(self.root)
                self.root.mkdir()
                self.assertNotEqual(self.verdict(field=field), 0)


class Layout(Folder):
    def test_a_grown_field_changes_what_the_program_prints(self):
        include = self.root / "include"
        shutil.copytree(headers.INCLUDE, include)
        changed = include / "mixedprec/gemm.h"
        text = changed.read_text()
        self.assertIn("int32_t dtype_bias;", text)
        changed.write_text(text.replace("int32_t dtype_bias;", "int64_t dtype_bias;"))
        before, after = (self.printed(folder) for folder in (headers.INCLUDE, include))
        self.assertNotEqual(before, after)
        self.assertNotIn("PADDING", before)
        self.assertIn("PADDING in mp_gemm_desc", after)

    def printed(self, include):
        source, program = self.root / "layout.c", self.root / "layout"
        source.write_text(layout.generate())
        subprocess.run(["cc", "-std=c11", "-I", include, source, "-o", program], check=True)
        return subprocess.run([program], capture_output=True, text=True, check=True).stdout

    def test_every_typedef_struct_with_a_body_is_read(self):
        bodies = sum(path.read_text().count("typedef struct") for path in headers.header_files())
        opaque = sum(len(headers.OPAQUE.findall(path.read_text())) for path in headers.header_files())
        self.assertEqual(len(headers.structs()), bodies - opaque)


class Docs(Folder):
    def errors(self, text):
        (self.root / "x.h").write_text(text)
        function, = headers.functions(self.root)
        return check_docs.errors_of(function, {"MP_STATUS_OK"})

    def test_a_complete_comment_passes(self):
        self.assertEqual(self.errors(COMPLETE), [])

    def test_each_missing_part_is_named(self):
        for part, message in [(" * @param[in] queue  NULL: the default queue\n", "has @param []"),
                              ("[in]", "lacks [in]"), ("NULL: the default queue", "says nothing"),
                              (" * @returns MP_STATUS_OK\n", "lacks @returns"), ("MP_STATUS_OK", "names no status"),
                              (" * @threads B\n", "lacks @threads"), (" * @since 0.1", "lacks @since"),
                              (" Enqueues.", "takes a queue"), ("Does a thing. Enqueues.", "does not begin")]:
            with self.subTest(part=part):
                self.assertIn(part, COMPLETE)
                self.assertTrue(any(message in error for error in self.errors(COMPLETE.replace(part, ""))))
        self.assertTrue(any("no comment" in error for error in self.errors(COMPLETE[COMPLETE.index("MP_API"):])))
        self.assertTrue(any("no status" in error for error in self.errors(COMPLETE.replace("_OK", "_NONE"))))
        self.assertTrue(any("cannot be written" in error for error in
                            self.errors(COMPLETE.replace("[in]", "[out]").replace("mp_queue*", "const mp_queue*"))))


if __name__ == "__main__":
    unittest.main()
