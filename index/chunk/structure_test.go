package chunk

import (
	"fmt"
	"strings"
	"testing"
)

// body is n lines that make a declaration too large to be joined to the next.
func body(indent, line string, n int) string { return strings.Repeat(indent+line+"\n", n) }

// show gives the symbols and line ranges of a file's chunks.
func show(t *testing.T, path, content string) string {
	t.Helper()
	var list []string
	for _, c := range check(t, path, []byte(content)) {
		list = append(list, fmt.Sprintf("%d-%d %s", c.FirstLine, c.LastLine, c.Symbols))
	}
	return strings.Join(list, "\n")
}

func TestStructure(t *testing.T) {
	code := func(indent string) string { return body(indent, "x = compute(x, 12345678)", 40) }
	for _, c := range []struct{ why, path, content, want string }{
		{"declarations with their comments", "a.go",
			"package a\n\nimport \"fmt\"\n\n// A does\n// this.\nfunc A() {\n" + code("\t") +
				"}\n\n// B is a method.\nfunc (b *T[K]) B() {\n" + code("\t") + "}\n",
			"1-48 A\n50-92 T.B"},
		{"small declarations together", "a.go", "package a\n\nconst X = 1\n\nvar y int\n\nfunc f() {}\n\nfunc g() {}\n",
			"1-9 X, y, f, g"},
		{"a large function between statements", "a.go",
			"package a\n\nfunc F() {\n\tif x {\n" + code("\t\t") + "\t}\n\t// a loop\n\tfor {\n" + code("\t\t") +
				"\t}\n\tfor {\n" + code("\t\t") + "\t}\n\tfor {\n" + code("\t\t") + "\t}\n}\n",
			"1-45 F\n46-88 F\n89-130 F\n131-173 F"},
		{"no Go", "a.go", "package a\n\nfunc F( {\n" + code("\t") + "}\n\n// G it is.\nfunc (t T) G() {\n" +
			code("\t") + "}\n", "1-46 F\n47-88 G"},
		{"//line does not move anything", "a.go", "package a\n\n//line other.go:900\nfunc F() {\n" + code("\t") + "}\n",
			"1-45 F"},
		{"Python", "a.py",
			"import os\n\n@cached\ndef first(x):\n    '''\n\tdef not_this():\n    '''\n" + code("    ") +
				"\nclass C(Base):\n    y = [\n  1,\n]\n    def second(self):\n" + code("        ") +
				"    # about third\n    @property\n    async def third(self):\n" + code("        ") +
				"    def fourth(self):\n" + code("        ") + "    def fifth(self):\n" + code("        "),
			"1-47 first\n49-93 C\n94-136 C.third\n137-177 C.fourth\n178-218 C.fifth"},
		{"JavaScript", "a.ts",
			"import x from 'y'\n\n/** doc */\nexport async function first(a) {\n" + code("  ") +
				"}\nconst second = async (b) => {\n  const re = /[/}{`]/g, s = `}}}${f({a: `}`})}}`;\n" + code("  ") +
				"};\nexport default class C extends D {\n" +
				"  @dec()\n  method(a) {\n" + code("    ") + "  }\n  get other() {\n" + code("    ") +
				"  }\n  last() {\n" + code("    ") + "  }\n}\n",
			"1-45 first\n46-88 second\n89-132 C\n133-174 C.other\n175-217 C.last"},
		{"Java", "A.java",
			"package a;\n\n@Annotated\npublic final class A {\n  @Override\n  public int first(int a) throws X {\n" +
				code("    ") + "  }\n  private static Map<K, V> second() {\n" + code("    ") +
				"  }\n  void third()\n  {\n    String s = \"\"\"\n}}}\n\"\"\";\n" + code("    ") + "  }\n}\n",
			"1-47 A\n48-89 A.second\n90-136 A.third"},
		{"C", "a.c",
			"#include <x.h>\n#define M(a) \\\n  do { \\\n  } while (0)\n\n/* doc\n * more */\nstatic int first(int a, int b)\n{\n" +
				code("\t") + "\tchar c = '{'; // {\n}\n\nstruct point {\n\tint x;\n" +
				body("\t", "int member_of_the_point; /* { */", 30) + "};\n",
			"1-51 first\n53-85 point"},
		{"C++", "a.cc", "namespace n {\nvoid C::method(int a) const {\n  auto s = R\"x(}}}\")x\";\n" + code("  ") +
			code("  ") + "}\nint other() {\n" + code("  ") + code("  ") + "}\n}\n",
			"1-84 n\n85-167 n.other"},
		{"Rust", "a.rs",
			"/* a /* nested */ { */\n#[derive(Debug)]\npub(crate) struct P<'a> {\n" +
				body("    ", "member: &'a str, // and one", 20) +
				"}\n\nimpl<T> Trait for P<'_> {\n    pub fn first(&self) -> char {\n        let c = '{'; let r = r#\"}\"}\"#; let l: &'static str = \"\\\"{\n}\";\n" +
				code("        ") + code("        ") + "    }\n    fn second() {\n" + code("        ") +
				code("        ") + "    }\n}\n",
			"1-24 P\n26-93 Trait for P<'_>\n94-110 Trait for P<'_>.first\n111-178 Trait for P<'_>.second\n179-193 Trait for P<'_>.second"},
		{"shell", "a.sh",
			"#!/bin/sh\nset -e\n\n# says\nfirst() {\n\tcat <<'EOF'\n}\nfunction no() {\nEOF\n" + code("\t") +
				"}\n\nfunction second {\n" + code("\t") + "}\n",
			"1-50 first\n52-93 second"},
		{"Markdown", "a.md",
			"# Title\n\nIntro.\n\n## First\n\n```sh\n# no heading\n```\n\n" +
				body("", "words and words and words", 40) + "\n## Second ##\n\n" +
				body("", "words and words and words", 40),
			"1-50 Title\n52-93 Title.Second"},
		{"text", "a.txt", body("", "one line of a text", 60) + "\n" + body("", "one line of a text", 60),
			"1-60 \n62-121 "},
	} {
		t.Run(c.why, func(t *testing.T) {
			if got := show(t, c.path, c.content); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

// A change in one function leaves the chunks of the others as they are: their
// vectors are found again.
func TestChangesStayLocal(t *testing.T) {
	file := func(changed int) string {
		var b strings.Builder
		b.WriteString("package a\n\n")
		for i := range 30 {
			line := "x = compute(x)"
			if i == changed {
				line = "x = changed(x, x)"
			}
			fmt.Fprintf(&b, "// F%d is one of many.\nfunc F%d(x int) int {\n%s\treturn x\n}\n\n", i,
				i, body("\t", line, 30))
		}
		return b.String()
	}
	before := map[string]bool{}
	for _, c := range check(t, "a.go", []byte(file(-1))) {
		before[c.Embedded()] = true
	}
	fresh := 0
	for _, c := range check(t, "a.go", []byte(file(17))) {
		if !before[c.Embedded()] {
			fresh++
		}
	}
	if fresh != 1 || len(before) < 30 {
		t.Errorf("%d of %d chunks are new after a change in one function", fresh, len(before))
	}
}

func TestLongLines(t *testing.T) {
	line := strings.Repeat("größe ", 2000)
	chunks := check(t, "a.txt", []byte(line+"\n"))
	if len(chunks) < 5 {
		t.Fatalf("%d chunks", len(chunks))
	}
	for _, c := range chunks[:len(chunks)-1] {
		if !strings.HasSuffix(c.Text, "größe") {
			t.Errorf("a cut within a word: …%q", c.Text[len(c.Text)-10:])
		}
	}
	check(t, "a.json", []byte(strings.Repeat("é", 10_000)))
	check(t, "a.json", []byte(strings.Repeat("\x80", 10_000)))
}
