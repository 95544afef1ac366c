package verifier

import (
	"strings"
	"testing"
	"time"
)

func TestProtects(t *testing.T) {
	for _, c := range []struct {
		patterns, yes, no string
	}{
		{"", "conftest.py a/b/conftest.py x/__pycache__/m.cpython-311.pyc __pycache__ m.pyc .git/hooks .git/hooks/pre-commit .git/config a/.git/config site/x.pth a/pyproject.toml .git .git/commondir .git/info/attributes .git/worktrees/x/HEAD a/.git/modules .git/objects/info/alternates",
			"a.py .git/objects/ab/cd .git/refs/heads/main .git/index pytest.py src/_pytest/runner.py .git/HEAD conftest .github/config contest.py"},
		{"tests/**", "tests tests/a tests/deep/a", "a/tests testsuite test"},
		{"tests", "tests tests/a tests/deep/a", "a/tests testsuite"},
		{"**/tests/*.py", "tests/a.py x/tests/a.py x/y/tests/a.py tests/tests/a.py tests/x/tests/a.py",
			"tests/a.txt x/tests/y/a.py"},
		{"**/*_test.go", "a_test.go x/y/a_test.go", "a_test.go2 test.go"},
		{"a/**/z", "a/z a/b/z a/b/c/z a/z/q", "a b/a/z"},
		{"**", "anything at/all", ""},
		{"!**/conftest.py", "m.pyc", "conftest.py a/conftest.py"},
		{"tests/** !tests/data/**", "tests/a", "tests/data/a"},
		{"!tests/data/** tests/**", "tests/data/a", ""},
		{"", "evil.dist-info/entry_points.txt a/x.egg-info X.DIST-INFO/METADATA pytest.toml a/.pytest.toml",
			"pytest.tom dist-info/x"},
		{"+**/*.py", "conftest.py a.txt src/x.cfg evil-1.dist-info/METADATA .git/config",
			"a.py unittest/__init__.py src/a.py"},
		{"+src/** tests/** +setup.cfg", "tests/a.py a.py src/conftest.py pyproject.toml",
			"src/a.py src/data/x setup.cfg"},
		{"tests/** +tests/new.py +**/conftest.py", "tests/old.py conftest.py a.py", "tests/new.py"},
	} {
		protected := Protects(strings.Fields(c.patterns))
		for _, name := range strings.Fields(c.yes) {
			if !protected(name) {
				t.Errorf("%q does not protect %s", c.patterns, name)
			}
		}
		for _, name := range strings.Fields(c.no) {
			if protected(name) {
				t.Errorf("%q protects %s", c.patterns, name)
			}
		}
	}
	begin := time.Now()
	Protects([]string{strings.Repeat("**/a/", 80) + "b"})(strings.Repeat("a/", 2000) + "c")
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("a hostile pattern took %v", took)
	}
}

func TestCheckPatterns(t *testing.T) {
	for _, good := range []string{"tests/**", "!conftest.py", "a?/[bc]/*.py"} {
		if err := CheckPatterns([]string{good}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "!", "/tests", "../tests", "..", ".", "tests/", "a//b", "[",
		strings.Repeat("x", 501)} {
		if err := CheckPatterns([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if err := CheckPatterns(make([]string, 501)); err == nil {
		t.Error("501 patterns are taken")
	}
}
