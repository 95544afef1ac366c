package policy

import (
	"path"
	"regexp"
	"strings"
)

// command is a way to run tests that the conversation suggests.
type command struct {
	text   string
	source string // where it comes from: "told", "go", "make", "test", "script"
	slow   bool   // it compiles something first
}

const maxCommands = 6

var (
	inlineCode = regexp.MustCompile("`([^`\n]{2,120})`")
	codeBlock  = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	runnable   = regexp.MustCompile(`^(cd [\w./-]+ && )?((ba|da|k|z)?sh|go|make|python3?|node|perl|awk|cargo|npm|bats|\./\S+)( [^;&|<>$]*)?$`)
)

// commands lists the candidates: what the instruction names first, then what the listings suggest.
func (s *state) commands() []command {
	var found []command
	seen := map[string]bool{}
	compiled := s.compiled()
	add := func(text, source string) {
		text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "$ "))
		if text == "" || seen[text] || len(found) == maxCommands {
			return
		}
		seen[text] = true
		first, _, _ := strings.Cut(text, " ")
		found = append(found, command{text: text, source: source, slow: compiled || first == "go" || first == "make" ||
			first == "cargo" || first == "npm"})
	}
	for _, text := range s.told {
		add(text, "told")
	}
	s.eachFile(func(f *file) {
		base := path.Base(f.path)
		if base == "go.mod" || strings.HasSuffix(base, "_test.go") {
			add("go test ./...", "go")
		}
		if (base == "Makefile" || base == "makefile") && f.read && hasTarget(f.lines, "test") {
			add("make test", "make")
		}
	})
	s.eachFile(func(f *file) {
		if f.runsAsScript() && looksLikeTest(f.path) {
			add(f.interpreter()+" "+f.path, "test")
		}
	})
	s.eachFile(func(f *file) {
		if f.runsAsScript() && !looksLikeTest(f.path) {
			add(f.interpreter()+" "+f.path, "script")
		}
	})
	return found
}

// compiled tells whether what was listed has to be compiled before it runs,
// whatever the tests are called.
func (s *state) compiled() (yes bool) {
	s.eachFile(func(f *file) {
		switch path.Ext(f.path) {
		case ".go", ".rs", ".c", ".cc", ".cpp", ".java":
			yes = true
		}
	})
	return yes
}

// prior is the fixed part of a command's logit: what calls itself a test is likelier to be
// one than any other script.
func (c command) prior() float64 {
	switch {
	case looksLikeTest(strings.ReplaceAll(c.text, " ", "/")):
		return 3
	case c.source == "script":
		return -2
	}
	return 0
}

func hasTarget(lines []string, name string) bool {
	for _, line := range lines {
		if strings.HasPrefix(line, name+":") {
			return true
		}
	}
	return false
}

func (f *file) runsAsScript() bool {
	ext := path.Ext(f.path)
	return ext == ".sh" || ext == ".bash" || (ext == "" && f.language() == shell && strings.HasPrefix(f.lines[0], "#!"))
}

func (f *file) interpreter() string {
	if path.Ext(f.path) == ".bash" ||
		(f.read && len(f.lines) > 0 && strings.HasPrefix(f.lines[0], "#!") && strings.Contains(f.lines[0], "bash")) {
		return "bash"
	}
	return "sh"
}

// toldCommands finds what an instruction says can be run: code in backticks or fenced blocks that
// begins with a known program.
func toldCommands(text string) []string {
	var found []string
	add := func(line string) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		if runnable.MatchString(line) {
			found = append(found, line)
		}
	}
	for _, m := range inlineCode.FindAllStringSubmatch(text, -1) {
		add(m[1])
	}
	for _, m := range codeBlock.FindAllStringSubmatch(text, -1) {
		for line := range strings.SplitSeq(m[1], "\n") {
			add(line)
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "    ") {
			add(line)
		}
	}
	return found
}

// guarded is the command as the policy runs it: a mutated loop may never end,
// so every run is bounded.
func (c command) guarded() string {
	if after, ok := strings.CutPrefix(c.text, "go test"); ok {
		return "go test -vet=off -timeout 2s" + after
	}
	if strings.HasPrefix(c.text, "cd ") {
		return "timeout 10 sh -c '" + strings.ReplaceAll(c.text, "'", `'\''`) + "'"
	}
	if c.slow {
		return "timeout 20 " + c.text
	}
	return "timeout 2 " + c.text
}
