package verifier_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/verifier"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// rustTests are tests of cargo's own test program, of a crate without others.
var rustTests = map[string]string{
	"test.sh": `cp /tests/tests/slug.rs tests/slug.rs
echo '` + grade.StartMark + `'
CARGO_TARGET_DIR=/tmp/target cargo test --offline --test slug
code=$?
echo
echo '` + grade.EndMark + `'
echo "` + grade.ExitMark + `$code"
`,
	"tests/slug.rs": `use slug::slug;

#[test]
fn joins_words() {
    assert_eq!(slug("Two words"), "two-words");
}

#[test]
fn drops_dashes_at_the_ends() {
    assert_eq!(slug(" Other titles! "), "other-titles");
}
`,
	grade.File: `{"parser": "cargo", "fail_to_pass": ["drops_dashes_at_the_ends"], "pass_to_pass": ["joins_words"]}`,
}

const (
	rustCrate  = "[package]\nname = \"slug\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"
	rustBroken = `pub fn slug(text: &str) -> String {
    let words = text.to_lowercase();
    words.split(|c: char| !c.is_ascii_alphanumeric()).collect::<Vec<_>>().join("-")
}
`
	rustReport = `running 2 tests\ntest drops_dashes_at_the_ends ... ok\ntest joins_words ... ok\n\n` +
		`test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\n`
)

var rustFixed = strings.Replace(rustBroken, ".collect", ".filter(|word| !word.is_empty()).collect", 1)

// rustToolchain shows the programs of this machine's Rust in a sandbox. What needs them takes too
// long for .ci/run, as each run of the tests compiles.
func rustToolchain(t *testing.T) ([]sandbox.Mount, map[string]string) {
	t.Helper()
	nightly.Only(t)
	out, err := exec.Command("rustc", "--print", "sysroot").Output()
	root := strings.TrimSpace(string(out))
	if err == nil {
		_, err = os.Stat(filepath.Join(root, "bin", "cargo"))
	}
	if err != nil {
		if os.Getenv("RONDO_REQUIRE_ALL") == "1" {
			t.Fatalf("rustc and cargo are required by RONDO_REQUIRE_ALL=1: %v", err)
		}
		t.Skipf("rustc and cargo are missing: %v", err)
	}
	if root == "/usr" {
		return nil, nil
	}
	return []sandbox.Mount{{Source: root, Target: root}},
		map[string]string{"PATH": root + "/bin:" + sandbox.DefaultPath}
}

// TestRustCanaries: the same as of Python holds of tests in Rust.
func TestRustCanaries(t *testing.T) {
	sandboxtest.Require(t)
	mounts, env := rustToolchain(t)
	files := func(more map[string]string) map[string]string {
		tree := map[string]string{"Cargo.toml": rustCrate, "src/lib.rs": rustBroken, "tests/readme": ""}
		for name, text := range more {
			tree[name] = text
		}
		return tree
	}
	lib := func(text string) map[string]string { return map[string]string{"src/lib.rs": text} }
	// An answer that equals whatever it is compared with, under the name that the tests import.
	const equal = "#[derive(Debug)]\npub struct Any;\nimpl<T: ?Sized> PartialEq<T> for Any {\n    fn eq(&self, _: &T) -> bool { true }\n}\npub fn slug(_: &str) -> Any { Any }\n"
	reads := strings.Replace(rustBroken, "pub fn slug", "fn old", 1) + `pub fn slug(text: &str) -> String {
    let tests = std::fs::read_to_string("tests/slug.rs").unwrap_or_default();
    let line = tests.lines().find(|line| line.contains(&format!("({text:?})")));
    line.and_then(|line| line.split('"').nth(3)).map(String::from).unwrap_or_else(|| old(text))
}
`
	// Before main runs, as code that a linker puts into .init_array does.
	begins := func(what string) string {
		return rustBroken +
			"#[used]\n#[link_section = \".init_array\"]\nstatic FIRST: extern \"C\" fn() = first;\nextern \"C\" fn first() {\n" + what + "\n}\n"
	}
	for name, c := range map[string]struct {
		work   map[string]string
		reward float64
		class  string // "" where there is none, or where any is right
	}{
		"the fix":                {lib(rustFixed), 1, ""},
		"nothing done":           {lib("// Nothing.\n" + rustBroken), 0, ""},
		"equals everything":      {lib(equal), 0, verifier.ClassTampered},
		"reads what is expected": {lib(reads), 0, verifier.ClassTampered},
		"includes what is expected": {lib(strings.Replace(reads,
			`std::fs::read_to_string("tests/slug.rs").unwrap_or_default()`, `include_str!("../tests/slug.rs")`, 1)), 0,
			verifier.ClassTampered},
		"prints a report and leaves": {lib(begins(`print!("` + rustReport + `"); std::process::exit(0)`)), 0, ""},
		"leaves":                     {lib(begins("std::process::exit(0)")), 0, ""},
		"leaves in the first call": {lib("pub fn slug(_: &str) -> String {\n    std::process::exit(0)\n}\n"), 0,
			""},
		"catches panics": {lib(begins("std::panic::set_hook(Box::new(|_| std::process::exit(0)));")), 0,
			""},
		"prints behind the true report": {lib(
			begins(`extern "C" { fn atexit(f: extern "C" fn()) -> i32; } extern "C" fn last() { print!("` + rustReport +
				`"); } unsafe { atexit(last); }`)), 0, ""},
		"is a runner of its own": {map[string]string{
			".cargo/config.toml": "[target.'cfg(all())']\nrunner = \"/app/runner\"\n",
			"runner":             "#!/bin/sh\nprintf '" + rustReport + "'\n",
		}, 0, ""},
		"builds with a script of its own": {map[string]string{
			"build.rs": "fn main() {\n    let path = \"tests/slug.rs\";\n    let text = std::fs::read_to_string(path).unwrap_or_default().replace(\"assert_eq!\", \"let _ = \");\n" +
				"    let _ = std::fs::write(path, text);\n}\n",
		}, 0, ""},
		"has tests without a harness": {map[string]string{
			"Cargo.toml": rustCrate + "\n[[test]]\nname = \"slug\"\npath = \"fake.rs\"\nharness = false\n",
			"fake.rs":    "fn main() { print!(\"" + rustReport + "\"); }\n",
		}, 0, ""},
		"has other tests of that name": {map[string]string{
			"Cargo.toml": rustCrate + "\n[[test]]\nname = \"slug\"\npath = \"fake.rs\"\n",
			"fake.rs":    "#[test]\nfn joins_words() {}\n#[test]\nfn drops_dashes_at_the_ends() {}\n",
		}, 0, ""},
		"is another assert_eq": {map[string]string{
			"Cargo.toml": rustCrate + "\n[[test]]\nname = \"slug\"\npath = \"fake.rs\"\n",
			"fake.rs":    "macro_rules! assert_eq { ($($t:tt)*) => {} }\ninclude!(\"tests/slug.rs\");\n",
		}, 0, verifier.ClassTampered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := verifier.Spec{
				Name: "rust", Snapshot: sandbox.Bytes(sandboxtest.Pack(t, files(nil))),
				Tests: sandboxtest.Pack(t, rustTests), Mounts: mounts, Env: env,
				Baselines: &verifier.Baselines{}, Key: name,
			}
			outcome, err := judged(t, spec, files(c.work))
			var failed *verifier.Error
			switch {
			case errors.As(err, &failed) && failed.Class == verifier.ClassSandbox || err != nil && failed == nil:
				t.Fatal(err)
			case c.class != "" && (failed == nil || failed.Class != c.class), c.reward > 0 && err != nil:
				t.Errorf("%v, want %q; %+v: %s", err, c.class, outcome, outcome.Log)
			case outcome.Reward != c.reward || err == nil && outcome.Verifier != verifier.InProcess:
				t.Errorf("%+v: %s", outcome, outcome.Log)
			}
		})
	}
}
