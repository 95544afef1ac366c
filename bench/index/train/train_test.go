package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/bench/index/quality"
	"github.com/rondo-rl/rondo/index/embed/table"
)

// TestNothingIsLearntThatIsMeasured collects from the standard library itself, as if a
// source were a copy of it.
func TestNothingIsLearntThatIsMeasured(t *testing.T) {
	known, err := measured(t.Context(), quality.Go)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, err := quality.GoRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	corpus := table.Corpus{Examples: map[string]int{}}
	c := collector{known: known, corpus: &corpus, content: sha256.New()}
	for _, name := range []string{"strings/strings.go", "net/http/server.go", "sort/sort.go"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		c.file(origin{language: "go"}, name, content)
		// formatted anew, and with the receivers renamed
		copied := bytes.ReplaceAll(content, []byte("\t"), []byte("  "))
		c.file(origin{language: "go"}, "forked/"+name, bytes.ReplaceAll(copied, []byte("(s *"), []byte("(self *")))
	}
	if len(c.examples) != 0 || corpus.Withheld < 100 {
		t.Errorf("%d examples of what is measured with, %d functions withheld", len(c.examples), corpus.Withheld)
	}
	other := "package x\n\n// Frobnicate turns every knob of the machine.\nfunc Frobnicate(m *Machine) {\n\tfor _, knob := range m.knobs {\n\t\tknob.turn()\n\t}\n}\n"
	c.file(origin{language: "go"}, "other.go", []byte(other))
	if len(c.examples) != 1 || c.examples[0].question != "turns every knob of the machine." {
		t.Errorf("examples of another file: %+v", c.examples)
	}
}

// TestListHasNothingOfTheStandardLibrary: modules that Go's own tree has copies of.
func TestListHasNothingOfTheStandardLibrary(t *testing.T) {
	origins, err := readList(corpusList)
	if err != nil || len(origins) < 100 {
		t.Fatal(len(origins), err)
	}
	root, err := quality.GoRoot(t.Context())
	if err != nil {
		t.Skip(err)
	}
	vendored := 0
	for _, name := range []string{"vendor/modules.txt", "cmd/vendor/modules.txt"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Skip(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "#" {
				continue
			}
			vendored++
			for _, o := range origins {
				if o.language == "go" && (o.name == fields[1] || strings.HasPrefix(o.name, "golang.org/x/")) {
					t.Errorf("the list has %s, which is in %s", o.name, name)
				}
			}
		}
	}
	if vendored == 0 {
		t.Error("no module was looked at")
	}
	for _, o := range origins {
		if !slices.Contains([]string{"MIT", "BSD", "ISC", "Apache-2.0"}, o.licence) {
			t.Errorf("%s has the licence %s", o.name, o.licence)
		}
	}
}

// TestTableIsOfTheList: who changes the list trains anew.
func TestTableIsOfTheList(t *testing.T) {
	file, err := os.ReadFile("../../../index/embed/static.table")
	if err != nil {
		t.Fatal(err)
	}
	read, err := table.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	if read.Trained.List != digest(corpusList) {
		t.Error("the table was trained on another list: run `task train-embedder`")
	}
	if read.Trained.Withheld == 0 || read.Trained.Seed != seed {
		t.Errorf("trained on %+v", read.Trained)
	}
}

func TestReadListRefuses(t *testing.T) {
	for _, line := range []string{"rust a@1 MIT", "go a@1", "go a@1 MIT more"} {
		if _, err := readList([]byte("# list\n\n" + line)); err == nil || !strings.Contains(err.Error(), "line 3") {
			t.Errorf("%q: %v", line, err)
		}
	}
	if _, err := findPackage(origin{name: "none", version: "1"}, []string{t.TempDir()}); err == nil {
		t.Error("a package that is not there")
	}
}

func TestRemarks(t *testing.T) {
	got := remarks("// not indented\nfunc f() {\n\t// Open the file again. It may be gone.\n\t// Then read all of it.\n\tf, err := open()\n\tread(f)\n\n\tother()\n" +
		"\t// too short\n\ta()\n\tb()\n\t// one line of code below it\n\tc()\n}\n    # close every file of them\n    for f in files:\n        f.close()\nend()")
	want := []remark{{"Open the file again", "\tf, err := open()\n\tread(f)"},
		{"close every file of them", "    for f in files:\n        f.close()"}}
	if !slices.Equal(got, want) {
		t.Errorf("remarks %q", got)
	}
}

// TestLearn learns a made-up language: a question's word goes with the text's
// word of the same number.
func TestLearn(t *testing.T) {
	var pairs []pair
	bagOf := func(list ...string) (out []table.Weighted) {
		for _, w := range list {
			out = append(out, table.Weighted{Word: w, Weight: table.One})
		}
		return out
	}
	for i := range 5 * batchSize {
		pairs = append(pairs, pair{bagOf(fmt.Sprint("q", i%100)),
			bagOf(fmt.Sprint("t", i%100), fmt.Sprint("noise", i%7)), fmt.Sprint(i % 11)})
	}
	v := choose(pairs, 2000)
	built := learn(pairs, v).table(v)
	right := 0
	for i := range 100 {
		best, at := float32(-1), 0
		q := built.Embed(fmt.Sprint("q", i))
		for j := range 100 {
			if x := dot(q, built.Embed(fmt.Sprint("t", j))); x > best {
				best, at = x, j
			}
		}
		if at == i {
			right++
		}
	}
	if right < 95 {
		t.Errorf("of 100 questions %d are nearest to their text", right)
	}
	few := pairs[:batchSize]
	if !slices.Equal(learn(few, v).rows, learn(few, v).rows) {
		t.Error("learning again gives other rows")
	}
}

// TestGradient compares the derivatives with what a small move does to the loss.
func TestGradient(t *testing.T) {
	const d = 4
	random := rand.New(rand.NewPCG(3, 3))
	m := newModel(6, d, random)
	bags := func() (list []bag) {
		for range 3 {
			list = append(list, bag{[]int32{random.Int32N(6), random.Int32N(6)}, []float32{1, 0.5}})
		}
		return list
	}
	questions, texts := bags(), bags()
	loss := func() float64 {
		copied := *m
		copied.rows, copied.squares = slices.Clone(m.rows), slices.Clone(m.squares)
		q, x := copied.forward(questions), copied.forward(texts)
		sum := 0.0
		for i := range 3 {
			row, column := 0.0, 0.0
			for j := range 3 {
				row += math.Exp(float64(2 * dot(q.vectors[i*d:][:d], x.vectors[j*d:][:d])))
				column += math.Exp(float64(2 * dot(q.vectors[j*d:][:d], x.vectors[i*d:][:d])))
			}
			sum += (math.Log(row)+math.Log(column))/2 - float64(2*dot(q.vectors[i*d:][:d], x.vectors[i*d:][:d]))
		}
		return sum / 3
	}
	before := slices.Clone(m.rows)
	m.step(questions, texts, 2, 0) // leaves its gradients
	at := map[int32]int{}
	for i, row := range m.touched {
		at[row] = i
	}
	for i := range before {
		row := int32(i / d)
		want := float32(0)
		if place, ok := at[row]; ok {
			want = m.gradient[place*d+i%d]
		}
		const move = 1e-2
		m.rows[i] = before[i] + move
		up := loss()
		m.rows[i] = before[i] - move
		down := loss()
		m.rows[i] = before[i]
		if got := float32((up - down) / (2 * move)); math.Abs(float64(got-want)) > 2e-3 {
			t.Errorf("row %d, dimension %d: the gradient is %v, a small move says %v", row, i%d, want, got)
		}
	}
}

func TestExp(t *testing.T) {
	for x := float32(0); x > -79; x -= 0.37 {
		if got, want := float64(exp(x)), math.Exp(float64(x)); math.Abs(got-want) > 1e-5*want {
			t.Errorf("exp(%v) is %v, want %v", x, got, want)
		}
	}
	if exp(-1000) != 0 {
		t.Error("exp of a small number is not 0")
	}
}
