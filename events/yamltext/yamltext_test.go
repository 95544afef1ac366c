package yamltext

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// laughs is the well-known bomb: each line repeats the one before nine times.
func laughs(lines int, list func(alias string) string) string {
	text := "a0: &a0 [lol, lol, lol]\n"
	for i := 1; i <= lines; i++ {
		text += fmt.Sprintf("a%d: &a%d %s\n", i, i, list(fmt.Sprintf("*a%d", i-1)))
	}
	return text
}

// TestBombs: a text that stands for much more than it is, or nests without end, is
// refused before it takes memory.
func TestBombs(t *testing.T) {
	inFlow := func(alias string) string { return "[" + strings.Repeat(alias+", ", 8) + alias + "]" }
	inMap := func(alias string) string {
		text := ""
		for i := range 9 {
			text += fmt.Sprintf("\n  k%d: %s", i, alias)
		}
		return text
	}
	merged := func(alias string) string { return "\n  <<: " + alias + "\n  x: " + alias + "\n  y: " + alias }
	for name, text := range map[string]string{
		"lists":         laughs(9, inFlow),
		"mappings":      laughs(9, inMap),
		"merges":        strings.Replace(laughs(20, merged), "[lol, lol, lol]", "{a: 1}", 1),
		"one long text": "a: &a " + strings.Repeat("x", 100000) + "\nb: [" + strings.Repeat("*a, ", 100) + "*a]\n",
		"the bomb alone": "- &a [x, x, x, x, x, x, x, x]\n" +
			strings.Repeat("- &a [*a, *a, *a, *a, *a, *a, *a, *a]\n", 12),
		"deep flow lists":    strings.Repeat("[", 500000),
		"deep flow maps":     strings.Repeat("{a: ", 200000),
		"deep block lists":   strings.Repeat("- ", 400000) + "x",
		"deep keys":          strings.Repeat("? ", 400000) + "x",
		"many anchors":       strings.Repeat("&a ", 300000) + "x",
		"many tags":          strings.Repeat("!a ", 300000) + "x",
		"deep block maps":    staircase(1000),
		"much":               strings.Repeat("x", MaxBytes+1),
		"many values":        "a: [" + strings.Repeat("1,", 300000) + "1]",
		"an alias to itself": "a: &a [*a, *a]\nb: &b {x: *b, y: *a}\n" + laughs(9, inFlow),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			var v any
			err := Unmarshal([]byte(text), &v)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrTooMuch) {
				t.Errorf("it is read: %v", err)
			}
			if taken := (after.TotalAlloc - before.TotalAlloc) >> 20; taken > 600 {
				t.Errorf("%d bytes took %d MiB", len(text), taken)
			}
			t.Logf("%d bytes: %s, %d MiB", len(text), time.Since(began), (after.TotalAlloc-before.TotalAlloc)>>20)
		})
	}
}

func staircase(steps int) string {
	var text strings.Builder
	for i := range steps {
		text.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return text.String()
}

// TestAliases: what people write is read as before.
func TestAliases(t *testing.T) {
	const text = "base: &base {turns: 8, tokens: 100}\nfeeds:\n- &one {name: a, <<: *base}\n- *one\nlimits:\n  <<: *base\n  turns: 9\n"
	var got, want map[string]any
	if err := Unmarshal([]byte(text), &got, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(got) != 3 {
		t.Errorf("%v, want %v", got, want)
	}
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	if err := Unmarshal([]byte(deep+"\n"), new(any)); err != nil {
		t.Errorf("%d lists inside of one another: %v", maxDepth, err)
	}
	long := "tasks:\n" + strings.Repeat("- {name: task, weight: 1}\n", 10000)
	if err := Unmarshal([]byte(long), new(any)); err != nil {
		t.Errorf("ten thousand entries: %v", err)
	}
}

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run.yaml")
	if err := os.WriteFile(file, []byte(strings.Repeat("#", MaxBytes+1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(file); !errors.Is(err, ErrTooMuch) {
		t.Errorf("a large file: %v", err)
	}
	if _, err := ReadFile("/dev/zero"); !errors.Is(err, ErrTooMuch) {
		t.Errorf("/dev/zero: %v", err)
	}
	if _, err := ReadFile(dir); err == nil {
		t.Error("a folder is read")
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add("a: &a [1]\nb: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		var v any
		_ = Unmarshal([]byte(text), &v)
	})
}
