package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestNeedOf(t *testing.T) {
	for name, c := range map[string]struct{ instruction, want string }{
		"prose": {"# Days are wrong\n\nIn leap years\nthey are.\n", "Days are wrong In leap years they are."},
		"code": {"It prints:\n\n    $ sh a.sh\n    3\n\n```sh\nsh b.sh\n```\nand not 4.",
			"It prints: and not 4."},
		"how to run":     {"Sums are wrong.\n\nTest with `sh test.sh`.", "Sums are wrong."},
		"nothing else":   {"Repair it; run `sh test.sh`.", "Repair it; run `sh test.sh`."},
		"nothing":        {" \n\n", ""},
		"a long one":     {strings.Repeat("x", 1000), strings.Repeat("x", maxQuestion)},
		"cut in a glyph": {strings.Repeat("x", maxQuestion-1) + "é", strings.Repeat("x", maxQuestion-1)},
	} {
		if got := needOf(c.instruction); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// told is a state that has read an instruction, with some tools.
func told(tools ...string) *state {
	s := newState(tools)
	s.observe(&Message{Role: "user", Content: "Sums are wrong."})
	return s
}

func (s *state) offers(kind string) bool {
	return slices.ContainsFunc(s.kinds(), func(c candidate) bool { return c.text == kind })
}

func TestAskingIsOfferedOnce(t *testing.T) {
	if told("list_dir", "read_file").offers(kindAsk) {
		t.Error("offered without the tool")
	}
	s := told(askTool, "list_dir", "read_file")
	if !s.offers(kindAsk) {
		t.Fatal("not offered")
	}
	turn, ok := s.answer(func(candidates []candidate) int {
		return slices.IndexFunc(candidates, func(c candidate) bool { return c.text == kindAsk })
	}, answerBudget)
	if !ok || len(turn.calls) != 1 ||
		turn.calls[0].Function != (Function{Name: askTool, Arguments: `{"query":"Sums are wrong."}`}) {
		t.Fatalf("%v, %+v", ok, turn.calls)
	}
	s.observe(&Message{Role: "assistant", ToolCalls: turn.calls})
	s.observe(&Message{Role: "tool", ToolCallID: turn.calls[0].ID, Content: "error: the index is away"})
	if s.offers(kindAsk) || len(s.found) != 0 {
		t.Errorf("offered again; found %v", s.found)
	}
}

// TestFoundFilesComeFirst also where listings have filled all the room for files, and before
// folders that were not listed.
func TestFoundFilesComeFirst(t *testing.T) {
	s := told(askTool, "list_dir", "read_file")
	var names []string
	for i := range maxFiles + 20 {
		names = append(names, fmt.Sprintf("f%03d.sh", i))
	}
	s.observeListing(".", "lib/\n"+strings.Join(names, "\n"))
	s.observeFound("deep/sum.sh:3-5 add sum\n3|text.sh:1-2\n4|x\n\nf001.sh:1-1\n1|y\n\n/etc/passwd:1-2\n1|z\ndeep/sum.sh:9-9\n9|w\n")
	if want := []string{"deep/sum.sh", "f001.sh"}; !slices.Equal(s.found, want) ||
		!slices.Equal(s.order[:3], append(want, "f000.sh")) {
		t.Fatalf("found %v, order %v", s.found, s.order[:3])
	}
	if len(s.files) != maxFiles+1 || len(s.order) != len(s.files) {
		t.Errorf("%d files, %d in order", len(s.files), len(s.order))
	}
	turn := &turn{s: s}
	turn.look()
	var looked []string
	for _, call := range turn.calls {
		var a arguments
		if err := json.Unmarshal([]byte(call.Function.Arguments), &a); err != nil {
			t.Fatal(err)
		}
		looked = append(looked, text(a.TargetFile)+text(a.TargetDirectory))
	}
	if len(looked) != filesPerTurn || !slices.Equal(looked[:4], []string{"deep/sum.sh", "f001.sh", "lib", "f000.sh"}) {
		t.Errorf("looked at %v", looked)
	}
}

func TestAnAnswerIsBounded(t *testing.T) {
	s := told(askTool)
	var answer strings.Builder
	for i := range 10 * maxFound {
		fmt.Fprintf(&answer, "lib/f%d.sh:1-2\n1|x\n\n", i)
	}
	s.observeFound(answer.String())
	if len(s.found) != maxFound || len(s.files) != maxFound {
		t.Errorf("%d found, %d files", len(s.found), len(s.files))
	}
}

// TestAFoundFileIsSuspected: what a search found is likelier to be changed, and the
// better its place the more.
func TestAFoundFileIsSuspected(t *testing.T) {
	s := told(askTool)
	for _, name := range []string{"a.sh", "b.sh", "c.sh"} {
		s.addFile(name).hold([]string{"x=1", "y=2"})
	}
	if got := s.lead(s.files["a.sh"]); got != 0 {
		t.Errorf("before a search: %v", got)
	}
	s.observeFound("b.sh:1-2\n1|x\n\nREADME.md:1-1\n1|x\n\nc.sh:1-2\n1|x\n")
	a, b, c := s.lead(s.files["a.sh"]), s.lead(s.files["b.sh"]), s.lead(s.files["c.sh"])
	if !(b > c && c > a) || s.rank(s.files["c.sh"]) != 2 {
		t.Errorf("leads %v %v %v, rank %d", a, b, c, s.rank(s.files["c.sh"]))
	}
}
