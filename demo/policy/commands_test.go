package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestCommandsAreFoundInTheConversation(t *testing.T) {
	for _, c := range []struct {
		name, instruction string
		files             []string
		want              []string
	}{
		{"inline code", "Run `sh prove-it.sh` or `./ci all`, not `rm -rf x | sh`; the function `slug` is wrong.", nil,
			[]string{"sh prove-it.sh", "./ci all"}},
		{"fenced", "Like this:\n```sh\n$ make check\nok\n```\n", nil, []string{"make check"}},
		{"indented", "So:\n\n    $ bash run all\n    text\n", nil, []string{"bash run all"}},
		{"go files", "Fix it.", []string{"go.mod", "a.go", "a_test.go"}, []string{"go test ./..."}},
		{"scripts", "Fix it.", []string{"tool.sh", "tests/all.sh", "spec.bash"},
			[]string{"sh tests/all.sh", "bash spec.bash", "sh tool.sh"}},
		{"nothing", "Fix it.", []string{"a.txt", "b.c"}, nil},
		{"in a folder", "Use `cd src && sh test.sh`.", nil, []string{"cd src && sh test.sh"}},
	} {
		s := newState(nil)
		s.observe(&Message{Role: "user", Content: c.instruction})
		for _, name := range c.files {
			s.addFile(name)
		}
		var got []string
		for _, command := range s.commands() {
			got = append(got, command.text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCommandsAreBoundedInTime(t *testing.T) {
	for text, want := range map[string]string{
		"sh test.sh":      "timeout 2 sh test.sh",
		"go test ./...":   "go test -vet=off -timeout 2s ./...",
		"make test":       "timeout 20 make test",
		"cd a && sh b.sh": "timeout 10 sh -c 'cd a && sh b.sh'",
	} {
		first, _, _ := strings.Cut(text, " ")
		if got := (command{text: text, slow: first == "make"}).guarded(); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
