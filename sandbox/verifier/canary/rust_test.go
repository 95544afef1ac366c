package canary

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestRust: of a file in Rust, the literals of assertions that a passing test has come to.
func TestRust(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"numbers": {`assert_eq!(f(1), 25); assert_eq!(-3_i64, f(2)); assert_eq!(f(3), 1.5f32, "message {}", 7);`,
			"25 3_i64 1.5f32"},
		"strings": {`assert_eq!(f("x"), "two"); assert_eq!(f(), "é".to_string()); assert_eq!(f(), String::from("a\n")); assert_eq!(f(), b"b"); assert_eq!(f(), 'c');`,
			`"two" "a\n" b"b" 'c'`},
		"wrapped":             {`assert_eq!(f(), Some(vec![(1, true)])); assert_eq!(f(), Ok(&[2])); assert_eq!(f(), Err("no".into_string()));`, "1 true 2"},
		"many lines":          {"assert_eq!(\nf::<u8>(),\n[\n1,\n2,\n],\n);", "1 2"},
		"behind blocks":       {"for x in y { z(); }\nassert_eq!(f(), 1);\nlet a: &'static str = \"'\"; let b = '\\''; assert_eq!(f(), 2);", "1 2"},
		"no literal":          {`assert_eq!(f(), g()); assert_eq!(f(), g(1)); assert_eq!(f(), [1, 2][0]); assert_eq!(f(), 1 + 1); assert_eq!(f(), r"x"); assert_eq!(f(), 0xff);`, ""},
		"two literals":        {`assert_eq!(1, 1);`, ""},
		"other assertions":    {`assert_ne!(f(), 1); assert!(f() == 2); x = assert_eq!(f(), 3);`, ""},
		"blocks":              {"if x { assert_eq!(f(), 1); }\nloop { assert_eq!(f(), 2); }\nlet c = || { assert_eq!(f(), 3); };", ""},
		"behind a return":     {"assert_eq!(f(), 1); if x { return; } assert_eq!(f(), 2);", "1"},
		"behind a macro":      {"println!(\"x\"); assert_eq!(f(), 1); skip_unless!(x); assert_eq!(f(), 2);", "1"},
		"an attribute":        {"#[cfg(x)] assert_eq!(f(), 1);", ""},
		"comments, strings":   {"// assert_eq!(f(), 1);\n/* assert_eq!(f(), 2); */ let x = r#\"\nassert_eq!(f(), 3);\"#;", ""},
		"what it cannot read": {"assert_eq!(f(), 1); /* /* */ */", ""},
	} {
		t.Run(name, func(t *testing.T) {
			source := "use a::b;\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[tokio::test(flavor = \"x\")]\n    async fn works() -> Result<(), E> {\n" +
				c.body + "\n    }\n}\n"
			lines := strings.Split(source, "\n")
			var got []string
			for _, s := range rust("crates/a/src/b/mod.rs", source) {
				piece := lines[s.line][s.start:s.end]
				got = append(got, piece)
				if wrong := s.wrong(piece, rand.New(rand.NewPCG(1, 1))); wrong == piece ||
					len(wrong) != len(piece) && piece != "true" {
					t.Errorf("%s becomes %s", piece, wrong)
				}
				if !slices.Equal(s.named, []string{"b::tests::works"}) {
					t.Errorf("named %q", s.named)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestRustFunctions: only tests that pass if they come to their end, in
// files whose module is known.
func TestRustFunctions(t *testing.T) {
	const body = "{ assert_eq!(f(), 1); }"
	for source, want := range map[string]string{
		"#[test] fn a() " + body:                                   "a",
		"#[allow(x)]\n#[test]\npub fn a() " + body:                 "a",
		"#![allow(x)]\n#[test] fn a() " + body:                     "a",
		"fn a() " + body:                                           "",
		"#[test]\nfn x() {}\nfn a() " + body:                       "",
		"#[test] #[should_panic(expected = \"x\")] fn a() " + body: "",
		"#[test] #[ignore] fn a() " + body:                         "",
		"#[test] fn a(x: u8) " + body:                              "",
		"impl X { #[test] fn a() " + body + " }":                   "",
		"proptest! { #[test] fn a() " + body + " }":                "",
	} {
		got := ""
		for _, s := range rust("tests/it.rs", source) {
			got += s.named[0]
		}
		if got != want {
			t.Errorf("%s: %q", source, got)
		}
	}
	for name, want := range map[string]string{
		"tests/it.rs": "a", "tests/it/main.rs": "a", "src/lib.rs": "a", "src/main.rs": "a", "src/x.rs": "x::a",
		"crates/c/src/x/y.rs": "x::y::a",
		"tests/it/other.rs":   "", "src/bin/x.rs": "", "it.rs": "", "benches/x.rs": "",
	} {
		got := ""
		for _, s := range rust(name, "#[test] fn a() "+body) {
			got += s.named[0]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestWrongRust: a wrong number fits the type of the right one.
func TestWrongRust(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for piece, most := range map[string]string{"255": "254", "250u8": "255u8", "0": "5", "1": "0", "127_i8": "126_i8",
		"1.0": "1.5", "65530": "65535"} {
		for range 50 {
			if wrong := wrongRust(piece, random); wrong == piece || len(wrong) != len(piece) || wrong > most {
				t.Errorf("%s becomes %s", piece, wrong)
			}
		}
	}
}

// TestListersReadAnything: no file is too broken to be looked at.
func TestListersReadAnything(t *testing.T) {
	const source = "#[test]\nfn a() { assert_eq!(f('a', b'x', r#\"x\"#), Some(\"b\")); }\nit('a', async () => {\n expect(f(`${x}`)).toEqual([1, {'a': /x/}])\n})\n" +
		"def test_a():\n    \"\"\"Text.\"\"\"\n    assert f('''x''') == (1, \"b\")\nfunc TestA(t *testing.T) { if f() != 1 { t.Error() } }\n"
	for end, list := range listers {
		for i := range source {
			list("tests/a"+end, source[:i])
			list("tests/a"+end, source[i:])
		}
	}
}
